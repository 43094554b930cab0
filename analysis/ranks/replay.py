"""Replay of the bucket timeline.

Buckets become ready, share a link, and the step ends when the last has arrived. Each bucket moves
for as long as was measured. If it was slower than the link is on average, it is slower by the same
factor in a changed replay, because a link that stalls for a moment would stall there, too. Every
answer is the measured step plus the difference between two replays, so that what the replay leaves
out cancels. Its interval comes from how far a replay with an even link is from the measured steps,
from how much the steps vary, and from the error that predicted gains had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.intervals import FloatArray, IntArray
from feedline.analysis.ranks.buckets import Link, Timeline, simulate_steps
from feedline.analysis.ranks.communication import Prediction, QuestionId
from feedline.analysis.ranks.shared_cpus import LeastStep, RankCpu, batches_s, needed_s
from feedline.analysis.text.formatting import number, size
from feedline.analysis.traces.collectives import SLOTS, bus_factor

_NO_LEAST = LeastStep(0.0, 0.0)

# of what this adds to a step (docs/measured/faults.md: four recordings were 0.7 to 1.2 times as
# much longer)
_CPU_ERROR = 0.5
#: How far the replayed mean step may be from the measured one before nothing is predicted from it.
_MOST_OFF = 0.10
#: Standard deviation of the measured gain over the predicted one, both as logarithms, less 1
#: (docs/measured/faults.md).
_MODEL_ERROR = 0.12
#: How much faster workers may make batches than they did: from one run to the next
#: (docs/measured/diff.md).
_BATCHES_VARY = 0.1
_MIB_BYTES = 1 << 20
_FIRST_BUCKET = _MIB_BYTES  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
_FLOAT32_NAMES = ("float32", "float", "f32")
_FASTER_MOST = 20.0  # no link so much faster was ever measured
# from this size on, the latency of a collective is a small part of its time (10 us of 1 ms at 1
# GB/s)
_LARGE = _MIB_BYTES
_ONLY_SMALL = (
    "all collectives are small and of about the same size, so how much of their time is "
    "latency is unknown"
)
#: What gloo's fp16 hook adds to half the transfer, per byte of float32: casts, and sums of float16,
#: which CPUs compute in software (0.8 to 2.2 ns for 1 to 25 MB on a core of a Xeon).
_HALVING_S_PER_BYTE = 1.2e-9
_LINK_ERROR = 0.10  # of the bandwidth, where a change stands or falls with it


@dataclass(frozen=True)
class Question:
    """One change to the communication of a run.

    Attributes:
        id: which change.
        value: the rank (``rank_on_time``), how many times as fast (``faster_link``), MiB
            (``bucket_size``), batches (``accumulation``), backward passes per update (``no_sync``).
        limit: bytes/s that the ranks reach themselves, which a faster link does not change; None:
            they are not what limits it.
    """

    id: QuestionId
    value: float | None = None
    limit: float | None = None


def _text(asked: Question) -> str:
    """Say a question as a report puts it, after "with"."""
    value = asked.value if asked.value is not None else 0.0
    if asked.id == "faster_link":
        itself = (
            f" (the ranks themselves reach {size(asked.limit)}/s)"
            if asked.limit is not None
            else ""
        )
        return f"a link {number(value, 2)} times as fast{itself}"
    return {
        "as_it_was": "the run itself",
        "no_late_rank": "no late rank",
        "rank_on_time": f"rank {value:.0f} on time",
        "half_gradients": "an fp16 or bf16 compression hook",
        "bucket_size": f"buckets of {number(value, 2)} MiB",
        "accumulation": f"gradients accumulated over {value:.0f} batches",
        "no_sync": f"no_sync in all but the last of {value:.0f} backward passes per update",
    }[asked.id]


def refuse(asked: Question, why: str) -> Prediction:
    """Refuse a prediction, and say why."""
    return Prediction(asked.id, asked.value, _text(asked), None, None, None, 0.0, why)


def _without_rank(ready: IntArray, column: int) -> IntArray:
    """Make one rank as fast as the median of the others."""
    others = np.delete(ready, column, 2)
    changed = ready.copy()
    changed[:, :, column] = np.minimum(ready[:, :, column], np.median(others, 2).astype(np.int64))
    return changed


def _level(ready: IntArray) -> IntArray:
    """Make no rank later than the median of all."""
    return np.minimum(ready, np.median(ready, 2, keepdims=True).astype(np.int64))


def _apart_s(ready: IntArray, column: int) -> float:
    """Return the mean seconds that ranks still wait for each other once the late rank is on time.

    Half the mean change, from one step to the next, of when the other ranks have their last bucket
    ready. The replay without the late rank makes it no later than their median in every step, which
    no real rank achieves.

    Args:
        ready: as in Timeline.
        column: of the late rank.
    """
    others = np.delete(ready.max(1), column, 1).astype(np.float64)  # [steps, ranks]
    return float(np.abs(np.diff(others, axis=0)).mean()) / 2e9 if len(others) > 1 else 0.0


def _held(prediction: Prediction, least: LeastStep, apart_s: float) -> Prediction:
    """Keep a prediction between what CPUs and workers allow and the measured step.

    Args:
        prediction: the prediction.
        least: what a step takes at least.
        apart_s: that ranks may still wait for each other; it widens the interval.
    """
    if prediction.step_s is None or prediction.low is None or prediction.high is None:
        return prediction
    measured = prediction.step_s + prediction.gain_s
    more_s = max(0.0, min(max(least.computing_s, least.batches_s), measured) - prediction.step_s)
    step_s, high = prediction.step_s + more_s, prediction.high + (1 + _CPU_ERROR) * more_s + apart_s
    low = max(prediction.low, min(least.batches_s, step_s) * (1 - _BATCHES_VARY))
    return replace(
        prediction,
        step_s=step_s,
        gain_s=prediction.gain_s - more_s,
        low=low,
        high=max(min(high, measured), prediction.high),
    )


def _answer(
    asked: Question,
    buckets: Timeline,
    base: FloatArray,
    changed: FloatArray,
    off_s: float,
    spread: float = 0.0,
) -> Prediction:
    """Change the measured mean step by the difference between the two replays.

    Args:
        asked: the question.
        buckets: the timeline.
        base: float64 [steps], s: the replay as it was.
        changed: float64 [steps], s: as it would be.
        off_s: how far the mean step is from a replay over a link with only a bandwidth and a
            latency.
        spread: s: uncertainty of the change itself.
    """
    measured = buckets.period / 1e9
    mean = float(measured.mean())
    bias = float((base - measured).mean())
    if abs(bias) > _MOST_OFF * mean:
        return refuse(
            asked,
            f"the replay misses the measured step by {abs(bias) / mean:.0%}: something other than "
            f"gradient buckets determines it",
        )
    gain = float((base - changed).mean())
    errors = base - changed - gain
    deviation = float(errors.std(ddof=1)) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0
    step = mean - gain
    half = off_s * min(1.0, abs(gain) / mean * 2 + 0.1) + 2 * deviation + spread
    error = float(np.exp(2 * _MODEL_ERROR * abs(np.log(mean / step)))) if step > 0 else 1.0
    low, high = max(0.0, min(step - half, step / error)), max(step + half, step * error)
    return Prediction(asked.id, asked.value, _text(asked), step, float(low), float(high), gain, "")


class BucketReplay:
    """One run's timeline and its link, for questions to the replay.

    Args:
        made: thinned.
        link: fitted to ``made``.
        limit: bytes/s that the ranks can move at all (a probe on this machine); None: not measured.
        sharing: column -> what its rank's step takes of the CPUs, and seconds in which its main
            thread sleeps; empty: there are enough.

    Attributes:
        base: float64 [steps], s: the run replayed.
        even: the same, as if every byte had moved as fast as the mean: what ``base`` knows better
            than a link's two numbers.
    """

    def __init__(
        self,
        buckets: Timeline,
        link: Link,
        limit: float | None = None,
        sharing: Mapping[int, tuple[RankCpu, float]] | None = None,
    ) -> None:
        self.made, self.link, self.limit, self.sharing = buckets, link, limit, sharing or {}
        self.base: FloatArray = simulate_steps(buckets.ready, buckets, link)
        self.even: FloatArray = simulate_steps(
            buckets.ready, buckets, replace(link, slowness=np.zeros(0))
        )

    def as_it_was(self) -> Prediction:
        """Replay the run itself, to be held against the measured step."""
        replayed = float(self.base.mean())
        return replace(self._answer(Question("as_it_was"), self.base), step_s=replayed)

    def no_straggler(self, column: int | None = None, rank: int | None = None) -> Prediction:
        """Predict one rank as fast as the median of the others.

        Args:
            column: of the rank; None: no rank is later than the median.
            rank: the number of the rank in that column.
        """
        ready = (
            _level(self.made.ready) if column is None else _without_rank(self.made.ready, column)
        )
        late = (
            Question("no_late_rank")
            if column is None
            else Question("rank_on_time", column if rank is None else rank)
        )
        apart = 0.0 if column is None else _apart_s(ready, column)
        return self._asked(late, ready, self.made, self.link, self._least(column), apart)

    def cost(self, column: int) -> FloatArray:
        """Return what a rank's lateness costs each step: float64 [steps], s."""
        return np.asarray(
            self.base - simulate_steps(_without_rank(self.made.ready, column), self.made, self.link)
        )

    def faster_link(self, times: float) -> Prediction:
        """Predict a link with ``times`` the bandwidth and the same latency."""
        asked = Question("faster_link", times)
        if not 1 / _FASTER_MOST <= times <= _FASTER_MOST:
            return refuse(
                asked,
                f"links more than {_FASTER_MOST:.0f} times as fast or slow as the measured one "
                f"are not predicted",
            )
        if self._only_small():
            return refuse(asked, _ONLY_SMALL)
        rate = self.link.bytes_per_s * times
        if self.limit is not None and times > 1 and rate > self.limit:
            asked, rate = replace(asked, limit=self.limit), max(self.limit, self.link.bytes_per_s)
        return self._asked(
            asked, self.made.ready, self.made, replace(self.link, bytes_per_s=rate), self._least()
        )

    def half_gradients(self) -> Prediction:
        """Predict the fp16 or bf16 compression hook: half the bytes.

        On gloo, CPUs cast and add them, which takes as long as a fast link.
        """
        asked = Question("half_gradients")
        if self.made.dtype.removeprefix("torch.").lower() not in _FLOAT32_NAMES:
            return refuse(
                asked,
                f"gradients are {self.made.dtype} already"
                if self.made.dtype
                else "the type of the gradients is unknown",
            )
        if self._only_small():
            return refuse(asked, _ONLY_SMALL)
        each_s = _HALVING_S_PER_BYTE if self.made.slots == SLOTS["gloo"] else 0.0
        # as if sent
        instead = (
            each_s * self.link.bytes_per_s / bus_factor("all_reduce", self.made.group_ranks)
            if each_s
            else 0.0
        )
        smaller = replace(
            self.made,
            nbytes=np.where(
                self.made.gradients, self.made.nbytes * (0.5 + instead), self.made.nbytes
            ),
        )
        unsure_s = each_s * float(self.made.nbytes[self.made.gradients].sum())
        return self._asked(asked, self.made.ready, smaller, self.link, self._least(), unsure_s)

    def bucket_size(self, mib: float) -> Prediction:
        """Predict another ``bucket_cap_mb``.

        Gradients become ready evenly between two of the measured buckets.
        """
        asked = Question("bucket_size", mib)
        buckets = self.made.gradients
        total = int(self.made.nbytes[buckets].sum())
        if not self.link.known:
            return refuse(
                asked, "all buckets have about the same size, so the cost of one more is unknown"
            )
        if buckets.sum() < 2 and mib * _MIB_BYTES < total:
            return refuse(
                asked,
                "there is only one bucket: when each of its gradients became ready is unknown",
            )
        if self.made.synchronous[:-1].any():
            return refuse(asked, "other collectives run between the buckets")
        edges = _bucket_edges(total, int(mib * _MIB_BYTES))
        ready = _split_ready(self.made.ready, self.made.nbytes, edges)
        synchronous = np.zeros(len(edges) - 1, bool)
        synchronous[-1] = True
        other_buckets = replace(
            self.made,
            nbytes=np.diff(edges),
            synchronous=synchronous,
            gradients=~np.zeros_like(synchronous),
        )
        # which bytes were slow is unknown for new buckets
        of_step = np.average(self.link.slowness, 1, self.made.nbytes)[:, None]
        return self._asked(
            asked,
            ready,
            other_buckets,
            replace(self.link, slowness=np.repeat(of_step, len(edges) - 1, 1)),
        )

    def accumulate(self, times: int, micro_s: FloatArray) -> Prediction:
        """Predict an update of the parameters every ``times`` batches, per batch.

        The batches in between have ``no_sync``.

        Args:
            times: batches per update.
            micro_s: float64 [ranks]: seconds of a batch without communication and without the
                optimizer.
        """
        asked = Question("accumulation", times)
        if not len(micro_s) or not micro_s.max() > 0:
            return refuse(asked, "the stages of the step are unknown")
        others = ~self.made.gradients  # they run in every batch all the same
        kept = (
            simulate_steps(*self._without(self.made.gradients))
            - simulate_steps(*self._without(others | self.made.gradients))
            if others.any()
            else 0.0
        )
        changed = (self.base + (times - 1) * (float(micro_s.max()) + kept)) / times
        return self._answer(asked, changed, float(micro_s.std()) * (times - 1) / times)

    def no_sync(self, passes: int) -> Prediction:
        """Predict that only the last of ``passes`` backward passes of an update sends gradients."""
        asked = Question("no_sync", passes)
        at = np.flatnonzero(self.made.gradients & self.made.synchronous)
        if len(at) < passes:
            return refuse(asked, "gradients are not sent in every backward pass already")
        parts = np.split(np.where(self.made.gradients, self.made.nbytes, 0), at[:-1] + 1)
        if len(at) > passes or any(
            part[part > 0].tolist() != parts[-1][parts[-1] > 0].tolist() for part in parts
        ):
            return refuse(asked, "the backward passes of an update send different gradients")
        dropped = self.made.gradients & (np.arange(len(self.made.nbytes)) <= at[-2])
        return self._asked(asked, *self._without(dropped), self._least())

    def _without(self, dropped: np.ndarray) -> tuple[np.ndarray, Timeline, Link]:
        """Return the timeline, and a link that carries nothing of some buckets."""
        ready, synchronous = _without_sync(self.made.ready, self.made.synchronous, dropped)
        slowness = self.link.slowness if len(self.link.slowness) else np.ones(ready.shape[:2])
        return (
            ready,
            replace(self.made, synchronous=synchronous),
            replace(self.link, slowness=np.where(dropped, 0.0, slowness)),
        )

    def _only_small(self) -> bool:
        """Tell whether all of a collective's time would count as bytes.

        Most of it may be latency then.
        """
        return not self.link.known and int(self.made.nbytes.max(initial=0)) < _LARGE

    def _least(self, late: int | None = None) -> LeastStep:
        """Return what a step takes at least.

        In place of the late rank in that column, with one like the others.
        """
        ranks = [both for column, both in sorted(self.sharing.items()) if column != late]
        if not ranks:
            return _NO_LEAST
        like = sorted((rank for rank, _ in ranks), key=lambda rank: rank.cpu_s)[
            (len(ranks) - 1) // 2
        ]
        instead = [] if late is None else [replace(like, machine=self.sharing[late][0].machine)]
        computing_s = needed_s(
            [*(rank for rank, _ in ranks), *instead],
            float(np.median([asleep for _, asleep in ranks])),
        )
        return LeastStep(computing_s, batches_s([rank for rank, _ in ranks]))

    def _asked(
        self,
        asked: Question,
        ready: np.ndarray,
        buckets: Timeline,
        link: Link,
        least: LeastStep = _NO_LEAST,
        apart: float = 0.0,
    ) -> Prediction:
        changed = simulate_steps(ready, buckets, link)
        slower = replace(link, bytes_per_s=link.bytes_per_s * (1 - _LINK_ERROR))
        before = replace(self.link, bytes_per_s=self.link.bytes_per_s * (1 - _LINK_ERROR))
        moved = float(
            (
                simulate_steps(self.made.ready, self.made, before)
                - simulate_steps(ready, buckets, slower)
            ).mean()
        )
        prediction = self._answer(asked, changed, abs(moved - float((self.base - changed).mean())))
        return _held(prediction, least, apart)

    def _answer(self, asked: Question, changed: FloatArray, spread: float = 0.0) -> Prediction:
        off_s = abs(float(self.even.mean()) - float(self.made.period.mean()) / 1e9)
        return _answer(asked, self.made, self.base, changed, off_s, spread)


def _bucket_edges(total: int, cap: int) -> np.ndarray:
    """Return where buckets of this size end: int64 [buckets + 1], bytes.

    Counted from the first gradient that is ready; the first one is smaller.
    """
    first = min(_FIRST_BUCKET, cap, total)
    return np.unique(np.append(np.arange(first, total, max(cap, 1)), [0, total])).astype(np.int64)


def _split_ready(ready: np.ndarray, nbytes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return when buckets with other edges would be ready.

    Bytes become ready evenly between two measured buckets.

    Args:
        ready: int64 [steps, buckets, ranks], ns.
        nbytes: int64 [buckets].
        edges: int64 [k + 1], bytes.

    Returns:
        int64 [steps, k, ranks], ns.
    """
    ends = np.cumsum(nbytes)
    steps, _, ranks = ready.shape
    split = np.empty((steps, len(edges) - 1, ranks), np.int64)
    for step in range(steps):
        for rank in range(ranks):
            times = np.maximum.accumulate(ready[step, :, rank])
            # before the first bucket: no earlier than it
            split[step, :, rank] = np.interp(edges[1:], ends, times)
    return split


def _without_sync(
    ready: IntArray, synchronous: np.ndarray, dropped: np.ndarray
) -> tuple[IntArray, np.ndarray]:
    """Return ``ready`` and ``synchronous`` as if no rank waited for some of the buckets.

    What follows such a bucket is ready that much after what came before.

    Args:
        ready: as in Timeline.
        synchronous: as in Timeline.
        dropped: bool [buckets]: those that nobody waits for.
    """
    changed, before = ready.copy(), np.zeros((len(ready), ready.shape[2]), np.int64)
    for bucket in range(ready.shape[1]):
        changed[:, bucket] += before
        if synchronous[bucket]:
            before = changed[:, bucket].copy() if dropped[bucket] else np.zeros_like(before)
    return changed, synchronous & ~dropped
