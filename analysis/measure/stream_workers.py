"""Whether the workers of a stream deliver the same samples, and how many each has.

Workers are compared by marks of the first samples that each made (profiler/taps/sample_marks.py).
Data may repeat for good reasons: few different values, the same ones drawn again, a file listed
twice. So marks count only for what their own worker shows to be improbable.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from feedline.analysis.measure.clues import SameSamples
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process

_FIELDS = ("wall", "cpu", "runqueue", "nbytes", "extra")  # of a record of MARKS
_MARK_BITS = 20
_ALIKE = 0.95  # of the places at which two workers' samples are compared: equal from here on
#: What makes equal sequences no accident, by how often values repeat within a worker: one in a
#: million. Labels alone may also be equal because they follow a pattern.
_SURE_BITS, _SURE_BITS_OF_LABELS = 20.0, 60.0
_DISTINCT = 0.9  # of a worker's samples: they are names, not labels
_LEAST_COMMON = 8  # samples that workers share, whatever their order
#: Of a worker's samples, first to last, in so many parts: of these, this share at least has common
#: ones, as many as this share of the mean.
_PARTS, _EVEN_PARTS, _LEAST_EVEN = 4, 0.85, 0.3
#: How much more often two workers have a sample in common than one has it twice.
_MORE_OFTEN = 3.0
_ZERO_AT_MOST = 4.6  # events that are expected at most where none was seen, 99 %

_Marks = dict[tuple[int, int], int]  # (batch of the worker, sample in it) -> mark


def same_samples(processes: Iterable[Process], asks_for_worker: object) -> SameSamples | None:
    """Compare the workers of a loader in the first pass in which any was marked.

    None: they deliver different samples, or that is unknown.

    Args:
        asks_for_worker: whether the code of the stream does; None: unknown.
    """
    wholes, shorts = _marks(processes)
    return (
        _in_order(wholes, _SURE_BITS)
        or _in_any_order(wholes)
        or _by_short_parts(shorts, asks_for_worker)
    )


def _marks(processes: Iterable[Process]) -> tuple[list[_Marks], list[_Marks]]:
    """Return the marks of each worker's samples: of whole ones, and of their short parts."""
    records = [
        (process.header["worker"], process.of(Stage.MARKS))
        for process in processes
        if process.is_worker
    ]
    records = [(worker, rows) for worker, rows in records if len(rows)]
    first = min((int(rows["number"].min()) >> 32 for _, rows in records), default=0)
    wholes: list[_Marks] = []
    shorts: list[_Marks] = []
    for worker in sorted({str(worker) for worker, _ in records}):
        rows = np.concatenate([rows for other, rows in records if str(other) == worker])
        rows = np.sort(rows[rows["number"] >> 32 == first], order=["number", "start"])
        batches = np.unique(rows["number"], return_inverse=True)[1].tolist()
        of_samples = {
            (batch, place): int(row[name])
            for number, (batch, row) in enumerate(zip(batches, rows))
            for place, name in enumerate(_FIELDS, len(_FIELDS) * (number - batches.index(batch)))
            if row[name] > 0
        }
        low = (1 << _MARK_BITS) - 1
        wholes.append({at: mark >> _MARK_BITS for at, mark in of_samples.items()})
        shorts.append({at: mark & low for at, mark in of_samples.items() if mark & low})
    return [marks for marks in wholes if marks], [marks for marks in shorts if marks]


def _in_order(workers: Sequence[_Marks], sure_bits: float) -> SameSamples | None:
    """Find workers whose samples are the same at the same places."""
    groups = _groups(workers)
    if not groups or min(map(len, groups)) < 2:
        return None
    compared = min(len(_common(group)) for group in groups)
    if any(_bits(group[0], _common(group)) < sure_bits for group in groups):
        return None
    return SameSamples(min(map(len, groups)), len(workers), compared, in_order=True)


def _groups(workers: Sequence[_Marks]) -> list[list[_Marks]]:
    """Return the workers, those together that are the same."""
    groups: list[list[_Marks]] = []
    for marks in workers:
        group = next((group for group in groups if _alike(group[0], marks)), None)
        if group is None:
            groups.append([marks])
        else:
            group.append(marks)
    return groups


def _alike(one: _Marks, other: _Marks) -> bool:
    """Tell whether two workers' marks are equal wherever both have one."""
    places = one.keys() & other.keys()
    return bool(places) and sum(one[at] == other[at] for at in places) >= _ALIKE * len(places)


def _common(group: Sequence[_Marks]) -> set[tuple[int, int]]:
    """Return the places at which all of them have a mark."""
    return set.intersection(*(set(marks) for marks in group))


def _bits(marks: _Marks, places: Iterable[tuple[int, int]]) -> float:
    """Return how improbable it is that another sequence of such values is the same, in bits."""
    values = [marks[at] for at in places]
    counts = Counter(values)
    again = sum((count / len(values)) ** 2 for count in counts.values()) if values else 1.0
    return len(values) * -math.log2(again)


def _in_any_order(workers: Sequence[_Marks]) -> SameSamples | None:
    """Find workers that have far more samples in common than one of them has twice.

    Workers that draw with replacement have as many in common as they have twice.
    """
    values = [[marks[at] for at in sorted(marks)] for marks in workers]
    pairs = list(combinations(values, 2))
    shared = [sum((Counter(one) & Counter(other)).values()) for one, other in pairs]
    if not pairs or min(shared) < _LEAST_COMMON or not _spread(pairs):
        return None
    twice = sum(len(marks) - len(set(marks)) for marks in values)
    between = sum(shared) / sum(len(one) * len(other) for one, other in pairs)
    within = (twice + _ZERO_AT_MOST) / sum(len(marks) ** 2 / 2 for marks in values)
    if between < _MORE_OFTEN * within:
        return None
    compared = min(map(len, values))
    return SameSamples(len(workers), len(workers), compared, in_order=False)


def _spread(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """Tell whether workers have samples in common all along, not only a file of them."""
    parts = [
        len(set(part.tolist()) & set(other)) * _PARTS / max(1, len(set(one) & set(other)))
        for pair in pairs
        for one, other in (pair, pair[::-1])
        for part in np.array_split(one, _PARTS)
    ]
    return float(np.mean([share >= _LEAST_EVEN for share in parts])) >= _EVEN_PARTS


def _by_short_parts(workers: Sequence[_Marks], asks_for_worker: object) -> SameSamples | None:
    """Find workers whose samples have the same names or labels, where the rest is random.

    Nothing is concluded where the code asks for its worker: numbers that start again in each file
    repeat in all workers, although their files differ. Labels are not names: they count only where
    the code certainly does not ask, and where they follow no pattern.
    """
    if asks_for_worker is True:
        return None
    named = workers and all(len(set(marks.values())) >= _DISTINCT * len(marks) for marks in workers)
    if not named and (asks_for_worker is not False or any(map(_periodic, workers))):
        return None
    same = _in_order(workers, _SURE_BITS if named else _SURE_BITS_OF_LABELS)
    if same is None and named:
        same = _in_any_order(workers)
    return same and SameSamples(same.times, same.workers, same.compared, same.in_order, True)


def _periodic(marks: _Marks) -> bool:
    """Tell whether a worker's marks repeat after a few, such as labels that are counted up."""
    values = np.array([marks[at] for at in sorted(marks)])
    return any(
        float((values[shift:] == values[:-shift]).mean()) >= _ALIKE
        for shift in range(1, len(values) // 2 + 1)
    )
