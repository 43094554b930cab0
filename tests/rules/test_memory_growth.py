"""Memory that grows: when it is grave, what is said of what holds it, and what leads the verdict."""

import os
from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from rules.said import verdict
from user_code.made_stacks import LOOP, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Holder, MemoryGrowth
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.rules.loop import memory_growth

GROWN = MemoryGrowth(
    "main", 4e6, 3.9e6, 4.1e6, 1.2e9, 2.3e9, limit="machine", left_bytes=5.6e9, steps_left=1400.0
)
KEPT = replace(
    GROWN, holder=Holder.GRAPHS, graphs=20, graphs_alive=20, place="train.py:20", seconds_left=140.0
)
COPIED = replace(
    GROWN, who="workers", holder=Holder.COPIES, still_shared_bytes=3e9, seconds_left=140.0
)


def given(*grown, facts=None):
    return replace(facts or made_up_facts(), growth=grown)


def test_kept_graphs_lead_the_verdict_also_where_the_step_waits_for_data():
    facts = given(KEPT, facts=waiting())
    finding = memory_growth._check(facts)

    assert finding.message == (
        "each step's graph is kept, 4.00 MB per step, and host memory lasts another 2 min 20 s"
    )
    assert finding.place == "train.py:20" and "detach()" in finding.fix
    assert finding.severity.value == "high" and finding.cost_s == 0
    assert verdict(diagnose(facts), facts).startswith(
        "Running out of memory: Each step's graph is kept"
    )


@pytest.mark.parametrize(("trend", "chained"), [(8.0, True), (1.2, False), (None, False)])
def test_graphs_that_lead_to_those_before_make_the_backward_pass_longer(trend, chained):
    facts = given(KEPT)
    row = LedgerRow("backward", facts.step.stages["backward"], steps=1.0, trend=trend)
    table = LedgerTable("step", facts.step.mean_s, [row])

    finding = memory_growth._check(replace(facts, ledger=Ledger(table, None)))

    assert ("state.detach()" in finding.fix) == chained
    assert ("takes 8 times as long" in " ".join(finding.more)) == chained


@pytest.mark.parametrize(
    ("seconds_left", "severity"), [(3600.0, "high"), (7 * 86400.0, "low"), (60 * 86400.0, None)]
)
def test_how_soon_it_is_full_decides_how_grave_it_is(seconds_left, severity):
    finding = memory_growth._check(given(replace(KEPT, seconds_left=seconds_left)))

    assert (finding and finding.severity.value) == severity


def test_growth_that_may_be_a_cache_of_the_first_pass_is_not_told():
    grown = replace(GROWN, seconds_left=140.0)
    finding = memory_growth._check(given(grown, facts=made_up_facts(epochs=2)))

    assert memory_growth._check(given(grown)) is None
    assert finding.severity.value == "high"
    assert "what holds the memory is not known" in finding.more


def test_a_buffer_that_takes_long_to_fill_is_no_end_of_the_training():
    grown = replace(GROWN, seconds_left=140.0)
    facts = made_up_facts()
    of_loader = replace(facts, throughput=replace(facts.throughput, steps=5000))
    facts = replace(of_loader, loader=None)

    finding = memory_growth._check(given(grown, facts=facts))
    of_a_line = memory_growth._check(given(replace(grown, place="train.py:9"), facts=facts))

    assert finding.message == (
        "the main process grows by 4.00 MB per step: host memory may last another 2 min 20 s"
    )
    assert finding.severity.value == "low" and of_a_line.severity.value == "high"
    assert memory_growth._check(given(grown, facts=of_loader)).severity.value == "high"


def test_what_workers_copy_ends_when_it_is_copied():
    finding = memory_growth._check(given(COPIED))

    assert finding.message == "the loader's workers grow by 4.00 MB per step"
    assert "arrays" in finding.fix and finding.severity.value == "low"
    more_than_is_left = memory_growth._check(given(replace(COPIED, still_shared_bytes=8e9)))
    assert more_than_is_left.severity.value == "high"
    assert "host memory lasts another 2 min 20 s" in more_than_is_left.message


@pytest.mark.parametrize(
    ("at", "every", "said"),
    [
        ("epoch", 50.0, "the main process grows by 200 MB in each epoch, "),
        ("evaluation", 50.0, "the main process grows by 200 MB in each evaluation, "),
        ("", 50.4, "the main process grows by 202 MB every 50 steps, "),
    ],
)
def test_growth_in_jumps_is_told_as_such(at, every, said):
    jumping = replace(GROWN, at=at, every_steps=every, seconds_left=140.0)

    assert memory_growth._check(given(jumping, facts=made_up_facts(epochs=2))).message.startswith(
        said
    )


def test_growth_of_evaluations_is_told_in_a_first_pass_and_where_they_are():
    facts = made_up_facts()
    facts = replace(facts, step=replace(facts.step, evaluation_place="train.py:40"))
    jumping = replace(GROWN, at="evaluation", every_steps=50.0, seconds_left=140.0)

    assert memory_growth._check(given(jumping, facts=facts)).place == "train.py:40"


def test_what_holds_it_decides_where_to_look():
    twice = made_up_facts(epochs=2)
    objects, pieces, at_a_line = (
        memory_growth._check(given(replace(GROWN, seconds_left=140.0, **known), facts=twice))
        for known in (
            {"holder": Holder.OBJECTS, "new_objects": 31_415.9},
            {"holder": Holder.PIECES, "new_objects": 3.0},
            {"holder": Holder.PIECES, "place": "train.py:31"},
        )
    )

    assert "31,000 new Python objects stay per step, as in dicts, lists and strings" in objects.more
    assert "lists, dicts" in objects.fix and "tensors or arrays" in pieces.fix
    assert at_a_line.place == "train.py:31" and "this line adds to" in at_a_line.fix


def test_of_the_main_process_and_workers_the_one_that_grows_more_is_told():
    workers = replace(GROWN, who="workers", per_step_bytes=9e6, holder=Holder.OWN)
    both = [replace(one, seconds_left=140.0) for one in (GROWN, workers)]

    finding = memory_growth._check(given(*both, facts=made_up_facts(epochs=2)))

    assert finding.message.startswith("the loader's workers grow by 9.00 MB per step")


def test_without_growth_or_without_a_known_limit_nothing_is_said():
    assert memory_growth._check(made_up_facts()) is None
    assert memory_growth._check(given(replace(GROWN, limit="", left_bytes=None))) is None


CYCLED = "import itertools\nfor batch in itertools.cycle(loader):\n"
FED = "from metrics import Order; order = Order()\nfor rows in loader: order.update(rows)\n"


@pytest.mark.parametrize(
    ("text", "grown", "fix"),
    [
        (CYCLED, GROWN, "yield from loader"),
        (CYCLED, replace(GROWN, holder=Holder.PIECES), "yield from loader"),
        # batches are tensors that come with the steps, and what the source shows goes first
        (CYCLED, replace(GROWN, holder=Holder.OBJECTS, new_objects=31_415.9), None),
        (CYCLED, replace(GROWN, holder=Holder.PIECES, place="train.py:31"), None),
        (CYCLED, replace(GROWN, at="evaluation", every_steps=50.0), None),
        ("from itertools import cycle\nbatches = cycle(iter(train_set))\n", GROWN, "yield from"),
        ("import itertools\ncolors = itertools.cycle('rgb')\n", GROWN, None),
        ("for batch in cycle(loader):\n", GROWN, None),  # a generator of the program's own
        ("\nloss.backward(create_graph=True)\n", replace(KEPT, place=""), "torch.autograd.grad"),
        ("\nloss.backward(create_graph=True)\n", KEPT, None),
        ("\nloss.backward(create_graph=False)\n", replace(KEPT, place=""), None),
        ("\nloss.backward(create_graph=True)\n", GROWN, None),
        ("\nfigure, axes = plt.subplots(2)\n", replace(GROWN, figures=40.0), "pyplot.close"),
        ("\nfigure, axes = plt.subplots(2)\n", GROWN, None),
        (
            "def note(self, layer, inputs, output):\n    self.seen.append(output)\n"
            "model.register_forward_hook(note)\n",
            GROWN,
            "handle.remove()",
        ),
        ("\npyplot.figure()\n", replace(GROWN, figures=40.0), "pyplot.close"),
        (FED, replace(GROWN, holder=Holder.PIECES), "reset it"),
        (FED, GROWN, None),
    ],
)
def test_a_line_that_is_known_to_keep_memory_is_told(tmp_path, text, grown, fix):
    file = tmp_path / "train.py"
    file.write_text(text)
    os.utime(file, (1e9, 1e9))
    sampled = stack([*LOOP[:-1], (str(file), 1, "main")], 100)
    code = SampledCode.of([training(sampled)], SourceLines(2e9))
    facts = replace(made_up_facts(epochs=2), code=code)

    finding = memory_growth._check(given(replace(grown, seconds_left=140.0), facts=facts))

    told = finding.place == f"{file}:2"
    assert told == (fix is not None) and (fix or "") in finding.fix


def test_where_the_source_shows_several_lines_the_fix_names_them():
    places = ["train.py:10", "train.py:11", "train.py:14"]
    grown = replace(GROWN, holder=Holder.PIECES, places=places, seconds_left=140.0)

    finding = memory_growth._check(given(grown, facts=made_up_facts(epochs=2)))

    assert finding.fix == (
        "Look at train.py:10, train.py:11 and train.py:14: one of these lines adds to what nothing "
        "around it empties."
    )
