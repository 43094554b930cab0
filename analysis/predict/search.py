"""The best settings of a DataLoader under limits of CPUs and memory, searched in the replay."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from feedline.analysis.ledger.finding import REJECTED, Change, PredictedRate, Refused
from feedline.analysis.predict.limits import NextLimit, Predictor, next_limit

_Settings = Mapping[str, int | bool]

#: Of the best throughput: within it, fewer workers win, then fewer batches ahead. They cost memory,
#: and CPUs that others could use.
NEAR = 0.98
_DEPTHS = (2, 4, 8)  # prefetch_factor
_USUAL_DEPTH = 2  # torch's default
_ALL_WORKERS = 12  # up to it each number is tried, then those half as many again
_FEW = 5  # settings that are told
_LIMITS = 3  # predictions that find out what limits the best ones, at most
_PER_CPU = 2  # workers that are tried, at most: those that are often blocked share a CPU
_FEWEST = 4  # of them
# torch's defaults
_USUAL: _Settings = {
    "num_workers": 0,
    "prefetch_factor": _USUAL_DEPTH,
    "in_order": True,
    "persistent_workers": False,
}
_SEARCHED = tuple(_USUAL)


@dataclass(frozen=True)
class Memory:
    """What settings of the loader take of the machine's memory.

    Attributes:
        worker_bytes: of one worker, at most. None: not recorded.
        batch_bytes: None: not recorded.
    """

    worker_bytes: float | None
    batch_bytes: float | None

    def of(self, settings: _Settings) -> float | None:
        """Return the memory of all workers and the batches that they have ready, B.

        None: not known.
        """
        workers = settings.get("num_workers", 0)
        if not workers:
            return 0.0
        if self.worker_bytes is None or self.batch_bytes is None:
            return None
        return workers * self.worker_bytes + self.shared_of(settings)

    def shared_of(self, settings: _Settings) -> float:
        """Return what of it is in shared memory (/dev/shm): prefetch_factor batches per worker."""
        return (
            settings.get("num_workers", 0)
            * settings.get("prefetch_factor", _USUAL_DEPTH)
            * (self.batch_bytes or 0.0)
        )


@dataclass(frozen=True)
class Limits:
    """What the settings may take.

    Attributes:
        workers: at most.
        cpus: that the training may use then; None: as many as it had.
        memory_bytes: of workers and their batches; None: not limited.
        shared_bytes: of them, in /dev/shm; None: not known.
    """

    workers: int
    cpus: float | None = None
    memory_bytes: float | None = None
    shared_bytes: float | None = None


@dataclass(frozen=True)
class Candidate:
    """Settings with their prediction.

    Attributes:
        settings: num_workers, and with workers prefetch_factor, in_order, persistent_workers.
        memory_bytes: of workers and batches, at most. None: not known.
    """

    settings: _Settings
    predicted: PredictedRate
    memory_bytes: float | None

    @property
    def workers(self) -> int:
        return int(self.settings["num_workers"])

    @property
    def depth(self) -> int:
        return int(self.settings.get("prefetch_factor", 0))


@dataclass(frozen=True)
class Search:
    """Result of a search.

    Attributes:
        now: the settings as they were recorded.
        best: the settings to take; those of now if nothing better was found.
        few: the best few, fastest first.
        by_workers: by number of workers, with the prefetch_factor of now: for a figure.
        unordered: ``best`` with in_order=False, where that is faster; it changes the order of
            batches, and is never chosen.
        limit: what limits ``best``; None: not known.
        left_out: number of workers from which on the limits of memory forbid more; None: they did
            not.
        unpredicted: the smallest number of workers that could not be predicted, and why; None if
            all were.
        tried: predictions made.
        rejected: what was measured of settings that were rejected, which are left out.
        no_more: more workers than now were among them, so none are recommended.
    """

    now: Candidate
    best: Candidate
    few: list[Candidate]
    by_workers: list[Candidate]
    unordered: Candidate | None
    limit: NextLimit | None
    left_out: int | None
    unpredicted: tuple[int, Refused] | None
    tried: int
    rejected: list[str]
    no_more: bool

    @property
    def changes(self) -> _Settings:
        """Of the best settings, those that are other than now; empty: keep them."""
        now = {**_USUAL, **self.now.settings}
        return {name: value for name, value in self.best.settings.items() if value != now[name]}


@dataclass(frozen=True)
class Tuning:
    """A search with what it was limited by, as ``feedline tune`` shows it and writes it as JSON.

    Attributes:
        refused: None: a setting was found.
        line: of the program, to change; empty where nothing is to change.
        took_s: seconds of the search.
        measured_interval: 95 % interval of the measured rate, where it is wide: how another run
            without any change may differ.
        remarks: on what the settings that are advised need.
    """

    search: Search | None = None
    limits: Limits | None = None
    memory: Memory | None = None
    line: str = ""
    took_s: float = 0.0
    refused: Refused | None = None
    measured_interval: tuple[float, float] | None = None
    remarks: tuple[str, ...] = ()


@dataclass
class Searcher:
    """The state of one search.

    Args:
        predict: for a change.
        now: the loader's settings as recorded.
        epochs: passes over one loader, as recorded: workers are kept between several.
        tell: called after each prediction with their number.
    """

    predict: Predictor
    now: Mapping[str, object]
    epochs: int
    limits: Limits
    memory: Memory
    tell: Callable[[int], object] = lambda _: None
    known: dict[tuple[object, bool], PredictedRate | Refused] = field(default_factory=dict)
    too_large: int | None = None
    unpredicted: tuple[int, Refused] | None = None
    rejected: list[int] = field(default_factory=list)

    @property
    def at_most(self) -> int:
        """Return how many predictions a search needs at most."""
        workers = _numbers(self.limits.workers, recorded_settings(self.now).get("num_workers", 0))
        around = max(sum(most / 2 <= number <= most for number in workers) for most in workers)
        return 1 + len(workers) + around * (len(_DEPTHS) - 1) + 1 + _FEW + _LIMITS

    def present(self) -> Candidate | Refused:
        """Predict the settings as they were recorded: the first step of a search."""
        return self._candidate(recorded_settings(self.now))

    def search(self) -> Search | Refused:
        """Vary the number of workers first, then how far they work ahead, around the best number."""
        now = self.present()
        if isinstance(now, Refused):
            return now
        depth = now.depth or _USUAL_DEPTH
        curve = [
            candidate
            for number in _numbers(self.limits.workers, now.workers)
            if (candidate := self._allowed(number, depth)) is not None
        ]
        if not curve:
            return self._refusal()
        tried = [*curve, *self._deeper(curve, depth)]
        no_more = any(workers > now.workers for workers in self.rejected)
        best = self._best(tried, now, no_more)
        limit = None
        if not no_more:
            change = self._change(best.settings)
            limit = next_limit(self._predicted, change, best.predicted, best.workers)
        unordered = self._unordered(best)
        few = [self._with_interval(candidate) for candidate in _ranked(tried, best)]
        return Search(
            now,
            best,
            few,
            by_workers=curve,
            unordered=unordered,
            limit=limit,
            left_out=self.too_large,
            unpredicted=self.unpredicted,
            tried=len({asked for asked, _ in self.known}),
            rejected=self._rejections(),
            no_more=no_more,
        )

    def _deeper(self, curve: list[Candidate], depth: int) -> list[Candidate]:
        """Return candidates that work ahead by another depth, near the best number of workers."""
        most = _smallest(curve).workers
        around = [
            candidate.workers
            for candidate in curve
            if candidate.workers and most / 2 <= candidate.workers <= most
        ]
        deeper = [
            self._allowed(number, other, interval=False)
            for number in around
            for other in _DEPTHS
            if other != depth
        ]
        return [candidate for candidate in deeper if candidate is not None]

    def _best(self, tried: list[Candidate], now: Candidate, no_more: bool) -> Candidate:
        """Return the candidate to recommend: the settings as they are, unless it is surely better.

        Args:
            no_more: more workers than now were rejected, so no number above is recommended.
        """
        allowed = [
            candidate for candidate in tried if not no_more or candidate.workers <= now.workers
        ]
        best = self._with_interval(_smallest(allowed or [now]))
        surely = (
            best.predicted.low > now.predicted.after
            and best.predicted.after * NEAR >= now.predicted.after
        )
        keeps_now = best.workers >= now.workers and not surely and self._fits(now.settings)
        return now if keeps_now else best

    def _rejections(self) -> list[str]:
        """Return why settings were rejected."""
        refused = [
            candidate
            for candidate in self.known.values()
            if isinstance(candidate, Refused) and candidate.reason == REJECTED
        ]
        return sorted({candidate.message for candidate in refused})

    def more_workers_gain(self) -> bool | None:
        """Tell whether some larger number of workers is surely faster.

        None: not all of those tried can be predicted.
        """
        now = self.present()
        if isinstance(now, Refused):
            return None
        for number in (
            number for number in _numbers(self.limits.workers, now.workers) if number > now.workers
        ):
            settings = self._settings(number, now.depth or _USUAL_DEPTH)
            candidate = self._candidate(settings, interval=False)
            if isinstance(candidate, Candidate) and candidate.predicted.after > now.predicted.after:
                candidate = self._candidate(settings)
            if isinstance(candidate, Refused) and candidate.reason != REJECTED:
                return None
            if isinstance(candidate, Candidate) and candidate.predicted.low > now.predicted.after:
                return True
        return False

    def _allowed(self, workers: int, depth: int, interval: bool = True) -> Candidate | None:
        """Return the settings that are within the limits and can be predicted."""
        settings = self._settings(workers, depth)
        if not self._fits(settings):
            self.too_large = min(workers, self.too_large or workers)
            return None
        candidate = self._candidate(settings, interval)
        if isinstance(candidate, Candidate):
            return candidate
        if candidate.reason == REJECTED:
            self.rejected.append(workers)
        elif self.unpredicted is None or workers < self.unpredicted[0]:
            self.unpredicted = workers, candidate
        return None

    def _settings(self, workers: int, depth: int) -> _Settings:
        if not workers:
            return {"num_workers": 0}
        order = {"in_order": bool(self.now["in_order"])} if "in_order" in self.now else {}
        kept = bool(self.now.get("persistent_workers")) or (
            self.epochs > 1 and not self.now.get("dataset_changes")
        )
        return {
            "num_workers": workers,
            "prefetch_factor": depth,
            **order,
            "persistent_workers": kept,
        }

    def _fits(self, settings: _Settings) -> bool:
        takes, limits = self.memory.of(settings), self.limits
        in_memory = limits.memory_bytes is None or takes is None or takes <= limits.memory_bytes
        return in_memory and (
            limits.shared_bytes is None or self.memory.shared_of(settings) <= limits.shared_bytes
        )

    def _candidate(self, settings: _Settings, interval: bool = True) -> Candidate | Refused:
        rate = self._predicted(self._change(settings), interval)
        return (
            rate
            if isinstance(rate, Refused)
            else Candidate(settings, rate, self.memory.of(settings))
        )

    def _with_interval(self, candidate: Candidate) -> Candidate:
        """Return the candidate with its interval, which may not have been computed before."""
        exact = self._candidate(candidate.settings)
        return exact if isinstance(exact, Candidate) else candidate

    def _change(self, settings: _Settings) -> Change:
        return Change(settings=settings, cpus=self.limits.cpus)

    def _predicted(self, change: Change, interval: bool = True) -> PredictedRate | Refused:
        """Return a prediction, computed once for each change."""
        asked = (*sorted(change.settings.items()), change.cpus, change.others, change.endless)
        for key in (asked, True), (asked, interval):
            if key in self.known:
                return self.known[key]
        self.known[asked, interval] = self.predict(change, interval)
        self.tell(len(self.known))
        return self.known[asked, interval]

    def _refusal(self) -> Refused:
        """Say why no setting could be predicted."""
        refused = [
            prediction for prediction in self.known.values() if isinstance(prediction, Refused)
        ]
        said = "no number of workers fits into the allowed memory: raise --memory"
        return refused[0] if refused else Refused("memory", said)

    def _unordered(self, best: Candidate) -> Candidate | None:
        """Return the candidate without waiting for batches in their order, where that is faster.

        It must be so by more than what counts as near.
        """
        if not best.settings.get("in_order"):
            return None
        unordered = self._candidate({**best.settings, "in_order": False})
        return (
            unordered
            if isinstance(unordered, Candidate)
            and unordered.predicted.after * NEAR > best.predicted.after
            else None
        )


def recorded_settings(settings: Mapping[str, object]) -> _Settings:
    """Return the settings of a loader that the search varies; without workers, only num_workers."""
    names = _SEARCHED if settings.get("num_workers") else _SEARCHED[:1]
    return {name: value for name in names if isinstance(value := settings.get(name), int)}


def usual_most(cpus: float, now: int) -> int:
    """Return the largest number of workers to try on this many CPUs."""
    return max(_FEWEST, math.ceil(_PER_CPU * cpus), now)


def effective(settings: _Settings, now: Mapping[str, object]) -> dict[str, int | bool]:
    """Return settings with those that they leave as recorded."""
    settings_in_effect = {**_USUAL, **recorded_settings(now), **settings}
    return settings_in_effect if settings_in_effect["num_workers"] else {"num_workers": 0}


def _numbers(most: int, now: int) -> list[int]:
    """Return the numbers of workers to try, ascending.

    They are all small ones, then half as many again; that of now is among them.
    """
    workers = list(range(min(most, _ALL_WORKERS) + 1))
    while workers[-1] < most:
        workers.append(min(most, workers[-1] + max(1, workers[-1] // 2)))
    return sorted({*workers, min(now, most)})


def _smallest(candidates: Iterable[Candidate]) -> Candidate:
    """Return the fewest workers, then the fewest batches ahead, that come near the best throughput."""
    candidates = list(candidates)
    best = max(candidate.predicted.after for candidate in candidates)
    return min(
        (candidate for candidate in candidates if candidate.predicted.after >= NEAR * best),
        key=lambda candidate: (candidate.workers, candidate.depth),
    )


def _ranked(candidates: Iterable[Candidate], best: Candidate) -> list[Candidate]:
    """Return the chosen one, then the others, fastest first."""
    others = [candidate for candidate in candidates if candidate.settings != best.settings]
    return [
        best,
        *sorted(
            others,
            key=lambda candidate: (-candidate.predicted.after, candidate.workers, candidate.depth),
        ),
    ][:_FEW]
