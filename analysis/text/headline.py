"""What a reader has to know before any verdict: how a run ended that did not end well, and why recording ended before it."""

from feedline.analysis.formatting import count, counted
from feedline.analysis.model import RunInfo

INTERRUPTED = 130  # exit code after Ctrl-C
FULL = "No space left on device"


def headline(run: RunInfo, steps: int, updates: int = 0, who: str = "The training") -> str:
    """One or two sentences; nothing for a run that ended well and was recorded to its end.

    Args:
        steps: that were recorded.
        updates: that were counted, also after recording ended.
        who: ended so.
    """
    return " ".join(part for part in (_ended(run, steps, who), _stopped(run, steps, updates)) if part)


def how(state: str, exit_code: int | None, ended_by: str = "") -> str:
    """How a run ended, where that was not well: ``failed with ValueError (exit code 1)``; nothing for one that is going on.

    Args:
        state, exit_code, ended_by: as in RunInfo.
    """
    if exit_code == INTERRUPTED:
        return "was interrupted (Ctrl-C)"
    if exit_code:
        return f"failed with {ended_by} (exit code {exit_code})" if ended_by else f"ended with exit code {exit_code}"
    if state == "ended":
        return "was ended by the program itself"
    if state == "cut":
        return f"was killed by {ended_by}" if ended_by else "was killed or crashed"
    return ""


def _ended(run: RunInfo, steps: int, who: str) -> str:
    if run.state == "live":
        return "The training is still running; figures cover the run so far."
    if not (ended := how(run.state, run.exit_code, run.ended_by)):
        return ""
    cut = (
        " (no exit code was recorded; usual causes: out of memory, kill -9, segmentation fault)"
        if run.state == "cut" and not run.ended_by
        else ""
    )
    if not steps:
        return f"{who} {ended}{cut} before its first step."
    return f"{who} {ended}{cut} after {counted(steps, 'step')}; figures cover the run until then."


def _stopped(run: RunInfo, steps: int, updates: int) -> str:
    if not run.stopped:
        return ""
    why = f"the disk is full ({FULL})" if FULL in run.stopped else run.stopped
    of = f" of {count(updates)}" if updates > steps else ""
    return f"Recording stopped after {count(steps)}{of} step{'s' * (max(steps, updates) != 1)}: {why}. Figures cover the run until then."
