"""What the replay is given of made-up records: warm-up of workers, and who computes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from feedline.analysis.measure.model import Gauge
from feedline.analysis.measure.rank_metrics import _queued_share, cpu_s
from feedline.analysis.predict.main_process import _computing
from feedline.analysis.predict.starts import WARMING, settling_cpu_s, warm_up, warming
from feedline.profiler.events import Stage

MS = 1_000_000
MADE = np.dtype([("start", "<i8"), ("number", "<i8"), ("cpu", "<i8")])


def worker(births: int, each: list[float]) -> Any:
    """A worker that is started for each of several passes, and takes so many ms of CPU time for its
    batches in each.
    """
    made = np.zeros(births * len(each), MADE)
    made["number"] = np.repeat(np.arange(births) << 32, len(each)) + np.tile(
        np.arange(len(each)), births
    )
    made["start"] = np.arange(len(made)) * 100 * MS
    made["cpu"] = np.tile(np.array(each) * MS, births)
    return SimpleNamespace(batches=made, is_worker=True)


@pytest.mark.parametrize(
    ("each", "first"),
    [([9, 2.3, 2.2, 2.1], 1), ([40, 30, 20, 15, 12, 10, 10, 10, 10], 5), ([2, 2, 2, 2], 0)],
)
def test_many_starts_show_how_many_batches_a_worker_needs_to_warm_up(each, first):
    several = [worker(30, each)] * 2

    assert warm_up(several, persistent=False) == first
    assert warming(several[0], False, first).sum() == 30 * first


def test_few_starts_do_not_show_it():
    assert warm_up([worker(2, [9.0] * 20)], persistent=False) == WARMING
    assert warm_up([worker(2, [9.0] * 4)], persistent=False) == 0
    assert warm_up([worker(40, [9.0] * 20)], persistent=True) == WARMING


def test_the_training_process_does_not_warm_up():
    main = SimpleNamespace(batches=worker(30, [9, 1, 1]).batches, is_worker=False)

    assert warm_up([main], persistent=False) == 0
    assert not warming(main, False, WARMING).any()


def test_threads_that_compute_beside_the_main_one_are_seen():
    computes_s, threads = _computing(
        cpu_s=0.040, beside_s=0.010, helped=True, known_s=0.008, rest_s=0.002
    )

    assert (computes_s, threads) == (pytest.approx(0.010), pytest.approx(3.0))


def test_what_workers_take_to_start_and_end_is_not_taken_for_threads_of_the_model():
    assert _computing(cpu_s=0.040, beside_s=0.010, helped=False, known_s=0.008, rest_s=0.002) == (
        pytest.approx(0.010),
        1.0,
    )


def test_a_main_thread_that_sleeps_does_not_compute():
    assert _computing(cpu_s=0.012, beside_s=0.010, helped=True, known_s=0.001, rest_s=0.020) == (
        pytest.approx(0.002),
        1.0,
    )


def test_the_cpu_time_of_a_step_is_that_of_the_mean_step_where_the_recorded_ones_are_longer():
    steps: Any = SimpleNamespace(
        start=np.arange(10) * 100 * MS,
        wall=np.full(10, 100 * MS),  # one in which a pass begins, of ten that take 10 ms
        boundaries=SimpleNamespace(
            end=(np.arange(10) + 1) * 100 * MS, evaluation=np.zeros((0, 2), np.int64)
        ),
    )
    gauge = Gauge("cpu/processes", "s/s", 1.5, 1.5, 1.5, [0.1, 0.3, 0.5, 0.7], [1.5] * 4)

    assert cpu_s(steps, 0, gauge, 0, mean_s=0.010) == pytest.approx(0.015)


def test_the_share_of_waiting_for_a_cpu_is_of_the_time_in_which_the_main_thread_wants_one():
    spans = np.zeros(
        4,
        [("start", "<i8"), ("cpu", "<i8"), ("runqueue", "<i8"), ("wall", "<i8"), ("thread", "<i8")],
    )
    spans["start"] = [0, 100 * MS, 110 * MS, 200 * MS]
    spans["cpu"] = [1 * MS, 6 * MS, 5 * MS, 5 * MS]
    spans["runqueue"] = [99 * MS, 2 * MS, 3 * MS, 50 * MS]
    spans["wall"] = 80 * MS  # most of it asleep
    spans["thread"] = [0, 0, 0, 1]
    main, steps = (
        SimpleNamespace(of=lambda *_: spans),
        SimpleNamespace(
            start=np.array([0, 100 * MS, 200 * MS]),
            boundaries=SimpleNamespace(evaluation=np.zeros((0, 2), np.int64)),
        ),
    )

    assert _queued_share(main, steps, 1, Stage.FORWARD) == pytest.approx(5 / 16)
    assert _queued_share(main, steps, 3, Stage.FORWARD) is None
    spans["runqueue"] = -1
    assert _queued_share(main, steps, 1, Stage.FORWARD) is None


KERNEL = np.dtype(
    [
        (name, "<i8")
        for name in ("source", "number", "flags", "minor_faults", "system_cpu", "cpu", "batches")
    ]
)
FAULT_NS = 2000


def of_passes(faults: list[int], other_ms: list[float]) -> Any:
    """Workers of three passes whose batches have so many page faults, of 2 us each, and take so
    long besides.
    """
    records = np.zeros(3 * len(faults), KERNEL)
    records["number"] = np.repeat(np.arange(3) << 32, len(faults)) + np.tile(
        np.arange(len(faults)), 3
    )
    records["minor_faults"], records["batches"] = np.tile(faults, 3), 1
    records["system_cpu"] = records["minor_faults"] * FAULT_NS
    records["cpu"] = records["system_cpu"] + np.tile(np.array(other_ms) * MS, 3).astype(int)
    process = SimpleNamespace(batches=records, is_worker=True, view=lambda stage: records)
    return SimpleNamespace(processes=[process], loaders={0})


@pytest.mark.parametrize(
    ("faults", "other_ms", "end"),
    [
        ([900, 900, 300, 300, 100, 100], [5] * 6, 100),  # to a third each time: nothing remains
        (
            [1000, 1000, 400, 400, 200, 200],
            [5] * 6,
            100,
        ),  # 600, then 200 fewer, then 67, 22, ...: 100 remain
        ([900, 900, 300, 300, 100, 100], [9, 9, 3, 3, 1, 1], 0),  # smaller and smaller batches
        ([900, 900, 600, 600, 300, 300], [5] * 6, 0),  # evenly fewer: no end in sight
        ([500, 500, 490, 490, 500, 500], [5] * 6, 0),
        ([0] * 6, [5] * 6, 0),
    ],
)
def test_page_faults_that_grow_fewer_in_a_pass_are_extrapolated_to_workers_that_stay(
    faults, other_ms, end
):
    assert settling_cpu_s(of_passes(faults, other_ms)) == pytest.approx(end * FAULT_NS / 1e9)
