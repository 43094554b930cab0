"""What one process writes is there for a reader, whatever happened to the process, and never takes
more room than it was given.
"""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.profiler.errors import RunDamaged
from feedline.profiler.events import RECORD, Stage
from feedline.profiler.files import owned
from feedline.profiler.store.compact import compact, read_compact
from feedline.profiler.store.layout import RECORDS_AT, WINDOW, bin_edge_ns, bin_of
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.segment import MOST_STAGES, Segment, window_of
from feedline.profiler.store.segment_reader import read_segment

MAIN = {"role": "main"}
HEADERS = {"main.seg": MAIN, "loader0-worker1.seg": {"role": "worker", "loader": 0, "worker": 1}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "segments" / "main.seg"


def write_batches(segment, count, per_batch=4, first=0):
    for batch in range(first, first + count):
        segment.window = window_of(0, batch)
        for record in range(per_batch):
            segment.add(Stage.SAMPLE, start=batch * 100 + record, wall=7, number=batch)


def test_records_come_back_as_they_were_written(path):
    segment = Segment(path, {"role": "main"})
    segment.add(Stage.READ, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    name = segment.name_id("Größe")

    process = read_segment(path)

    assert process.header == {"role": "main", "segment": "main"}
    assert process.names == {name: "Größe"}
    assert process.records[
        ["start", "wall", "cpu", "runqueue", "nbytes", "number", "extra", "source", "flags"]
    ].tolist() == [(1, 2, 3, 4, 5, 6, 7, 8, 9)]
    segment.close()


def test_a_half_written_record_is_not_there(path):
    segment = Segment(path, MAIN)
    segment.add(Stage.READ, 1, 2)
    segment.add(Stage.DECODE, 3, 4)
    segment.close()
    with open(
        path, "r+b"
    ) as file:  # as a kill between two stores of pack_into leaves it: the last byte is missing
        file.seek(RECORDS_AT + 2 * RECORD.size - 1)
        file.write(b"\0")

    assert read_segment(path).records["stage"].tolist() == [Stage.READ]


def test_a_full_segment_forgets_whole_windows_and_counts_everything(path):
    segment = Segment(path, MAIN, capacity_bytes=64 * 1024)
    write_batches(segment, 5000)

    process = read_segment(path)

    assert path.stat().st_size <= 64 * 1024 + RECORDS_AT + 256 * 1024
    assert process.totals[Stage.SAMPLE, :2].tolist() == [20000, 140000]
    assert process.stride > 1
    windows, records = np.unique(process.records["number"] // WINDOW, return_counts=True)
    kept = {
        window
        for window in range(5000 // WINDOW + 1)
        if window_of(0, window * WINDOW) % process.stride == 0
    }
    assert set(windows.tolist()) == kept
    assert set(records[:-1].tolist()) == {4 * WINDOW}
    segment.close()


def test_two_processes_that_forget_at_different_times_keep_common_windows(tmp_path):
    small, large = (
        Segment(tmp_path / name / "x.seg", MAIN, capacity_bytes=size)
        for name, size in (("a", 32 * 1024), ("b", 512 * 1024))
    )
    write_batches(small, 3000)
    write_batches(large, 3000)

    of_small, of_large = (
        set(read_segment(segment.path).records["number"].tolist()) for segment in (small, large)
    )

    assert of_small < of_large
    small.close()
    large.close()


def test_the_next_process_of_the_same_worker_goes_on_in_its_file(path):
    first = Segment(path, {**MAIN, "pid": 1})
    first.add(Stage.READ, 1, 1, source=first.name_id("a"))
    first.close()
    second = Segment(path, {**MAIN, "pid": 2})
    assert second.name_id("a") == 1
    second.add(Stage.READ, 2, 1, source=second.name_id("b"))

    process = read_segment(path)

    assert second.path == path
    assert process.records["start"].tolist() == [1, 2]
    assert process.names == {1: "a", 2: "b"}
    assert process.totals[Stage.READ, 0] == 2
    second.close()


def test_each_name_has_a_number_of_its_own_in_a_file_that_is_continued(path):
    """Of some, the file holds another text: cut, masked, or without zeros at the end."""
    changed = ["RandomResizedCrop" * 4, "hf_" + "a" * 24, "é" * 40, "zeros\0\0"]
    for number in range(4):
        segment = Segment(path, MAIN)
        for name in [*changed, f"new {number}", *changed]:
            segment.add(Stage.READ, number, 1, source=segment.name_id(name))
        segment.close()

    process = read_segment(path)

    assert sorted(process.names) == list(range(1, 9))
    held = [("RandomResizedCrop" * 4)[:56], "***", "é" * 28, "zeros"]
    assert [process.names[source] for source in process.records["source"].tolist()] == [
        name for number in range(4) for name in [*held, f"new {number}", *held]
    ]


def test_names_that_differ_with_each_step_do_not_fill_the_file(path):
    for _ in range(2):
        segment = Segment(path, MAIN)
        for step in range(5000):
            number = segment.name_id(f"step {step}", MOST_STAGES)
            segment.add(Stage.USER, step, 1, source=number)
        assert segment.name_id("step 9") == 10
        segment.close()

    process = read_segment(path)

    assert segment.stopped is None
    assert len(process.names) == 4096 and process.names[10] == "step 9"
    sources = process.records["source"].tolist()
    assert sources == [*range(1, 4097), *[0] * 904] * 2


def test_stages_without_number_leave_the_names_of_all_else(path):
    segment = Segment(path, MAIN)
    for step in range(5000):
        segment.name_id(f"step {step}", MOST_STAGES)

    accuracy, loss = segment.name_id("accuracy"), segment.name_id("loss")
    segment.close()

    assert 0 < accuracy < loss
    assert read_segment(path).names[loss] == "loss"


CONTINUED = """
import sys
from pathlib import Path
from feedline.profiler.store.segment import Segment

for _ in range(2):
    segment = Segment(Path(sys.argv[1]), {"role": "main", "pid": 1})
    number = segment.name_id("read"), segment.name_id("decode")
    for start in range(3000):
        segment.add(1, start, 1)
    segment.close()
print(*number, "numpy" in sys.modules)
"""


def test_a_file_is_written_and_continued_without_numpy(path):
    command = [sys.executable, "-c", CONTINUED, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["1", "2", "False"]
    process = read_segment(path)
    assert process.names == {1: "read", 2: "decode"}
    assert process.records["start"].tolist() == [*range(3000), *range(3000)]


def test_a_live_process_keeps_its_file_to_itself(path):
    first, second = Segment(path, MAIN), Segment(path, MAIN)

    assert first.path != second.path
    first.close()
    second.close()


def test_a_file_system_without_locks_is_recorded_to(path, monkeypatch):
    def refused(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    segment = Segment(path, MAIN)
    segment.add(Stage.READ, 1, 2)
    other = Segment(path, MAIN)

    assert sorted(file.name for file in path.parent.glob("*.seg")) == ["main.1.seg", "main.seg"]
    assert len(read_segment(path).records) == 1
    segment.close()
    other.close()


def test_a_killed_process_loses_nothing_that_add_returned_from(path):
    program = f"""
from pathlib import Path
from feedline.profiler.store.segment import Segment
segment = Segment(Path({str(path)!r}), {MAIN})
number = 0
while True:
    segment.add(3, number, 1)
    number += 1
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGKILL)
    said = int(process.communicate()[0].splitlines()[-1])

    records = read_segment(path).records

    assert said > 100
    assert len(records) in (said, said + 1)
    assert records["start"].tolist() == list(range(len(records)))


def test_the_child_of_a_fork_writes_nothing(path):
    from feedline.profiler.record.recorder import recorder

    segment = Segment(path, MAIN)
    recorder.open_main(segment)
    try:
        child = os.fork()
        if child == 0:
            segment.add(Stage.READ, 1, 1)
            os._exit(0 if recorder.segment is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(read_segment(path).records) == 0
    finally:
        recorder.close()


def in_a_handler(segment, thread):
    """Run a thread to its end in a signal's handler, which interrupts ``add`` in this one."""
    ended = []

    def handler(*_):
        thread.start()
        thread.join(4)
        ended.append(not thread.is_alive())

    def slots(inner):
        signal.raise_signal(signal.SIGUSR1)
        yield from inner

    before = signal.signal(signal.SIGUSR1, handler)
    segment._slots = slots(segment._slots)
    try:
        segment.add(Stage.FORWARD, 1, 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
    return ended == [True]


def test_a_thread_that_a_handler_waits_for_goes_on_and_what_it_does_is_counted(path):
    segment, names = Segment(path, MAIN), []
    open_span = segment.add(Stage.NEXT, 1, -1)

    def works():
        for _ in range(30):
            segment.add(Stage.SAMPLE, 1, 7)
        segment.end(open_span, Stage.NEXT, 5)
        names.append(segment.name_id("unknown"))
        names.append(segment.add_for_good(Stage.EPOCH, 1, 2))
        for asked in (lambda: segment.mark(1), lambda: segment.written_since(-1, 0)):
            with pytest.raises(TimeoutError):
                asked()

    assert in_a_handler(segment, threading.Thread(target=works))
    assert names == [0, None]
    segment.add(Stage.SAMPLE, 1, 7)
    process = read_segment(path)
    assert process.totals[Stage.SAMPLE, :2].tolist() == [31, 31 * 7]
    assert process.records["stage"].tolist() == [Stage.NEXT, Stage.FORWARD, Stage.SAMPLE]


def test_a_thread_whose_turn_comes_loses_nothing(path):
    segment = Segment(path, MAIN)
    thread = threading.Thread(target=segment.add, args=(Stage.SAMPLE, 1, 7))
    with segment._lock:
        thread.start()
        time.sleep(0.1)
    thread.join()

    assert read_segment(path).records["stage"].tolist() == [Stage.SAMPLE]


def test_a_full_disk_stops_the_recording_and_says_so(small_disk):
    segment = Segment(small_disk(200 * 1024) / "main.seg", {"role": "main"})
    write_batches(segment, 5000)
    process = read_segment(segment.path)

    assert "No space left" in segment.stopped
    assert process.header["stopped"] == segment.stopped
    assert process.records["start"].tolist() == sorted(process.records["start"].tolist())
    assert len(process.records) >= 512
    segment.close()


#: Its segment is full after so many records: a chunk of 32 KiB, and one of 256.
SMALL, ROOM = 256 * 1024, 4608
FULL = f"""
import os, signal
from pathlib import Path
from feedline.profiler.store.segment import Segment, window_of
segment = Segment(Path(PATH), {MAIN}, {SMALL})
for number in range({ROOM}):
    segment.window = window_of(0, number)
    segment.add({int(Stage.SAMPLE)}, number, 7)
os.CALL = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
segment.add({int(Stage.SAMPLE)}, {ROOM}, 7)
"""


def test_a_disk_that_fills_while_windows_are_forgotten_leaves_all_as_it_was(small_disk):
    segment = Segment(small_disk(400 * 1024) / "main.seg", MAIN, SMALL)
    write_batches(segment, 2000)

    process = read_segment(segment.path)

    assert "No space left" in segment.stopped
    assert (process.stride, len(process.records)) == (1, ROOM)
    assert process.totals[Stage.SAMPLE, :2].tolist() == [ROOM, 7 * ROOM]
    segment.close()


@pytest.mark.parametrize("call", ["posix_fallocate", "rename"])
def test_a_kill_while_windows_are_forgotten_counts_nothing_twice(tmp_path, path, call):
    program = FULL.replace("PATH", repr(str(path))).replace("CALL", call)
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL

    (process,) = Rank(tmp_path, 0, 0, None, []).processes
    assert (process.stride, len(process.records)) == (1, ROOM)
    assert process.totals[Stage.SAMPLE, :2].tolist() == [ROOM, 7 * ROOM]
    following = Segment(path, MAIN, SMALL)
    following.add(Stage.SAMPLE, ROOM, 7)
    (process,) = Rank(tmp_path, 0, 0, None, []).processes
    assert process.stride > 1
    assert process.totals[Stage.SAMPLE, :2].tolist() == [ROOM + 1, 7 * (ROOM + 1)]
    following.close()


@pytest.mark.parametrize("call", ["rename", "close"])
def test_ctrl_c_while_windows_are_forgotten_leaves_the_process_with_its_file(
    path, monkeypatch, call
):
    segment, original = Segment(path, MAIN, SMALL), getattr(os, call)
    write_batches(segment, ROOM // 4)

    def interrupted(*given):
        original(*given)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, call, interrupted)
        segment.add(Stage.SAMPLE, 1, 7)
    segment.add_for_good(Stage.EPOCH, 2, 1)

    process = read_segment(path)
    assert process.stride > 1
    assert process.totals[Stage.SAMPLE, 0] == ROOM
    assert process.of(Stage.EPOCH)["start"].tolist() == [2]
    segment.close()


def test_a_file_that_is_cut_in_its_header_is_named(path):
    Segment(path, MAIN).close()
    os.truncate(path, 5000)

    with pytest.raises(RunDamaged, match="main.seg is not a segment"):
        read_segment(path)


def test_compaction_keeps_every_record_name_and_sum(tmp_path):
    main, worker = (
        Segment(tmp_path / "segments" / name, header) for name, header in HEADERS.items()
    )
    write_batches(main, 30)
    worker.add(Stage.DECODE, 5, 6, source=worker.name_id("JPEG"))
    worker.count((1000, 2234, 2234, 2300, 1))
    before = [read_segment(main.path), read_segment(worker.path)]
    main.close()
    worker.close()

    compact(tmp_path)

    assert sorted(file.name for file in tmp_path.iterdir()) == [
        ".feedline",
        "events.parquet",
        "totals.parquet",
    ]
    for old, new in zip(before, read_compact(tmp_path), strict=True):
        assert new.header == old.header
        assert new.names == old.names
        assert new.records.tolist() == old.records.tolist()
        assert (new.totals == old.totals).all()
        assert (new.histograms == old.histograms).all()


def test_durations_between_moments_are_counted_and_time_that_goes_back_is_not(path):
    segment = Segment(path, {"role": "main"})
    segment.count((1000, 1100, 1100, 50, 150))
    segment.count((7, 107), 8)

    counted = read_segment(path).histograms
    assert counted.sum() == counted[0][bin_of(100)] == 2 + 8


@given(st.integers(0, 2**62))
def test_a_bin_holds_its_duration_within_a_quarter(duration):
    index = bin_of(duration)

    assert bin_edge_ns(index) <= duration < bin_edge_ns(index + 1)
    assert bin_edge_ns(index + 1) - bin_edge_ns(index) <= max(1, bin_edge_ns(index) / 4)


@given(st.integers(0, 1000), st.integers(0, 10**6))
def test_all_batches_of_a_window_have_its_number(epoch, batch):
    assert window_of(epoch, batch) == window_of(epoch, batch // WINDOW * WINDOW)
    assert 0 <= window_of(epoch, batch) < 65536


def test_a_file_without_room_is_continued_without_writing_over_its_records(tmp_path):
    first = Segment(tmp_path / "s.seg", {"role": "main"})
    for number in range(512):
        first.add(Stage.FETCH, number, 1)
    first.close()
    second = Segment(tmp_path / "s.seg", {"role": "main"})
    second.add(Stage.FETCH, 512, 1)
    second.close()

    assert read_segment(tmp_path / "s.seg").of(Stage.FETCH)["start"].tolist() == list(range(513))


@pytest.mark.parametrize("written", [0, 1])
def test_records_whose_packing_was_interrupted_are_read_from_their_segments(
    tmp_path, monkeypatch, written
):
    for name, header in HEADERS.items():
        segment = Segment(tmp_path / "segments" / name, header)
        write_batches(segment, 3)
        segment.close()
    rank = Rank(tmp_path, 0, 0, None, [])
    before = [process.records.tolist() for process in rank.processes]
    names = iter(range(written))

    def full_disk(folder, name):
        if next(names, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replacing(folder, name)

    replacing = owned.replacing
    monkeypatch.setattr(owned, "replacing", full_disk)
    with pytest.raises(OSError, match="No space"):
        compact(tmp_path)

    interrupted = Rank(tmp_path, 0, 0, None, [])
    assert [process.records.tolist() for process in interrupted.processes] == before
    monkeypatch.setattr(owned, "replacing", replacing)
    compact(tmp_path)
    assert [
        process.records.tolist() for process in Rank(tmp_path, 0, 0, None, []).processes
    ] == before
    assert not (tmp_path / "segments").exists()
