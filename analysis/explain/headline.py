"""What a reader has to know before any verdict.

It is how a run ended that did not end well, and why recording ended before it.
"""

from feedline.analysis.measure.at_end import AtEnd, waits
from feedline.analysis.measure.full_memory import FullMemory
from feedline.analysis.measure.model import RunInfo
from feedline.analysis.text.formatting import count, counted, seconds
from feedline.analysis.text.sentences import SIZE, Sentence, Slot
from feedline.profiler.session.ending import INTERRUPTED

_FULL = "No space left on device"
_UNKNOWN_END = AtEnd()
_KILLED = "SIGKILL"
_FULL_MEMORY = Sentence(
    "Probably memory was full: at last, {whose} used {used} of {limit}.",
    whose=Slot(str, ("its control group", "the machine")),
    used=SIZE,
    limit=SIZE,
)
_USUAL_CAUSES = Sentence("Usual causes: out of memory, kill -9, a segmentation fault.")


def headline(
    run: RunInfo,
    steps: int,
    updates: int = 0,
    who: str = "The training",
    end: AtEnd = _UNKNOWN_END,
    unit: str = "step",
    memory: FullMemory | None = None,
    hangs: bool = False,
) -> str:
    """Return one or two sentences; empty for a run that ended well and was recorded to its end.

    Args:
        steps: that were recorded.
        updates: that were counted, also after recording ended.
        who: ended so.
        end: what it was doing then.
        unit: what a step is called: without a training, it is a batch.
        memory: that filled meanwhile and was full at last; None: none did.
        hangs: the verdict tells what it did then, and that no cause is to be looked for.
    """
    ended = _ended(
        run, steps, who, _UNKNOWN_END if hangs else end, unit, None if hangs else memory, not hangs
    )
    return " ".join(part for part in (ended, _stopped(run, steps, updates)) if part)


def how(state: str, exit_code: int | None, ended_by: str = "", ended_at: str = "") -> str:
    """Return how a run ended, where that was not well: ``failed with ValueError (exit code 1)``.

    It is empty for one that is going on.

    Args:
        state, exit_code, ended_by, ended_at: as in RunInfo.
    """
    at = f" at {ended_at}" if ended_at else ""
    if exit_code == INTERRUPTED:
        return f"was interrupted (Ctrl-C){at}"
    if exit_code:
        return (
            f"failed with {ended_by}{at} (exit code {exit_code})"
            if ended_by
            else f"ended with exit code {exit_code}{at}"
        )
    if state == "ended":
        return "was ended by the program itself"
    if state == "cut":
        return f"was killed by {ended_by}" if ended_by else "was killed or crashed"
    return ""


def _ended(
    run: RunInfo,
    steps: int,
    who: str,
    end: AtEnd,
    unit: str,
    memory: FullMemory | None,
    why: bool,
) -> str:
    if run.state == "live":
        return f"The training is still running{_doing(run, end)}."
    if not (ended := how(run.state, run.exit_code, run.ended_by, run.ended_at)):
        return ""
    unexplained = why and run.state == "cut"
    causes = f" {_causes(run.ended_by, memory)}".rstrip() if unexplained else ""
    if not steps:  # the verdict tells of a wait for the first batch
        doing = _doing(run, end) if end.wait is None else ""
        return f"{who} {ended} before its first step{doing}.{causes}"
    return f"{who} {ended} after {counted(steps, unit)}{_doing(run, end)}.{causes}"


def _causes(ended_by: str, memory: FullMemory | None) -> str:
    if memory is not None and ended_by in ("", _KILLED):
        whose = "the machine" if memory.of_machine else "its control group"
        return _FULL_MEMORY(whose=whose, used=memory.used_bytes, limit=memory.limit_bytes)
    return "" if ended_by else _USUAL_CAUSES()


def _doing(run: RunInfo, end: AtEnd) -> str:
    """Return what the run was doing, where that explains the end.

    It was in a call that failed or was interrupted, in a long wait, or silent for long.
    """
    raised = bool(run.ended_by) or run.exit_code == INTERRUPTED
    if end.wait is not None and end.hangs:
        return f", {waits(end.wait)}"
    if end.silent_s is not None:
        return f", with nothing recorded in the last {seconds(end.silent_s)}"
    if raised and end.doing:
        return f", {end.doing}"
    return ", during evaluation" if raised and end.evaluating else ""


def _stopped(run: RunInfo, steps: int, updates: int) -> str:
    if not run.stopped:
        return ""
    why = f"the disk is full ({_FULL})" if _FULL in run.stopped else run.stopped
    of = f" of {count(updates)}" if updates > steps else ""
    return (
        f"Recording stopped after {count(steps)}{of} step{'s' * (max(steps, updates) != 1)}: {why}."
    )
