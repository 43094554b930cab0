"""A recorded run that was interrupted while no step passed: who waited for whom, and where.

It says what ``feedline attach`` says of a training that hangs, from what was recorded anyway:
sampled stacks, looks at blocked threads, CPU time, and how many collectives each rank began.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from feedline.analysis.explain.standstill import program_line, standstill
from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.analysis.measure.at_end import LONG_S
from feedline.analysis.measure.code_places import (
    START,
    WAIT,
    program_frames,
    standing,
    within_the_program,
)
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.measure.full_memory import filled_since
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.roles import WatchedRank
from feedline.analysis.measure.steps import ASIDE
from feedline.analysis.text.sentences import COUNT, FUNCTION, NAME, TIME, Sentence
from feedline.profiler.attach.watched import (
    STOPPED,
    SeenStack,
    Usage,
    WatchedProcess,
    WatchedThread,
)
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Flag, Stage
from feedline.profiler.samplers.blocked_threads import ON_STOP, ON_UNKNOWN
from feedline.profiler.samplers.gauge_reader import Gauges, read_gauges
from feedline.profiler.session.ending import INTERRUPTED
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.layout import GAUGES
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack
from feedline.profiler.store.stacks_reader import StackTimes

_LONGER = 3  # times the longest step: no step passes
_SETTLED = 0.8  # of the samples of a process at one line; others are from when it was interrupted
_TRAINED = 8  # steps: before, what takes long may be a beginning
_ENDLESS_S = 10.0  # in one function, which may also only take long: a validation, figures, saving
_KILLED = ("", "SIGKILL")
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE")  # what ran was going on until then
_FEWEST_LOOKS, _SAME = 5, 0.9  # at a thread, and the part of them that found the same
_BLOCKED = 0.7  # of a time that looks stand for; they come at random distances
_REFUSED = "What held the run up takes no part of a step, so its fix makes no step shorter."
_CHECK = (
    "Start it again, and run `feedline attach PID` while it hangs. If another line is named, this "
    "finding is wrong."
)
_WORKER = re.compile(r"loader(\d+)-worker(\d+)")  # what a worker is called in a run folder
_NO_STEP = Sentence("No step for {seconds}.", seconds=TIME)
_WAS_IN = Sentence(
    "The main process was in {function} at {place} all that time.", function=FUNCTION, place=NAME
)
_WAS_AT = Sentence("The main process was at {place} all that time.", place=NAME)
_ENDLESS = "Look for a loop there that never ends, such as one that waits for data that has run out"
_BEGUN = Sentence(
    "{who} has begun {count} collectives, {other} only {fewer}",
    who=NAME,
    count=COUNT,
    other=NAME,
    fewer=COUNT,
)


@dataclass(frozen=True)
class Hang:
    """Why no step passed any more.

    Attributes:
        limit, cause: in a sentence each.
        finding: the same with what to do.
    """

    limit: str
    cause: str
    finding: Finding


def hung(ranks: Mapping[int, RankMetrics]) -> Hang | None:
    """Return why no step passed when a run was interrupted or killed.

    None: it ended otherwise, its last step is not long ago, or what it did is not known.
    """
    ends = [rank.rank.manifest for rank in ranks.values()]
    if not any(end.exit_code == INTERRUPTED or end.state == "cut" for end in ends):
        return None
    seen = []
    for number, rank in sorted(ranks.items()):
        with suppress(FeedlineError):
            last = _Last.of(rank)
            if last is not None:
                seen.append(last.watched(number if len(ranks) > 1 else None))
    still = standstill(seen) if len(seen) == len(ranks) else None
    if still is None or not still.stuck:
        return _running(next(iter(ranks.values()))) if len(ranks) == 1 else None
    found = still.finding()
    more = [*found.more, *_counts(ranks)]
    finding = replace(found, more=more, refused=_REFUSED, how_to_check=_CHECK)
    return Hang(still.limit, still.cause, finding)


def _running(rank: RankMetrics) -> Hang | None:
    """Return the function of the program that ran while no step passed; None: there is none.

    What ended by itself, or for want of memory, did not run without end.
    """
    ended_by = rank.rank.manifest.ended_by
    if (
        ended_by in _FAULTS
        or ended_by in _KILLED
        and filled_since(rank, _finished(rank)) is not None
    ):
        return None
    with suppress(FeedlineError):
        times = StackTimes.of(rank.rank)
        begin, end = _finished(rank), 0 if times is None else _end(rank, times)
        if times is None or "stopped" in rank.main.header or rank.rank.slice is not None:
            return None
        if rank.steps is None or len(rank.steps.wall) < _TRAINED:
            return None
        if end - begin < max(_ENDLESS_S * 1e9, _LONGER * _usual(rank)):
            return None
        main = next((own for own in times.between(begin, end) if own.kind == MAIN), None)
        place = _most_in(_of_main(main)) if main is not None else None
        if place is None:
            return None
        (file, function), line = place
        seconds = (end - begin) * 1e-9
        limit = _NO_STEP(seconds=seconds)
        where = f"{file}:{line}"
        of_module = function.startswith(("line ", "lambda "))
        cause = _WAS_AT(place=where) if of_module else _WAS_IN(function=function, place=where)
        finding = Finding(
            "standstill",
            Severity.HIGH,
            message=cause.rstrip("."),
            fix=_ENDLESS,
            place=where,
            evidence=[Evidence("no_step_s", "no step passed for", seconds, "s")],
            refused=_REFUSED,
            how_to_check=_CHECK,
        )
        return Hang(limit, cause, finding)
    return None


def _most_in(stacks: Sequence[SampledStack]) -> tuple[tuple[str, str], int] | None:
    """Return the innermost function of the program that a process was nearly always in.

    With the line of it that it was at most often.
    """
    lines: dict[tuple[str, str], Counter[int]] = {}
    depth: dict[tuple[str, str], int] = {}
    whole = sum(stack.samples for stack in stacks)
    if any(standing(stack.frames).place in (WAIT, START) for stack in stacks):
        return None  # for a batch, which may only be late
    for stack in stacks:
        for at, frame in enumerate(program_frames(within_the_program(stack.frames))):
            lines.setdefault(frame.key, Counter())[frame.line] += stack.samples
            depth[frame.key] = max(depth.get(frame.key, 0), at)
    often = [key for key, of in lines.items() if of.total() >= _SETTLED * whole]
    key = max(often, key=lambda own: depth[own], default=None)
    if key is None or whole < _FEWEST_LOOKS:
        return None
    return key, lines[key].most_common(1)[0][0]


def _counts(ranks: Mapping[int, RankMetrics]) -> list[str]:
    """Return how many collectives the ranks began that are farthest apart."""
    begun = {number: rank.main.total(Stage.COLLECTIVE)["records"] for number, rank in ranks.items()}
    most, least = max(begun, key=begun.__getitem__), min(begun, key=begun.__getitem__)
    if begun[most] == begun[least] or not begun[least]:
        return []
    return [
        _BEGUN(who=f"Rank {most}", count=begun[most], other=f"rank {least}", fewer=begun[least])
    ]


@dataclass(frozen=True)
class _Last:
    """What a rank did since its last step, ns of CLOCK_MONOTONIC.

    Attributes:
        begin: when the last thing ended that it had finished.
        since: from when on its main process stayed at one line.
        end: of the run.
        times: its sampled stacks.
    """

    rank: RankMetrics
    begin: int
    since: int
    end: int
    times: StackTimes

    @classmethod
    def of(cls, rank: RankMetrics) -> "_Last | None":
        """Return it; None: its last step is not long ago, or its main process did not stay.

        Raises:
            RunDamaged, SchemaTooNew: its stacks cannot be read.
        """
        if rank.rank.slice is not None or "stopped" in rank.main.header:
            return None
        times = StackTimes.of(rank.rank)
        if times is None:
            return None
        begin, end = _finished(rank), _end(rank, times)
        since = begin
        while end - since >= LONG_S * 1e9 and end - begin >= _LONGER * _usual(rank):
            main = next((own for own in times.between(since, end) if own.kind == MAIN), None)
            if main is not None and len(_lines(_settled(_of_main(main)))) == 1:
                return cls(rank, begin, since, end, times)
            since += (end - since) // 2
        return None

    def watched(self, number: int | None) -> WatchedRank:
        """Return its processes as they are when they are watched from outside."""
        every = self.times.between(self.since, self.end)
        main = next(process for process in every if process.kind == MAIN)
        asked = self.rank.main.of(Stage.NEXT, Stage.EPOCH)["source"].tolist()
        workers = {
            int(named[2]): self._process(process)
            for process in every
            if (named := _WORKER.fullmatch(process.process)) and int(named[1]) in asked[-1:]
        }
        numbers = sorted(workers)
        return WatchedRank(
            number, self._process(main), [workers[one] for one in numbers], numbers=numbers
        )

    def _process(self, process: ProcessStacks) -> WatchedProcess:
        stacks, waits = _settled(_of_main(process)), _waits(self._looks(process.pid))
        threads = [
            WatchedThread(0, False, (), _places(stack))
            for stack in process.stacks
            if stack.thread != "main"
        ]
        main = WatchedThread(
            process.pid,
            True,
            tuple(SeenStack(_places(stack), stack.samples, stack.seconds) for stack in stacks),
            _places(max(stacks, key=lambda stack: stack.samples)) if stacks else (),
            waits_on=waits or ON_UNKNOWN,
        )
        return WatchedProcess(
            pid=process.pid,
            parent=self.rank.rank.manifest.pid,
            rank=None,
            name="",
            command=(),
            folder="",
            begun_s=0.0,
            state=STOPPED if waits == ON_STOP else "S",
            ended=False,
            seconds=(self.end - self.begin) * 1e-9,
            usage=Usage(cpu_s=self._cpu_s(process, stacks)),
            threads=(main, *threads),
        )

    def _looks(self, pid: int) -> list[tuple[str, int]]:
        """Return what a process was seen to wait for, and for how long each look stands, ns."""
        looks = self.rank.main.view(Stage.LOOK)
        looks = looks[
            (looks["pid"] == pid) & (looks["start"] >= self.since) & (looks["start"] < self.end)
        ]
        names = self.rank.main.names
        return [
            (names.get(source, ON_UNKNOWN), ns)
            for source, ns in zip(looks["source"].tolist(), looks["stands_for"].tolist())
        ]

    def _cpu_s(self, process: ProcessStacks, stacks: Sequence[SampledStack]) -> float:
        """Return the CPU time that a process used at most, s."""
        seconds, looks = (self.end - self.since) * 1e-9, self._looks(process.pid)
        if len(looks) >= _FEWEST_LOOKS:
            blocked_s = sum(ns for _, ns in looks) * 1e-9
            return 0.0 if blocked_s >= _BLOCKED * seconds else seconds - blocked_s
        if stacks and standing(stacks[0].frames).place == WAIT:
            return 0.0
        return seconds * _cpus(self.rank, self.since, self.end)


def _finished(rank: RankMetrics) -> int:
    """Return when the main process had last finished something, ns; or when it was first seen."""
    records = rank.main.records
    aside = [stage for stage in ASIDE if stage not in (Stage.PROFILED, Stage.REST)]
    records = records[(records["thread"] == 0) & ~np.isin(records["stage"], aside)]
    records = records[records["flags"] & (Flag.FAILED | Flag.END) != Flag.FAILED]
    anchors = rank.rank.manifest.anchors
    begun = int(anchors[0]["perf_counter_ns"]) if anchors else 0
    return int((records["start"] + records["wall"]).max(initial=begun))


def _end(rank: RankMetrics, times: StackTimes) -> int:
    """Return when the recording ended, ns; of a killed process, when it was last seen.

    Where a call failed, as after a timeout, what came then is how the program ended.
    """
    manifest = rank.rank.manifest
    ended = manifest.ended and manifest.anchors
    end = int(manifest.anchors[-1]["perf_counter_ns"]) if ended else times.until
    records = rank.main.records[rank.main.records["thread"] == 0]
    failed = records[records["flags"] & (Flag.FAILED | Flag.END) == Flag.FAILED]
    if not ended or not manifest.ended_by or not len(failed):
        return end
    last = failed[int(failed["start"].argmax())]
    after = int(last["start"] + max(last["wall"], 0))
    return after if last["start"] >= _finished(rank) else end


def _usual(rank: RankMetrics) -> int:
    """Return the longest time in which usually nothing is finished, ns.

    A killed run may have been in a rest: steps that are counted and recorded together.
    """
    steps = rank.steps.wall if rank.steps is not None else np.zeros(0, np.int64)
    rests = [] if rank.rank.manifest.ended else rank.main.of(Stage.REST)["wall"].tolist()
    return int(max([*steps[1:].tolist(), *rests], default=0))


def _of_main(process: ProcessStacks) -> list[SampledStack]:
    return [stack for stack in process.stacks if stack.thread == "main"]


def _settled(stacks: Sequence[SampledStack]) -> list[SampledStack]:
    """Return the stacks at the line at which a process nearly always was; else all of them."""
    lines = _lines(stacks)
    line, samples = max(lines.items(), key=lambda row: row[1], default=(("", 0), 0))
    if samples < _SETTLED * sum(lines.values()):
        return list(stacks)
    return [stack for stack in stacks if program_line(_places(stack), "") == line]


def _lines(stacks: Sequence[SampledStack]) -> dict[tuple[str, int], int]:
    """Return line of the program -> samples."""
    lines: dict[tuple[str, int], int] = {}
    for stack in stacks:
        line = program_line(_places(stack), "")
        lines[line] = lines.get(line, 0) + stack.samples
    return lines


def _places(stack: SampledStack) -> tuple[Place, ...]:
    return tuple(Place(frame.file, frame.function, frame.line) for frame in stack.frames)


def _waits(looks: Sequence[tuple[str, int]]) -> str:
    """Return what nearly all looks found; empty: they are few, or differ."""
    kinds = Counter(kind for kind, _ in looks)
    kind, number = kinds.most_common(1)[0] if kinds else ("", 0)
    return kind if number >= max(_FEWEST_LOOKS, _SAME * len(looks)) else ""


def _cpus(rank: RankMetrics, begin: int, end: int) -> float:
    """Return how many CPUs a rank's processes used together; as many as can be: not known."""
    try:
        gauges = read_gauges(rank.rank.folder / GAUGES).between(begin, end)
    except (FeedlineError, OSError, ValueError):
        return 1.0
    return _mean(gauges, "cpu/processes")


def _mean(gauges: Gauges, name: str) -> float:
    numbers = [number for number, (own, _) in enumerate(gauges.names) if own == name]
    values = gauges.value[np.isin(gauges.gauge, numbers)][1:]  # the first is since before
    return float(values.mean()) if len(values) else 1.0
