from dataclasses import replace

import pytest
from rules.advice_runs import gpu, only
from rules.made_up import made_up_facts, waiting, without_workers
from user_code.made_stacks import FETCHING, process, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import CostKind, Severity
from feedline.analysis.ledger.view import cpus
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.rules.loop.workers_hold_cpus import _check

#: Workers parse on 1.6 of two CPUs, for which the main thread waits; batches are always ready.
PARSING = {
    "maker": only(dataset=(5.0, 4.0, 0.0)),
    "used_cpus": 1.95,
    "effective_cpus": 2.0,
    "main_runqueue_share": 0.4,
    "stages": {"copy": 0.0},
}


def test_a_step_that_waits_for_the_cpus_of_its_workers_is_a_finding():
    facts = made_up_facts(**PARSING)
    finding = _check(facts)

    assert (finding.rule_id, finding.severity) == ("workers_hold_cpus", Severity.HIGH)
    assert finding.message == (
        "the main thread waits 40 % of the step for a CPU, beside workers that make samples"
    )
    assert finding.cost_s == pytest.approx(0.4 * facts.step.mean_s)
    assert [one.rule_id for one in diagnose(facts)] == ["workers_hold_cpus"]


def test_cheaper_samples_spare_no_more_than_their_share_of_the_cpu_time():
    facts = made_up_facts(**{**PARSING, "maker": only(dataset=(1.3, 6.0, 0.0))})
    finding = _check(facts)
    making = next(one.value for one in finding.evidence if one.id == "cpus_of_making")

    assert finding.cost_s == pytest.approx(facts.step.mean_s * making / 1.95)
    assert finding.cost_s < 0.3 * facts.step.mean_s


def test_it_names_the_function_that_takes_most_of_a_sample_with_its_share():
    """Its line alone, beside what all of the dataset's code takes, seemed to take that."""
    making = stack([*FETCHING, ("train.py", 20, "__getitem__"), ("train.py", 9, "parse")], 300)
    facts = replace(
        made_up_facts(**PARSING), code=SampledCode.of([training(), process("worker", making)])
    )

    assert _check(facts).place == "train.py:9"
    assert _check(facts).fix == (
        "Make parse() faster: it takes nearly all of the time to make a sample."
    )
    loads = stack([*FETCHING, ("train.py", 20, "__getitem__")], 100)
    code = SampledCode.of([training(), process("worker", making, loads)])
    assert " parse() faster: it takes 75 % of the time" in _check(replace(facts, code=code)).fix


@pytest.mark.parametrize(
    "facts",
    [
        made_up_facts(**{**PARSING, "main_runqueue_share": 0.14}),  # hardly waits
        made_up_facts(**{**PARSING, "used_cpus": 0.8, "others": 0.0}),  # CPUs are free
        made_up_facts(**{**PARSING, "maker": only(dataset=(0.5, 6.0, 0.0))}),  # others compute
        without_workers(**PARSING),
        waiting(90.0, **PARSING),  # the input is what it waits for
    ],
)
def test_it_is_silent_where_the_workers_do_not_slow_the_step(facts):
    assert _check(facts) is None


def test_what_the_gpu_computes_meanwhile_costs_nothing():
    facts = gpu(0.9, made_up_facts(**PARSING))

    assert _check(facts).cost_s == pytest.approx(0.1 * facts.step.mean_s)
    assert _check(gpu(0.98, made_up_facts(**PARSING))) is None


def test_what_the_gpu_computes_is_unknown_where_several_ranks_share_the_machine():
    facts = made_up_facts(
        **{**PARSING, "stages": {}}
    )  # it copies to a GPU, whose work was not recorded
    finding = _check(facts)

    assert (finding.severity, finding.cost_kind) == (Severity.LOW, CostKind.CAUSE_ONLY)


def test_helper_threads_of_the_workers_are_told_to_be_fewer():
    facts = made_up_facts(**PARSING, process_cpu_s=9e-3)
    finding = _check(facts)

    assert finding.fix.startswith("Run one thread per worker: call ") and not finding.place


def test_without_the_cpu_time_of_samples_nothing_is_said():
    facts = made_up_facts(**PARSING)
    unknown = replace(facts, throughput=replace(facts.throughput, samples_per_s=None))

    assert cpus.making_share_of_training(unknown) is None and _check(unknown) is None


def test_a_quota_that_stops_the_training_is_not_its_workers():
    facts = made_up_facts(**PARSING)
    quota = replace(facts.cpus, quota=2.0, affinity=8.0)

    assert _check(replace(facts, cpus=quota)) is None
