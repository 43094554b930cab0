"""Microseconds of a trace as whole nanoseconds, exactly as they were written."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
import numpy.typing as npt

_EXACT_BELOW = 2.0**43  # microseconds: the doubles beyond lie more than 1 ns apart (2**43 * 2**-52 us = 0.00195 us)
_INTEGERS_BELOW = 2.0**51  # microseconds: within LARGEST
_LARGEST = 1 << 61  # nanoseconds, 73 years; three such times can be added
UNREADABLE = np.iinfo(np.int64).min


def from_numbers(values: Sequence[int | float]) -> npt.NDArray[np.int64] | None:
    """Nanoseconds [n] of microseconds with up to three decimals; None: a float has lost some of them, and the text is needed."""
    try:
        micros = np.fromiter(values, "f8", len(values))
    except OverflowError:
        return None
    largest = np.abs(micros).max(initial=0.0)
    if not largest < _EXACT_BELOW and (not largest < _INTEGERS_BELOW or float in set(map(type, values))):
        return None
    whole = np.floor(micros)
    return whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64)


def from_texts(texts: Sequence[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """Nanoseconds [n] of microseconds as written; UNREADABLE where that is not a number, or not one that a clock shows."""
    joined = b",".join(texts)
    if not texts or joined.translate(None, b"0123456789.,-"):
        return _one_by_one(texts)
    letters = np.frombuffer(joined, "u1")
    ends = np.append(np.flatnonzero(letters == ord(",")), len(letters))
    dots = np.flatnonzero(letters == ord("."))
    begins = np.append(0, ends[:-1] + 1)
    owners = np.searchsorted(ends, dots)
    whole_ends = ends.copy()
    whole_ends[owners] = dots
    decimals = np.where(whole_ends < ends, ends - whole_ends - 1, 0)
    wholes = whole_ends - begins
    if len(ends) != len(texts) or wholes.min() == 0 or decimals.max() > 3:
        return _one_by_one(texts)
    if wholes.max() > 16 or (letters[begins[wholes == 16]] > ord("2")).any():  # does not fit 64 bits, or is no time
        return _one_by_one(texts)
    digits = np.fromstring(joined.translate(None, b".").decode(), "i8", sep=",")
    return np.asarray(digits * 10 ** (3 - decimals), np.int64)


def _one_by_one(texts: Sequence[msgspec.Raw]) -> npt.NDArray[np.int64]:
    """As ``from_texts``, for numbers of any form."""
    return np.array([_nanoseconds(bytes(text)) for text in texts], np.int64)


def _nanoseconds(text: bytes) -> int:
    try:
        nanoseconds = Decimal(text.decode("ascii").strip('"')) * 1000
        return int(nanoseconds.to_integral_value()) if abs(nanoseconds) < _LARGEST else UNREADABLE
    except (ArithmeticError, ValueError):
        return UNREADABLE
