"""Who trains, and who is to blame where no step passes, of made-up processes."""

import pytest
from attach.made_processes import (
    COMMAND,
    FEEDS,
    FOR_BATCH,
    FORKED,
    JOIN,
    PYTHON,
    SPAWNED,
    TORCH,
    process,
    thread,
    watched,
)

from feedline.analysis.explain.attached import Attached
from feedline.analysis.explain.standstill import standstill
from feedline.analysis.measure.roles import WatchedRank, ranks_of, shown
from feedline.profiler.samplers.blocked_threads import (
    ON_LOCK,
    ON_NETWORK,
    ON_PROCESS,
    ON_SHARED_LOCK,
    ON_SLEEP,
)

BACKWARD = [("/p/train.py", "train", 40), (TORCH + "_tensor.py", "backward", 630)]
SLEEPS = [("/p/monitor.py", "watch", 5)]
AT_LOCK = [("/p/data.py", "__getitem__", 22)]
IN_THREADING = (PYTHON + "threading.py", "wait", 327)
BARRIER = [("/p/train.py", "main", 60), (TORCH + "distributed/distributed_c10d.py", "barrier", 9)]


@pytest.mark.parametrize("waits", [JOIN, COMMAND])
def test_a_program_that_waits_for_a_training_does_not_train(waits):
    parent = process(1, thread(waits), parent=0)
    monitor = process(2, thread(SLEEPS, waits_on=ON_SLEEP))
    training = process(3, thread(BACKWARD, [*BACKWARD[:1]]), cpus=1.0)

    (rank,) = ranks_of(watched(parent, monitor, training))

    assert rank.main.pid == 3 and rank.number is None
    assert [other.pid for other in rank.beside] == [2] and not rank.others
    assert not standstill([rank]).stuck


@pytest.mark.parametrize(("state", "launchers"), [("S", None), ("Z", None), ("S", 0)])
def test_a_rank_that_stands_still_below_a_program_that_waits_is_a_rank(state, launchers):
    launcher = process(1, thread(COMMAND), parent=0, rank=launchers)  # srun gives it one
    sleeps = process(2, thread(SLEEPS, waits_on=ON_SLEEP), rank=0, state=state)
    waits = process(3, thread(BARRIER), rank=1)

    assert [rank.number for rank in ranks_of(watched(launcher, sleeps, waits))] == [0, 1]


@pytest.mark.parametrize("seen", [False, True])
def test_the_only_process_of_torchrun_trains_where_srun_numbered_torchrun_alike(seen):
    """One process per node: the rank of the task is that of the process it launches."""
    agent = process(1, thread(COMMAND), parent=0, rank=1, launcher="slurm")
    sleeps = process(2, thread(SLEEPS), rank=1, launcher="torchrun")
    helper = process(3, thread(SLEEPS), parent=2, rank=1, launcher="torchrun")  # has what 2 has

    (rank,) = ranks_of(watched(agent, sleeps, *[helper] * seen))

    assert rank.main.pid == 2 and len(rank.others) == seen and not rank.beside


def test_a_monitor_beside_a_training_is_not_what_the_training_waits_for():
    launcher = process(1, thread(COMMAND), parent=0)
    monitor = process(2, thread(SLEEPS, waits_on=ON_SLEEP))
    waits = [*BACKWARD[:1], (PYTHON + "multiprocessing/queues.py", "get", 103)]
    training = process(3, thread(waits, waits_on=ON_NETWORK), rank=0)

    still = standstill(ranks_of(watched(launcher, monitor, training)))

    assert still.stuck and "monitor.py" not in str(still.cause)
    assert any(doing.process is monitor for doing in still.processes)


@pytest.mark.parametrize("rank", [None, 3])
def test_a_training_that_waits_for_a_process_without_torch_still_trains(rank):
    main = process(1, thread(JOIN), parent=0, rank=rank)
    writer = process(2, thread(SLEEPS, waits_on=ON_SLEEP), rank=rank)

    (rank,) = ranks_of(watched(main, writer))

    assert rank.main.pid == 1 and [other.pid for other in rank.others] == [2]


def test_a_program_below_a_shell_belongs_to_the_process_that_was_named():
    main = process(1, thread(BACKWARD), parent=0, cpus=1.0)
    below = process(9, thread(SLEEPS), parent=8)

    (rank,) = ranks_of(watched(main, below))

    assert [other.pid for other in rank.others] == [9]


def test_a_training_in_no_thread_is_refused_in_a_sentence():
    waits = thread([("/p/app.py", "main", 12), IN_THREADING])
    answers = thread([("/p/app.py", "serve", 30)], is_main=False, number=2)

    report = Attached.of(watched(process(1, waits, answers, parent=0, cpus=1.0))).report

    assert report.limit == (
        "The main thread only waits for other threads, and none was seen to train."
    )
    assert (report.findings, report.fix, report.place) == ([], "", "")


def test_a_process_that_waits_for_a_batch_can_be_the_one_that_is_waited_for():
    other = process(2, thread(FOR_BATCH))
    still = standstill([WatchedRank(None, process(1, thread(JOIN)), [], [other])])

    assert still.cause == (
        "The main process waits for process 2, which waits for a batch at train.py:20."
    )


@pytest.mark.parametrize(
    ("frames", "waits_on", "others", "held"),
    [
        ([*FORKED, *AT_LOCK], ON_LOCK, [], True),
        ([*FORKED, *AT_LOCK], ON_LOCK, [FEEDS], True),
        ([*SPAWNED, *AT_LOCK], ON_LOCK, [], False),
        ([*FORKED, *AT_LOCK], ON_SHARED_LOCK, [], False),
        ([*FORKED, *AT_LOCK, IN_THREADING], ON_LOCK, [], False),
        ([*FORKED, *AT_LOCK], ON_LOCK, [[IN_THREADING]], False),
    ],
)
def test_a_lock_was_taken_before_the_fork_only_where_nothing_else_can_be(
    frames, waits_on, others, held
):
    more = [thread(one, is_main=False, number=9) for one in others]
    worker = process(2, thread(frames, waits_on=waits_on), *more)
    found = standstill([WatchedRank(None, process(1, thread(FOR_BATCH)), [worker])]).finding()

    assert found.message.endswith("worker 0, which waits for a lock at data.py:22")
    assert bool(found.more) == bool(found.fix) == bool(found.gives) == held
    if held:
        assert "before the fork, or by this thread itself" in found.more[0]


@pytest.mark.parametrize(
    ("waits_on", "says"),
    [
        (ON_NETWORK, "The main process waits for the network at train.py:12."),
        (ON_PROCESS, "The main process waits for process 2, which has ended."),
    ],
)
def test_only_a_main_process_that_waits_for_a_process_blames_one(waits_on, says):
    main = process(1, thread([("/p/train.py", "main", 12)], waits_on=waits_on))
    ended = process(2, state="Z")

    assert standstill([WatchedRank(None, main, [], [ended])]).cause == says


def test_a_rank_that_is_only_late_is_named_without_a_fix():
    evaluates = thread(*([("/p/train.py", "evaluate", line)] for line in (70, 71)))
    late, waiting = process(2, evaluates, cpus=0.97), process(3, thread(BARRIER))
    still = standstill([WatchedRank(0, late), WatchedRank(1, waiting)])

    found = still.finding()
    assert (
        still.cause == "Rank 1 waits in barrier() at train.py:60, while rank 0 runs at train.py:71."
    )
    assert (found.place, found.fix, found.gives) == ("train.py:71", "", "")


def test_a_file_whose_name_is_not_utf_8_can_be_written():
    file = shown("/p/caf\udce9/train.py", "/p")

    assert file.encode().decode() == file == "caf\\udce9/train.py"
