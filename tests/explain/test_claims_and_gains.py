"""What findings cost follows from the rows that they claim, and the replay without these agrees."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from golden.record import RUNS
from hypothesis import given, settings
from hypothesis import strategies as st
from predict.test_replay_of import training
from rules.any_facts import any_facts
from rules.made_up import BATCH, INPUT, MS, made_up_facts

import feedline
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.order import claimed
from feedline.analysis.explain.reports_of_run import TrainingInput, training_input
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    Change,
    CostKind,
    Factor,
    Finding,
    PredictedRate,
    Refused,
    Severity,
)
from feedline.analysis.ledger.view import cpus, sample
from feedline.analysis.ledger.view.storage import spared_s
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.predict.loader_replay import Setting
from feedline.analysis.predict.recorded_input import RecordedInput, Shares
from feedline.analysis.predict.replay_of import predict
from feedline.analysis.rules import BY_ID

STORED = sorted(manifest.parent.parent for manifest in RUNS.rglob("rank0/manifest.json"))
#: What a finding about the input stands for in a step, beside rows of its own.
OF_INPUT = {*INPUT, "input", "pin"}
#: A rule -> why its cost may exceed its rows.
NOT_ROWS = {
    "busy_neighbors": "the main thread's waiting for a CPU is within its stages, and no row",
    "workers_hold_cpus": "the same",
}
CAPPED = (CostKind.ESTIMATED, CostKind.BOUND)
GONE = Factor(0.0, 0.0)


@cache
def stored(place: Path) -> list[tuple[TrainingInput, list[Finding]]]:
    """What the report of each training in a stored run starts from, and its findings."""
    return [
        (training_input(loaded._run), loaded.report.findings)
        for loaded in feedline.load_all(place)
        if loaded.report.ledger is not None
    ]


def rows_s(finding: Finding, facts: RuleInputs) -> float:
    """Seconds of a step that the rows of a claim stand for, at most.

    Rows of samples stand for what the step spends on its input.
    """
    rows, claim = facts.rows, claimed(finding, facts.rows)
    own = {where for where in claim if not where.startswith("sample/")}
    rule = BY_ID.get(finding.rule_id)
    if len(own) < len(claim) or rule is not None and rule.of_input:
        own |= {where for where in rows if where.partition("/")[0] in OF_INPUT}
    return sum(rows[where] for where in own)


def exceeding(findings: list[Finding], facts: RuleInputs) -> dict[str, tuple[float, float]]:
    """Estimates and bounds above their rows: what each costs, and the rows, s."""
    return {
        finding.rule_id: (finding.cost_s, rows_s(finding, facts))
        for finding in findings
        if finding.cost_kind in CAPPED
        and finding.rule_id not in NOT_ROWS
        and finding.cost_s > rows_s(finding, facts) * (1 + 1e-9)
    }


@pytest.mark.parametrize("place", STORED, ids=lambda place: str(place.relative_to(RUNS)))
def test_no_estimate_of_a_stored_run_exceeds_the_rows_that_it_claims(place):
    for inputs, findings in stored(place):
        assert inputs.facts is not None
        assert exceeding(findings, inputs.facts) == {}


@pytest.mark.parametrize("place", STORED, ids=lambda place: str(place.relative_to(RUNS)))
def test_what_costs_time_in_a_stored_run_has_rows(place):
    """A rule that claims rows is silent without them."""
    for inputs, findings in stored(place):
        assert inputs.facts is not None
        for finding in findings:
            rule = BY_ID.get(finding.rule_id)
            if rule is not None and rule.claims and finding.rule_id not in NOT_ROWS:
                assert not finding.cost_s or claimed(finding, inputs.facts.rows), finding.rule_id


def coherent(facts: RuleInputs) -> bool:
    """Whether the share of the input is that of the stages, as in every recording."""
    steady_s = sum(facts.step.stages.get(name, 0.0) for name in INPUT)
    return facts.wait_share * facts.step.mean_s <= steady_s * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(any_facts().filter(coherent))
def test_no_estimate_exceeds_the_rows_that_it_claims_whatever_was_measured(run):
    assert exceeding(diagnose(run), run) == {}


def test_an_estimate_above_its_rows_would_be_noticed():
    run = made_up_facts(stages={"wait": 0.0})
    step_s = run.step.mean_s
    too_much = Finding(
        "decode_bound", Severity.HIGH, "", cost_s=step_s, cost_kind=CostKind.ESTIMATED
    )

    assert exceeding([too_much], run).keys() == {"decode_bound"}


def without_stage(
    stage: str, facts: RuleInputs, rate: PredictedRate
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What a step is shorter by without a stage of its samples, s: by the rows, and replayed.

    By the rows, it is more where the first batch of a pass, too, is made without it.
    """
    whole, mean_s = sample.total(facts), facts.step.mean_s
    assert whole is not None
    share = facts.costs[stage].wall_s / whole.wall_s
    least_s = spared_s(facts, share)
    first_s = facts.step.waits.get("first_batch", 0.0) + facts.step.stages.get("epoch_start", 0.0)
    replayed = (mean_s * (1 - rate.before / rate.low), mean_s * (1 - rate.before / rate.high))
    return (least_s, least_s + share * first_s), replayed


def agree(rows: tuple[float, float], replayed: tuple[float, float]) -> bool:
    return rows[1] >= replayed[0] and rows[0] <= replayed[1]


def replayable(place: Path) -> list[tuple[RuleInputs, str, PredictedRate]]:
    """Stages of trainings whose threads have CPUs of their own, with the replay without each."""
    found = []
    for inputs, _ in stored(place):
        run, predictions = inputs.facts, inputs.predictions
        if run is None or predictions is None or sample.total(run) is None or cpus.queueing(run):
            continue
        for stage in run.costs.keys() & MAKING_STAGES:
            rate = predictions.replay(Change(stages={stage: GONE}))
            if not isinstance(rate, Refused):
                found.append((run, stage, rate))
    return found


@pytest.mark.parametrize("place", STORED, ids=lambda place: str(place.relative_to(RUNS)))
def test_removing_the_rows_of_a_stage_in_the_replay_gives_their_seconds(place):
    for run, stage, rate in replayable(place):
        rows, replayed = without_stage(stage, run, rate)
        assert agree(rows, replayed), (stage, rows, replayed)


def test_some_stored_runs_have_cpus_of_their_own_and_can_be_replayed():
    assert sum(bool(replayable(place)) for place in STORED) >= 5


stage_ms = st.sampled_from([0.2, 1.0, 4.0, 12.0])


@settings(deadline=None, max_examples=40)
@given(
    decode=stage_ms,
    read=stage_ms,
    augment=stage_ms,
    computing=st.sampled_from([4.0, 20.0, 100.0]),
    workers=st.integers(1, 4),
    gone=st.sampled_from(["decode", "read", "augment"]),
)
def test_what_rows_promise_is_what_the_replay_of_such_a_loader_gives(
    decode, read, augment, computing, workers, gone
):
    """Reading is blocked, the others compute; a CPU for every thread."""
    run = made_up(decode, read, augment, computing, workers)
    rate = predict(
        replayed_input(decode, read, augment, computing, workers), Change(stages={gone: GONE})
    )

    assert isinstance(rate, PredictedRate)
    rows, replayed = without_stage(gone, run, rate)
    assert agree(rows, replayed), (rows, replayed)


def made_up(
    decode: float, read: float, augment: float, computing: float, workers: int
) -> RuleInputs:
    """What is measured of steps that wait only while their batch is made; times in ms."""
    sample = decode + read + augment
    waited = max(0.0, sample * BATCH / workers - computing)
    return made_up_facts(
        stages={
            "transport": 0.0,
            "copy": 0.0,
            "forward": computing,
            "backward": 0.0,
            "optimizer": 0.0,
            "other": 0.0,
        },
        waits={"starved": waited},
        sample={
            "decode": (decode, 0, 0),
            "read": (0, 0, read),
            "augment": (augment, 0, 0),
            "dataset": (0, 0, 0),
            "collate": (0, 0, 0),
        },
        settings={"num_workers": workers},
        maker={"fetch_mean_s": sample * BATCH * MS},
    )


def replayed_input(
    decode: float, read: float, augment: float, computing: float, workers: int
) -> RecordedInput:
    """The same as the replay sees it."""
    cpu = decode + augment

    recorded = training(
        cpu=cpu * BATCH,
        off=read * BATCH,
        own=computing,
        setting=Setting(workers),
        cpus=16.0,
        samples_per_batch=float(BATCH),
        making={
            "decode": Shares(decode / cpu, 0.0),
            "read": Shares(0.0, 1.0),
            "augment": Shares(augment / cpu, 0.0),
        },
    )
    return replace(recorded, samples_per_s=BATCH * recorded.batches_per_s(400))
