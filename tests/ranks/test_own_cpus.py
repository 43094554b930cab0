"""Ranks that are kept on CPUs of their own do not share them."""

import json
import shutil

import pytest
from golden.record import RUNS

import feedline
from feedline.analysis.measure.rank_gauges import cpu_mask
from feedline.analysis.scaling.launch_points import _point_of
from feedline.profiler.store.trainings import open_run


@pytest.fixture
def on(tmp_path):
    """Gives a function that says which CPUs each of two ranks may run on."""

    def change(*machines):
        run = tmp_path / "run"
        shutil.copytree(RUNS / "ranks", run)
        for rank, changes in enumerate(machines):
            manifest = run / f"rank{rank}" / "manifest.json"
            said = json.loads(manifest.read_text())
            said["machine"] |= changes
            manifest.write_text(json.dumps(said))
        return run

    return change


def test_cpus_of_ranks_that_share_them_are_added(on):
    told = feedline.load(on({"affinity": "0-1"}, {"affinity": "0-1"})).report

    assert told.cpus.ranks == 2
    assert told.cpus.own == pytest.approx(feedline.load(RUNS / "ranks").report.cpus.own)


@pytest.mark.parametrize(
    ("first", "second", "ranks"),
    [("0", "1", 1), ("0", "0", 2), ("0,2-3", "1,3", 2), ("0", "", 2), ("damaged", "1-99999999", 2)],
)
def test_a_rank_with_cpus_of_its_own_is_the_only_one_there(on, first, second, ranks):
    alone = {"cpus": 4, "effective_cpus": 1, "affinity_cpus": 1}
    run = on({**alone, "affinity": first}, {**alone, "affinity": second})
    told = feedline.load(run).report

    assert told.cpus.ranks == ranks
    (of_cpus,) = [one for one in told.roofline.roofs if one.kind == "cores"]
    assert of_cpus.message.startswith("1 CPU per rank") is (ranks == 1)


def test_ranks_that_use_more_than_one_of_them_may_have_their_own(on):
    """Older recordings do not say which CPUs: 0.39 CPUs together are more than 0.3."""
    alone = {"cpus": 4, "effective_cpus": 0.3, "affinity_cpus": 1}

    assert feedline.load(on(alone, alone)).report.cpus.ranks == 1


def test_the_numbers_of_cpus_are_read_as_the_kernel_lists_them(on):
    ranks = open_run(on({"affinity": "0-2,8"}, {})).ranks
    of = [cpu_mask(one) for one in map(_measured, ranks.values())]

    assert of == [frozenset((0, 1, 2, 8)), frozenset()]


def _measured(rank):
    class Measured:
        pass

    measured = Measured()
    measured.rank = rank
    return measured


def test_scaling_knows_of_the_main_threads_that_waited_for_a_cpu():
    assert _point_of([open_run(RUNS / "ranks")]).without_cpu == pytest.approx(0.031, abs=0.001)
