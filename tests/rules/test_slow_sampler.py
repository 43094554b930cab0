from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, without_workers
from user_code.made_stacks import LOOP, PYTHON, TORCH, WAIT, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.rules.input.slow_sampler import _check


@pytest.mark.parametrize("made_up", [made_up_facts, without_workers])
def test_a_sampler_that_takes_long_is_named(made_up):
    finding = _check(made_up(stages={"sampler": 200.0}, settings={"sampler": "ByDistance"}))

    assert (finding.severity, finding.cost_s) == (Severity.HIGH, pytest.approx(0.2))
    assert (
        finding.message
        == "the sampler ByDistance takes 200 ms to draw the indices of each batch, in the main process"
    )


def test_it_is_told_first_where_it_takes_most():
    assert diagnose(made_up_facts(stages={"sampler": 60.0}))[0].rule_id == "slow_sampler"


def test_a_batch_sampler_of_the_programs_own_is_named_instead():
    facts = made_up_facts(
        stages={"sampler": 60.0}, settings={"sampler": "RandomSampler", "batch_sampler": "ByLength"}
    )

    assert _check(facts).message.startswith("the sampler ByLength takes")


def test_a_sampler_that_draws_as_fast_as_torchs_is_not():
    short = {"forward": 0.5, "backward": 0.5, "optimizer": 0.1, "other": 0.0, "copy": 0.0}

    assert _check(made_up_facts(stages=short | {"sampler": 0.3})) is None  # beginning a pass


def test_less_than_five_percent_of_the_step_is_not_spoken_of():
    assert _check(made_up_facts(stages={"sampler": 3.0})) is None


DRAWING = [
    *LOOP,
    *WAIT,
    (TORCH + "utils/data/dataloader.py", 740, "_next_index"),
    ("data.py", 42, "__iter__"),
]


def test_a_sampler_that_makes_samples_to_draw_them_is_told_so_at_its_own_line():
    settings = {"sampler": "ByLength", "sample_code": "Speech.__getitem__ (data.py:70)"}
    facts = made_up_facts(stages={"sampler": 200.0}, settings=settings)
    reading = [*DRAWING, ("data.py", 71, "__getitem__")]
    code = SampledCode.of([training(stack(reading, 250), stack(DRAWING, 50))])
    own = SampledCode.of([training(stack(reading, 50), stack(DRAWING, 250))])

    finding = _check(replace(facts, code=code))
    assert finding.place == "data.py:42"
    assert finding.fix.startswith("Compute what depends on the data, such as lengths")
    assert any("makes samples of the dataset" in sentence for sentence in finding.more)
    assert not _check(replace(facts, code=own)).fix.startswith("Compute what depends")


@pytest.mark.parametrize(("name", "place"), [("ByDistance", "data.py:42"), ("RandomSampler", "")])
def test_the_line_of_a_sampler_of_the_program_is_told(name, place):
    facts = made_up_facts(stages={"sampler": 200.0}, settings={"sampler": name})
    code = SampledCode.of([training(stack(DRAWING, 300))])

    assert _check(replace(facts, code=code)).place == place


def test_a_slow_call_in_the_sampler_comes_before_general_advice():
    copying = [*DRAWING, (PYTHON + "copy.py", 128, "deepcopy")]
    facts = made_up_facts(stages={"sampler": 200.0}, settings={"sampler": "ByDistance"})
    code = SampledCode.of([training(stack(copying, 300))])

    finding = _check(replace(facts, code=code))

    assert finding.fix.startswith("Copy only what changes")
    assert "copy.deepcopy" in finding.more[-1] and "order of an epoch" in finding.fix_more[0]
