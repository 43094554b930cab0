"""One question, one answer: report, whatif, tune, check and verify of every stored run say the same
of the same settings.
"""

import argparse
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from text.breath import advised as fix_of
from text.breath import said

from feedline.__main__ import main
from feedline.analysis.explain import reports_of_run
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.predictions import _NOT_REPLAYED, _SET_UP, _TOO_LITTLE
from feedline.analysis.explain.reports_of_run import holds_traces
from feedline.analysis.explain.speed_trial import (
    _VERIFY,
    CHANGED,
    LEDGER,
    SPEED,
    UNCHANGED,
    Recorded,
    TrialRun,
    decide,
    identity,
)
from feedline.analysis.ledger.finding import Change, Finding, PredictedRate, Refused, Severity
from feedline.analysis.predict.limits import WhatIf, rate_of
from feedline.analysis.report.json_report import plain
from feedline.analysis.report.terminal import first_screen
from feedline.analysis.rules import BETWEEN_RANKS, BY_ID
from feedline.analysis.rules.input import cpu_saturated
from feedline.analysis.text.formatting import rate, value
from feedline.cli.scale import from_runs
from feedline.cli.settings import as_typed
from feedline.cli.tune import TuneCommand
from feedline.cli.tune import _tuned as search_of
from feedline.cli.verify import pairs as planning
from feedline.cli.verify.text import write_trial
from feedline.cli.whatif import _predict, prediction
from feedline.profiler.errors import RunNotFound, ScriptError
from feedline.profiler.files import results
from feedline.profiler.store.trainings import PARTS_FOLDER, open_run, split_run

TESTS = Path(__file__).resolve().parents[1]
STORED = [TESTS / "golden" / "runs", TESTS.parent / "docs" / "recorded"]
WORKERS = (0, 1, 2, 4)
#: Others of the same kind are asked quickly.
LONG = (
    "runs-h200",
    "runs-h100",
    "runs-killed",
    "runs-sweep",
    "digits-",
    "decode-bound",
    "cold-storage",
)
#: Why a report predicts nothing for a finding though its fix could be replayed.
OF_REPORTS = {f"{one.message.removesuffix('.')}." for one in (_TOO_LITTLE, _NOT_REPLAYED, _SET_UP)}


def trainings() -> list[Path]:
    """Every recorded training; of several in one process, each."""
    found = []
    for folder in (rank.parent for stored in STORED for rank in sorted(stored.rglob("rank0"))):
        with suppress(RunNotFound):  # the folder of a launch, whose trainings are below it
            run = open_run(folder)
            own = [] if holds_traces(run) else split_run(run)
            found += [one.path for one in own] if len(own) > 1 else [folder] * len(own)
    return found


def as_parameter(path: Path):
    name = "-".join(path.relative_to(TESTS.parent).parts[2:])
    slow = name.startswith(LONG)
    return pytest.param(path, id=name, marks=[pytest.mark.long] * slow)


RUNS = [as_parameter(path) for path in trainings()]


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """Every command reads the run by itself, to the same end: here it is read once."""
    monkeypatch.setattr(prediction, "replayable", replayable)
    monkeypatch.setattr(planning, "replayable", replayable)


#: Reads of this module, whichever test asks.
read_run = cache(prediction.replayable)


def replayable(path: Path, again: bool = False) -> "prediction.Replayable | Refused":
    return read_run(path)


@cache
def report(path: Path) -> Report:
    folder, number = reports_of_run.place(path, None)
    (run,) = reports_of_run.of_process(open_run(folder), number)
    return reports_of_run.report_of(run, reports_of_run.ceilings_of(folder))


@cache
def tune(path: Path):
    training = replayable(path)
    if isinstance(training, Refused):
        return None
    parser = argparse.ArgumentParser()
    TuneCommand().prepare_parser(parser)
    return search_of(training, parser.parse_args([str(path)])).search


def whatif(path: Path, settings=None, fix=None) -> WhatIf:
    return _predict(argparse.Namespace(run=path, settings=settings or {}, fix=fix, data=None))


def of_the_loader(found: Report) -> list[Finding]:
    return [one for one in found.findings if one.rule_id not in BETWEEN_RANKS]


@pytest.mark.parametrize("path", RUNS)
def test_a_finding_gives_what_whatif_says_of_its_fix(path):
    for finding in of_the_loader(report(path)):
        if finding.refused in OF_REPORTS or isinstance(replayable(path), Refused):
            continue
        answer = whatif(path, fix=finding.rule_id)
        assert rate_of(answer) == finding.predicted, finding.rule_id
        if answer.refused is not None:
            assert (
                answer.refused.message.removesuffix(".").lower()
                == finding.refused.removesuffix(".").lower()
            )
        if finding.settings and BY_ID[finding.rule_id].by_settings:
            assert rate_of(whatif(path, finding.settings)) == finding.predicted


@pytest.mark.parametrize("path", RUNS)
def test_tune_and_verify_predict_what_whatif_predicts(path):
    found, training = tune(path), replayable(path)
    if isinstance(training, Refused):
        return
    for workers in WORKERS:
        answer = whatif(path, {"num_workers": workers})
        try:
            tried = planning.tried(training, {"num_workers": workers}, "", 0.02)
        except ScriptError:  # recorded with it
            continue
        assert tried.predicted == rate_of(answer)
        assert (tried.refused or None) == (answer.refused.message if answer.refused else None)
    for candidate in (found.now, found.best) if found else ():
        assert rate_of(whatif(path, candidate.settings)) == candidate.predicted
    for candidate in found.by_workers if found else ():
        assert training.predict(Change(settings=candidate.settings)) == candidate.predicted


@pytest.mark.parametrize("path", RUNS)
def test_what_check_measures_is_what_all_start_from(path, tmp_path, capfd):
    shown = report(path).throughput
    if shown.of_all_ranks is None:
        return
    (tmp_path / "budget.toml").write_text(
        f"min_steps = 1\n[at_least]\nsamples_per_s = {shown.of_all_ranks * 1e6}\n"
    )

    assert main(
        [
            "check",
            str(path),
            "--budget",
            str(tmp_path / "budget.toml"),
            "--json",
            str(tmp_path / "check.json"),
        ]
    ) in (75, 77)
    (limit,) = json.loads((tmp_path / "check.json").read_text())["limits"]

    assert limit["value"] in (None, shown.of_all_ranks)
    if limit["value"] is not None and shown.low is not None and shown.high is not None:
        low, high = (value(end, "samples/s") for end in (shown.low, shown.high))
        assert f"(95 % interval {low} to {high})" in limit["message"]
    predicted = [one.predicted for one in of_the_loader(report(path)) if one.predicted]
    assert {one.before for one in predicted} <= {shown.of_all_ranks}
    found = tune(path)
    assert found is None or found.now.predicted.before == shown.of_all_ranks


@pytest.mark.parametrize("path", RUNS)
def test_no_prediction_passes_the_nearest_limit_of_the_report_that_supposes_the_same(path):
    """Limits suppose that other programs are gone, and that samples take as much CPU time as they
    did.
    """
    limits = report(path).roofline
    nearest = (
        next((roof for roof in limits.roofs if roof.id == limits.nearest_id), None)
        if limits
        else None
    )
    if nearest is None or nearest.kind not in ("cores", "gpu"):
        return
    told = [
        one.predicted
        for one in of_the_loader(report(path))
        if one.predicted and nearest.kind not in BY_ID[one.rule_id].lifts
    ]
    found = tune(path)
    told += [one.predicted for one in found.by_workers] if found else []

    assert told
    for one in told:
        assert one.after / one.before <= max(1.0, nearest.samples_per_s / limits.samples_per_s) * (
            1 + 1e-9
        )


@pytest.mark.parametrize("path", RUNS)
def test_more_workers_are_not_both_denied_and_advised(path):
    found = tune(path)
    if found is None:
        return
    texts = [f"{said(one)} {fix_of(one)}" for one in report(path).findings]
    advised = found.best.workers > found.now.workers

    assert not (
        advised
        and any(
            cpu_saturated.RULE.without_gain_of_workers in text or "too few CPUs for more" in text
            for text in texts
        )
    )
    assert not advised or found.best.predicted.low > found.now.predicted.after


@pytest.fixture
def tried_run(tmp_path):
    """A copy of a run from which trials can be told."""
    return Path(shutil.copytree(STORED[1] / "demo", tmp_path / "demo"))


def trial_of(run: Path, settings, gain: float, recorded_times: float = 1.0) -> dict[str, object]:
    """The line that ``feedline verify`` writes of three pairs of runs."""
    asked = planning.tried(prediction.replayable(run), settings, "", 0.02)
    assert asked.recorded is not None
    unchanged = asked.recorded.rate * recorded_times
    rates = [
        (arm, pair, unchanged * times)
        for pair in (1, 2, 3)
        for arm, times in ((UNCHANGED, 1.0), (CHANGED, gain + 0.001 * pair))
    ]
    trial = decide(asked, [TrialRun(arm, pair, rate, 40) for arm, pair, rate in rates])
    entry = plain({"kind": SPEED, "run": identity(run), **vars(trial)})
    folder = run.parent / _VERIFY
    results.prepare(folder, [], False)
    write_trial(entry, folder, None, ["train.py"])
    return json.loads((folder / LEDGER).read_text().splitlines()[-1])


def test_a_stored_trial_says_what_whatif_predicted_and_what_tune_then_does_not_advise(
    tried_run, monkeypatch, capfd
):
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "80")
    before = prediction.replayable(tried_run)
    advice = next(one for one in report(tried_run).findings if one.settings)
    answer = rate_of(whatif(tried_run, advice.settings))

    line = trial_of(tried_run, advice.settings, gain=0.922)
    assert line["verdict"] == "reject"
    assert line["predicted"] == {
        "from": answer.before,
        "to": answer.after,
        "low": answer.low,
        "high": answer.high,
    }
    assert line["recorded"]["rate"] == before.throughput.of_all_ranks

    report.cache_clear()
    assert main(["whatif", str(tried_run), "--set", as_typed(advice.settings)]) == 1
    assert main(["tune", str(tried_run), "--json", str(tried_run.parent / "tune.json")]) == 0
    said = " ".join(capfd.readouterr().out.split())
    outcome = "num_workers=2, persistent_workers=True was tried by feedline verify on "
    assert said.count(outcome) == 2 and "rejected: measured -7.6 %" in said
    assert (
        "Keep num_workers=1, prefetch_factor=2, in_order=True, persistent_workers=False: more "
        "workers were tried, and rejected." in said
    )
    tuned = json.loads((tried_run.parent / "tune.json").read_text())
    assert tuned["best"]["settings"]["num_workers"] == 1
    (told,) = [one for one in report(tried_run).findings if one.rule_id == advice.rule_id]
    assert not told.settings and told.severity is Severity.INFO and told.fix.startswith(outcome)
    assert not report(tried_run).verdict.fix.startswith("num_workers")

    assert trial_of(tried_run, advice.settings, gain=1.4)["verdict"] == "accept"  # which lifts it
    report.cache_clear()
    (again,) = [one for one in report(tried_run).findings if one.rule_id == advice.rule_id]
    assert again.predicted == advice.predicted and again.settings == advice.settings


def test_a_trial_under_other_conditions_is_not_compared_with_the_prediction(tried_run, monkeypatch):
    monkeypatch.undo()

    line = trial_of(tried_run, {"num_workers": 2}, gain=1.4, recorded_times=0.5)

    assert line["verdict"] == "accept" and line["residual"] is None and line["inside"] is None


def test_a_rate_inside_the_recorded_interval_or_near_it_is_of_the_same_conditions():
    recorded = Recorded(47.0, 29.5, 116.0)

    assert not recorded.differs(30.0) and not replace(recorded, low=46.0).differs(40.0)
    assert recorded.differs(23.1)
    assert replace(recorded, low=None, high=None).differs(23.1)


@pytest.mark.parametrize("path", RUNS)
def test_every_command_shows_the_same_throughput(path, tmp_path, monkeypatch, capfd):
    """Of report, scale, verify, check and diff: the figure, and its text."""
    pace = report(path).throughput
    shown, unit = (
        pace.of_all_ranks or pace.steps_per_s,
        "samples/s" if pace.of_all_ranks else "steps/s",
    )
    if shown is None:
        return
    text = f"{rate(shown)} {unit}"

    assert text in first_screen(report(path)).blocks[0].parts
    (point,) = from_runs([path]).points
    assert point.samples_per_s == pytest.approx(shown, rel=1e-9)
    if path.parent.name == PARTS_FOLDER:  # verify, check and diff take no part of a run
        return
    assert planning._measured_rate(path) == (pytest.approx(shown, rel=1e-9), pace.steps, unit)
    assert main(["check", str(path)]) in (0, 75)
    budget = capfd.readouterr().out
    if budget:
        assert f"# measured: {text}\n" in budget
    again = shutil.copytree(path, tmp_path / "again")
    if main(["diff", str(path), str(again)]) == 0 and "(" in (said := capfd.readouterr().out):
        compared = " ".join(said.split())
        assert f"{rate(shown)} -> {text}" in compared or "Too few steps" in compared


def test_predictions_are_of_one_kind():
    """Guards the comparisons above, which would hold for None."""
    predicted = [
        one
        for path in (STORED[1] / "demo", STORED[0] / "loader")
        for one in report(path).findings
        if one.predicted
    ]

    assert len(predicted) >= 3 and all(
        isinstance(one.predicted, PredictedRate) for one in predicted
    )
