"""What a reader has to know before any verdict.

It is how a run ended that did not end well, why recording ended before it, and what bears on the
figures of each rank.
"""

import os

from feedline.analysis.measure.at_end import AtEnd, waits
from feedline.analysis.measure.full_memory import FullMemory
from feedline.analysis.measure.model import RunInfo
from feedline.analysis.measure.rank_metrics import RankMetrics, throughput
from feedline.analysis.measure.step_model import GPU_BEHIND
from feedline.analysis.measure.steps import left_after, runs_closures
from feedline.analysis.text.formatting import count, counted, seconds, share
from feedline.analysis.text.sentences import SIZE, Sentence, Slot
from feedline.profiler.events import Stage
from feedline.profiler.message import Message
from feedline.profiler.session.ending import INTERRUPTED
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.manifest import OVERRIDES_HOOK

_FIRST_STEPS = "first_steps"  # the note on steps that are not in the means

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


def of_rank(rank: RankMetrics) -> list[str]:
    """Return all notes, those of the recording first."""
    notes = [*rank.rank.manifest.notes, *rank.rank.notes, *ending(rank)]
    for process in [rank.main, *rank.workers]:
        if "stopped" in process.header:
            who = (
                f"worker {process.header['worker']} of loader {process.header['loader']}"
                if process.is_worker
                else "the training process"
            )
            notes.append(
                f"{who} stopped recording ({process.header['stopped']}); figures cover what it "
                f"recorded until then"
            )
    if rank.main.stride > 1:
        notes.append(
            f"long run: details were kept for one window of 64 batches in {rank.main.stride}, "
            f"and the times of all are estimated from them"
        )
    if rank.rank.slice is not None and any(worker.stride > 1 for worker in rank.workers):
        notes.append(
            "workers dropped part of their records, so what they did in this training is "
            "estimated from the rest"
        )
    notes += [
        str(hook["why"])
        for hook in rank.rank.manifest.hooks
        if hook["name"] == OVERRIDES_HOOK and hook["attached"]
    ]
    notes += _sampled(rank)
    if len(rank.main.of(Stage.PROFILED)):
        # a window may leave no trace: one that was dropped, or whose disk was full
        kept = os.path.lexists(rank.rank.folder / KINETO)
        notes.append(
            "steps that torch.profiler recorded are excluded, because it slows them"
            + (f": see {KINETO} in the run folder" if kept else "")
        )
    notes += _ahead(rank)
    if rank.first:
        first = "first step is" if rank.first == 1 else f"first {rank.first} steps are"
        starts = ("workers start", *["caches warm up"]) if rank.workers else ("caches warm up",)
        why = [*starts, *(["feedline counts FLOPs"] if rank.first > 1 else [])]
        said = (
            f"the {first} excluded from the means: "
            f"{' and '.join([', '.join(why[:-1]), why[-1]] if len(why) > 1 else why)}"
        )
        notes.append(Message(said, _FIRST_STEPS))
    if missing := _missing_workers(rank):
        notes.append(
            f"{counted(missing, 'worker')} left no records: they ended before the first batch, or "
            f"feedline could not attach"
        )
    return notes


def _ahead(rank: RankMetrics) -> list[str]:
    """Say where the host was faster than the GPU until the run ended.

    CUDA queues about a thousand launches, often many steps.
    """
    work, steps_per_s = rank.gpu_work, throughput(rank).steps_per_s
    if (
        work is None
        or work.ranks > 1
        or steps_per_s is None
        or work.busy_s < GPU_BEHIND / steps_per_s
    ):
        return []
    return [
        f"the GPU needs {seconds(work.busy_s)} for each step that torch.profiler recorded, but "
        f"the mean step took "
        f"{seconds(1 / steps_per_s)}: either the host ran ahead of the GPU, and a longer run "
        f"would be slower than this rate, or the other "
        "steps have less work"
    ]


def _sampled(rank: RankMetrics) -> list[str]:
    """Say of which steps the stages are known."""
    estimate = rank.estimate
    if estimate is None:
        return []
    steps, alike = throughput(rank), int(estimate.alike.sum())
    note = (
        f"stages were recorded in {steps.steps_in_detail:,} of {steps.steps:,} steps; to keep "
        f"the overhead low, the others were only timed"
    )
    if alike < steps.steps_in_detail:
        note += (
            f". Their stages are estimated from {alike:,} of the {steps.steps_in_detail:,}, "
            f"without those that were disturbed"
        )
    if estimate.cost_ns:
        note += (
            f". Full recording adds {seconds(estimate.cost_ns / 1e9)} per step; the figures "
            f"are corrected for it"
        )
    if estimate.corrections:
        note += ". How their time divides is corrected by sampled stacks"
    sampled = estimate.sampled(rank.stages)
    if unattributed := estimate.unattributed_share(rank.stages):
        note += (
            ". The others took longer than those, by more than chance: which stage "
            f"{share(unattributed)} of the mean step is in is unknown (unattributed)"
        )
    means = estimate.means(rank.stages)
    largest = max(sampled.share_high, key=lambda stage: means.get(stage, 0.0))
    between = f"{100 * sampled.share_low[largest]:.0f} to {100 * sampled.share_high[largest]:.0f} %"
    closure = (
        " with the code of its closure"
        if largest == "optimizer" and runs_closures(rank.main)
        else ""
    )
    return [
        f"{note}. The largest stage, {largest}{closure}, is {between} of the mean step (95 % "
        f"interval)"
    ]


def _missing_workers(rank: RankMetrics) -> int:
    """Return the number of workers that loaders asked for and that left no records."""
    expected = [int(about.get("num_workers") or 0) for about in rank.rank.manifest.loaders]  # type: ignore[call-overload]
    there = {
        (int(str(process.header["loader"])), int(str(process.header["worker"])))
        for process in rank.workers
    }
    return sum(expected) - sum(
        loader < len(expected) and worker < expected[loader] for loader, worker in there
    )


def ending(rank: RankMetrics) -> list[str]:
    """Say how a rank ended whose process was killed, or ended by its own program."""
    ended = how(rank.rank.manifest.state, None, rank.rank.manifest.ended_by)
    if ended and left_after(rank.steps) is not None:
        ended += " after the end of an epoch"
    return [f"rank {rank.rank.number} {ended}; figures cover the run until then"] if ended else []
