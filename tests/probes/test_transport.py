"""A real worker process, a real queue, and the batch that comes out of it."""

import os
import signal

import pytest
import torch

from feedline.pipelines.probes import probe_rounds, transport
from feedline.pipelines.probes.probe_rounds import CannotMeasure, ProbePlan, measure_in_turns
from feedline.pipelines.probes.transport import _BatchShape, _start_worker
from feedline.profiler.samplers.processes import descendants

SMALL = _BatchShape(4, 16, 16, "uint8")


def test_collate_and_transport_are_measured_for_both_kinds_of_number(subject, named):
    found = named(transport.probe(subject()))

    assert {name: one.why for name, one in found.items() if not one.value} == {}
    assert set(found) == {
        f"{part}/{dtype} {way}"
        for dtype in ("uint8", "float32")
        for part, ways in (
            ("collate", ("shared", "copied")),
            ("transport", ("shared", "copied", "pickled")),
        )
        for way in ways
    }
    assert (
        found["transport/float32 shared"].settings["batch_bytes"]
        == 4 * found["transport/uint8 shared"].settings["batch_bytes"]
        == 4 * 4 * 3 * 224 * 224
    )
    assert (
        found["collate/uint8 shared"].per == "core"
        and found["transport/uint8 shared"].per == "machine"
    )


def test_a_batch_that_arrives_changed_is_refused():
    with _start_worker(SMALL) as far:
        other = transport._WorkerHandle(far.process, far.requests, far.results, far.expected + 1)

        found = measure_in_turns(
            {"transport/uint8 shared": other.work("transport/uint8 shared", 1)},
            ProbePlan(rounds=1, seconds=0.0),
        )

    assert (
        found["transport/uint8 shared"]
        == "the batch that came out of the queue is not the one that was put in"
    )


def test_the_worker_has_ended_afterwards():
    before = set(descendants(os.getpid()))

    with _start_worker(SMALL) as far:
        far._sends("copied", 2)
        during = set(descendants(os.getpid()))

    assert far.process.pid in during - before
    assert not far.process.is_alive()


def test_a_worker_that_is_killed_is_said_and_not_waited_for(monkeypatch):
    with _start_worker(SMALL) as far:
        os.kill(far.process.pid, signal.SIGKILL)

        with pytest.raises(CannotMeasure, match="the worker process ended with exit code -9"):
            far._collates("shared", 1)


def test_a_batch_that_does_not_fit_in_shared_memory_is_refused():
    with pytest.raises(CannotMeasure, match="does not fit in /dev/shm"):
        transport._in_flight(_BatchShape(10**9, 224, 224, "float32"))


def test_cpu_time_of_the_worker_counts(monkeypatch):
    """The main process' clock stands still: what is left is the worker's."""
    monkeypatch.setattr(probe_rounds, "process_cpu_ns", lambda: 0)

    with _start_worker(_BatchShape(32, 224, 224, "float32")) as far:
        timed, batch = far._sends("copied", 1)

    assert timed.cpu_s > 0
    assert torch.equal(batch, far.expected)
