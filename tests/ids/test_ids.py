"""What is decided goes by ids and values: with every message as "x", findings, figures, exit codes
and what is shown stay the same.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor.made_up import run as recorded
from explain.test_next_limit import RUN as LIMITED
from hypothesis import given, settings
from ids.rewriting import all_x, dataclasses_of_analysis, from_now_on, words_of
from ranks.made_up import MB, Training, always, train
from report import made_up
from report.made_up_training import without_scale
from rules.any_facts import any_facts
from rules.made_up import made_up_facts
from scaling.conftest import synthetic as synthetic
from traces.kineto_made import kineto

from feedline.__main__ import main
from feedline.analysis.convergence.advisor import advise
from feedline.analysis.convergence.read_training import summarise
from feedline.analysis.explain import reports_of_run as of_runs
from feedline.analysis.explain import reports_of_run as of_traces
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.model import Hook, Report
from feedline.analysis.explain.next_limit import cap_at_next_limit
from feedline.analysis.explain.notes_of_rank import _FIRST_STEPS
from feedline.analysis.explain.roofs import roofline
from feedline.analysis.ledger.finding import CostKind, Evidence, Finding, Severity
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.ranks.many import rank_pool
from feedline.analysis.report import of_convergence, phrases, terminal
from feedline.analysis.report.figures.roofline_chart import role
from feedline.analysis.report.html_report import render
from feedline.analysis.report.json_report import plain
from feedline.analysis.scaling.launch_points import _point_of
from feedline.analysis.scaling.study import study
from feedline.analysis.traces.trace_budget import StepBudget
from feedline.profiler import message
from feedline.profiler.message import id_of
from feedline.profiler.store.layout import rank_folder
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.trainings import open_run

SAMPLES = {rank: {"read": 1e-3, "decode": 30e-3 if rank == 3 else 4e-3} for rank in range(4)}
REASONS = {
    value for name, value in vars(message).items() if name.isupper() and isinstance(value, str)
}


def same(make: Callable[[], Any]) -> Any:
    """What is made once with words and once without differs in its words only. Returns both."""
    usual = make()
    with pytest.MonkeyPatch.context() as patch:
        from_now_on(patch)
        blank = make()
        assert plain(all_x(usual)) == plain(blank)
    return usual, blank


def shown(report: Report) -> dict[str, object]:
    """What reports show of it, and what they hide."""
    full, page = terminal.render(report), re.sub(r"</?code>", "", render(report))
    made, comm = report.roofline, report.comm
    return {
        "hooks": [hook.name for hook in phrases.refused_that_matter(report.hooks)],
        "of them in full": [
            hook.name for hook in report.hooks if f"- {hook.name}: " in " ".join(full.split())
        ],
        "of them in HTML": re.findall(
            r"<ul>(?:<li><b>[^<]*</b>[^<]*</li>)+</ul>", re.sub(r"</b> [^<]*", "</b>", page)
        ),
        "usual notes": [id_of(note) == _FIRST_STEPS for note in report.notes],
        "lines of evidence": page.count('<th scope="row">') - len(report.hooks),
        "limits": [role(made, roof) for roof in made.roofs] if made else [],
        "predictions that tell something": [phrases.tells(one) for one in comm.what_if]
        if comm
        else [],
        "noise scale": of_convergence._NEEDS in full,
    }


@settings(deadline=None, max_examples=40)
@given(any_facts())
def test_rules_find_the_same_whatever_their_words(facts):
    usual, _ = same(lambda: diagnose(facts))

    assert usual


@pytest.mark.parametrize(
    "plan",
    [
        Training(late=always(3, range(30), "wait", 52.0)),
        Training(late={(step, step % 4): ("forward", 30.0) for step in range(30)}),
        Training(buckets=(MB, 40 * MB, 40 * MB)),
    ],
    ids=["late rank", "late ranks", "exposed communication"],
)
def test_replays_answer_the_same_questions_whatever_their_words(plan):
    def found():
        compared = _compare_collectives(train(plan).ranks, None, SAMPLES)
        total = sum(value or 0.0 for value in vars(compared.parts[0]).values()) * 1e3
        facts = made_up_facts(
            stages={"forward": total * 0.3, "backward": total * 0.6, "optimizer": total * 0.05}
        )
        facts = replace(facts, comm=compared.communication, comm_parts=compared.parts)
        return compared.communication, diagnose(facts)

    (comm, findings), _ = same(found)

    assert comm.what_if and findings[0].rule_id in (
        "late_rank",
        "late_ranks",
        "exposed_communication",
        "slow_network",
    )
    assert findings[0].cost_kind is CostKind.PREDICTED or findings[0].blame is None


def of_trace_folder(path: Path) -> Report:
    with rank_pool.here() as here:
        return of_traces.traced_report(open_run(path), here)


def with_hooks(run: Path) -> Path:
    """Hooks of each reason, and one that matters."""
    folder = rank_folder(run, 0)
    manifest = Manifest.read(folder)
    manifest.hooks = [
        {"name": reason, "attached": False, "why": f"because of {reason}", "reason": reason}
        for reason in sorted(REASONS)
    ]
    manifest.hooks.append(
        {"name": "cv2", "attached": False, "why": "it was imported before", "reason": ""}
    )
    manifest.write(folder)
    return run


@pytest.fixture
def run(synthetic: Any, tmp_path: Path) -> Path:
    """Four ranks, of which one is late in each step."""
    plan = synthetic.Plan(ranks=4, steps=40, collectives=3)
    for rank in range(4):
        synthetic.write_rank(tmp_path / "run", plan, rank)
    return with_hooks(tmp_path / "run")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    files = [kineto(tmp_path / f"{rank}.json", rank, late_us=500 * rank) for rank in (0, 1)]
    assert main(["ingest", *files, "-o", str(tmp_path / "traces"), "-q"]) == 0
    return tmp_path / "traces"


def test_a_run_has_the_same_report_whatever_its_words(run):
    usual, blank = same(lambda: of_runs.recorded_report(open_run(run)))

    assert [hook.name for hook in phrases.refused_that_matter(usual.hooks)] == [
        *sorted(REASONS - phrases._NO_LOSS),
        "cv2",
    ]
    assert usual.comm.what_if[1].id == "no_late_rank" and any(
        id_of(note) == _FIRST_STEPS for note in usual.notes
    )
    assert shown(usual) == shown(blank)


@pytest.mark.parametrize("rule_id", ["too_few_workers", "late_rank"])
def test_a_cost_is_capped_at_the_same_limit_whatever_its_name(rule_id):
    def capped():
        limits, mean_s = roofline(LIMITED), LIMITED.step.mean_s
        return limits, *cap_at_next_limit(
            [Finding(rule_id, Severity.HIGH, "it is so", cost_s=0.9 * mean_s)], limits, mean_s
        )

    (limits, finding), (_, blank) = same(capped)

    assert (limits.nearest_id, limits.next_id) == ("workers", "all_cpus")
    assert 0 < finding.cost_s == blank.cost_s < 0.3 * LIMITED.step.mean_s


def test_traces_have_the_same_report_whatever_its_words(traces):
    usual, blank = same(lambda: of_trace_folder(traces))

    assert usual.findings and shown(usual) == shown(blank)


def test_what_one_rank_cannot_tell_is_not_said_of_two(traces, tmp_path):
    alone = kineto(tmp_path / "alone.json", 0)
    assert main(["ingest", alone, "-o", str(tmp_path / "one"), "-q"]) == 0

    counts = []
    for path in (traces, tmp_path / "one"):
        _, blank = same(lambda path=path: of_trace_folder(path))
        counts.append(len(blank.traces.budget_notes))
    assert counts == [0, 1]


def test_commands_end_with_the_same_exit_code_whatever_the_words(
    run, traces, tmp_path, monkeypatch
):
    def codes() -> list[int]:
        return [
            main(["report", str(path), "-q", "--json", str(tmp_path / "out.json"), "-f"])
            for path in (run, traces)
        ]

    usual = codes()
    from_now_on(monkeypatch)
    assert codes() == usual == [0, 0]
    assert json.loads((tmp_path / "out.json").read_text())["findings"]


@pytest.mark.parametrize("made", made_up.VARIANTS.values(), ids=made_up.VARIANTS.keys())
def test_reports_show_and_hide_the_same_whatever_their_words(made):
    report = made()
    names = {hook.name for hook in report.hooks}
    report = replace(
        report,
        hooks=[
            *report.hooks,
            *(Hook(reason, False, f"{reason}!", reason) for reason in sorted(REASONS - names)),
        ],
    )

    assert shown(all_x(report)) == shown(report)


def test_a_training_without_a_noise_scale_is_told_so_whatever_the_words():
    report = replace(made_up.report(), convergence=without_scale())

    assert shown(report)["noise scale"] and shown(all_x(report))["noise scale"]


@pytest.mark.parametrize(
    ("changed", "without_a_fix"),
    [
        ({"batch": 256, "train": 0.8, "held": 0.9}, {"smaller_batch"}),
        ({"batch": 256, "train": 0.1, "held": 0.9}, {"smaller_batch"}),
        (
            {"batch": 2048, "train": 0.9, "held": 1.0, "epochs": 96, "setup": {"norms": {}}},
            {"normalisation", "smaller_batch"},
        ),
    ],
)
def test_advice_is_the_same_whatever_its_words(changed, without_a_fix):
    runs = [
        recorded("small", batch=32, train=0.1, held=0.3, ranks=1, epochs=changed.get("epochs", 12)),
        recorded("large", seed=1, **changed),
    ]

    (advised, _), _ = same(lambda: [advise(runs), [summarise(one) for one in runs]])

    assert {advice.id for advice in advised.advice if not advice.fix} == without_a_fix


def test_a_study_of_scaling_is_the_same_whatever_its_words(run):
    def studied():
        point = replace(_point_of([open_run(run)]), without_cpu=0.2)
        return study([replace(point, ranks=1, samples_per_s=point.samples_per_s / 3), point], [8])

    usual, _ = same(studied)

    assert "Ranks waited for CPUs" in usual.conclusion


def test_what_is_rewritten_is_there():
    rewritten = {cls: words_of(cls) for cls in dataclasses_of_analysis()}

    assert (rewritten[Evidence], rewritten[Hook], rewritten[Prediction]) == (
        ["what"],
        ["why"],
        ["what", "why"],
    )
    assert rewritten[Finding] == [
        "message",
        "fix",
        "how_to_check",
        "refused",
        "condition",
        "more",
        "fix_more",
    ]
    assert "notes" in rewritten[Report] and rewritten[StepBudget] == ["notes"]
