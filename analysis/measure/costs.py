"""What a sample costs in the process that makes it.

These are exact sums over all samples, split by the ones that were looked at in detail.

The total (FETCH less COLLATE) is measured for every batch. Which share of it is reading, decoding,
augmenting is estimated from one sample in N (taps/fetch.py) by a ratio estimator, sum(w part) /
sum(w whole), whose standard error is reported (Cochran, Sampling Techniques, 3rd edition, sections
2.6 and 6.4). How the total is divided into CPU, waiting for a CPU and blocked is measured for every
batch too: the samples in detail only say how that is spread over the stages, so that no column of
stages exceeds its total.

Samples in which a process imported something, and its first one, are in none of this: what they
take longer belongs to no part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, parents
from feedline.analysis.measure.model import Cost, Operation
from feedline.analysis.measure.stages import SAMPLE_STAGES, STAGE_OF_DETAIL
from feedline.profiler.events import Flag, Stage
from feedline.profiler.noise_scale import NORMAL_975, student
from feedline.profiler.store.record_columns import Records, summed, view
from feedline.profiler.store.segment_reader import Process

_CLOCKS = ("wall", "cpu", "runqueue")
_TINY = 1e-9
_ROUNDS = 50  # of the fit; tables of a handful of stages are within 1e-6 after a few


@dataclass(frozen=True)
class SampledDetails:
    """Samples that were looked at in detail, of one or more processes.

    Attributes:
        weight: float64 [n], how many samples each stands for.
        samples: float64 [n], samples in each (more than one for ``__getitems__``).
        whole: clock -> float64 [n], ns.
        parts: (stage, operation) -> clock -> float64 [n], ns without the operations inside.
        calls: (stage, operation) -> float64 [n].
        nbytes: stage -> float64 [n].
        chunked: operation -> float64 [n] each, of its reads of chunks: "used", the bytes that they
            return, and "unpacked", the bytes of these chunks.
        decoded, output: float64 [n], pixels decoded, and of the last picture.
        queued: stages whose time without a CPU was measured.
    """

    weight: FloatArray
    samples: FloatArray
    whole: dict[str, FloatArray]
    parts: dict[tuple[str, str], dict[str, FloatArray]]
    calls: dict[tuple[str, str], FloatArray]
    nbytes: dict[str, FloatArray]
    chunked: dict[str, dict[str, FloatArray]]
    decoded: FloatArray
    output: FloatArray
    queued: frozenset[str]

    @classmethod
    def of_all(cls, processes: list[Process], loaders: frozenset[int]) -> "SampledDetails":
        """Collect the detailed samples of these loaders.

        First-use samples count only where every sample is one.
        """
        steady = cls.joined([cls.of(process, loaders) for process in processes])
        return (
            steady
            if len(steady.weight)
            else cls.joined([cls.of(process, loaders, first_use=True) for process in processes])
        )

    @classmethod
    def of(
        cls, process: Process, loaders: frozenset[int], first_use: bool = False
    ) -> "SampledDetails":
        """Collect one process's detailed samples for these loaders.

        They are those without first use, or only these.
        """
        records = process.of(Stage.SAMPLE, *STAGE_OF_DETAIL)
        own = _self_times(records)
        wanted = (records["flags"] & Flag.FIRST != 0) == first_use
        sample_at = np.flatnonzero(
            (records["stage"] == Stage.SAMPLE) & np.isin(records["source"], list(loaders)) & wanted
        )
        position = np.full(len(records) + 1, -1, np.int64)
        position[sample_at] = np.arange(len(sample_at))
        row, count = position[_sample_of(records)], len(sample_at)
        parts: dict[tuple[str, str], dict[str, FloatArray]] = {}
        calls: dict[tuple[str, str], FloatArray] = {}
        nbytes: dict[str, FloatArray] = {}
        for stage, name in STAGE_OF_DETAIL.items():
            of_stage = (records["stage"] == stage) & (row >= 0)
            if of_stage.any():
                nbytes[name] = _sum_rows(row[of_stage], records["nbytes"][of_stage], count)
            for source in np.unique(records["source"][of_stage]).tolist():
                chosen = of_stage & (records["source"] == source)
                key = (name, process.names.get(source, "?"))
                parts[key] = {
                    clock: _sum_rows(row[chosen], own[clock][chosen], count) for clock in _CLOCKS
                }
                calls[key] = _sum_rows(row[chosen], np.ones(int(chosen.sum())), count)
        samples = view(records[sample_at], Stage.SAMPLE)
        whole = {clock: np.maximum(samples[clock], 0).astype(float) for clock in _CLOCKS}
        decodes = (records["stage"] == Stage.DECODE) & (row >= 0)
        decoded = _sum_rows(row[decodes], view(records[decodes], Stage.DECODE)["pixels"], count)
        queued = frozenset(
            STAGE_OF_DETAIL[Stage(stage)]
            for stage in set(records["stage"][records["runqueue"] >= 0].tolist())
            if stage in STAGE_OF_DETAIL
        )
        return cls(
            samples["stands_for"].astype(float),
            samples["samples"].astype(float),
            whole,
            parts,
            calls,
            nbytes,
            _chunked(records, row, count, process.names),
            decoded,
            _last_picture(records, row, count),
            queued,
        )

    @classmethod
    def joined(cls, parts: "list[SampledDetails]") -> "SampledDetails":
        """Join those of several processes."""

        def column(arrays: Iterable[FloatArray | None]) -> FloatArray:
            columns = (
                np.zeros(len(d.weight)) if values is None else values
                for d, values in zip(parts, arrays)
            )
            return np.concatenate([np.zeros(0), *columns])

        keys = sorted({key for d in parts for key in d.parts})
        return cls(
            weight=column(d.weight for d in parts),
            samples=column(d.samples for d in parts),
            whole={clock: column(d.whole[clock] for d in parts) for clock in _CLOCKS},
            parts={
                key: {
                    clock: column(d.parts.get(key, {}).get(clock) for d in parts)
                    for clock in _CLOCKS
                }
                for key in keys
            },
            calls={key: column(d.calls.get(key) for d in parts) for key in keys},
            nbytes={
                stage: column(d.nbytes.get(stage) for d in parts)
                for stage in sorted({stage for d in parts for stage in d.nbytes})
            },
            chunked={
                name: {
                    what: column(d.chunked.get(name, {}).get(what) for d in parts)
                    for what in ("used", "unpacked")
                }
                for name in sorted({name for d in parts for name in d.chunked})
            },
            decoded=column(d.decoded for d in parts),
            output=column(d.output for d in parts),
            queued=frozenset().union(*(d.queued for d in parts)),
        )

    def sum(self, stage: str, clock: str) -> FloatArray:
        """Return the time of all operations of a stage, float64 [n], ns."""
        return np.sum(
            [clocks[clock] for (of, _), clocks in self.parts.items() if of == stage], axis=0
        )

    def weighted_mean(self, values: FloatArray) -> float:
        """Return the weighted mean per sample."""
        samples = float(self.weight @ self.samples)
        return float(self.weight @ values) / samples if samples else 0.0

    def share(
        self, part: FloatArray, samples: int, whole: FloatArray | None = None
    ) -> tuple[float, float | None]:
        """Return the share of the samples' wall time that a part takes, and its standard error.

        Twice the error is a 95 % interval also where few samples were looked at: it grows as
        Student's t does for as many as count alike (Kish, Survey Sampling, 1965, section 11.7).
        None: one tells nothing of how the others differ. 0: all were looked at.

        Args:
            samples: of how many.
            whole: float64 [n], of another clock than the wall's.
        """
        whole, weight = self.whole["wall"] if whole is None else whole, self.weight
        total = float(weight @ whole)
        if total <= 0:
            return 0.0, None
        ratio = float(weight @ part) / total
        left = max(0.0, 1 - float(self.samples.sum()) / samples)
        alike = float(weight.sum()) ** 2 / float(weight @ weight)
        if left > 0 and alike < 2:
            return ratio, None
        residual = weight * (part - ratio * whole)
        error = np.sqrt(left * float(residual @ residual)) / total
        return ratio, float(
            error * np.sqrt(alike / (alike - 1)) * student(int(alike) - 1) / NORMAL_975
        ) if left else 0.0


def _sample_of(records: Records) -> IntArray:
    """Return for each record the index of the sample that it lies in; -1: in none."""
    sample = np.full(len(records), -1, np.int64)
    above = parents(records["start"], records["wall"])
    # parents come before their children
    for index in np.argsort(records["start"], kind="stable"):
        if records["stage"][index] == Stage.SAMPLE:
            sample[index] = index
        elif above[index] >= 0:
            sample[index] = sample[above[index]]
    return sample


def _self_times(records: Records) -> dict[str, FloatArray]:
    """Return each record's clocks less those of the records directly inside it.

    An unmeasured clock counts as 0. The clocks are read one after another, and a thread may lose
    its CPU in between: what did not fit into the wall time was outside.
    """
    above = parents(records["start"], records["wall"])
    has = above >= 0
    own: dict[str, FloatArray] = {}
    for clock in _CLOCKS:
        value = np.maximum(records[clock], 0).astype(float)
        if clock == "runqueue":
            value = np.minimum(
                value, np.maximum(records["wall"] - np.maximum(records["cpu"], 0), 0)
            )
        own[clock] = (
            np.maximum(value - np.bincount(above[has], value[has], len(records)), 0)
            if len(records)
            else value
        )
    return own


def _sum_rows(row: IntArray, values: npt.NDArray[Any], count: int) -> FloatArray:
    """Sum the values of each row, float64 [count]."""
    return np.bincount(row, values.astype(float), count).astype(float)


def _chunked(
    records: Records, row: IntArray, count: int, names: Mapping[int, str]
) -> dict[str, dict[str, FloatArray]]:
    """Return what reads of chunks returned and unpacked in each sample, by operation."""
    is_read = (records["stage"] == Stage.READ) & (row >= 0)
    reads, row = view(records[is_read], Stage.READ), row[is_read]
    of_chunks = reads["unpacked"] > 0
    found = {}
    for source in np.unique(reads["source"][of_chunks]).tolist():
        own = of_chunks & (reads["source"] == source)
        found[names.get(source, "?")] = {
            "used": _sum_rows(row[own], reads["nbytes"][own], count),
            "unpacked": _sum_rows(row[own], reads["unpacked"][own], count),
        }
    return found


def _last_picture(records: Records, row: IntArray, count: int) -> FloatArray:
    """Return the pixels of the last augmented picture in each sample; 0: unknown.

    Of several images that are decoded for it, as many of its size.
    """
    augmented = (records["stage"] == Stage.AUGMENT) & (row >= 0)
    pictures, in_sample, row = view(records[augmented], Stage.AUGMENT), row, row[augmented]
    order = np.argsort(pictures["start"] + pictures["wall"], kind="stable")
    order = order[pictures["pixels"][order] > 0]
    last = np.zeros(count)
    last[row[order]] = pictures["pixels"][order]
    decodes = (records["stage"] == Stage.DECODE) & (in_sample >= 0)
    decodes[decodes] = view(records[decodes], Stage.DECODE)["pixels"] > 0
    return last * np.maximum(np.bincount(in_sample[decodes], minlength=count), 1)


class _SampleCounters(NamedTuple):
    """What one sample takes of its thread's and its process's counters, on average."""

    major_faults: float
    disk_bytes: float
    process_cpu: float  # ns
    read_bytes: float
    reads: float


PAGE_BYTES = 4096
# CPU time of a minor page fault at most, clearing the page included (docs/rules/page_faults.md)
MOST_FAULT_S = 3e-6


class _Kernel(NamedTuple):
    """What the kernel does for one sample, on average."""

    minor_faults: float
    system_cpu: float  # ns of the thread's


@dataclass(frozen=True)
class BatchProducers:
    """The processes that make a set of loaders' batches.

    They are their workers, or the training process itself.
    """

    processes: list[Process]
    loaders: frozenset[int]
    # ns: batches whose making began before do not count, where a process kept all its windows
    since: int = 0

    @property
    def alone(self) -> bool:
        """Whether the training process makes them itself."""
        return bool(self.processes) and not any(process.is_worker for process in self.processes)

    def sums(self, stage: Stage) -> Counter[str]:
        """Return the sums of a stage's columns, and ``records``, over everything these loaders did.

        What was not measured counts as 0. A process that forgot windows sums what it kept no note
        of in its totals, for all its loaders together.
        """
        total = Counter[str]()
        for process in self.processes:
            total.update(
                process.total(stage)
                if process.stride > 1
                else summed(self._of(process, stage), stage)
            )
        return total

    def first_use(self) -> Counter[str]:
        """Return the sums of SAMPLE records of first use, as far as they were seen."""
        total = Counter[str]()
        for process in self.processes:
            total.update(summed(self._first(process, Stage.SAMPLE), Stage.SAMPLE))
        return total

    def traffic(self) -> "_SampleCounters | None":
        """Return the file traffic of a sample.

        The batches of first use are left out where there are others. None: /proc does not tell.
        """
        means = self._mean_of(Stage.TRAFFIC)
        return (
            None
            if means is None
            else _SampleCounters(*(means[name] for name in _SampleCounters._fields))
        )

    def kernel(self) -> "_Kernel | None":
        """Return the kernel's work for a sample, as ``traffic``."""
        means = self._mean_of(Stage.KERNEL)
        return None if means is None else _Kernel(*(means[name] for name in _Kernel._fields))

    def _mean_of(self, stage: Stage) -> dict[str, float] | None:
        """Return the sums of a stage's columns over the batches that were looked into, per sample."""
        sums, described = self.sums(stage), float(self.described)
        if not sums["records"] or not described:
            return None
        fetches, first = self.sums(Stage.FETCH), Counter[str]()
        for process in self.processes:
            first.update(summed(self._first(process, stage), stage))
        samples = first["records"] * fetches["samples"] / fetches["records"]
        if samples < described:
            described -= samples
            sums.subtract(first)
        return {name: value / described for name, value in sums.items()}

    def _of(self, process: Process, stage: Stage) -> Records:
        records = process.view(stage)
        own = np.isin(records["source"], list(self.loaders))
        if self.since:
            fetches = process.of(Stage.FETCH)  # those of other loaders have the same numbers
            later = np.isin(fetches["source"], list(self.loaders))
            later &= fetches["start"] >= self.since
            own &= np.isin(records["number"], fetches["number"][later])
        return records[own]

    def _first(self, process: Process, stage: Stage) -> Records:
        records = self._of(process, stage)
        return records[records["flags"] & Flag.FIRST != 0]

    @property
    def batches(self) -> int:
        """Batches made."""
        made = self.sums(Stage.FETCH)["records"]
        for process in self.processes:  # of the same records as these sums
            fetches = (
                process.of(Stage.FETCH) if process.stride > 1 else self._of(process, Stage.FETCH)
            )
            made -= int((fetches["flags"] & (Flag.END | Flag.FAILED) != 0).sum())
        return made

    @property
    def described(self) -> int:
        """How many samples the batches that were looked into stand for.

        They are about as many as were made; where no batch was looked into, those made.
        """
        return self.sums(Stage.BATCH)["samples"] or self.sums(Stage.FETCH)["samples"]

    @property
    def measures_runqueue(self) -> bool:
        """A kernel may not offer it."""
        return any(
            bool((process.of(Stage.FETCH)["runqueue"] >= 0).any()) for process in self.processes
        )


@dataclass(frozen=True)
class _Steady:
    """The samples that are not of first use, as far as first use was seen.

    Attributes:
        samples: how many.
        making: clock -> ns that they took, without collate.
    """

    samples: int
    making: dict[str, float]

    @classmethod
    def of(cls, makers: BatchProducers, samples: int) -> "_Steady":
        fetch = makers.sums(Stage.FETCH)
        collate = makers.sums(Stage.COLLATE)
        first = makers.first_use()
        if first["samples"] >= samples:  # every sample was one of first use
            first.clear()
        left = {
            clock: max(0.0, float(fetch[clock] - collate[clock] - first[clock]))
            for clock in _CLOCKS
        }
        return cls(samples - first["samples"], left)

    def mean_ns(self, clock: str) -> float:
        """Return the mean time per sample, ns."""
        return self.making[clock] / self.samples


def accounted_cpu_s(costs: Mapping[str, Cost]) -> float:
    """Return the CPU seconds per sample of the threads that make and send it.

    The queue's feeder thread pickles beside the worker.
    """
    return sum(costs[name].cpu_s or 0.0 for name in ("total", "transport") if name in costs)


def costs_by_stage(
    details: SampledDetails, makers: BatchProducers, samples: int
) -> dict[str, Cost]:
    """Return the mean cost of a sample by stage, and "total"."""
    collate, pickle, batch = (
        makers.sums(stage) for stage in (Stage.COLLATE, Stage.PICKLE, Stage.BATCH)
    )
    queued, described, traffic = makers.measures_runqueue, makers.described, makers.traffic()
    costs: dict[str, Cost] = {}
    steady = _Steady.of(makers, samples)
    scale, making = _scale(details, steady), {clock: steady.mean_ns(clock) for clock in _CLOCKS}
    parts = {
        stage: {clock: details.sum(stage, clock) for clock in _CLOCKS}
        for stage in sorted(details.nbytes)
    }
    parts["dataset"] = {
        clock: details.whole[clock] - sum(part[clock] for part in parts.values())
        for clock in _CLOCKS
    }
    seen = {
        stage: {clock: max(scale * details.weighted_mean(part[clock]), 0.0) for clock in _CLOCKS}
        for stage, part in parts.items()
    }
    if not scale:
        seen = {"dataset": making}
    for stage, ns in _spread(seen, making, len(details.weight)).items():
        nbytes = details.weighted_mean(details.nbytes[stage]) if stage in details.nbytes else 0.0
        error = details.share(parts[stage]["wall"], steady.samples)[1]
        error_ns = None if error is None else error * making["wall"]
        costs[stage] = _cost(
            ns, queued and (stage == "dataset" or stage in details.queued), nbytes or None, error_ns
        )
    own = {clock: collate[clock] / samples for clock in _CLOCKS}
    costs["collate"] = _cost(own, queued, batch["nbytes"] / described, 0.0)
    if pickle["records"]:
        costs["transport"] = _cost(
            {clock: pickle[clock] / samples for clock in _CLOCKS},
            False,
            pickle["nbytes"] / samples,
            0.0,
        )
    divided = [sum(column) for column in zip(_divided(making), _divided(own))]
    whole = dict(zip(_CLOCKS, (making["wall"] + own["wall"], *divided)))
    costs["total"] = _cost(whole, queued, traffic.read_bytes if traffic is not None else None, 0.0)
    return {stage: costs[stage] for stage in (*SAMPLE_STAGES, "total") if stage in costs}


def _spread(
    seen: dict[str, dict[str, float]], total: dict[str, float], number: int
) -> dict[str, dict[str, float]]:
    """Return clocks of the stages that sum to the total's, as close as possible to those seen.

    Iterative proportional fitting (Deming and Stephan, Annals of Mathematical Statistics 11(4),
    1940): rows are scaled to the stages' wall times and columns to the total's CPU, waiting and
    blocked time, in turns.

    Args:
        seen: stage -> clock -> ns, of the samples in detail, whose wall times sum to the total's.
        total: clock -> ns, of all samples.
        number: of the samples in detail; that stages are divided as the total is counts as one
            more, so that few do not decide all.
    """
    walls = np.array([ns["wall"] for ns in seen.values()])
    columns = np.array(_divided(total))
    # every stage divided as the total is
    alike = walls[:, None] * columns / max(columns.sum(), _TINY)
    table = (number * np.array([_divided(ns) for ns in seen.values()]) + alike) / (number + 1)
    for _ in range(_ROUNDS):
        table *= (walls / np.maximum(table.sum(1), _TINY))[:, None]
        table *= columns / np.maximum(table.sum(0), _TINY)
    return {
        stage: {"wall": ns["wall"], "cpu": float(row[0]), "runqueue": float(row[1])}
        for (stage, ns), row in zip(seen.items(), table)
    }


def _divided(ns: dict[str, float]) -> list[float]:
    """Divide wall time into CPU, waiting for a CPU, and blocked.

    The clocks are read one after another, so what remains may be less than nothing.
    """
    cpu = min(ns["cpu"], ns["wall"])
    runqueue = min(ns["runqueue"], ns["wall"] - cpu)
    return [cpu, runqueue, ns["wall"] - cpu - runqueue]


def operations(details: SampledDetails, costs: Mapping[str, Cost]) -> list[Operation]:
    """Return the operations inside a sample, dearest first, as parts of what their stage costs."""
    costs_of_operations = []
    for (stage, name), clocks in details.parts.items():
        cost = costs[stage]
        whole = {
            clock: float(details.weight @ details.sum(stage, clock)) for clock in ("wall", "cpu")
        }
        share = {
            clock: float(details.weight @ clocks[clock]) / whole[clock] if whole[clock] else 0.0
            for clock in whole
        }
        calls = details.weighted_mean(details.calls[stage, name])
        costs_of_operations.append(
            Operation(
                stage,
                name,
                cost.wall_s * share["wall"],
                (cost.cpu_s or 0.0) * share["cpu"],
                calls,
                _unpacked(details, name) if stage == STAGE_OF_DETAIL[Stage.READ] else None,
            )
        )
    return sorted(costs_of_operations, key=lambda operation: -operation.wall_s)


def _unpacked(details: SampledDetails, name: str) -> float | None:
    """Return the bytes of chunks that an operation unpacks for each byte that it returns."""
    if (chunked := details.chunked.get(name)) is None:
        return None
    used = float(details.weight @ chunked["used"])
    return float(details.weight @ chunked["unpacked"]) / used if used else None


def _scale(details: SampledDetails, steady: _Steady) -> float:
    """Return the wall time of a sample of all, over that of those seen in detail.

    It makes the parts sum to what was measured for all.
    """
    seen = details.weighted_mean(details.whole["wall"])
    return steady.mean_ns("wall") / seen if seen else 0.0


def _cost(
    ns: dict[str, float], runqueue_measured: bool, nbytes: float | None, error_ns: float | None
) -> Cost:
    wall = ns["wall"] / 1e9
    cpu = min(ns["cpu"] / 1e9, wall)  # the clocks are read one after another
    runqueue = min(ns["runqueue"] / 1e9, wall - cpu) if runqueue_measured else None
    blocked = max(wall - cpu - runqueue, 0.0) if runqueue is not None else None
    error = None if error_ns is None else float(error_ns) / 1e9
    return Cost(float(wall), float(cpu), _float(runqueue), _float(blocked), _float(nbytes), error)


def _float(value: float | None) -> float | None:
    """Return a plain float of what may be numpy's."""
    return None if value is None else float(value)
