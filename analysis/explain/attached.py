"""What is known of a training from outside: what its processes do, its limit, and the line."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from feedline.analysis.explain.standstill import Standstill, standstill
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.view.slow_code import SlowCode, reported, slowest
from feedline.analysis.measure.code_places import IDLE, LOGGING, MAKING, WAIT, origin
from feedline.analysis.measure.code_places import OTHER as OWN
from feedline.analysis.measure.code_tree import MAIN, WORKER, SampledCode, Weight, share_of
from feedline.analysis.measure.roles import WatchedRank, ranks_of, shown
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.user_code import UserCode, user_code
from feedline.analysis.text.formatting import called, nearly
from feedline.analysis.text.sentences import COUNT, NAME, PART, PERCENT, Sentence
from feedline.profiler.attach.watched import Watched, WatchedCpus
from feedline.profiler.masks import PYTHON
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack

ATTACHED_SCHEMA = 1

_INPUT = (WAIT, "epoch_start", "sampler", *MAKING)
_MODEL = ("forward", "loss", "backward", "gradients", "optimizer", "copy")
_LOOP = (OWN, LOGGING)
#: Of the time: what takes less is not worth a change; what takes more binds.
_SOME, _MOST = 0.05, 0.2
_PART_OF_LOOP, _DEEPER = 0.3, 0.7  # of a function: what it calls that takes more is named instead
_BUSY = 0.8  # workers that are idle less than the rest of it are as many as help
_MOST_IDLE = 0.5  # of workers' time: above it, what they do is not what binds
#: Of the CPUs that a training may use: it is what holds them, or other programs are a part of it.
_HOLDS, _HELD = 0.8, 0.2
_FREE = 0.5  # CPUs: with fewer, a worker more only takes them from the others
_CLOCK_S = 0.1  # by which the start of a process is known
_FEWEST = 20  # samples of the main process that are worth a verdict

_WAITS = Sentence("{bound}: Input takes {part} of the time.", bound=NAME, part=PERCENT)
_MAKES = Sentence("{bound}: {part} of the time makes its own batches.", bound=NAME, part=PERCENT)
_LOOPS = Sentence("Bound by the training loop: {part} of the time is its own code.", part=PERCENT)
_PLACE = Sentence("Bound by {place}: it takes {part} of the time.", place=NAME, part=PERCENT)
_MODELS = Sentence(
    "Bound by the model: forward, backward and optimizer take {part} of the time.", part=PERCENT
)
_FEW = Sentence("Too little was seen for a verdict: {count} samples.", count=COUNT)
_SAYS = Sentence("{function} takes {part} of the time to make a sample", function=NAME, part=PART)
_TAKES = Sentence("{function} takes {part} of the time", function=NAME, part=PERCENT)
_FASTER = Sentence("Make {function} faster, or keep its results.", function=NAME)
_MORE = Sentence("Or more workers: they make batches {part} of their time.", part=PERCENT)
_IDLES = Sentence("Workers wait for work {part} of their time.", part=PERCENT)
_QUEUES = Sentence("Its processes wait for a CPU {part} of the time", part=PERCENT)
_OTHERS = "Stop what else runs on these CPUs, or give the training more."
_FEWER = "Use fewer workers or threads, or give the training more CPUs."
_MORE_CPUS = "Give the training more CPUs."
_ELSEWHERE = Sentence("The main thread only waits for other threads, and none was seen to train.")
_UNKNOWN_RATE = Sentence("Samples/s are unknown from outside.")


@dataclass(frozen=True)
class SampledShare:
    """A share (0 to 1) of the time of processes of one kind.

    Attributes:
        share: Of their time. Unit: 1.
        low: Lower end of its 95 % interval. Unit: 1.
        high: Upper end. Unit: 1.
    """

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class SampledProcesses:
    """What processes do, by samples of their main threads.

    Attributes:
        main: Row of the step -> its share of the main processes' time.
        workers: Row of a sample -> its share of the workers' time; idle: waiting for work.
    """

    main: dict[str, SampledShare] = field(default_factory=dict)
    workers: dict[str, SampledShare] = field(default_factory=dict)


@dataclass(frozen=True)
class AttachedProcess:
    """A process, as the kernel sees it.

    Attributes:
        name: Such as main, worker 1 or rank 0.
        pid: Its number.
        state: Letter of its state at the end, as ps shows it.
        samples: How many stacks were seen of its main thread.
        cpus: CPUs that it used. Unit: 1.
        runqueue: Share of the time in which its main thread waited for a CPU. Unit: 1.
        read_per_s: From storage. Unit: B/s.
        written_per_s: To storage. Unit: B/s.
        faults_per_s: Page faults that needed storage. Unit: 1/s.
        rss_bytes: Resident memory. Unit: B.
        doing: What it did last.
        place: File and line of the program where it was; empty: none is known.
        refused: Why its stacks are unknown; empty: they are not.
        seconds: How long it was there, of the time that was watched. Unit: s.
    """

    name: str
    pid: int
    state: str
    samples: int
    cpus: float
    runqueue: float
    read_per_s: float
    written_per_s: float
    faults_per_s: float
    rss_bytes: int
    doing: str
    place: str
    refused: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class AttachedReport:
    """A training that was watched from outside.

    Attributes:
        pid: The process that was named.
        name: Its script.
        seconds: For how long it was watched. Unit: s.
        reader: Who read the stacks: feedline or py-spy.
        cost_s: CPU time that feedline took while it watched. Unit: s.
        limit: What limits the training, in a sentence.
        cause: Why, in a sentence; empty: unknown.
        fix: What to change; empty: unknown.
        place: The file and line to change; empty: unknown.
        stuck: Whether no step passed while it was watched.
        findings: Causes, most important first.
        sampled: Shares.
        user_code: The program's functions and lines.
        processes: As the kernel sees them.
        refused: What such evidence cannot say.
        schema_version: Of this format.
    """

    pid: int
    name: str
    seconds: float
    reader: str
    cost_s: float
    limit: str
    cause: str
    fix: str
    place: str
    stuck: bool
    findings: list[Finding]
    sampled: SampledProcesses
    user_code: UserCode | None
    processes: list[AttachedProcess]
    refused: list[str]
    schema_version: int = ATTACHED_SCHEMA


@dataclass(frozen=True)
class Attached:
    """A training that was watched, with what is shown of it and never kept: lines of its source.

    Attributes:
        report: what was seen.
        stacks: of each process, with its name.
    """

    report: AttachedReport
    stacks: list[tuple[str, ProcessStacks]]
    _files: dict[str, str]
    _source: SourceLines

    @classmethod
    def of(cls, watched: Watched) -> "Attached":
        """Return what was seen of a training."""
        ranks = ranks_of(watched)
        begun_s = max((rank.main.begun_s for rank in ranks), default=time.time())
        source = SourceLines(begun_s + _CLOCK_S)
        report = _report(watched, ranks, source)
        return cls(report, _named_stacks(ranks), _files(ranks), source)

    def line_at(self, place: str) -> str:
        """Return the text of a line, of its file and number; empty: it is unknown."""
        file, _, line = place.rpartition(":")
        return self._source(self._files.get(file, ""), int(line)) if line.isdecimal() else ""


def _files(ranks: Sequence[WatchedRank]) -> dict[str, str]:
    """Return files as people name them -> their paths."""
    return {
        shown(frame.file, process.folder): frame.file
        for rank in ranks
        for (_, process), one in zip(rank.processes, rank.stacks())
        for stack in one.stacks
        for frame in stack.frames
        if not origin(frame.file).owner
    }


def _named_stacks(ranks: Sequence[WatchedRank]) -> list[tuple[str, ProcessStacks]]:
    """Return the stacks of each process, with its name; files as people name them."""
    names = [name for rank in ranks for name, _ in rank.processes]
    folders = [process.folder for rank in ranks for _, process in rank.processes]
    every = [one for rank in ranks for one in rank.stacks()]
    return [
        (name, replace(one, stacks=tuple(_shown(stack, folder) for stack in one.stacks)))
        for name, folder, one in zip(names, folders, every)
    ]


def _shown(stack: SampledStack, folder: str) -> SampledStack:
    frames = tuple(replace(frame, file=shown(frame.file, folder)) for frame in stack.frames)
    return replace(stack, frames=frames)


def _report(watched: Watched, ranks: Sequence[WatchedRank], source: SourceLines) -> AttachedReport:
    processes = [one for rank in ranks for one in rank.stacks() if one.kind in (MAIN, WORKER)]
    code = SampledCode.of(processes, source)
    still = standstill(ranks)
    sampled = (
        SampledProcesses()
        if code is None
        else SampledProcesses(_rows(code, MAIN), _rows(code, WORKER))
    )
    elsewhere = not still.stuck and _waits_for_threads(sampled, processes)
    findings = [] if elsewhere else _findings(code, sampled, still, ranks, watched.cpus)
    limit, cause = (_ELSEWHERE(), "") if elsewhere else _verdict(sampled, still, findings, code)
    top = findings[0] if findings else None
    return AttachedReport(
        watched.pid,
        _script(ranks),
        watched.seconds,
        watched.reader,
        watched.cost_s,
        limit,
        cause,
        top.fix if top else "",
        top.place if top else "",
        still.stuck,
        findings,
        sampled,
        _user_code(code, ranks),
        _processes(still),
        [_UNKNOWN_RATE()],
    )


def _waits_for_threads(sampled: SampledProcesses, processes: Sequence[ProcessStacks]) -> bool:
    """Return whether main threads do no step, and mostly wait for other threads."""
    if _part_of(sampled.main, (*_INPUT, *_MODEL)):
        return False
    stacks = [
        stack
        for process in processes
        for stack in process.stacks
        if process.kind == MAIN and stack.thread == MAIN
    ]
    waits = sum(stack.samples for stack in stacks if _in_threading(stack))
    return waits > _MOST_IDLE * sum(stack.samples for stack in stacks)


def _in_threading(stack: SampledStack) -> bool:
    whose = origin(stack.frames[-1].file) if stack.frames else None
    return whose is not None and (whose.owner, whose.tail) == (PYTHON, "threading.py")


def _rows(code: SampledCode, kind: str) -> dict[str, SampledShare]:
    whole = Weight()
    trees = [tree for (of, _), tree in code.places.items() if of == kind]
    for tree in trees:
        whole.join(tree.weight)
    shares = {tree.place: SampledShare(*share_of(tree.weight.seconds, whole)) for tree in trees}
    return dict(sorted(shares.items(), key=lambda row: -row[1].share))


def _part_of(rows: dict[str, SampledShare], names: Sequence[str]) -> float:
    """Return the share (0 to 1) of several rows together."""
    return sum(rows[name].share for name in names if name in rows)


def _user_code(code: SampledCode | None, ranks: Sequence[WatchedRank]) -> UserCode | None:
    if code is None:
        return None
    known, folder = user_code(code, 0.0, None), ranks[0].main.folder
    functions = [
        replace(own, file=shown(own.file, folder), caller="", seconds_per_step=None)
        for own in known.functions
    ]
    return replace(known, functions=functions)


def _script(ranks: Sequence[WatchedRank]) -> str:
    words = ranks[0].main.command[1:] if ranks else ()
    script = next((word for word in words if word.endswith(".py")), "")
    module = words[1] if words[:1] == ("-m",) and len(words) > 1 else ""
    return script.rpartition("/")[2] or module or "training"


def _findings(
    code: SampledCode | None,
    sampled: SampledProcesses,
    still: Standstill,
    ranks: Sequence[WatchedRank],
    cpus: WatchedCpus | None,
) -> list[Finding]:
    findings = [still.finding()] if still.stuck else []
    folder = ranks[0].main.folder if ranks else ""
    waits = _part_of(sampled.main, _INPUT)
    if code is not None and not still.stuck:
        findings += _crowded(ranks, cpus)
        slow = slowest(code)
        if slow is not None and waits >= _SOME:
            has_room = not findings and _has_room(ranks, cpus)
            findings.append(_slow(code, slow, sampled, waits, folder, has_room))
        if _part_of(sampled.main, _LOOP) >= _MOST:
            findings += _own(code, sampled, folder)
    return sorted(findings, key=lambda finding: _explains(finding, waits), reverse=True)


def _explains(finding: Finding, waits: float) -> float:
    """Return the share (0 to 1) of the time that a finding explains; a standstill is all of it.

    Args:
        finding: what a function takes of making samples explains as much of the wait for them.
        waits: share of the time in which the input is waited for.
    """
    if not finding.evidence:
        return 1.0
    return finding.evidence[0].value * (waits if finding.rule_id == "user_code" else 1.0)


def _used_cpus(ranks: Sequence[WatchedRank]) -> float:
    """Return how many CPUs the processes of a training use, on average."""
    processes = [one for rank in ranks for one in (rank.main, *rank.workers) if one.seconds > 0]
    return sum(one.usage.cpu_s / one.seconds for one in processes)


def _has_room(ranks: Sequence[WatchedRank], cpus: WatchedCpus | None) -> bool:
    """Return whether a CPU is known to be free, for one worker more."""
    return cpus is not None and min(cpus.free, cpus.allowed - _used_cpus(ranks)) >= _FREE


def _more_cpus(used: float, cpus: WatchedCpus | None) -> str:
    """Return what to do for more CPUs, by who is seen to hold them."""
    if cpus is None:
        return _MORE_CPUS
    if used >= _HOLDS * cpus.allowed:
        return _FEWER
    return _OTHERS if cpus.busy - used >= _HELD * cpus.allowed else _MORE_CPUS


def _crowded(ranks: Sequence[WatchedRank], cpus: WatchedCpus | None) -> list[Finding]:
    """Return how long processes wait for a CPU, where that is long."""
    processes = [one for rank in ranks for one in (rank.main, *rank.workers) if one.seconds > 0]
    waits = [min(1.0, one.usage.runqueue_s / one.seconds) for one in processes]
    part = sum(waits) / len(waits) if waits else 0.0
    if part < _MOST:
        return []
    used = _used_cpus(ranks)
    return [
        Finding(
            "cpu_saturated",
            Severity.of(part),
            message=_QUEUES(part=part),
            evidence=[
                Evidence("runqueue_share", "waiting for a CPU", part, SHARE),
                *measured(
                    [
                        ("cpus_of_training", "CPUs used by this training", used, "CPUs"),
                        (
                            "cpus_allowed",
                            "CPUs available to this training",
                            cpus.allowed if cpus is not None else None,
                            "CPUs",
                        ),
                    ]
                ),
            ],
            fix=_more_cpus(used, cpus),
        )
    ]


def _reported(slow: SlowCode, code: SampledCode) -> list[Evidence]:
    if slow.known is None:
        return []
    return [reported(slow.known.call, slow.known.seconds / code.making.seconds, "making a sample")]


def _slow(
    code: SampledCode,
    slow: SlowCode,
    sampled: SampledProcesses,
    waits: float,
    folder: str,
    has_room: bool,
) -> Finding:
    function, busy = called(slow.name), 1 - _part_of(sampled.workers, (IDLE,))
    more = [_MORE(part=busy)] if sampled.workers and busy >= _BUSY and has_room else []
    what = f"{function}, share of making a sample"
    return Finding(
        "user_code",
        Severity.of(waits * slow.share),
        message=_SAYS(function=function, part=nearly(slow.share)),
        evidence=[
            Evidence("function_share", what, slow.share, SHARE),
            Evidence("function_share_end", f"{what}, lower end", slow.low, SHARE, "lower"),
            Evidence("function_share_end", f"{what}, upper end", slow.high, SHARE, "upper"),
            *_reported(slow, code),
        ],
        fix=f"{slow.known.call.fix}." if slow.known else _FASTER(function=function),
        fix_more=more,
        how_to_check=f"Have {function} return the same result every time. If the wait does not "
        "shrink, this finding is wrong.",
        place=f"{shown(slow.node.file, folder)}:{slow.line}",
        more=[slow.known.call.says] if slow.known else [],
    )


def _own(code: SampledCode, sampled: SampledProcesses, folder: str) -> list[Finding]:
    """Return the function that takes most of the loop's own code."""
    trees = [code.places[MAIN, place] for place in _LOOP if (MAIN, place) in code.places]
    tree = max(trees, key=lambda other: other.weight.seconds)
    node, below = None, list(tree.root.calls.values())
    while below:
        child = max(below, key=lambda other: other.seconds)
        outer = node is None or node.key == code.loop or not node.function.isidentifier()
        if (
            node is not None
            and child.seconds < (_PART_OF_LOOP if outer else _DEEPER) * node.seconds
        ):
            break
        node, below = child, list(child.calls.values())
    if node is None:
        return []
    part = node.seconds / code.main_s
    name = called(node.function)
    return [
        Finding(
            "own_code",
            Severity.of(part),
            message=_TAKES(function=name, part=part),
            evidence=[Evidence("function_share", node.function, part, SHARE)],
            fix=_FASTER(function=name),
            place=f"{shown(node.file, folder)}:{node.line}",
        )
    ]


def _verdict(
    sampled: SampledProcesses,
    still: Standstill,
    findings: Sequence[Finding],
    code: SampledCode | None,
) -> tuple[str, str]:
    cause = f"{findings[0].message}." if findings else ""
    if still.stuck:
        return still.limit, still.cause
    number = _number(code)
    if number < _FEWEST:
        return _FEW(count=number), ""
    waits, makes = _part_of(sampled.main, _INPUT), _part_of(sampled.main, MAKING)
    rows = {
        name: share.share
        for name, share in sampled.main.items()
        if name not in (*_INPUT, *_MODEL, *_LOOP)
    }
    largest = max(rows, key=lambda name: rows[name], default="")
    own = _part_of(sampled.main, _LOOP)
    if waits >= max(_MOST, own, rows.get(largest, 0.0)):
        says = _MAKES if makes > waits / 2 else _WAITS
        idle = _part_of(sampled.workers, (IDLE,))
        if idle > _MOST_IDLE and (not findings or findings[0].rule_id == "user_code"):
            cause = _IDLES(part=idle)
        return says(bound="Input-bound", part=waits), cause
    if own >= max(_MOST, rows.get(largest, 0.0)) and own > _part_of(sampled.main, _MODEL) / 2:
        return _LOOPS(part=own), cause
    if rows.get(largest, 0.0) >= _MOST:
        return _PLACE(place=largest, part=rows[largest]), ""
    partly = f"Partly input-bound: {_WAITS(bound='x', part=waits)[3:]}" if waits >= _SOME else ""
    return _MODELS(part=_part_of(sampled.main, _MODEL)), partly


def _number(code: SampledCode | None) -> int:
    if code is None:
        return 0
    return round(sum(tree.weight.number for (kind, _), tree in code.places.items() if kind == MAIN))


def _processes(still: Standstill) -> list[AttachedProcess]:
    rows = []
    for seen in still.processes:
        process, seconds = seen.process, max(seen.process.seconds, 1e-9)
        thread, usage = process.main_thread, process.usage
        rows.append(
            AttachedProcess(
                seen.name,
                process.pid,
                process.state,
                sum(stack.samples for stack in thread.stacks) if thread else 0,
                usage.cpu_s / seconds,
                min(1.0, usage.runqueue_s / seconds),
                usage.read_bytes / seconds,
                usage.written_bytes / seconds,
                usage.faults / seconds,
                usage.rss_bytes,
                seen.says,
                seen.place,
                process.refused,
                process.seconds,
            )
        )
    return rows
