"""Numbers that are the same for every image (Python's) or different for each (DALI's), with one set of functions."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import nvidia.dali.math as dali_math
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode

Number: TypeAlias = Any  # float, int, or a DataNode of one number for each image


def floor(number: Number) -> Number:
    return fn.cast(dali_math.floor(number), dtype=types.INT64) if isinstance(number, DataNode) else math.floor(number)


def nearest(number: Number) -> Number:
    """The nearest whole number, halves up."""
    return floor(number + 0.5)


def least(one: Number, other: Number) -> Number:
    return dali_math.min(one, other) if isinstance(one, DataNode) or isinstance(other, DataNode) else min(one, other)


def most(one: Number, other: Number) -> Number:
    return dali_math.max(one, other) if isinstance(one, DataNode) or isinstance(other, DataNode) else max(one, other)


def half_to_even(number: Number) -> Number:
    """Half of a whole number >= 0, with halves rounded to even as in Python's ``round``."""
    odd = number - number // 2 * 2
    return number // 2 + odd * (number // 2 - number // 4 * 2)


def cosine(number: Number) -> Number:
    return dali_math.cos(number) if isinstance(number, DataNode) else math.cos(number)


def sine(number: Number) -> Number:
    return dali_math.sin(number) if isinstance(number, DataNode) else math.sin(number)


def _root(number: Number) -> Number:
    return dali_math.sqrt(number) if isinstance(number, DataNode) else math.sqrt(number)


def vector(numbers: Sequence[Number], dtype: Any = None) -> Any:
    """Several numbers as one argument of an operator; ``dtype`` is float32 unless told."""
    if not any(isinstance(number, DataNode) for number in numbers):
        return list(numbers)
    wanted = types.FLOAT if dtype is None else dtype
    nodes = [
        number if isinstance(number, DataNode) else fn.constant(fdata=[float(number)], shape=[], dtype=types.FLOAT) for number in numbers
    ]
    return fn.stack(*[fn.cast(node, dtype=wanted) for node in nodes])


def uniform(low: float, high: float) -> Number:
    """A random number between two, per image; the number itself if they are equal."""
    return low if low == high else fn.random.uniform(range=(low, high))


def coin(probability: float) -> Number:
    """0 or 1 at random, per image."""
    return 1 if probability >= 1 else fn.random.coin_flip(probability=max(probability, 0.0))
