"""A training in which no step passes: which process waits for which, and at which line."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.analysis.measure.code_places import (
    IDLE,
    WAIT,
    CodeFrame,
    origin,
    program_frames,
    standing,
)
from feedline.analysis.measure.roles import WatchedRank, frames_of, inside_process, shown
from feedline.analysis.text.sentences import NAME, TIME, Sentence
from feedline.profiler.attach.watched import STOPPED, ZOMBIE, WatchedProcess, WatchedThread
from feedline.profiler.masks import PYTHON
from feedline.profiler.samplers.blocked_threads import (
    ON_LOCK,
    ON_NETWORK,
    ON_PROCESS,
    ON_SHARED_LOCK,
    ON_SLEEP,
    ON_UNKNOWN,
)
from feedline.profiler.stacks.thread_stacks import Place
from feedline.profiler.store.sampled_stacks import StackFrame

_POLL_S = 2.5  # torch looks for a batch each five seconds, and for dead workers
_MOST_CPU = 0.05  # CPUs that a process may use which only waits
_LONGER_S = 1.0  # than it was watched: worth telling
_FEWEST = 3  # samples

#: What a process does.
_RUNS, _STOPS, _ENDED, _NO_WORK, _FOR_BATCH = "runs", "stopped", "ended", "idle", "batch"
_COLLECTIVE, _FULL, _EMPTY, _JOIN, _LOCK = "collective", "full", "empty", "join", "lock"
_SLEEPS, _OTHER_WAIT, _COMMAND = "sleeps", "wait", "command"

_NAMES = {ON_NETWORK: "the network", ON_PROCESS: "another process", ON_UNKNOWN: ""}
_COLLECTIVES = r"distributed/(distributed_c10d|_functional_collectives|nn/functional)\.py"
#: Places of the main process in which ranks exchange what they have computed.
_EXCHANGE = ("forward", "backward", "gradients", "optimizer")
_NO_STEP = Sentence("No step for {seconds}.", seconds=TIME)
_FOR = Sentence("{who} waits for {whom}, which {does}.", who=NAME, whom=NAME, does=NAME)
_DOES = Sentence("{who} {does}.", who=NAME, does=NAME)
_BOTH = Sentence(
    "{who} {does}, while {other} {otherwise}.", who=NAME, does=NAME, other=NAME, otherwise=NAME
)
_ALL = Sentence("All ranks wait {does}.", does=NAME)
_SINCE = Sentence("{who} has not run for {seconds}", who=NAME, seconds=TIME)
_UNFILLED = (
    "No other thread of this process runs: what filled the queue has ended, or was never started"
)
_WHY_ENDED = "Look for why the thread that fills the queue has ended: its error is in the output"
#: wait() leaves a full pipe full; communicate() and run() read it.
_READ_IT = "If its output goes to a pipe, read that with communicate() instead of wait()"
_LOCKED = (
    "The lock was taken before the fork, or by this thread itself: "
    "no other thread of this process can release it"
)
_FIX = {
    _LOCK: (
        "Make the lock in the worker, release it before the fork, "
        "or use a threading.RLock to take it twice"
    ),
    _STOPS: "kill -CONT {pid}",
    _ENDED: "Look for why the process ended: its output, or dmesg where the memory was full",
    _FULL: "Empty the queue before waiting for anything else",
    _EMPTY: "Fill the queue, or wait for it with a timeout",
    _JOIN: "Empty the queues of a process before joining it",
    _COMMAND: "Look for why the command does not end, or give it a timeout",
    _COLLECTIVE: "Give every rank the same number of steps and collectives",
}
_LOOKS_ONLY = (_ENDED, _COMMAND)  # whose fix is to find out why
_GOES_ON = "the training goes on"


@dataclass(frozen=True)
class _Doing:
    """What a process does, by its last stack.

    Attributes:
        name: of the process.
        process: itself.
        kind: one of the names above.
        place: file and line of the program; empty: none is known.
        call: the collective, the function of the queue or command, or who shares the lock; else
            empty.
        still: whether it has not moved while it was watched.
        held: whether the lock that it waits for can only have been taken before it was forked, or
            by its main thread itself.
        unfilled: whether it waits for a queue of threads, of which none is left that could fill it.
    """

    name: str
    process: WatchedProcess
    kind: str
    place: str
    call: str
    still: bool
    held: bool = False
    unfilled: bool = False

    @property
    def says(self) -> str:
        """What it does, after its name: ``waits for a lock at train.py:22``."""
        verb = {
            _RUNS: "runs",
            _STOPS: "is stopped",
            _ENDED: "has ended",
            _NO_WORK: "waits for work",
            _FOR_BATCH: "waits for a batch",
            _COLLECTIVE: f"waits in {self.call}()",
            _FULL: "waits for room in a full queue",
            _EMPTY: "waits for a queue that stays empty",
            _JOIN: "waits for a process to end",
            _COMMAND: "waits for a command to end",
            _LOCK: "waits for a lock",
            _SLEEPS: "sleeps",
            _OTHER_WAIT: f"waits for {self.call}" if self.call else "waits",
        }[self.kind]
        told = self.place and self.kind not in (_NO_WORK, _ENDED)
        return f"{verb} at {self.place}" if told else verb


@dataclass(frozen=True)
class Standstill:
    """Whether a training stands still, and why.

    Attributes:
        stuck: whether no step passed while it was watched.
        processes: what each does.
        limit, cause: in a sentence each.
        culprit: the process that all others wait for; None: unknown.
        since_s: how long no step has passed. Unit: s.
    """

    stuck: bool
    processes: list[_Doing]
    limit: str = ""
    cause: str = ""
    culprit: _Doing | None = None
    since_s: float = 0.0

    def finding(self) -> Finding:
        """Return it as a finding."""
        culprit = self.culprit
        fix, gives = _fix(culprit) if culprit else ("", "")
        return Finding(
            "standstill",
            Severity.HIGH,
            message=self.cause.rstrip(".") or self.limit.rstrip("."),
            fix=fix,
            place=culprit.place if culprit else "",
            more=_more(culprit) if culprit else [],
            evidence=[Evidence("no_step_s", "no step passed for", self.since_s, "s")],
            gives=gives,
        )


def _fix(culprit: _Doing) -> tuple[str, str]:
    """Return what to change, and what that gives; empty: unknown."""
    if culprit.kind == _LOCK and not culprit.held:
        return "", ""
    if culprit.unfilled:
        return _WHY_ENDED, ""
    if culprit.kind == _COMMAND and culprit.call == _UNREAD:
        return _READ_IT, ""
    fix = _FIX.get(culprit.kind, "").format(pid=culprit.process.pid)
    return fix, _GOES_ON if fix and culprit.kind not in _LOOKS_ONLY else ""


def _more(culprit: _Doing) -> list[str]:
    thread, seconds = culprit.process.main_thread, culprit.process.seconds
    waited_s = thread.waited_s if thread else None
    long = waited_s is not None and waited_s > seconds + _LONGER_S
    return [
        *([_SINCE(who=_capital(culprit.name), seconds=waited_s)] if long else []),
        *([_LOCKED] if culprit.held else []),
        *([_UNFILLED] if culprit.unfilled else []),
    ]


def standstill(ranks: Sequence[WatchedRank]) -> Standstill:
    """Return what every process does, and who waits for whom if none moves."""
    groups = [_group(rank, len(ranks) > 1) for rank in ranks]
    every = [doing for group in groups for doing in group]
    every += [
        _doing(name, process)
        for rank in ranks
        for name, process in rank.processes
        if process in rank.beside
    ]
    mains = [group[0] for group in groups]
    waiting = [main for main in mains if main.still and main.kind != _ENDED]
    alone = len(waiting) < sum(main.kind != _ENDED for main in mains)
    if not waiting or alone and not any(main.kind == _COLLECTIVE for main in waiting):
        return Standstill(False, every)
    since = min(main.process.seconds for main in waiting)
    cause, culprit = _cause(groups)
    return Standstill(True, every, _NO_STEP(seconds=since), cause, culprit, since)


def _group(rank: WatchedRank, several: bool) -> list[_Doing]:
    doings = [
        _doing(name, process) for name, process in rank.processes if process not in rank.beside
    ]
    return [_of_ranks(doings[0]), *doings[1:]] if several else doings


def _cause(groups: Sequence[list[_Doing]]) -> tuple[str, _Doing | None]:
    mains = [group[0] for group in groups]
    apart = [main for main in mains if main.kind == _COLLECTIVE and main.still]
    others = [main for main in mains if main not in apart]
    if len(apart) > 1 and not others:
        return _in_collectives(apart)
    if apart and others:
        other = min(others, key=lambda main: not main.still)
        who = _capital(apart[0].name)
        said = _BOTH(who=who, does=apart[0].says, other=other.name, otherwise=other.says)
        if not other.still:  # it may only be late, so nothing is known to be wrong with it
            return said, replace(other, kind=_RUNS, unfilled=False)
        culprit = _blamed(next(group for group in groups if group[0] is other))
        return said, culprit if culprit.kind in _FIX else apart[0]
    group = next((group for group in groups if group[0].kind != _COLLECTIVE), groups[0])
    main = group[0]
    blamed = _blamed(group)
    if blamed is main:
        return _DOES(who=_capital(main.name), does=main.says), main
    return _FOR(who=_capital(main.name), whom=blamed.name, does=blamed.says), blamed


def _in_collectives(mains: Sequence[_Doing]) -> tuple[str, _Doing]:
    """Return where all ranks wait for one another, and the one that most others are not with."""
    places = Counter(main.says for main in mains)
    odd = min(mains, key=lambda main: places[main.says])
    if len(places) == 1:
        return _ALL(does=odd.says.removeprefix("waits ")), odd
    other = max(
        (main for main in mains if main.says != odd.says), key=lambda main: places[main.says]
    )
    who = _capital(odd.name)
    return _BOTH(who=who, does=odd.says, other=other.name, otherwise=other.says), odd


_ANEW = ("multiprocessing/spawn.py", "multiprocessing/forkserver.py")
#: Threads that each worker has.
_SENDERS = (
    (PYTHON, "multiprocessing/queues.py", "_feed"),
    (PYTHON, "multiprocessing/resource_sharer.py", "_serve"),
)

_OF_THREADS = "get of threads"  # the other queue's items may come from another process

_OF_PROCESSES = "of processes"  # a lock that any of them may hold

_UNREAD = "wait"  # for a command whose output is read only after it has ended

_GRAVEST = (
    *(_STOPS, _ENDED, _LOCK, _FULL, _EMPTY, _COLLECTIVE, _COMMAND, _OTHER_WAIT, _FOR_BATCH),
    *(_SLEEPS, _JOIN, _RUNS),
)


def _blamed(group: Sequence[_Doing]) -> _Doing:
    """Return the process that a main process waits for; itself: it waits for none."""
    main = group[0]
    others = [other for other in group[1:] if other.kind != _NO_WORK]
    if main.kind == _FOR_BATCH:
        others = [other for other in others if other.name.startswith("worker")]
    elif main.kind not in (_JOIN, _EMPTY, _FULL) and not _waits_for_a_process(main):
        return main
    ranked = sorted(others, key=lambda other: (not other.still, _GRAVEST.index(other.kind)))
    return ranked[0] if ranked else main


def _waits_for_a_process(doing: _Doing) -> bool:
    return doing.kind == _OTHER_WAIT and doing.call == _NAMES[ON_PROCESS]


def _of_ranks(doing: _Doing) -> _Doing:
    """Return the same of one of several ranks: what its model waits for are the other ranks."""
    thread = doing.process.main_thread
    if thread is None or not doing.still or doing.kind not in (_LOCK, _OTHER_WAIT, _RUNS):
        return doing
    place = standing(frames_of(inside_process(thread.last), doing.process.folder)).place
    return replace(doing, kind=_COLLECTIVE, call=place) if place in _EXCHANGE else doing


def _doing(name: str, process: WatchedProcess) -> _Doing:
    thread = process.main_thread
    frames = frames_of(inside_process(thread.last), process.folder) if thread else ()
    chain = program_frames(frames)
    file, line = (chain[-1].file, chain[-1].line) if chain else ("", 0)
    kind, call = _kind(process, frames, chain)
    still = _is_still(process)
    at_a_lock = kind == _LOCK and not call and still and bool(chain) and not chain[-1].below
    return _Doing(
        name,
        process,
        kind,
        f"{shown(file, process.folder)}:{line}" if file else "",
        call,
        still,
        at_a_lock and thread is not None and _is_fork(thread) and _is_alone(process),
        kind == _EMPTY and call == _OF_THREADS and not _others_run(process),
    )


def _is_still(process: WatchedProcess) -> bool:
    """Return whether a process stayed where it was: at one line, without computing."""
    thread = process.main_thread
    if process.state == STOPPED or process.ended:
        return True
    if thread is None or sum(stack.samples for stack in thread.stacks) < _FEWEST:
        return False
    lines = {program_line(stack.frames, process.folder) for stack in thread.stacks}
    return (
        len(lines) == 1
        and thread.switches <= 1 + process.seconds / _POLL_S
        and process.usage.cpu_s <= max(0.02, _MOST_CPU * process.seconds)
    )


def program_line(frames: Sequence[Place], folder: str) -> tuple[str, int]:
    """Return the program's file and line that a stack is at; empty and 0: it has none."""
    chain = program_frames(frames_of(inside_process(frames), folder))
    return (chain[-1].file, chain[-1].line) if chain else ("", 0)


def _kind(
    process: WatchedProcess, frames: Sequence[StackFrame], chain: Sequence[CodeFrame]
) -> tuple[str, str]:
    """Return what a process does, and what it has called for that."""
    if process.state == STOPPED:
        return _STOPS, ""
    if process.ended or process.state == ZOMBIE:
        return _ENDED, ""
    place = standing(frames).place
    if place == IDLE:
        return _NO_WORK, ""
    if place == WAIT:
        return _FOR_BATCH, ""
    below = frames[-12:] if not chain else frames[len(frames) - len(chain[-1].below) :]
    for frame in below:
        if kind := _of_frame(frame):
            return kind
    thread = process.main_thread
    waits = thread.waits_on if thread else ""
    if waits in (ON_LOCK, ON_SHARED_LOCK):
        return _LOCK, _OF_PROCESSES if waits == ON_SHARED_LOCK else ""
    if process.usage.cpu_s > _MOST_CPU * process.seconds or not waits:
        return _RUNS, ""
    if waits == ON_SLEEP:
        return _SLEEPS, ""
    return _OTHER_WAIT, _NAMES.get(waits, f"a {waits}")


def _of_frame(frame: StackFrame) -> tuple[str, str] | None:
    whose, function = origin(frame.file), frame.function.rpartition(".")[2]
    if whose.owner == "torch" and re.fullmatch(_COLLECTIVES, whose.tail):
        return (
            (_COLLECTIVE, function)
            if not function.startswith("_") and function != "wrapper"
            else None
        )
    if whose.owner != PYTHON:
        return None
    if whose.tail == "queue.py" and function == "get":
        return _EMPTY, _OF_THREADS
    if whose.tail in ("queue.py", "multiprocessing/queues.py"):
        return {"get": (_EMPTY, "get"), "put": (_FULL, "put")}.get(function)
    if whose.tail == "multiprocessing/process.py" and function == "join":
        return _JOIN, "join"
    if whose.tail == "subprocess.py":
        return _COMMAND, function
    if whose.tail == "multiprocessing/synchronize.py" and function in ("__enter__", "acquire"):
        return _LOCK, function
    return None


def _is_fork(thread: WatchedThread) -> bool:
    """Return whether a process is a fork of one that ran the program: it has what that had locked."""
    outside = thread.last[: len(thread.last) - len(inside_process(thread.last))]
    return bool(outside) and not any(_begins_anew(frame) for frame in outside)


def _begins_anew(frame: Place) -> bool:
    whose = origin(frame.file)
    return whose.owner == PYTHON and whose.tail in _ANEW


def _is_alone(process: WatchedProcess) -> bool:
    """Return whether no other thread of a process can hold a lock of the program.

    What sends to other processes has only locks of its own.
    """
    others = [thread for thread in process.threads if not thread.is_main]
    return all(any(map(_sends, thread.last)) for thread in others)


def _sends(frame: Place) -> bool:
    whose = origin(frame.file)
    return (whose.owner, whose.tail, frame.function.rpartition(".")[2]) in _SENDERS


def _others_run(process: WatchedProcess) -> bool:
    """Return whether another thread of a process runs code of the program, and may fill a queue."""
    return any(
        program_frames(frames_of(thread.last, process.folder))
        for thread in process.threads
        if not thread.is_main
    )


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
