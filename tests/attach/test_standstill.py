"""Of a training that hangs, ``feedline attach`` says who waits for whom, and at which line."""

import pytest
from attach.attaching import PROGRAMS, attach

LINES = (PROGRAMS / "hangs.py").read_text().splitlines()


def line_of(text: str) -> str:
    """The place of the line that begins with a text."""
    number = next(n for n, line in enumerate(LINES, 1) if line.strip().startswith(text))
    return f"hangs.py:{number}"


@pytest.mark.parametrize(
    ("kind", "does", "place"),
    [
        ("lock", "which waits for a lock", "with LOCK"),
        pytest.param(
            *("full pipe", "which waits for a command to end", "subprocess.Popen("),
            marks=pytest.mark.long,
        ),
        pytest.param("stopped", "which is stopped", "os.kill(", marks=pytest.mark.long),
        pytest.param(
            *("full queue", "which waits for room in a full queue", "QUEUE.put(2)"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_worker_that_hangs_is_named_with_its_line(kind, does, place, start, tmp_path):
    seen = attach(start("hangs.py", kind).pid, tmp_path, 4)

    assert seen["stuck"]
    assert seen["limit"].startswith("No step for ")
    assert seen["place"] == line_of(place)
    assert seen["cause"] == (f"The main process waits for worker 0, {does} at {line_of(place)}.")
    names = [row["name"] for row in seen["processes"]]
    assert names[:3] == ["the main process", "worker 0", "worker 1"]
    assert len(names) == 3 + (kind == "full pipe")  # the command
    assert ("communicate()" in seen["fix"]) == (kind == "full pipe")
    assert ("The lock was taken before the fork" in str(seen["findings"])) == (kind == "lock")


@pytest.mark.long
def test_a_process_that_has_ended_is_named(start, tmp_path):
    seen = attach(start("hangs.py", "dead").pid, tmp_path, 4)

    dead = seen["processes"][1]
    assert dead["state"] == "Z"
    assert seen["cause"] == f"The main process waits for process {dead['pid']}, which has ended."


@pytest.mark.long
def test_a_queue_that_no_thread_fills_any_more_is_told_as_such(start, tmp_path):
    seen = attach(start("hangs.py", "dead thread").pid, tmp_path, 4)

    place = line_of("batches.get()")
    assert seen["cause"] == f"The main process waits for a queue that stays empty at {place}."
    assert "what filled the queue has ended" in str(seen["findings"])
    assert seen["fix"].startswith("Look for why the thread that fills the queue has ended")


@pytest.mark.parametrize(
    ("kind", "begun"), [("ahead", 1), pytest.param("exception", 1, marks=pytest.mark.long)]
)
def test_a_rank_that_waits_for_another_is_named_with_its_line(kind, begun, start, tmp_path):
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    program = start(*words, "hangs.py", kind, begun=begun)

    seen = attach(program.pid, tmp_path, 4)

    assert seen["cause"] == (
        f"Rank 1 waits in backward() at {line_of('loss.backward()')}, while rank 0 sleeps at "
        f"{line_of('time.sleep(1000)')}."
    )
    assert seen["place"] == line_of("loss.backward()")


@pytest.mark.long
def test_a_training_with_slow_batches_does_not_hang(start, tmp_path):
    seen = attach(start("slow_dataset.py", 1, "fork", 60, 5).pid, tmp_path, 4)

    assert not seen["stuck"]


@pytest.mark.long
def test_a_training_that_ends_meanwhile_does_not_hang(start, tmp_path):
    seen = attach(start("slow_dataset.py", 1, "fork", 15, 5).pid, tmp_path, 60)

    assert not seen["stuck"]
    assert seen["seconds"] < 60
