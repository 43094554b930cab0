"""Questions to the replay: without the late rank, with other buckets, a faster link, gradients of half the size, updates half as often."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from feedline.analysis.intervals import overlap
from feedline.analysis.ranks.communication import Prediction, Question
from feedline.analysis.ranks.partition import computing, without
from feedline.analysis.ranks.replay import (
    NOTHING,
    FloatArray,
    Least,
    Link,
    RankCpu,
    Timeline,
    answer,
    apart_s,
    batches_s,
    held,
    level,
    needed_s,
    refused,
    simulate,
    without_rank,
    without_sync,
)
from feedline.analysis.traces.collectives import SLOTS, Collectives, bus_factor

_MIB = 1 << 20
_FIRST_BUCKET = _MIB  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
_WIDE = ("float32", "float", "f32")
_FASTER_MOST = 20.0  # no link so much faster was ever measured
_LARGE = _MIB  # from this size on, the latency of a collective is a small part of its time (10 us of 1 ms at 1 GB/s)
_ONLY_SMALL = "all collectives are small and of about the same size, so how much of their time is latency is unknown"
#: What gloo's fp16 hook adds to half the transfer, per byte of float32: casts, and sums of float16, which CPUs compute in software (0.8 to
#: 2.2 ns for 1 to 25 MB on a core of a Xeon).
_HALVING_S_PER_BYTE = 1.2e-9
_LINK_ERROR = 0.10  # of the bandwidth, where a change stands or falls with it


class WhatIf:
    """One run's timeline and its link, for questions to the replay.

    Args:
        made: thinned.
        link: fitted to ``made``.
        limit: bytes/s that the ranks can move at all (a probe on this machine); None: not measured.
        sharing: column -> what its rank's step takes of the CPUs, and seconds in which its main thread sleeps; empty: there are enough.

    Attributes:
        base: float64 [steps], s: the run replayed.
        even: the same, as if every byte had moved as fast as the mean: what ``base`` knows better than a link's two numbers.
    """

    def __init__(
        self, made: Timeline, link: Link, limit: float | None = None, sharing: Mapping[int, tuple[RankCpu, float]] | None = None
    ) -> None:
        self.made, self.link, self.limit, self.sharing = made, link, limit, sharing or {}
        self.base: FloatArray = simulate(made.ready, made, link)
        self.even: FloatArray = simulate(made.ready, made, replace(link, slowness=np.zeros(0)))

    def as_it_was(self) -> Prediction:
        """The replay of the run itself, to be held against the measured step."""
        replayed = float(self.base.mean())
        return replace(self._answer(Question("as_it_was"), self.base), step_s=replayed)

    def no_straggler(self, column: int | None = None, rank: int | None = None) -> Prediction:
        """One rank as fast as the median of the others; without ``column``, no rank later than the median.

        Args:
            rank: the number of the rank in that column.
        """
        ready = level(self.made.ready) if column is None else without_rank(self.made.ready, column)
        late = Question("no_late_rank") if column is None else Question("rank_on_time", column if rank is None else rank)
        apart = 0.0 if column is None else apart_s(ready, column)
        return self._asked(late, ready, self.made, self.link, self._least(column), apart)

    def cost(self, column: int) -> FloatArray:
        """float64 [steps], s: what a rank's lateness costs each step."""
        return np.asarray(self.base - simulate(without_rank(self.made.ready, column), self.made, self.link))

    def faster_link(self, times: float) -> Prediction:
        """A link with ``times`` the bandwidth and the same latency."""
        asked = Question("faster_link", times)
        if not 1 / _FASTER_MOST <= times <= _FASTER_MOST:
            return refused(asked, f"links more than {_FASTER_MOST:.0f} times as fast or slow as the measured one are not predicted")
        if self._only_small():
            return refused(asked, _ONLY_SMALL)
        rate = self.link.bytes_per_s * times
        if self.limit is not None and times > 1 and rate > self.limit:
            asked, rate = replace(asked, limit=self.limit), max(self.limit, self.link.bytes_per_s)
        return self._asked(asked, self.made.ready, self.made, replace(self.link, bytes_per_s=rate), self._least())

    def half_gradients(self) -> Prediction:
        """The fp16 or bf16 compression hook: half the bytes. On gloo, CPUs cast and add them, which takes as long as a fast link."""
        asked = Question("half_gradients")
        if self.made.dtype.removeprefix("torch.").lower() not in _WIDE:
            return refused(asked, f"gradients are {self.made.dtype} already" if self.made.dtype else "the type of the gradients is unknown")
        if self._only_small():
            return refused(asked, _ONLY_SMALL)
        each_s = _HALVING_S_PER_BYTE if self.made.slots == SLOTS["gloo"] else 0.0
        instead = each_s * self.link.bytes_per_s / bus_factor("all_reduce", self.made.group_ranks) if each_s else 0.0  # as if sent
        smaller = replace(self.made, nbytes=np.where(self.made.gradients, self.made.nbytes * (0.5 + instead), self.made.nbytes))
        unsure_s = each_s * float(self.made.nbytes[self.made.gradients].sum())
        return self._asked(asked, self.made.ready, smaller, self.link, self._least(), unsure_s)

    def bucket_size(self, mib: float) -> Prediction:
        """``bucket_cap_mb``; gradients become ready evenly between two of the measured buckets."""
        asked = Question("bucket_size", mib)
        buckets = self.made.gradients
        total = int(self.made.nbytes[buckets].sum())
        if not self.link.known:
            return refused(asked, "all buckets have about the same size, so the cost of one more is unknown")
        if buckets.sum() < 2 and mib * _MIB < total:
            return refused(asked, "there is only one bucket: when each of its gradients became ready is unknown")
        if self.made.synchronous[:-1].any():
            return refused(asked, "other collectives run between the buckets")
        edges = bucket_edges(total, int(mib * _MIB))
        ready = split_ready(self.made.ready, self.made.nbytes, edges)
        synchronous = np.zeros(len(edges) - 1, bool)
        synchronous[-1] = True
        made = replace(self.made, nbytes=np.diff(edges), synchronous=synchronous, gradients=~np.zeros_like(synchronous))
        of_step = np.average(self.link.slowness, 1, self.made.nbytes)[:, None]  # which bytes were slow is unknown for new buckets
        return self._asked(asked, ready, made, replace(self.link, slowness=np.repeat(of_step, len(edges) - 1, 1)))

    def accumulate(self, times: int, micro_s: FloatArray) -> Prediction:
        """An update of the parameters every ``times`` batches (``no_sync`` in between); per batch, like all others.

        Args:
            micro_s: float64 [ranks]: seconds of a batch without communication and without the optimizer.
        """
        asked = Question("accumulation", times)
        if not len(micro_s) or not micro_s.max() > 0:
            return refused(asked, "the stages of the step are unknown")
        others = ~self.made.gradients  # they run in every batch all the same
        kept = (
            simulate(*self._without(self.made.gradients)) - simulate(*self._without(others | self.made.gradients)) if others.any() else 0.0
        )
        changed = (self.base + (times - 1) * (float(micro_s.max()) + kept)) / times
        return self._answer(asked, changed, float(micro_s.std()) * (times - 1) / times)

    def no_sync(self, passes: int) -> Prediction:
        """Gradients are sent in the last of ``passes`` backward passes of an update only."""
        asked = Question("no_sync", passes)
        at = np.flatnonzero(self.made.gradients & self.made.synchronous)
        if len(at) < passes:
            return refused(asked, "gradients are not sent in every backward pass already")
        parts = np.split(np.where(self.made.gradients, self.made.nbytes, 0), at[:-1] + 1)
        if len(at) > passes or any(part[part > 0].tolist() != parts[-1][parts[-1] > 0].tolist() for part in parts):
            return refused(asked, "the backward passes of an update send different gradients")
        dropped = self.made.gradients & (np.arange(len(self.made.nbytes)) <= at[-2])
        return self._asked(asked, *self._without(dropped), self._least())

    def _without(self, dropped: np.ndarray) -> tuple[np.ndarray, Timeline, Link]:
        """The timeline, and a link that carries nothing of some buckets."""
        ready, synchronous = without_sync(self.made.ready, self.made.synchronous, dropped)
        slowness = self.link.slowness if len(self.link.slowness) else np.ones(ready.shape[:2])
        return ready, replace(self.made, synchronous=synchronous), replace(self.link, slowness=np.where(dropped, 0.0, slowness))

    def _only_small(self) -> bool:
        """Whether all of a collective's time would count as bytes although most of it may be latency."""
        return not self.link.known and int(self.made.nbytes.max(initial=0)) < _LARGE

    def _least(self, late: int | None = None) -> Least:
        """What a step takes at least; in place of the late rank in that column, with one like the others."""
        ranks = [both for column, both in sorted(self.sharing.items()) if column != late]
        if not ranks:
            return NOTHING
        like = sorted((rank for rank, _ in ranks), key=lambda rank: rank.cpu_s)[(len(ranks) - 1) // 2]
        instead = [] if late is None else [replace(like, machine=self.sharing[late][0].machine)]
        computing_s = needed_s([*(rank for rank, _ in ranks), *instead], float(np.median([asleep for _, asleep in ranks])))
        return Least(computing_s, batches_s([rank for rank, _ in ranks]))

    def _asked(
        self, asked: Question, ready: np.ndarray, made: Timeline, link: Link, least: Least = NOTHING, apart: float = 0.0
    ) -> Prediction:
        changed = simulate(ready, made, link)
        slower = replace(link, bytes_per_s=link.bytes_per_s * (1 - _LINK_ERROR))
        before = replace(self.link, bytes_per_s=self.link.bytes_per_s * (1 - _LINK_ERROR))
        moved = float((simulate(self.made.ready, self.made, before) - simulate(ready, made, slower)).mean())
        found = self._answer(asked, changed, abs(moved - float((self.base - changed).mean())))
        return held(found, least, apart)

    def _answer(self, asked: Question, changed: FloatArray, spread: float = 0.0) -> Prediction:
        off_s = abs(float(self.even.mean()) - float(self.made.period.mean()) / 1e9)
        return answer(asked, self.made, self.base, changed, off_s, spread)


def bucket_edges(total: int, cap: int) -> np.ndarray:
    """int64 [buckets + 1]: where buckets of this size end, in bytes from the first gradient that is ready; the first one is smaller."""
    first = min(_FIRST_BUCKET, cap, total)
    return np.unique(np.append(np.arange(first, total, max(cap, 1)), [0, total])).astype(np.int64)


def split_ready(ready: np.ndarray, nbytes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """When buckets with other edges would be ready: bytes become ready evenly between two measured buckets.

    Args:
        ready: int64 [steps, buckets, ranks], ns.
        nbytes: int64 [buckets].
        edges: int64 [k + 1], bytes.

    Returns:
        int64 [steps, k, ranks], ns.
    """
    ends = np.cumsum(nbytes)
    steps, _, ranks = ready.shape
    found = np.empty((steps, len(edges) - 1, ranks), np.int64)
    for step in range(steps):
        for rank in range(ranks):
            times = np.maximum.accumulate(ready[step, :, rank])
            found[step, :, rank] = np.interp(edges[1:], ends, times)  # before the first bucket: no earlier than it
    return found


def micro_batches(ranks: Sequence[Collectives], first: int = 0) -> FloatArray:
    """float64 [ranks]: mean seconds per step without the optimizer and waiting for collectives: what a program does between its steps is
    taken to belong to the batch. Without the steps before the first that counts."""
    found = []
    for one in ranks:
        if not len(one.steps):
            return np.zeros(0)
        ended = one.table[one.table["end"] >= one.table["start"]]
        in_flight = np.stack([ended["start"], ended["end"]], 1)
        once = [one.stages.get(stage, np.zeros((0, 2), np.int64)).reshape(-1, 2) for stage in ("optimizer", "backward")]
        pieces = without(np.concatenate([without(one.steps, np.concatenate([*once, in_flight])), computing(one)]), one.evaluation)
        found.append(float(overlap(*one.steps[first if len(one.steps) > first else 0 :].T, *pieces.T).mean()) / 1e9)
    return np.array(found)
