"""The replay of torch's dispatch: against another way to compute it, and against what no schedule
can do.
"""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedline.analysis.predict.loader_replay import _LAG, Pass, Replayed, Setting, Task, replay

MANY = 1000.0  # CPUs: nothing waits for one
seconds = st.floats(0.001, 0.1)


def tasks(cpu: Sequence[float], off: Sequence[float] = ()) -> list[Task]:
    return [Task(own, waits) for own, waits in itertools.zip_longest(cpu, off, fillvalue=0.0)]


def by_recurrence(
    making: list[float], compute: float, workers: int, ahead: int, in_order: bool
) -> float:
    """Seconds of a pass, where CPUs are free: the times at which workers are done follow from each
    other, batch by batch.
    """
    free, outstanding, finish, made_by = (
        [0.0] * workers,
        [0] * workers,
        dict[int, float](),
        dict[int, int](),
    )
    turn, sent, now = itertools.cycle(range(workers)), 0, 0.0

    def ask() -> None:
        nonlocal sent
        if sent == len(making):
            return
        worker = next(
            (w for w in itertools.islice(turn, workers) if in_order or outstanding[w] < ahead), None
        )
        if worker is not None:
            free[worker] = finish[sent] = max(now, free[worker]) + making[sent]
            outstanding[worker] += 1
            made_by[sent] = worker
            sent += 1

    for _ in range(workers * ahead):
        ask()
    for number in range(len(making)):
        batch = number if in_order else min(finish, key=finish.__getitem__)
        now = max(now, finish.pop(batch))
        outstanding[made_by[batch]] -= 1
        ask()
        now += compute
    return now


@pytest.mark.parametrize(("workers", "ahead"), [(1, 2), (2, 2), (3, 1), (4, 2), (4, 8), (8, 4)])
@pytest.mark.parametrize("in_order", [True, False])
def test_with_a_cpu_for_each_the_replay_is_torchs_dispatch(workers, ahead, in_order):
    dice = random.Random(workers)
    making = [
        dice.lognormvariate(-3.5, 0.6) * (10 if dice.random() < 0.02 else 1) for _ in range(400)
    ]

    replayed = replay(
        Setting(workers, ahead, in_order), Pass(tasks([], making), tasks([0.012] * 400)), MANY
    )

    assert replayed.total_s == pytest.approx(
        by_recurrence(making, 0.012, workers, ahead, in_order), rel=1e-9
    )


@st.composite
def trainings(draw: st.DrawFn) -> tuple[Setting, Pass, float]:
    setting = Setting(draw(st.integers(0, 5)), draw(st.integers(1, 4)), draw(st.booleans()))
    number = draw(st.integers(1, 40))
    cpu, off, own = (draw(st.lists(seconds, min_size=number, max_size=number)) for _ in range(3))
    receiving, pinning = Task(draw(seconds) / 10, 0.0), Task(draw(st.just(0.0) | seconds), 0.0)
    return (
        setting,
        Pass(tasks(cpu, off), tasks(own), receiving, pinning),
        draw(st.sampled_from([1.0, 1.5, 2.0, 4.0])),
    )


def work_s(setting: Setting, work: Pass) -> float:
    """CPU seconds of it all."""
    receiving = work.receiving.cpu_s * len(work.batches) if setting.num_workers else 0.0
    return (
        sum(task.cpu_s for task in (*work.batches, *work.steps))
        + work.pinning.cpu_s * len(work.batches)
        + receiving
    )


def main_s(setting: Setting, work: Pass) -> float:
    """Seconds that the main process needs by itself, without waiting."""
    receiving = work.receiving.alone_s * len(work.batches) if setting.num_workers else 0.0
    return sum(step.alone_s for step in work.steps) + receiving


@settings(max_examples=60)
@given(trainings())
def test_no_pass_is_faster_than_its_main_process_or_than_its_cpus(training):
    setting, work, cpus = training

    replayed = replay(setting, work, cpus)

    assert replayed.total_s >= main_s(setting, work) * (1 - 1e-9)
    assert replayed.total_s >= work_s(setting, work) / cpus * (1 - 1e-9)
    assert replayed.cpu_s == pytest.approx(work_s(setting, work))
    assert replayed.ends_s == sorted(replayed.ends_s)
    assert len(replayed.ends_s) == len(work.steps)


@settings(max_examples=60)
@given(trainings())
def test_a_pass_is_waiting_and_the_main_processs_work(training):
    setting, work, _ = training

    replayed = replay(setting, work, MANY)

    assert replayed.wait_s + main_s(setting, work) == pytest.approx(replayed.total_s)


@settings(max_examples=60)
@given(trainings())
def test_a_pass_is_never_slower_with_a_cpu_for_everybody(training):
    setting, work, cpus = training
    setting = Setting(
        setting.num_workers, setting.prefetch_factor
    )  # out of order, what comes first decides what comes next

    # a batch that comes sooner may be received, or pinned, just before the one that is waited for
    # (an anomaly of list scheduling: Graham, SIAM J. Appl. Math. 17(2), 1969)
    early_s = (work.receiving.alone_s + work.pinning.alone_s) * setting.num_workers

    assert (
        replay(setting, work, MANY).total_s
        <= replay(setting, work, cpus).total_s * (1 + 1e-9) + early_s
    )


@settings(max_examples=60)
@given(trainings(), st.floats(0.1, 4))
def test_other_programs_make_no_pass_faster(training, others):
    setting, work, cpus = training
    setting = Setting(min(setting.num_workers, 1))  # with one worker the order is always the same

    assert replay(setting, work, cpus, others).total_s >= replay(setting, work, MANY).total_s * (
        1 - 1e-9
    )


def saturated(workers: int, cpus: float, others: float = 0.0) -> Replayed:
    return replay(Setting(workers), Pass(tasks([0.1] * 80), tasks([0.0] * 80)), cpus, others)


def test_workers_beyond_the_cpus_add_nothing_where_batches_take_nothing_else():
    assert saturated(4, 2).total_s == pytest.approx(saturated(2, 2).total_s, rel=0.02)
    assert saturated(2, 2).total_s == pytest.approx(saturated(1, 2).total_s / 2, rel=0.02)


def test_a_program_that_wants_a_cpu_takes_its_share():
    assert saturated(2, 2, others=1.0).total_s == pytest.approx(
        saturated(2, 2).total_s * 1.5, rel=0.02
    )
    assert saturated(1, 2, others=1.0).total_s == saturated(1, 2).total_s


def test_what_waits_for_a_disk_is_not_slowed_by_a_lack_of_cpus():
    waits = Pass(tasks([0.001] * 60, [0.1] * 60), tasks([0.0] * 60))

    assert replay(Setting(8), waits, 1.0).total_s == pytest.approx(
        replay(Setting(8), waits, MANY).total_s, rel=0.1
    )


def test_helper_threads_of_two_workers_compete_for_two_cpus():
    alone = Pass([Task(0.1, 0.0)] * 40, tasks([0.0] * 40))
    helped = Pass([Task(0.2, 0.0, threads=2.0)] * 40, tasks([0.0] * 40))

    assert replay(Setting(1), helped, 2.0).total_s == pytest.approx(
        replay(Setting(1), alone, 2.0).total_s
    )
    assert replay(Setting(2), helped, 2.0).total_s == pytest.approx(
        2 * replay(Setting(2), alone, 2.0).total_s, rel=0.05
    )


def test_a_pass_begins_with_the_births_of_its_workers():
    work = Pass(
        tasks([0.01] * 4), tasks([0.0] * 4), starting=Task(0.02, 0.0), births=Task(0.0, 0.5)
    )

    assert replay(Setting(2), work, MANY).ends_s[0] == pytest.approx(0.02 + 0.5 + 0.01)


def test_one_thread_pins_one_batch_after_the_other():
    made_at_once = Pass(tasks([0.1] * 80), tasks([0.0] * 80), pinning=Task(0.02, 0.0))

    ends = replay(Setting(8), made_at_once, MANY).ends_s

    assert ends[0] == pytest.approx(0.1 + 0.02)
    assert ends[7] == pytest.approx(0.1 + 8 * 0.02)
    assert ends[-1] == pytest.approx(0.1 + 80 * 0.02, rel=0.02)


def test_training_goes_on_while_the_next_batch_is_pinned():
    work = Pass(tasks([0.001] * 80), tasks([0.02] * 80), pinning=Task(0.015, 0.0))

    assert replay(Setting(2), work, MANY).total_s == pytest.approx(80 * 0.02, rel=0.02)
    assert replay(Setting(0), work, MANY).total_s == pytest.approx(80 * (0.001 + 0.015 + 0.02))


def test_a_gpu_that_takes_longer_than_the_host_is_what_limits_a_pass_of_batches_that_are_ready():
    work = Pass(tasks([0.001] * 80), tasks([0.005] * 80), gpu_s=0.02)

    assert replay(Setting(2), work, MANY).total_s == pytest.approx((80 - _LAG) * 0.02, rel=0.02)
    assert replay(Setting(0), work, MANY).total_s == pytest.approx((80 - _LAG) * 0.02, rel=0.02)


def test_a_gpu_works_while_the_host_waits_for_batches():
    work = Pass(tasks([0.03] * 80), tasks([0.005] * 80), gpu_s=0.02)

    assert replay(Setting(1), work, MANY).total_s == pytest.approx(80 * 0.03, rel=0.02)


def test_a_host_that_waits_for_the_gpu_in_each_step_is_not_slowed_twice():
    waits = Pass(tasks([0.001] * 80), tasks([0.005] * 80, [0.015] * 80), gpu_s=0.018)

    assert replay(Setting(2), waits, MANY).total_s == pytest.approx(80 * 0.02, rel=0.02)


def test_the_thread_that_pins_receives_batches_as_well():
    work = Pass(
        tasks([0.1] * 80), tasks([0.0] * 80), pinning=Task(0.02, 0.0), unpacking=Task(0.01, 0.0)
    )

    assert replay(Setting(8), work, MANY).total_s == pytest.approx(0.1 + 80 * 0.03, rel=0.02)


def test_a_worker_that_keeps_pythons_lock_sends_its_batches_when_it_has_nothing_to_make():
    work = Pass(tasks([0.004] * 200), tasks([0.003] * 200))

    with_lock = replay(Setting(1), Pass(work.batches, work.steps, lock_s=0.005, locks=7), 4)

    assert with_lock.locked_s > 0
    assert replay(Setting(1), work, 4).total_s < with_lock.total_s < 200 * (0.004 + 0.003)


def test_pythons_lock_holds_up_fewer_batches_of_more_workers():
    work = Pass(tasks([0.02] * 200), tasks([0.002] * 200), lock_s=0.005, locks=7)

    one, two = (replay(Setting(workers), work, 4).total_s for workers in (1, 2))

    assert one / two > 1.7  # a batch of pure Python, 64 rows: 1.73 and 1.79 were measured
