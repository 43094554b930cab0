"""Ranks that others wait for: they are named, with one cost, and the network is not blamed."""

import re

import pytest
from collectives.launching import launch, say_what_went_wrong
from truth import one_number

import feedline
from feedline.analysis.explain.late_launch import late_of
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.ledger.finding import CostKind
from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.ranks.many.passes import _LEFT_OUT_STEPS
from feedline.analysis.ranks.many.rank_pool import here
from feedline.analysis.ranks.many.reduce import reduce_ranks
from feedline.analysis.report import terminal
from feedline.analysis.scaling.launch_points import _point_of
from feedline.analysis.text.formatting import seconds
from feedline.profiler.store.trainings import open_run


def test_the_rank_that_decodes_larger_images_is_named_with_its_decoding(tmp_path, warm_python):
    say_what_went_wrong(launch(tmp_path, "larger_images.py", 3, warm=warm_python))
    run = open_run(tmp_path / "run")

    report = recorded_report(run)

    first = next(finding for finding in report.findings if finding.rule_id != "busy_neighbors")
    assert first.rule_id == "late_rank" and first.severity == "high"
    assert (first.blame.rank, first.blame.phase, first.blame.part) == (2, "wait", "decode")
    assert any("network is not the cause" in said for said in first.more)
    waits = [report.ranks[str(rank)].comm.exposed_wait_s for rank in range(3)]
    assert min(waits[:2]) > 5 * waits[2]
    assert late_of([run], 3, _point_of([run]).step_s).startswith(
        "with 3 ranks, rank 2 is "
    )  # what `feedline scale` says of it
    one_number.check(report)
    costs = report.workers.per_sample
    assert (
        report.shown == 2
        and max(costs, key=lambda stage: (stage != "total") * costs[stage].wall_s) == "decode"
    )


@pytest.mark.parametrize("phase", [pytest.param("wait", marks=pytest.mark.long), "forward"])
def test_a_late_rank_of_two_costs_one_number_and_the_throughput_is_of_both(
    tmp_path, phase, warm_python
):
    say_what_went_wrong(launch(tmp_path, "late_rank.py", 2, phase, warm=warm_python))

    run = open_run(tmp_path / "run")
    report = recorded_report(run)
    one_number.check(report)

    found = next(finding for finding in report.findings if finding.rule_id == "late_rank")
    assert (found.blame.rank, found.blame.phase, report.shown) == (1, phase, 1)
    late = report.comm.late[0]
    assert found.cost_kind is CostKind.PREDICTED and late.cost_s == pytest.approx(found.cost_s)
    assert 0.03 < found.cost_s < 0.06, "it sleeps 40 ms longer than the other"
    answers = {(one.id, one.value): one for one in report.comm.what_if}
    assert ("no_late_rank", None) not in answers and answers[
        "rank_on_time", 1
    ].gain_s == found.cost_s
    assert f"the replay predicts that {seconds(found.cost_s)} of each " in late_of(
        [run], 2, _point_of([run]).step_s
    )
    pace = report.throughput
    assert pace.ranks == 2 and pace.all_ranks_samples_per_s == pytest.approx(
        2 * pace.samples_per_s, rel=0.1
    )
    assert "samples/s on 2 ranks" in terminal.render(report)
    check_waits(tmp_path / "run")


@pytest.mark.long
def test_what_ranks_wait_in_broadcasts_is_the_same_in_the_report_and_by_rank(tmp_path, warm_python):
    """DistributedDataParallel broadcasts the buffers of BatchNorm from rank 0, which is late: the
    others wait for it there.
    """
    ranks = launch(tmp_path, "late_rank.py", 3, "buffers", warm=warm_python)
    say_what_went_wrong(ranks)
    together = _compare_collectives([rank.collectives for rank in ranks], first=_LEFT_OUT_STEPS)
    with here() as pool:
        by_rank = reduce_ranks([str(tmp_path / "run")], pool)

    assert (
        recorded_report(open_run(tmp_path / "run")).comm.late[0].rank == by_rank.late[0].rank == 0
    )
    for one in by_rank.ranks:
        parts = vars(together.parts[one.rank])
        assert {name: getattr(one, name) for name in parts} == pytest.approx(parts, abs=1e-3)
    assert min(together.parts[rank].wait_s for rank in (1, 2)) > 0.02, (
        "it sleeps 40 ms longer than the others"
    )


def check_waits(path):
    """Its frames hold as much waiting for each rank as its report: one all-reduce per step, so that
    no moment is counted twice.
    """
    run = feedline.load(path)
    begun = run.steps[(run.steps["rank"] == 0) & run.steps["in_mean"]]["step"].min()
    for rank, rows in run.collectives[run.collectives["step"] >= begun].groupby("rank"):
        steps = run.steps[(run.steps["rank"] == rank) & (run.steps["step"] >= begun)]
        assert rows["wait_s"].sum() / len(steps) == pytest.approx(
            run.report.ranks[str(rank)].comm.wait_s, rel=0.01, abs=1e-4
        )


def test_the_rank_that_failed_first_is_the_headline_and_not_those_that_missed_it(
    tmp_path, warm_python
):
    launch(tmp_path, "late_rank.py", 2, "fails", warm=warm_python)

    report = recorded_report(open_run(tmp_path / "run"))

    assert re.match(
        r"Rank 1 failed with ValueError at (\*\*\*/)?late_rank\.py:\d+ ", report.headline
    )
    one_number.check(report)
