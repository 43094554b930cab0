"""What a reader has to know to judge the figures of one rank."""

import os

from feedline.analysis.explain.headline import how
from feedline.analysis.measure.rank_metrics import RankMetrics, throughput
from feedline.analysis.measure.step_model import GPU_BEHIND
from feedline.analysis.measure.steps import left_after, runs_closures
from feedline.analysis.text.formatting import counted, seconds, share
from feedline.profiler.events import Stage
from feedline.profiler.message import Message
from feedline.profiler.store.layout import KINETO
from feedline.profiler.store.manifest import OVERRIDES_HOOK

_FIRST_STEPS = "first_steps"  # the note on steps that are not in the means


def notes_of(rank: RankMetrics) -> list[str]:
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
