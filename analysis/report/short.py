"""What the terminal shows of a report before its end, unless all of it was asked for.

It is the parts that say something, each in a few lines.
"""

import dataclasses
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from feedline.analysis.explain.model import FIRST_STEPS, Report
from feedline.analysis.explain.verdict import leading
from feedline.analysis.formatting import seconds, share
from feedline.analysis.ledger.finding import Finding, Severity, rates
from feedline.analysis.measure.cpu_use import MIN_OTHERS
from feedline.analysis.measure.model import StepSummary, Workers
from feedline.analysis.report import of_convergence, phrases, tables
from feedline.profiler.message import id_of

_SMALL = 0.01  # of the step: stages below it are shown as one
# of the step, from which on the cost of a sample matters: below it the input holds nothing back
_WAITS = 0.05
_UNCERTAIN = 0.2  # of a sample: the error of a part that is told
_LABEL = 11  # characters of "Convergence"
_KERNELS, _STAGES, _RANKS, _HOOKS, _NOTES = 3, 4, 4, 3, 3  # how many of each are shown
_MOST_LINES = 3  # of a finding that is not the verdict's, of a note, of a hook
_USUAL = ("optimizer", "profiler_step")  # where steps are cut


@dataclass(frozen=True)
class Part:
    """Lines that stand or go together.

    Attributes:
        title: a line above them; without one, it is a paragraph with its label at the left.
        place: among the parts, when there is not room for all: 0 is the last to go.
    """

    title: str
    body: RenderableType
    place: int = 0


def parts(report: Report, width: int) -> Iterable[Part]:
    """Return the parts from the step to the notes, in the order in which they are shown."""
    if report.step:
        body = [tables.step_table(_folded(report.step), width), tables.spread(report.step, _USUAL)]
        if report.traces and report.throughput.steps:
            body.append(tables.plain(f"figures cover {report.traces.basis}", "dim"))
        yield Part(phrases.step_title(report.step), Group(*body), 0)
    if report.traces:
        yield _traces(report)
    if report.comm:
        yield _communication(report, width)
    yield from _input(report)
    if report.cpus and report.cpus.own is not None and (report.cpus.others or 0.0) >= MIN_OTHERS:
        yield _told("CPUs", phrases.cpus(report.cpus), 5)
    if report.roofline:
        yield _told("Limits", report.roofline.message, 9)
    for place, (label, text) in zip((6, 7, 7, 7), of_convergence.short(report)):
        yield _told(label, text, place)
    yield from _findings(report, width)
    yield from _listed(
        "Not seen",
        [f"{hook.name}: {hook.why}" for hook in phrases.refused_that_matter(report.hooks)],
        _HOOKS,
        width,
        3,
    )
    yield from _listed(
        "Note", [note for note in report.notes if id_of(note) != FIRST_STEPS], _NOTES, width, 2
    )


def _folded(step: StepSummary) -> StepSummary:
    """Return the step with the stages that are hardly there as one."""
    total = sum(step.stages.values())
    small = [
        stage
        for stage, time in step.stages.items()
        if time < _SMALL * total and not (step.gpu_stages or {}).get(stage)
    ]
    if len(small) < 2:
        return step
    stages = {stage: time for stage, time in step.stages.items() if stage not in small}
    return dataclasses.replace(
        step, stages=stages | {f"{len(small)} smaller": sum(step.stages[stage] for stage in small)}
    )


def _told(label: str, text: str, place: int, width: int = 0) -> Part:
    """Return a paragraph; with a width, no longer than a few lines of it."""
    row = Table.grid(padding=(0, 2))
    row.add_column(width=_LABEL)
    row.add_column(overflow="fold")
    if width:
        text = "\n".join(
            textwrap.wrap(text, width - _LABEL - 2, max_lines=_MOST_LINES, placeholder=" …")
        )
    row.add_row(Text(label, "dim"), Group(*map(tables.plain, text.split("\n"))))
    return Part("", row, place)


def _listed(label: str, texts: list[str], most: int, width: int, place: int) -> Iterable[Part]:
    for text in texts[:most]:
        yield _told(label, phrases.full_stop(text), place, width)
    if len(texts) > most:
        yield _told("", f"{len(texts) - most} more with --full", place)


def _input(report: Report) -> Iterable[Part]:
    """Return what the step waits for and what a sample costs.

    It is empty where the input takes no part of the step that matters.
    """
    step, made = report.step, report.workers
    if step is None or not step.mean_s > 0 or made is None:
        return
    waits = sum(step.waits.values())
    if waits >= _WAITS * step.mean_s:
        kinds = sorted(step.waits.items(), key=lambda one: -one[1])
        told = [
            f"{share(time / waits)} of the wait: {phrases.waits(report)[kind]}"
            for kind, time in kinds
            if time >= _WAITS * waits
        ]
        yield _told("Waits", f"{'; '.join(told)}.", 8)
    if phrases.input_share(step) >= _WAITS and made.per_sample:
        yield _told("One sample", _sample(made), 7)


def _sample(made: Workers) -> str:
    outside = ("total", "transport")
    stages = sorted(
        ((cost.wall_s, stage) for stage, cost in made.per_sample.items() if stage not in outside),
        reverse=True,
    )
    sent = made.per_sample.get("transport")
    total = made.per_sample.get("total")
    whole = [seconds(total.wall_s)] if total else []
    where = [] if made.processes else ["made in the main process (no workers)"]
    if made.processes and (made.busy_share is not None or made.without_batches):
        where = [", ".join(phrases.busy(made))]
    parts = ": ".join(
        [*whole, ", ".join(f"{stage} {seconds(time)}" for time, stage in stages[:_STAGES])]
    )
    then = [f"then pickled in {seconds(sent.wall_s)}"] if sent else []
    return f"{'; '.join([parts, *then, *where, *_certainty(made)])}."


def _certainty(made: Workers) -> list[str]:
    """Return how far the parts may be from what they are said to be, where that is much."""
    total, seen = (
        made.per_sample.get("total"),
        f"{made.samples_in_detail:,} of {made.samples:,} samples",
    )
    errors = [cost.error_s for cost in made.per_sample.values()]
    if not made.samples_in_detail:
        return []
    if None in errors:
        return [f"stages from {seen}, too few for an error estimate"]
    most = 2 * max(error for error in errors if error is not None)
    return (
        [f"stages from {seen}, ± {seconds(most)} (95 %)"]
        if total is not None and most > _UNCERTAIN * total.wall_s
        else []
    )


def _findings(report: Report, width: int) -> Iterable[Part]:
    """Return those that ask for a change, but for the one that the verdict tells."""
    top = leading(report.findings)
    mean = report.step.mean_s if report.step else None
    for finding in report.findings:
        if finding is not top and finding.severity is not Severity.INFO:
            yield _told("Also", _also(finding, mean), 1, width)


def _also(finding: Finding, mean_step_s: float | None) -> str:
    """Return a finding in a paragraph.

    It has its cause, what its fix gives or the cause costs, what it says, and its fix.
    """
    said = f"{finding.rule_id}{_worth(finding, mean_step_s)}: {phrases.full_stop(finding.message)}"
    return f"{said} Fix: {finding.fix}" if finding.fix else said


def _worth(finding: Finding, mean_step_s: float | None) -> str:
    """Return what a finding is worth.

    ``, predicted 81.0 -> 198 samples/s [178, 219]``, or ``, costs about 140 ms per step (35.4 %)``.
    """
    if finding.predicted is not None:
        return f", predicted {rates(finding.predicted)}"
    told = phrases.cost(finding, mean_step_s)
    return f", {told}" if told else ""


def _traces(report: Report) -> Part:
    ranks = list(report.ranks)
    if len(ranks) > _RANKS:
        ranks = list(phrases.ranks_to_show(report, _RANKS)[0]) or ranks[:_RANKS]
    longest = tables.kernels(report, _KERNELS) if len(ranks) == 1 else []
    return Part(
        _title("Device and input", len(ranks), len(report.ranks)),
        Group(tables.traces(report, ranks), *longest),
        4,
    )


def _communication(report: Report, width: int) -> Part:
    shown, left_out = phrases.ranks_to_show(report, _RANKS)
    late_told = any(finding.rule_id in ("late_rank", "late_ranks") for finding in report.findings)
    told = phrases.communication(report, late_ranks=not late_told, in_short=True)
    body = [*tables.communication(shown, width), *([tables.plain(" ".join(told))] if told else [])]
    return Part(_title("Communication", len(shown), len(shown) + left_out), Group(*body), 5)


def _title(name: str, shown: int, of: int) -> str:
    return name if shown == of else f"{name}, {shown} of {of} ranks"
