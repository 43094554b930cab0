"""Marks of the first samples that a worker makes of a stream, by which workers are compared.

A mark is a short hash with a key that is written nowhere: equal marks of one run say that two
samples begin with the same values, and nothing says which values.
"""

import ctypes
import hashlib
import sys
from typing import Any

import torch

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import fail_open, reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.torch_internals import below_function_modes

_MARK_BITS = 20
_SAMPLES, _OF_RECORD = 10, 5  # of a batch, and as many as a record has room for
_FIRST_BATCHES = 24  # of a worker in a pass; then the 32nd, 48th, 64th, 96th, ...
_LAST_BATCH = 4096
_PASSES = 2
_MARKED_BYTES = 4096  # of each tensor, array and text
#: Labels and names are short, and no fractions; what a worker changes at random is usually either.
_SHORT_BYTES = 256
_MOST_LEAVES = 64
_NUMBERS = (bool, int, float, complex)


class SampleMarks:
    """Marks samples of one pass of a worker over a stream.

    Args:
        salt: key of the hashes, which all workers of a loader share; empty: nothing is marked.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._batches = 0

    def note(self, segment: Segment, samples: list[Any]) -> None:
        """Record marks of the first samples of a batch, if it is one of those that are marked.

        Samples that cannot be marked have none.
        """
        with fail_open:  # whether another worker makes the same stays unknown
            self._note(segment, samples)

    def _note(self, segment: Segment, samples: list[Any]) -> None:
        number, self._batches = self._batches, self._batches + 1
        if not self._salt or not _is_marked(number) or recorder.batch >> 32 >= _PASSES:
            return
        for first in range(0, min(len(samples), _SAMPLES), _OF_RECORD):
            marks = [_mark(sample, self._salt) for sample in samples[first : first + _OF_RECORD]]
            marks += [0] * (_OF_RECORD - len(marks))
            segment.add_for_good(
                Stage.MARKS,
                clock.wall_ns(),
                marks[0],
                cpu=marks[1],
                runqueue=marks[2],
                nbytes=marks[3],
                extra=marks[4],
                number=recorder.batch,
                source=recorder.loader,
            )


def _is_marked(number: int) -> bool:
    """Tell whether a worker's batch of this number in a pass is marked."""
    if number < _FIRST_BATCHES:
        return True
    half = 1 << max(0, number.bit_length() - 2)
    return number <= _LAST_BATCH and number % half == 0


@below_function_modes
def _mark(sample: Any, salt: bytes) -> int:
    """Return the mark of a whole sample and, in the lower bits, of its short parts; 0: unknown."""
    try:
        whole, short = (hashlib.blake2b(key=salt, digest_size=8) for _ in range(2))
        parts = shorts = 0
        for leaf in _leaves(sample, []):
            begin = _begin_of(leaf)
            if begin is None:
                continue
            whole.update(begin)
            parts += 1
            if len(begin) <= _SHORT_BYTES and not _is_fraction(leaf):
                short.update(begin)
                shorts += 1
    except Exception:  # an exotic sample
        reraise_of_handler()
        return 0
    return (_bits(whole) << _MARK_BITS if parts else 0) | (_bits(short) if shorts else 0)


def _is_fraction(leaf: Any) -> bool:
    """Tell whether a value consists of floating-point numbers."""
    if type(leaf) is torch.Tensor:
        return leaf.is_floating_point()
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) is float or dtype is not None and dtype.kind == "f"


def _bits(digest: Any) -> int:
    """Return a digest's first bits as a number that is not 0."""
    return 1 + int.from_bytes(digest.digest(), "little") % ((1 << _MARK_BITS) - 1)


def _begin_of(leaf: Any) -> bytes | None:
    """Return the kind of a value, its length and its first bytes; None: of another kind.

    Values are not changed, and no code of the program runs.
    """
    kind = type(leaf)
    if kind is torch.Tensor:
        if leaf.layout is not torch.strided or not leaf.is_cpu or not leaf.is_contiguous():
            return None
        length = leaf.nbytes
        end = leaf.storage_offset() * leaf.element_size() + length
        if leaf.untyped_storage().nbytes() < end:  # it was freed or shrunk
            return None
        content = ctypes.string_at(leaf.data_ptr(), min(length, _MARKED_BYTES)) if length else b""
    elif kind is str:
        length, content = len(leaf), leaf[:_MARKED_BYTES].encode("utf-8", "surrogatepass")
    elif kind in (bytes, bytearray):
        length, content = len(leaf), bytes(leaf[:_MARKED_BYTES])
    elif kind in _NUMBERS:
        content = repr(leaf).encode()
        length = len(content)
    elif (numpy := sys.modules.get("numpy")) is not None and (
        kind is numpy.ndarray or issubclass(kind, numpy.generic)
    ):
        if leaf.dtype.hasobject or not leaf.flags.c_contiguous:
            return None
        length = leaf.nbytes
        items = _MARKED_BYTES // max(1, leaf.dtype.itemsize)
        content = leaf.reshape(-1)[:items].tobytes()
    else:
        return None
    return b"%s %d;%s" % (kind.__name__.encode(), length, content)


def _leaves(value: Any, leaves: list[Any]) -> list[Any]:
    """Add what is in plain dicts, lists and tuples to ``leaves``."""
    kind = type(value)
    if kind is dict:
        parts = list(value.values())
    elif kind is list:
        parts = value[:_MOST_LEAVES]
    elif issubclass(kind, tuple):
        parts = list(tuple.__iter__(value))
    else:
        leaves.append(value)
        return leaves
    parts = parts[:_MOST_LEAVES]
    if len(parts) > 1 and all(type(part) in _NUMBERS for part in parts):
        leaves.append(repr(parts))  # ids of tokens: one by one, they would take ten times as long
        return leaves
    for part in parts:
        if len(leaves) >= _MOST_LEAVES:
            break
        _leaves(part, leaves)
    return leaves
