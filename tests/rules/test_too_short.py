"""When there is no verdict, and when a verdict says how sure it is."""

from dataclasses import replace

import numpy as np
import pytest
from measure.made_up_records import MadeUp
from rules.made_up import made_up_facts, waiting
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.run_facts import failure_of
from feedline.analysis.measure.model import Certainty
from feedline.analysis.measure.noise import certainty, interval
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.rules.input import too_short
from feedline.profiler.events import Stage, batch_key
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank


@pytest.mark.parametrize(
    ("sure", "short"),
    [
        (Certainty(7, 0.35, 0.40), True),
        (Certainty(8, 0.35, 0.40), False),
        (Certainty(30, 0.04, 0.21), True),
        (Certainty(30, 0.06, 0.60), False),
        (Certainty(30, 0.00, 0.19), False),
    ],
)
def test_below_eight_steps_or_with_an_interval_from_not_at_all_to_highly_nothing_is_judged(
    sure, short
):
    facts = waiting(60.0, certainty=sure)

    assert (diagnose(facts)[0].rule_id == "too_short") is short
    assert ("Too short to judge" in verdict(diagnose(facts), facts)) is short


def test_a_verdict_of_a_share_that_may_be_below_the_gate_says_probably():
    unsure, sure = (
        waiting(60.0, certainty=Certainty(30, low, high))
        for low, high in ((0.04, 0.19), (0.35, 0.41))
    )

    assert verdict(diagnose(unsure), unsure).startswith(
        "Probably input-bound: Input takes 38 % of each step"
    )
    assert verdict(diagnose(sure), sure).startswith("Input-bound: Input takes 38 % of each step")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.28, 0.51), "28 to 51 %"),
        ((0.002, 0.0042), "at most 0.4 %"),
        ((0.0, 0.0001), "<0.1 %"),
    ],
)
def test_what_is_said_of_a_share_is_in_its_evidence(ends, said):
    (short,) = diagnose(waiting(60.0, certainty=Certainty(7, *ends)))[:1]

    assert f"the input takes {said} of the step (95 % interval)" in short.more
    assert ends[1] in [one.value for one in short.evidence]


@pytest.mark.parametrize(
    ("steps", "in_detail", "said"),
    [
        (34, 34, "too short to judge the input: 30 steps after 4 of warm-up are too few"),
        (30, 30, "too short to judge the input: 30 steps are too few"),
        (8000, 120, "too short to judge the input: 30 steps are too few"),
    ],
)
def test_steps_that_were_only_counted_are_no_warm_up(steps, in_detail, said):
    pace = replace(made_up_facts().throughput, steps=steps, steps_in_detail=in_detail)
    facts = waiting(60.0, certainty=Certainty(30, 0.04, 0.21), throughput=pace)

    assert diagnose(facts)[0].message.startswith(said)


def test_without_a_loader_only_the_number_of_steps_counts():
    facts = made_up_facts(certainty=Certainty(8, 0.0, 1.0))

    assert diagnose(type(facts)(**{**vars(facts), "loader": None}))[0].rule_id == "input_not_seen"


def test_more_steps_are_asked_for_the_wider_the_interval_is():
    assert [
        too_short._needed(Certainty(*one))
        for one in ((3, 0.0, 1.0), (20, 0.0, 0.3), (20, 0.0, 0.6))
    ] == [16, 80, 320]


def test_the_interval_of_a_share_holds_it_19_times_in_20():
    draws, held = np.random.default_rng(0), 0
    for _ in range(500):
        part, rest = draws.exponential(3.0, 12), draws.normal(7.0, 1.0, 12)
        low, high = interval(part, part + rest)
        held += low <= 0.3 <= high

    assert 0.90 < held / 500 < 0.98
    assert interval(np.ones(1), np.ones(1)) == (0.0, 1.0)


def test_waits_for_a_cpu_make_no_run_too_short():
    facts = waiting(60.0, certainty=Certainty(394, 0.0, 0.41, 0.22, 0.31))
    short = waiting(60.0, certainty=Certainty(394, 0.0, 0.41, 0.02, 0.31))

    assert diagnose(facts)[0].rule_id != "too_short"
    assert verdict(diagnose(facts), facts).startswith("Probably input-bound: ")
    assert (
        "the input takes 2 to 31 % of the step (95 % interval), not counting waits for a CPU"
        in diagnose(short)[0].more
    )


def test_the_interval_of_steps_that_lost_their_cpu_a_few_times_is_that_of_the_others(tmp_path):
    main = MadeUp()
    for batch in range(40):
        at, lost = batch * 200_000, 90_000 if batch in (7, 21, 33) else 0
        taken = at + 4_000 + batch % 5 * 100 + lost
        main.span(
            Stage.NEXT, at, taken, number=batch_key(0, batch), extra=2, cpu=3_000, runqueue=lost
        )
        main.forward(taken, taken + 20_000).backward(taken + 20_000, taken + 30_000).update(
            taken + 30_000, taken + 40_000
        )
    rank = Rank(rank_folder(tmp_path, 0), 0, 0, Manifest(), [])
    rank.__dict__["processes"] = [main.process()]
    sure = certainty(RankMetrics.of(rank), starts_once=True)

    assert sure.high - sure.low > 0.05 and sure.own[1] - sure.own[0] < 0.01
    assert sure.own[1] < sure.high


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            Manifest(ended=True, exit_code=1, ended_by="ValueError"),
            "failed with ValueError (exit code 1)",
        ),
        (
            Manifest(ended=True, exit_code=130),
            "",
        ),  # a person pressed Ctrl-C: more steps are what is missing
        (Manifest(ended=True, exit_code=0), ""),
        (Manifest(ended_by="SIGKILL"), "was killed by SIGKILL"),
    ],
)
def test_more_steps_are_no_fix_of_an_error(manifest, said):
    facts = waiting(certainty=Certainty(5, 0.1, 0.5), failed=failure_of(manifest))

    finding = too_short._check(facts)

    assert finding is not None and failure_of(manifest) == said
    assert [finding.fix, *finding.fix_more] == (
        [f"Fix the error first: the training {said}.", "A verdict needs 16 steps or more."]
        if said
        else ["Train for 16 steps or more."]
    )


def test_an_input_that_may_not_count_and_is_little_is_not_called_what_probably_binds():
    facts = waiting(12.0, certainty=Certainty(33, 0.026, 0.106))

    said = verdict(diagnose(facts), facts)

    assert said.startswith("Perhaps partly input-bound: Input takes 11 % of each step")
