"""The process and the thread that train are found below a program that only waits for them."""

import pytest
from attach.attaching import PROGRAMS

from feedline.analysis.explain.attached import Attached, AttachedReport
from feedline.profiler.attach.watch import watch

SECONDS = 4
LINES = (PROGRAMS / "started.py").read_text().splitlines()


@pytest.fixture
def seen(start):
    """Look at a training that started.py starts in one of its ways."""

    def look(kind: str) -> AttachedReport:
        return Attached.of(watch(start("started.py", kind).pid, SECONDS)).report

    return look


def line_at(place: str) -> str:
    """The line of a place in started.py."""
    file, _, line = place.rpartition(":")
    assert file == "started.py"
    return LINES[int(line) - 1]


def test_a_training_below_a_program_that_waits_for_it_is_the_main_process(seen):
    report = seen("process")

    main, *others = report.processes
    assert not report.stuck and main.pid != report.pid
    assert {"backward", "dataset"} <= report.sampled.main.keys()
    assert [other.doing.partition(" at ")[0] for other in others] == ["sleeps"]


def test_a_training_in_a_thread_is_what_is_seen_of_its_process(seen):
    report = seen("thread")

    assert {"backward", "dataset"} & report.sampled.main.keys()
    assert not report.stuck and "training.join" not in line_at(report.processes[0].place)


def test_workers_of_torchdatas_loader_are_workers(seen):
    report = seen("stateful")

    names = [process.name for process in report.processes]
    assert names == ["the main process", "worker 0", "worker 1"]
    assert "backward" in report.sampled.main
    assert {"idle", "dataset"} <= report.sampled.workers.keys()
