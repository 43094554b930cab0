"""Sentences that the terminal and the HTML report share."""

import re
import shlex

from feedline.analysis.explain.headline import how
from feedline.analysis.explain.model import Hook, Report, Roofline, Verdict
from feedline.analysis.ledger.finding import (
    CostKind,
    Finding,
    Severity,
    interval,
)
from feedline.analysis.ledger.finding import cost as cost_of
from feedline.analysis.ledger.table import Ledger
from feedline.analysis.ledger.view.cpus import says
from feedline.analysis.measure.model import (
    Cost,
    Cpus,
    Holder,
    MemoryGrowth,
    RunInfo,
    Throughput,
    Workers,
)
from feedline.analysis.measure.step_model import OwnCode, StepSummary
from feedline.analysis.ranks.communication import (
    Prediction,
    RankParts,
    describe_changing_ranks,
    describe_clock_error,
    describe_late_rank,
)
from feedline.analysis.rules import BY_ID, is_set_up_mistake
from feedline.analysis.text.formatting import (
    count,
    counted,
    duration,
    number,
    seconds,
    sentence,
    share,
    size,
)
from feedline.profiler import message
from feedline.profiler.masks import MASK

_STATES = {"live": "still running"}
#: Kind of waiting -> what it means.
_WAITS = {
    "starved": "no worker had finished a batch",
    "head_of_line": "a later batch was ready, but the next in order was not",
    "handover": "the batch was ready, but not sent: its worker held the GIL to make the next one, "
    "had no CPU, or the pipe was full",
    "in_transit": "the batch was ready, but still on its way from the worker",
    "first_batch": "workers were starting or making their first batch",
    "overhead": "the DataLoader's own work in the main process (no workers), without making the "
    "samples",
}
#: Replaces an entry of _WAITS in runs without workers.
_WAITS_ALONE = {"first_batch": "starting the loader, or making its first batch"}
#: The same of loaders whose batches were not seen being made.
_WAITS_UNSEEN = {
    "starved": "the loader had no batch ready",
    "first_batch": "the loader was starting or making its first batch",
}
_SEVERITIES = {
    Severity.HIGH: "costs at least 20 % of the step, or causes at least half of an input wait "
    "that does",
    Severity.LOW: "costs 5 to 20 % of the step, or causes at least half of an input wait that does",
    Severity.INFO: "costs less than 5 % of the step",
}
#: Of what lies outside the steps, or in a trace without steps: its cost per step is unknown.
_OF_THE_TIME = {
    Severity.HIGH: "costs at least 20 % of the time",
    Severity.LOW: "costs 5 to 20 % of the time",
    Severity.INFO: "worth knowing",
}
_ENDS = {
    Severity.HIGH: "ends the training, or a longer one",
    Severity.LOW: "may end a longer training",
    Severity.INFO: "worth knowing",
}
#: Of mistakes in a training's setup, whose cost is not time.
_WRONG = {
    Severity.HIGH: "the training does not do what was intended",
    Severity.LOW: "degrades the training",
    Severity.INFO: "worth knowing",
}
BOUNDARIES = {
    "optimizer": "a step ends with each optimizer update",
    "backward": "a step ends with each backward pass (no optimizer was seen)",
    "loader": "a step is one batch of the loader (neither an optimizer nor a backward pass was "
    "seen)",
    "profiler_step": "a step is one ProfilerStep range of torch.profiler",
    "feedline": "a step ends with feedline's NVTX range `feedline:optimizer`",
    "range": "a step is one repetition of a range that the program annotated",
    "collectives": "step boundaries are inferred from evenly spaced collectives",
    "none": "no steps were found: this is the whole trace",
}
#: How the gradients behind the noise scale were seen.
NOISE = {
    "ddp": "DDP's all-reduce of gradients",
    "hook": "DDP's communication hook",
    "manual": "the program's own all-reduce of gradients",
    "accumulation": "the micro-batches of gradient accumulation",
    "fsdp2": "FSDP2's reduce-scatter of gradients",
}
_NAMED = 0.97  # of the time outside the model: less of it in the functions that are shown is told
NO_STEP = (
    "No training step was recorded: feedline saw no optimizer update, no backward pass and "
    "no batch in a training loop."
)
NO_WORKERS = "Not measured: no loader was seen, so the cost per sample is unknown."
UNSEEN_MAKING = "Not measured: how this loader makes its samples is not visible."
NO_FINDINGS = "No rule found a cause that slows this run down."
NO_SAMPLES = "Not measured: the loader made no sample that could be timed."


#: Hooks refused for one of these are not a loss: what they would have seen was not there, or is
#: seen in another way.
_NO_LOSS = frozenset(
    {
        message.NO_GPU,
        message.TURNED_OFF,
        message.NO_CUDA,
        message.CUDA_NOT_USED,
        message.NO_NVML,
        message.NO_CPU_QUOTA,
        message.NO_MEMORY_LIMIT,
        message.NO_DISK,
        message.NOT_REPLACED,
        message.TOO_FEW_UPDATES,
        message.NO_FLOP,  # the roofline says so
    }
)


#: What memory that grows belongs to.
GROWING = {"main": "main process", "workers": "workers, together"}
_HELD_BY = {
    Holder.GRAPHS: "graphs of past steps",
    Holder.COPIES: "copies of pages that workers shared",
    Holder.OWN: "what workers keep",
    Holder.OBJECTS: "small Python objects",
    Holder.PIECES: "large pieces, as of tensors or arrays",
}


def holder(grown: MemoryGrowth) -> str:
    """Return what holds memory that grows, and where that is kept."""
    held = _HELD_BY[grown.holder] if grown.holder is not None else "unknown"
    return f"{held}, {grown.place}" if grown.place else held


def refused_that_matter(hooks: list[Hook]) -> list[Hook]:
    """Return hooks whose absence leaves something of this run unseen."""
    return [hook for hook in hooks if not hook.attached and hook.reason not in _NO_LOSS]


def full_stop(text: str) -> str:
    """Return a text as a sentence, with a full stop at its end."""
    return text if text.endswith((".", "!", "?", "…")) else f"{sentence(text)}."


def whole_fix(finding: Finding) -> str:
    """Say what to change, where and on which condition, and what else would do; empty: nothing."""
    if not finding.fix:
        return ""
    where = where_and_if(finding)
    first = f"{finding.fix.removesuffix('.')} ({where})." if where else full_stop(finding.fix)
    return " ".join([first, *map(full_stop, finding.fix_more)])


def state(run: RunInfo) -> str:
    """Return how the run ended."""
    return how(run.state, run.exit_code, run.ended_by).removeprefix("was ") or _STATES.get(
        run.state, run.state
    )


def where_and_if(told: Verdict | Finding) -> str:
    """Return the place and the condition of a fix, ``train.py:31, only if ...``; empty: neither."""
    return ", ".join(filter(None, (place_beside(told), told.condition)))


def place_beside(told: Verdict | Finding) -> str:
    """Return where the program has to be changed; empty if its fix names that line already."""
    named = re.search(rf"(?<!\S){re.escape(told.place)}(?!\d)", told.fix)
    return "" if named else told.place


def opening(verdict: str) -> tuple[str, str]:
    """Return the first sentence of a verdict, and the others."""
    first, *others = re.split(r"(?<=[.!?]) (?=[A-Z])", sentence(verdict), maxsplit=1)
    return first, others[0] if others else ""


def pace(report: Report) -> list[str]:
    """Return the throughput line, in parts: what could not be measured is left out."""
    throughput, parts = report.throughput, []
    if throughput.of_all_ranks is not None:
        parts.append(
            f"{number(throughput.of_all_ranks)} samples/s{_spread(throughput)}{of_ranks(throughput)}"
        )
    if throughput.steps_per_s is not None:
        parts.append(f"{number(throughput.steps_per_s)} steps/s")
    if throughput.batch_size is not None:
        per_rank = " per rank" if throughput.ranks > 1 else ""
        parts.append(
            f"{count(throughput.batch_size)} samples per step{per_rank}{accumulated(report)}"
        )
    return parts or ["throughput not measured: no step was timed"]


def _spread(throughput: Throughput) -> str:
    """Return `` (65.4 to 106)``, the interval of the measured rate of one rank.

    From that rate the loader's replay predicts. It is empty if the interval is narrow.
    """
    if throughput.varies is None or throughput.ranks > 1:
        return ""
    low, high = throughput.varies
    return f" ({number(low)} to {number(high)})"


def accumulated(report: Report) -> str:
    """Return `` (4 batches of 64)``, where a step takes several whole ones."""
    sizes = {
        loader.settings.get("batch_size") for loader in report.loaders if loader.role == "training"
    }
    size, per_step = (sizes.pop() if len(sizes) == 1 else None), report.throughput.batch_size
    if (
        not isinstance(size, int)
        or size < 1
        or per_step is None
        or per_step < 2 * size
        or per_step % size
    ):
        return ""
    return f" ({count(per_step / size)} batches of {count(size)})"


def no_samples(report: Report) -> str:
    """Say why samples/s and the batch size are unknown."""
    return (
        "not in a trace"
        if report.traces
        else "no step was recorded"
        if report.step is None
        else "no loader reported it"
    )


def of_ranks(throughput: Throughput) -> str:
    """Return whose samples are counted, where that is not one process."""
    return f" on {throughput.ranks} ranks" if throughput.ranks > 1 else ""


def steps(throughput: Throughput) -> str:
    """Return how many steps, and how many of them in detail."""
    detail = (
        f" ({count(throughput.steps_in_detail)} in detail)"
        if throughput.steps_in_detail < throughput.steps
        else ""
    )
    return f"{counted(throughput.steps, 'step')}{detail}"


def step_title(step: StepSummary) -> str:
    """Return what the split into stages is of."""
    return "Whole trace" if step.boundary == "none" else "Mean step"


def severity(finding: Finding) -> str:
    """Return what the severity means.

    It is a share of the step or of the time. For what ends a training, and for a mistake in the
    setup, it is how serious that is.
    """
    if is_set_up_mistake(finding):
        return _WRONG[finding.severity]
    if BY_ID[finding.rule_id].ends_training:
        return _ENDS[finding.severity]
    return (_SEVERITIES if finding.cost_s > 0 else _OF_THE_TIME)[finding.severity]


def cost(finding: Finding, mean_step_s: float | None) -> str:
    """Return what it costs, or what can be saved.

    It is empty if it costs no time, or if a rate is predicted, which says it.
    """
    if finding.cost_s <= 0 or finding.predicted is not None:
        return ""
    if finding.cost_kind is CostKind.PREDICTED:
        return f"about {cost_of(finding, mean_step_s)} can be saved, {interval(finding)}"
    if finding.cost_kind is CostKind.BOUND:
        return f"up to {cost_of(finding, mean_step_s)} can be saved"
    if finding.cost_kind is CostKind.AT_LEAST:
        return f"costs at least {cost_of(finding, mean_step_s)}"
    more = ", or more" if finding.cost_kind is CostKind.OR_MORE else ""
    return f"costs about {cost_of(finding, mean_step_s)}{more}"


def ranks(report: Report) -> str:
    """Return which rank is shown and which is slowest; nothing for one rank."""
    means = {rank: own.mean_s for rank, own in report.ranks.items() if own.mean_s}
    if len(means) < 2:
        return ""
    slowest, fastest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    shown = (
        min(report.ranks, key=lambda rank: int(rank) if rank.isdecimal() else 0)
        if report.shown is None
        else report.shown
    )
    waited_for = any(
        finding.blame is not None and str(finding.blame.rank) == str(shown)
        for finding in report.findings
    )
    shortest, longest = seconds(means[fastest]), seconds(means[slowest])
    alike = f"Mean step of all ranks: {longest}" if shortest == longest else ""
    mean = alike or f"Mean step: {shortest} (rank {fastest}) to {longest} (rank {slowest})"
    return f"Showing rank {shown}{', which the others wait for' * waited_for}. {mean}."


def ranks_to_show(report: Report, most: int) -> tuple[dict[str, RankParts], int]:
    """Return the ranks to show with their parts of the mean step, and how many are left out.

    Of too many, those that were waited for and that waited most stay.
    """
    parts = {rank: own.comm for rank, own in report.ranks.items() if own.comm is not None}
    if len(parts) <= most:
        return parts, 0
    late = {str(one.rank) for one in report.comm.late[: most // 2]} if report.comm else set()
    waiting = sorted(parts, key=lambda rank: -parts[rank].wait_s)
    chosen = late | set([rank for rank in waiting if rank not in late][: most - len(late)])
    return {rank: own for rank, own in parts.items() if rank in chosen}, len(parts) - most


def waits_title(report: Report) -> str:
    """Return the title of the table of ``waits``.

    Without workers, the main process does not wait: it makes the batches itself.
    """
    # None: it was not seen which process makes the batches
    alone = report.workers is not None and not report.workers.processes
    return f"{'What the DataLoader itself did' if alone else 'Why the main process waited for a batch'} (parts of the stage wait)"


def waits(report: Report) -> dict[str, str]:
    """Return what each kind of waiting means in this run."""
    if report.workers is None:
        return _WAITS | _WAITS_UNSEEN
    return _WAITS if report.workers.processes else _WAITS | _WAITS_ALONE


def communication(report: Report, late_ranks: bool = True, in_short: bool = False) -> list[str]:
    """Return what is known of the network and the late ranks, and how sure that is.

    In short, it is what is known of the first two.
    """
    comm = report.comm
    if comm is None:
        return []
    said = (
        [f"{sentence(comm.network)}."]
        if comm.network and not (in_short and comm.network_share is None)
        else []
    )
    if late_ranks:
        said += [describe_late_rank(one) for one in comm.late[:2] if one.persistent] or (
            [describe_changing_ranks(comm)] if comm.late else []
        )
    return (
        [*said, describe_clock_error(comm.clocks, comm.clock_bound_s)]
        if comm.clock_bound_s and not in_short
        else said
    )


def tells(one: Prediction) -> bool:
    """Tell whether a prediction differs from the measured step by more than its own error."""
    if one.step_s is None or one.low is None or one.high is None:
        return False
    return not one.low <= one.step_s + one.gain_s <= one.high


def own_codes(step: StepSummary) -> list[tuple[OwnCode, str, float | None]]:
    """Return the program's own code in steps and in evaluation.

    Each has its functions, a title, and the mean step that they are parts of.
    """
    both = (
        (step.own_code, "Code outside the model, backward passes and updates", step.mean_s),
        (step.evaluation_code, "Own code of evaluation, rollouts or generation, in total", None),
    )
    return [(own, title, mean_s) for own, title, mean_s in both if own is not None]


#: Where the time of a run goes, in words; of the steps, the table of the mean step says more.
_RUN_PARTS = {
    "start": "before the first step",
    "steps": "training steps",
    "evaluation": "evaluation, rollouts or generation",
    "profiled": "steps that torch.profiler recorded",
    "between": "between steps",
    "end": "after the last step",
}


def run_parts(ledger: Ledger | None) -> list[tuple[str, float, float]]:
    """Return where the time of the whole run went: what, seconds, share (0 to 1).

    They are in the order of a run; empty: unknown.
    """
    table = ledger.run if ledger is not None else None
    return [
        (words, table.total_s(where), table.share(where))
        for where, words in _RUN_PARTS.items()
        if table and table.under(where)
    ]


def own_code(own: OwnCode) -> str:
    """Return how much it is in all, and how often it was observed."""
    named_s = sum(function.s for function in own.functions) + own.few_s
    rest = " (including functions that are not shown)" if named_s < _NAMED * own.s else ""
    few = (
        f". A few long steps, which were not observed, take {seconds(own.few_s)} of it"
        if own.few_s >= (1 - _NAMED) * own.s and own.few_s
        else ""
    )
    looks = counted(own.looks, "time")
    return f"all such code takes {seconds(own.s)}{rest}; it was observed {looks}{few}"


def cpus(use: Cpus) -> str:
    """Return who used the CPUs while the steps ran."""
    return full_stop(f"{says(use)} (mean over the steps)")


def roofline(made: Roofline) -> str:
    """Return the run among its limits, in a short paragraph."""
    parts = [made.message]
    if made.mfu is not None:
        parts.append(f"This run reaches {share(made.mfu)} of the device's peak (MFU).")
    elif made.peak_flops is None:
        parts.append(
            f"How far this run is from the device's peak FLOP/s is unknown: {made.peak_source}."
        )
    elif made.flop_per_sample is not None:
        parts.append(f"No MFU: this run is faster than the measured peak ({made.peak_source}).")
    if made.flop_per_sample is None:
        parts.append(f"The number of FLOPs per sample is unknown: {made.flop_source}.")
    if made.sweep is not None:
        parts.append(
            f"Batches above {count(made.sweep.knee)} samples make the model alone less than 5 % "
            f"faster."
        )
    return " ".join(parts)


def about(run: RunInfo) -> list[str]:
    """Return the run: its name, how long it took, how many ranks, and how it ended."""
    ranks = [f"{run.ranks} ranks"] if run.ranks > 1 else []
    return [run.name, duration(run.duration_s), *ranks, state(run)]


def sample_table(made: Workers) -> list[tuple[str, str, Cost, float | None]]:
    """Return (name, stage, cost, bytes) of a sample's stages and their total.

    Sending it comes after that, in another thread. The total has no bytes: those of its stages are
    not of one kind, files and pixels and batches.
    """
    inside = [
        (stage, stage, cost, cost.bytes)
        for stage, cost in made.per_sample.items()
        if stage not in ("total", "transport")
    ]
    total, sent = made.per_sample.get("total"), made.per_sample.get("transport")
    rows = [*inside, *([("total", "total", total, None)] if total else [])]
    return [*rows, *([("then pickled", "transport", sent, sent.bytes)] if sent else [])]


def workers(made: Workers) -> list[str]:
    """Return the figures of the workers as a whole."""
    facts = _busy(made) if made.processes else ["no workers: samples are made in the main process"]
    if made.idle_share is not None:
        facts.append(f"idle {share(made.idle_share)}")
    if made.fetch_mean_s is not None:
        varies = "" if made.fetch_cv is None else f" (standard deviation {share(made.fetch_cv)})"
        facts.append(f"{seconds(made.fetch_mean_s)} per batch{varies}")
    total, read = (made.per_sample.get(stage) for stage in ("total", "read"))
    # else the table says it
    if total is not None and total.bytes is not None and not (read and read.bytes):
        facts.append(f"{size(total.bytes)} per sample read with read()")
    facts.append(f"{made.samples_in_detail:,} of {made.samples:,} samples timed in detail")
    return facts


def _busy(made: Workers) -> list[str]:
    """Return how many workers there are, and how busy those are that make batches.

    Those that never made one come first.
    """
    idle = made.without_batches
    facts = [
        f"{idle} of {counted(made.processes, 'worker')} never made a batch"
        if idle
        else counted(made.processes, "worker")
    ]
    if made.busy_share is not None:
        facts.append(f"{'the others ' * (idle > 0)}busy {share(made.busy_share)}")
    return facts


def run_place(run: RunInfo) -> str:
    """Return a run's folder as one would type it: a shell knows ``~`` only outside of quotes.

    A run whose place is masked goes by its name.
    """
    home, rest = (
        ("~/", run.path[2:])
        if run.path.startswith("~/")
        else ("", run.path.removeprefix(f"{MASK}/"))
    )
    return home + shlex.quote(rest)


def typed_in(run: RunInfo) -> str:
    """Return where a command with ``run_place`` is to be typed, if not where the report was made."""
    return ", from the folder that contains it" if run.path.startswith(f"{MASK}/") else ""


def shell(command: list[str]) -> str:
    """Return a command line as one would type it; what is masked is not quoted for that alone."""
    return " ".join(
        argument if _is_safe(argument.replace(MASK, "x")) else shlex.quote(argument)
        for argument in command
    )


def _is_safe(argument: str) -> bool:
    return shlex.quote(argument) == argument
