"""What a comparison comes to, in a few sentences: how much faster or slower, and why."""

import math
from collections.abc import Iterator, Sequence

from feedline.analysis.diff import side as code_shares
from feedline.analysis.diff.context import different_work, how_diverged, shared_differences
from feedline.analysis.diff.run_diff import (
    Differing,
    MachineChange,
    Outcome,
    Quantity,
    RunDiff,
    RunName,
)
from feedline.analysis.diff.side import ComparedRun
from feedline.analysis.measure.model import MIN_OTHERS
from feedline.analysis.measure.noise import MIN_COMPARED
from feedline.analysis.measure.stages import MAKING_STAGES, UNATTRIBUTED
from feedline.analysis.text.formatting import number, rate, sentence, value

#: Groups that a cause can be in: what happens inside a step or a sample.
_CAUSE_GROUPS = ("stage", "cpu", "sample", "blocked")
_PER_STEP = ("stage", "cpu")
_SAMPLE_TOTALS = ("sample/total", "blocked/total")
#: Stage -> libraries whose version may explain it.
_LIBRARIES_OF_STAGES = {
    "decode": ("pillow", "opencv-python", "torchvision", "numpy", "python"),
    "augment": ("torchvision", "torch", "opencv-python", "pillow", "numpy", "python"),
    "read": ("python",),
    "dataset": ("numpy", "torch", "python"),
    "collate": ("torch", "numpy"),
    **dict.fromkeys(
        ("forward", "loss", "backward", "optimizer"), ("torch", "timm", "transformers")
    ),
}
#: Settings of a loader that decide how fast it is.
_LOADER = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
    "pin_memory",
    "start_method",
    "kind",
    "dataset",
)
# of a change of the wait, or of the step: a stage that moved by less is not why
_EXPLAINS = 0.25
MIN_RATIO = 1e-3  # smallest ratio of times, so that rates stay finite
# an interval whose ratio of times starts below this is printed as "or more": its rate could be over
# 20 times as high
_OPEN = 0.05
MIN_MACHINE_SHARE = 0.02  # the smallest share of a change that is mentioned
_MAX_DIFFERENCES = 3  # differences in a sentence
#: Stages whose name says little in a sentence.
_STAGE_WORDS = {
    "wait": "waiting for data",
    "other": "time in no stage",
    "epoch_start": "starting an epoch",
    "dataset": "the dataset's own code",
}
_CLOCK_WORDS = {"cpu": " CPU", "blocked": " blocked"}


def cause_of(
    quantities: Sequence[Quantity], base: ComparedRun, other: ComparedRun, by_sample: bool
) -> str:
    """Return the id of the stage that explains the change best; "": none did.

    Of the stages that changed, that is the one that moved the step most.

    Args:
        quantities: that may have changed.
        base: a run of A.
        other: a run of B.
        by_sample: times of steps are per sample.
    """
    workers, batch = base.report.workers, 1.0 if by_sample else base.batch or 1.0
    per_step = batch / max(workers.processes if workers is not None else 1, 1)
    per_cpu_s = max(_per_cpu_s(base), _per_cpu_s(other))

    def moved_s(quantity: Quantity) -> float:
        before = quantity.before or 0.0
        own = abs(
            (quantity.ratio - 1) * before if quantity.ratio is not None else quantity.after or 0.0
        )
        return (
            own
            if quantity.group in _PER_STEP
            else own * per_step * (per_cpu_s if quantity.clock == "cpu" else 1.0)
        )

    changed = [
        quantity
        for quantity in quantities
        if quantity.outcome == Outcome.CHANGED and quantity.group in _CAUSE_GROUPS
    ]
    changed = [quantity for quantity in changed if quantity.id not in _SAMPLE_TOTALS] or changed
    if not changed:
        return ""
    most = max(changed, key=moved_s)
    same = [
        quantity for quantity in changed if quantity.clock == "cpu" and quantity.name == most.name
    ]
    if same and most.clock == "wall":  # which other programs change, too
        return same[0].id
    inside = [
        quantity
        for quantity in changed
        if quantity.group not in _PER_STEP
        and quantity.grew == most.grew
        and moved_s(quantity) >= _EXPLAINS * moved_s(most)
    ]
    # a wait follows from what the loader does
    return max(inside, key=moved_s).id if most.id == "stage/wait" and inside else most.id


def _per_cpu_s(run: ComparedRun) -> float:
    """Return seconds that a CPU second of making samples takes, with the waiting for a CPU."""
    total = run.report.workers.per_sample.get("total") if run.report.workers is not None else None
    return 1 + (total.runqueue_s or 0.0) / total.cpu_s if total is not None and total.cpu_s else 1.0


def conclude_diff(
    diff: RunDiff, before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> str:
    """Say in a few sentences what a comparison comes to."""
    sentences = [_pace(diff, [*before, *after])]
    if other := different_work(before, after):
        sentences.append(f"Steps do different work: {'; '.join(other)}.")
    lost = [
        (side, next(filter(None, map(how_diverged, runs)), ""))
        for side, runs in (("A", before), ("B", after))
    ]
    sentences += [f"{side} diverged: {why}." for side, why in lost if why]
    cause = diff.of(diff.cause)
    step = diff.of("step/mean")
    if cause is not None:
        joined = sentence("; ".join([_changed(cause, diff.per), *_related(diff, cause)]))
        if cause.clock == "cpu" and (step is None or step.outcome != Outcome.CHANGED):
            return " ".join([f"{joined}.", *sentences])
        agrees = (
            step is not None
            and step.outcome in (Outcome.CHANGED, Outcome.EITHER)
            and step.grew == cause.grew
        )
        sentences.append(f"{joined}." if agrees else f"But {joined[0].lower()}{joined[1:]}.")
    elif work := _pixels(diff):
        sentences.append(f"{sentence(work[0])}.")
    elif step is not None and step.outcome == Outcome.CHANGED:
        settings = ", ".join(
            [describe_difference(item) for item in _loader(diff)][:_MAX_DIFFERENCES]
        )
        why = _stage_unknown(diff, step) or "No single stage explains it"
        sentences.append(f"{why}{f'; the loader differs: {settings}' if settings else ''}.")
    return " ".join(sentences)


def _stage_unknown(diff: RunDiff, step: Quantity) -> str:
    """Say that a part of the change is in no known stage; "": too little of it is."""
    part = diff.of(f"stage/{UNATTRIBUTED}")
    if part is None:
        return ""
    moved_s, whole_s = ((one.after or 0.0) - (one.before or 0.0) for one in (part, step))
    if not whole_s or moved_s / whole_s < _EXPLAINS:
        return ""
    return (
        f"Which stage explains it is unknown: {_amounts(part)} per {diff.per} is in no recorded "
        f"stage ({UNATTRIBUTED})"
    )


def _pace(diff: RunDiff, runs: Sequence[ComparedRun]) -> str:
    """Say how much faster or slower.

    Args:
        diff: of the runs.
        runs: of both sides.
    """
    step = diff.of("step/mean")
    if step is None or not step.before or not step.after or step.p is None or step.measured is None:
        few = f"A has {_steps(diff.before)}, B has {_steps(diff.after)}"
        return (
            f"Too few steps to compare: {few}; at least {MIN_COMPARED} of each run must "
            f"count toward the mean."
        )
    rates, by = _rate(step, diff.per, runs), _faster(step.measured)
    if step.outcome == Outcome.CHANGED:
        assert step.ratio is not None
        equal = (
            ""
            if _negligible(step.machine)
            else f"; about {_faster(step.ratio)} at equal machine speed"
        )
        return f"B is {by} than A: {rates}{equal} ({_interval(step)})."
    if step.outcome == Outcome.MACHINE:
        return f"B ran {by} than A ({rates}), but the machine explains it: {_because(diff)}."
    if step.outcome == Outcome.EITHER:
        return (
            f"B ran {by} than A ({rates}); how much of that is due to the machine is unknown: "
            f"{_because(diff)}."
        )
    if abs(_speed(step.measured)) >= diff.min_change:
        if _negligible(step.machine):
            return (
                f"B ran {by} than A ({rates}), which is within the noise of the runs "
                f"({_interval(step)})."
            )
        machine = (
            f"the machine explains up to {_faster(step.machine)}, and the rest is within "
            f"the noise of the runs"
        )
        return f"B ran {by} than A ({rates}): {machine} ({_interval(step)})."
    seen = max(_resolution(step), diff.min_change)
    return (
        f"No change in speed beyond noise: {rates}; a change of less than {_percent(seen)} "
        f"would not have been seen."
    )


def _steps(side: Sequence[RunName]) -> str:
    return " and ".join(f"{run.steps:,}" for run in side)


def _faster(ratio: float) -> str:
    """Return ``9.1 % slower``, for a ratio of times."""
    return f"{_percent(abs(_speed(ratio)))} {'slower' if ratio > 1 else 'faster'}"


def _negligible(machine: float) -> bool:
    """Tell whether the change that the machine explains is too small to mention."""
    return abs(math.log(machine)) < math.log1p(MIN_MACHINE_SHARE)


def _speed(ratio: float) -> float:
    """Change of the rate, for a ratio of times."""
    return 1 / max(ratio, MIN_RATIO) - 1


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def _interval(step: Quantity) -> str:
    """Return ``95 % interval -13 % to -5 %``, of the rate.

    It is ``+71 % or more`` where the time may be next to nothing.
    """
    fastest, slowest = (
        None if end is None else f"{round(100 * _speed(end)):+d} %" for end in (step.low, step.high)
    )
    return f"95 % interval {slowest} {'or more' if (step.low or 0.0) < _OPEN else f'to {fastest}'}"


def _resolution(quantity: Quantity) -> float:
    """Return the smallest change of a time that its interval excludes.

    It is half the width of the interval.
    """
    return (
        math.inf
        if quantity.low is None or quantity.high is None
        else (quantity.high - quantity.low) / 2
    )


def _rate(step: Quantity, per: str, runs: Sequence[ComparedRun]) -> str:
    """Return ``53.1 -> 48.4 samples/s``, of all ranks; per rank if their numbers differ."""
    assert step.before and step.after
    batches = [run.batch for run in runs]
    batch = 1.0 if per == "sample" else None if None in batches else batches[0]
    unit = "steps/s" if batch is None else "samples/s"
    together = None if batch is None else _ranks_together(runs)
    several = any(run.report.run.ranks > 1 for run in runs)
    ranks = " per rank" if several and together is None else ""
    samples = (batch or 1.0) * (together or 1.0)
    return f"{rate(samples / step.before)} -> {rate(samples / step.after)} {unit}{ranks}"


def _ranks_together(runs: Sequence[ComparedRun]) -> float | None:
    """Return the throughput of all ranks over that of the rank whose steps are compared.

    None: it is not known of each run, or their numbers of ranks differ.
    """
    if len({run.report.run.ranks for run in runs}) > 1:
        return None
    paces = [run.report.throughput for run in runs]
    shares = [
        pace.of_all_ranks / pace.samples_per_s
        for pace in paces
        if pace.of_all_ranks and pace.samples_per_s
    ]
    return sum(shares) / len(shares) if len(shares) == len(paces) else None


def _because(diff: RunDiff) -> str:
    """Say what the machine did that works in the direction in which the step changed.

    Or, of a common change, what all stages share.
    """
    step = diff.of("step/mean")
    assert step is not None
    reason = " and ".join(
        text for slower, text in _differences(diff.machine) if slower == step.grew
    )
    reason = reason or f"its processes waited {'longer' if step.grew else 'less'} for a CPU"
    speed = diff.machine.speed or 1.0
    same = [describe_difference(item) for item in shared_differences(diff.settings)]
    return (
        f"{reason}; {', '.join(same)} could also explain it"
        if same and (speed > 1) == step.grew and not _negligible(speed)
        else reason
    )


def machine_reasons(machine: MachineChange) -> list[str]:
    """List what differs of the machine."""
    return [text for _, text in _differences(machine)]


def _differences(machine: MachineChange) -> Iterator[tuple[bool, str]]:
    """Tell whether it slows B down, and what it is."""
    if machine.speed is not None and abs(machine.speed - 1) >= MIN_MACHINE_SHARE:
        yield machine.speed > 1, f"all stages took {machine.speed:.2f}x the CPU time"
    if (
        machine.waiting_before
        and machine.waiting_after
        and abs(machine.waiting_after / machine.waiting_before - 1) >= MIN_MACHINE_SHARE
    ):
        yield (
            machine.waiting_after > machine.waiting_before,
            f"the main thread waited for a CPU {_percent(1 - 1 / machine.waiting_after)} of the "
            f"time "
            f"({_percent(1 - 1 / machine.waiting_before)} in A)",
        )
    first, last = machine.others_before, machine.others_after
    if first is not None and last is not None and abs(last - first) >= MIN_OTHERS:
        yield last > first, f"other programs used {number(last, 2)} CPUs ({number(first, 2)} in A)"
    first, last = machine.cpus_before, machine.cpus_after
    if first is not None and last is not None and first != last:
        yield last < first, f"it could use {number(last, 2)} CPUs ({number(first, 2)} in A)"


def _changed(quantity: Quantity, per: str) -> str:
    """Return ``decode takes 1.10x as long per sample (6.2 -> 6.8 ms CPU)``."""
    of = "sample" if quantity.group in ("sample", "blocked") else per
    what = (
        "making a sample"
        if quantity.name == "total"
        else _STAGE_WORDS.get(quantity.name, quantity.name)
    )
    if quantity.measured is None or not quantity.after:
        states = "gone", "new"
        if quantity.group == "blocked":
            states = "no longer blocked", "now blocked"
        elif quantity.group == "stage" and quantity.name in MAKING_STAGES:  # it may be a worker's
            states = "no longer part of the step", "now part of the step"
        return f"{what} is {states[bool(quantity.after)]} ({_amounts(quantity)} per {of})"
    verb = "is blocked" if quantity.group == "blocked" else "takes"
    apart = (
        ""
        if _negligible(quantity.machine)
        else f", of which the machine explains up to {quantity.machine:.2f}x"
    )
    return f"{what} {verb} {quantity.measured:.2f}x as long per {of} ({_amounts(quantity)}{apart})"


def _amounts(quantity: Quantity) -> str:
    """Return ``6.2 -> 6.8 ms CPU``."""
    before = value(quantity.before or 0.0, quantity.unit)
    after = value(quantity.after or 0.0, quantity.unit)
    same = before.rpartition(" ")[2] == after.rpartition(" ")[2]
    return (
        f"{before.rpartition(' ')[0] if same else before} -> "
        f"{after}{_CLOCK_WORDS.get(quantity.clock, '')}"
    )


def _pixels(diff: RunDiff) -> list[str]:
    """Return what samples are made of that differs."""
    named = (
        ("work/decoded_pixels", "decoded images have"),
        ("work/output_pixels", "transformed images have"),
    )
    changes = [
        (words, work)
        for id, words in named
        if (work := diff.of(id)) is not None and work.outcome == Outcome.CHANGED
    ]
    return [
        f"{words} {work.ratio:.2f}x the pixels" for words, work in changes if work.ratio is not None
    ]


def _related(diff: RunDiff, cause: Quantity) -> list[str]:
    """Return what differs that may be why."""
    related = _pixels(diff) if cause.group == "sample" else []
    disk = diff.of("gauge/disk/read") if cause.group == "blocked" else None
    if disk is not None and disk.outcome == Outcome.MACHINE and disk.grew == cause.grew:
        related.append(
            f"the disk was read at {_amounts(disk)}: only one of the runs may have found its "
            f"files in the page cache"
        )
    related += _functions(diff, cause)
    libraries = _LIBRARIES_OF_STAGES.get(cause.name, ())
    related += [
        describe_difference(item)
        for item in diff.settings
        if item.kind == "version" and item.name in libraries
    ]
    if cause.id == "stage/wait" or cause.group in ("sample", "blocked"):
        related += [describe_difference(item) for item in _loader(diff)]
    return related[:_MAX_DIFFERENCES]


def _functions(diff: RunDiff, cause: Quantity) -> list[str]:
    """Return the function of the program that moved most, in the direction of a cause."""
    of_sample = cause.id == "stage/wait" or cause.group in ("sample", "blocked")
    of_loop = code_shares.CODE_OF_STEP if cause.id == "stage/other" else ""
    group = code_shares.CODE_OF_SAMPLE if of_sample else of_loop
    moved = [one for one in diff.changed if one.group == group and one.grew == cause.grew]
    if not moved:
        return []
    does = f"takes {moved[0].measured:.2f}x as long" if moved[0].measured else "is new"
    return [f"{moved[0].name} {does if moved[0].after else 'is gone'}"]


def _loader(diff: RunDiff) -> list[Differing]:
    return [item for item in diff.settings if item.kind == "loader" and item.name in _LOADER]


def describe_difference(item: Differing) -> str:
    """Say what differs: ``pillow 11.0 -> 10.4``."""
    return f"{item.name} {item.before} -> {item.after}"
