"""The default report: what limits a run, where, what to change and what that gives, on one screen.

At most 25 lines of 80 columns. Everything else is in the full report and in HTML.
"""

from collections.abc import Iterable, Sequence

from feedline.analysis.explain.model import Report
from feedline.analysis.explain.verdict import leading
from feedline.analysis.formatting import Scale, counted, percent, rate, seconds
from feedline.analysis.ledger.finding import Finding, Gain, GainKind, Severity
from feedline.analysis.measure.model import StepSummary
from feedline.analysis.report.document import (
    Alert,
    Bar,
    Bars,
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.analysis.report.palette import family

NO_STEP = (
    "No training step was recorded: no optimizer update, no backward pass and no batch in a "
    "training loop."
)
_SMALL = 0.01  # of the step: stages below it are shown as one
_STAGES, _OTHERS = 6, 3  # shown at most
_AT_MOST = {GainKind.ABOUT: "about ", GainKind.AT_MOST: "at most "}
_REST = "other stages"


def first_screen(report: Report) -> Document:
    """Return the default report of a run, without the lines that say where files are."""
    return Document(tuple(_blocks(report)))


def _blocks(report: Report) -> Iterable[Block]:
    yield Title(tuple(_title(report)))
    yield from conclusion(report)
    if report.step is not None and report.step.stages:
        yield _stages(report.step, _STAGES - 2 * (report.run.ranks > 1) - bool(report.headline))
    if said := _ranks(report):
        yield Note(said)
    if others := _others(report):
        yield Table(others, label="Also")


def conclusion(report: Report) -> Iterable[Block]:
    """Return what limits the run, what to change, and what that gives."""
    if known := " ".join(filter(None, (report.headline, report.verdict.caveat))):
        yield Alert(known)
    yield Headline(report.verdict.limit, report.verdict.cause)
    if fields := tuple(_advice(report)):
        yield Fields(fields, indented=True)


def _title(report: Report) -> Iterable[str]:
    """Yield name, ranks, steps of how long, and the rate; what is unknown is left out."""
    pace, step = report.throughput, report.step
    yield report.run.name
    if report.run.ranks > 1:
        yield counted(report.run.ranks, "rank")
    if step is not None and step.boundary != "none":
        steps = "batch" if step.boundary == "loader" else "step"
        yield f"{counted(pace.steps, steps)} of {seconds(step.mean_s)}"
    if pace.of_all_ranks is not None:
        yield f"{rate(pace.of_all_ranks)} samples/s"
    elif pace.steps_per_s is not None:
        yield f"{rate(pace.steps_per_s)} steps/s"


def _advice(report: Report) -> Iterable[Field]:
    """Yield the line to change, on which condition, and what that gives."""
    verdict = report.verdict
    if verdict.fix:
        yield Field("Fix", verdict.fix, verdict.place)
    if verdict.condition:
        yield Field("", verdict.condition)
    if verdict.gain is not None:
        yield Field("Gain", gain(verdict.gain))


def gain(gained: Gain) -> str:
    """Return a gain: ``81.0 -> 117 samples/s (106 to 123)``."""
    if gained.after is None or gained.before is None:
        return "unknown"
    rates = f"{rate(gained.before)} -> {short_gain(gained)} {gained.unit}"
    if gained.low is None or gained.high is None:
        return rates
    none = ", perhaps none" if gained.low <= gained.before else ""
    return f"{rates} ({rate(gained.low)} to {rate(gained.high)}{none})"


def short_gain(gained: Gain) -> str:
    """Return the rate with a fix: ``117``, ``about 95``, ``at most 95``."""
    return f"{_AT_MOST.get(gained.kind, '')}{rate(gained.after)}"


def _stages(step: StepSummary, most: int) -> Bars:
    """Return the stages of the mean step, largest first; those that are hardly there as one.

    Args:
        most: How many rows.
    """
    total = sum(step.stages.values()) or 1.0
    on_gpu = step.gpu_stages or {}
    ordered = sorted(step.stages.items(), key=lambda stage: -stage[1])
    large = [(name, s) for name, s in ordered if s >= _SMALL * total or name in on_gpu]
    if len(large) > most:
        large = large[: most - 1]
    rest_s = total - sum(s for _, s in large)
    scale = Scale.of_seconds(max((s for _, s in ordered), default=0.0), digits=3)
    rows = [
        Bar(name, (*_figures(s, total, scale), *_gpu(on_gpu, name, scale)), s / total, family(name))
        for name, s in large
    ]
    if rest_s >= _SMALL * total:
        rows.append(Bar(_REST, _figures(rest_s, total, scale), rest_s / total))
    return Bars(tuple(rows), ("", "", "GPU") if on_gpu else ())


def _figures(s: float, total: float, scale: Scale) -> tuple[str, str]:
    return scale.full(s), percent(s / total)


def _gpu(on_gpu: dict[str, float], name: str, scale: Scale) -> tuple[str, ...]:
    return (scale.full(on_gpu[name]) if name in on_gpu else "",) if on_gpu else ()


def _ranks(report: Report) -> str:
    """Say which rank is shown, and how far the ranks' steps are apart; empty for one rank."""
    means = {rank: own.mean_s for rank, own in report.ranks.items() if own.mean_s}
    if len(means) < 2:
        return ""
    slowest, fastest = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    shown = min(report.ranks, key=lambda rank: int(rank) if rank.isdecimal() else 0)
    if report.shown is not None:
        shown = str(report.shown)
    return (
        f"Showing rank {shown}. The mean step takes {seconds(means[fastest])} on rank {fastest}, "
        f"{seconds(means[slowest])} on rank {slowest}."
    )


def _others(report: Report) -> tuple[tuple[str, ...], ...]:
    """Return other causes that ask for a change: name, how much of the step, what the fix gives."""
    top = leading(report.findings)
    asking = [
        finding
        for finding in report.findings
        if finding is not top and finding.severity is not Severity.INFO
    ]
    mean_s = report.step.mean_s if report.step else 0.0
    return tuple(_other(finding, mean_s) for finding in asking[:_OTHERS])


def _other(finding: Finding, mean_s: float) -> tuple[str, str, str]:
    gained = finding.gain
    then = "" if gained is None or gained.after is None else f"-> {short_gain(gained)}"
    return title(finding), _weight(finding, mean_s), then


def title(finding: Finding) -> str:
    """Return what a finding is called: its id in words."""
    return finding.rule_id.replace("_", " ")


def _weight(finding: Finding, mean_s: float) -> str:
    """Say where to change it, or else how much of the step it costs."""
    if finding.place:
        return finding.place
    if finding.cost_s > 0 and mean_s > 0:
        return f"{percent(min(1.0, finding.cost_s / mean_s))} of the step"
    return "a mistake in the set-up" if finding.cost_s <= 0 else ""


def places(rows: Sequence[tuple[str, str]]) -> Fields:
    """Return the lines that say where files are and what shows more."""
    return Fields(tuple(Field(label, text, copied=True) for label, text in rows))
