"""References to storages are freed, and nothing that a signal's handler raises is lost in it."""

import signal
import sys
from pathlib import Path

import pytest
import torch

from feedline.profiler.taps.own_code.producers import _StorageRef


class Alarm(Exception):
    """Raised by a signal's handler."""


def test_a_reference_tells_that_its_storage_is_gone():
    tensor = torch.zeros(10)
    reference = _StorageRef(tensor.untyped_storage())

    assert not reference.expired()
    del tensor
    assert reference.expired()


def test_the_address_is_not_used_again_while_the_reference_lives():
    held = [_StorageRef(torch.empty(8).untyped_storage()) for _ in range(200)]

    assert len({reference.cdata for reference in held}) == 200


def test_references_leave_no_memory_behind():
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def refer(times: int) -> None:
        for _ in range(times):
            _StorageRef(torch.empty(8).untyped_storage())

    refer(10_000)
    before = resident_bytes()
    refer(200_000)

    # what is left of a storage has 100 bytes or more; the process may grow for other reasons
    assert resident_bytes() - before < 10_000_000


def test_one_that_was_interrupted_while_it_was_made_is_forgotten_silently(monkeypatch):
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    half = _StorageRef.__new__(_StorageRef)
    del half

    assert not lost


def test_a_handler_that_raises_while_references_are_freed_reaches_the_program(monkeypatch):
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    kept, caught, rung = torch.zeros(1).untyped_storage(), 0, 0

    def ring(*_: object) -> None:
        nonlocal rung
        rung += 1
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(2000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002)
                for _ in range(2000):
                    _StorageRef(kept)
            except Alarm:
                caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        caught += 1
    finally:
        signal.signal(signal.SIGALRM, before)

    assert caught == rung > 1000 and not lost


@pytest.mark.parametrize("times", [1, 3])
def test_several_references_to_a_storage_are_independent(times):
    storage = torch.zeros(4).untyped_storage()
    first, *others = [_StorageRef(storage) for _ in range(times + 1)]
    del others

    assert not first.expired()
