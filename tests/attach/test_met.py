"""Processes and threads that begin while a training is looked at: when, as what, for how long."""

import signal
import sys
import time

import pytest
from attach.attaching import other_python

from feedline.profiler.attach import watch
from feedline.profiler.attach.memory_reader import MemoryReader
from feedline.profiler.attach.watch import _Watching
from feedline.profiler.attach.watched import WatchedProcess

#: Waits for a signal, becomes another program of the same command, and that says when it runs.
REPLACES = """
import os, signal, sys, time
if "ANEW" not in os.environ:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    print("begun", flush=True)
    signal.sigwait([signal.SIGUSR1])
    os.execve(sys.argv[1], [sys.argv[1], *sys.orig_argv[1:]], {**os.environ, "ANEW": "1"})
print("anew", flush=True)
time.sleep(60)
"""
ENDS = """
import os, time
if os.fork() == 0:
    os._exit(0)
time.sleep(0.2)
print("begun", flush=True)
time.sleep(60)
"""


#: Takes all of one CPU.
SPINS = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
print("begun", flush=True)
while True:
    pass
"""


def seen(watching: _Watching, reader: MemoryReader) -> list[WatchedProcess]:
    """What is seen in half a second more."""
    assert watching.look()
    reader.read_until(time.monotonic() + 0.5)
    return list(watching.processes())


def test_a_thread_that_begins_has_none_of_the_time_before_it(start):
    program, reader = start("passing.py"), MemoryReader()
    reader.meet(program.pid)
    begin = time.monotonic()

    while (now := time.monotonic()) < begin + 4:
        reader.read_until(now + 0.5)

    passing = [one for one in reader.threads(program.pid) if not one.is_main]
    counted = sum(stack.seconds for one in passing for stack in one.stacks)
    assert 0.3 < counted / (0.15 / 0.2 * (now - begin)) < 1.9  # few of them are sampled
    assert reader._processes[program.pid].load <= 1.25  # of two threads at a time


def test_the_cpus_that_a_process_may_use_are_those_of_its_own_mask(start):
    """It leaves none of them free, however many the machine has."""
    cpus = watch.watch(start("-c", SPINS).pid, 1.0).cpus

    assert cpus is not None and cpus.allowed <= 1 and cpus.free < 0.5


@pytest.mark.parametrize("other", [False, True])
def test_a_process_that_replaces_its_program_is_met_anew(other, start, monkeypatch):
    python = other_python() if other else sys.executable
    if python is None:
        pytest.skip("there is no other Python here")
    monkeypatch.setattr(watch, "_YOUNG_S", 60.0)  # on a busy machine it would have grown older
    reader = MemoryReader()
    program = start("-c", REPLACES, sys.executable, python=[python])
    watching = _Watching(program.pid, reader)

    assert watching.look()
    assert len(watching.processes()) == (not other)  # another Python is not refused yet
    program.send_signal(signal.SIGUSR1)
    assert program.stdout and program.stdout.readline() == "anew\n"
    (process,) = seen(watching, reader)

    assert process.command[0] == sys.executable and not process.refused
    assert process.main_thread is not None and process.main_thread.number == program.pid


def test_a_process_that_has_ended_when_it_is_met_is_said_to_have_ended(start):
    reader = MemoryReader()
    program = start("-c", ENDS)

    _, ended = seen(_Watching(program.pid, reader), reader)

    assert (ended.state, ended.refused) == ("Z", "it has ended")
