"""What the conclusion of a report is from, as blocks of a document.

A part that would say nothing is left out.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from feedline.analysis.explain import next_limit
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.order import findings_together
from feedline.analysis.ledger.finding import (
    COMPETES,
    CostKind,
    Finding,
    Gain,
    GainKind,
    Severity,
    predicted_gain,
)
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.measure.code_places import EVALUATION
from feedline.analysis.measure.model import GraphBreak, Loader, Workers
from feedline.analysis.measure.stages import INPUT_STAGES
from feedline.analysis.measure.step_model import OwnCode, StepSummary
from feedline.analysis.measure.user_code import UserCode
from feedline.analysis.ranks.communication import RankParts
from feedline.analysis.report import of_convergence, of_traces, phrases
from feedline.analysis.report.document import (
    Bar,
    Bars,
    Block,
    Field,
    Fields,
    Headline,
    Items,
    Note,
    Section,
    Table,
)
from feedline.analysis.report.figures.step_times import PART_LABELS, QUEUE_KEY
from feedline.analysis.report.json_report import plain
from feedline.analysis.report.palette import family
from feedline.analysis.report.phrases import full_stop
from feedline.analysis.rules import BY_ID
from feedline.analysis.text.formatting import (
    BLANK,
    Scale,
    count,
    counted,
    rate,
    seconds,
    share,
    share_range,
    size,
    value,
)
from feedline.analysis.traces import kernel_names

_KINDS_OF_GAIN = {
    GainKind.ABOUT: "about ",
    GainKind.AT_LEAST: "at least ",
    GainKind.AT_MOST: "at most ",
}
_FASTER = "The rest of the step gets faster too."
_FREED = "The CPU time that this frees makes the rest faster too."
_FREE = 0.25  # of the CPUs: where more are free, the rest does not wait for one
_ABOVE = 1.1  # times what a step without input allows: below, it is within the errors
_RANKS = 8  # in the table of communication
_KERNELS = 5
_WORTH = 0.01  # of a step, from which on what would be different is told
_LONGEST_KERNEL = 40  # characters
_TONES = {"high": "bad", "low": "unsure"}


def _rates(gained: Gain) -> str:
    """Return the rates before and after: ``81.0 -> 117 samples/s (106 to 123)``."""
    if gained.after is None or gained.before is None:
        return "unknown"
    both = f"{rate(gained.before)} -> {rate_after(gained)} {gained.unit}"
    if gained.low is None or gained.high is None:
        return both
    none = ", perhaps no gain" if gained.low <= gained.before else ""
    return f"{both} ({rate(gained.low)} to {rate(gained.high)}{none})"


def rate_after(gained: Gain) -> str:
    """Return the rate with a fix: ``117``, ``about 95``, ``at least 95``."""
    return f"{_KINDS_OF_GAIN.get(gained.kind, '')}{rate(gained.after)}"


def _gain(finding: Finding, report: Report) -> str:
    """Say what a fix gives, how that is known and what it supposes; empty if that is unknown."""
    gained = finding.gain
    if gained is None or gained.after is None:
        return finding.gives
    both = _rates(gained)
    if gained.kind is GainKind.PREDICTED:
        supposed = " ".join(filter(None, (both, predicting(finding))))
        return f"{supposed}{next_limit.beyond(finding, report)}"
    if gained.kind is GainKind.AT_MOST:
        return f"{both} (upper bound, not a prediction)"
    if gained.kind is GainKind.AT_LEAST:
        return f"{both} {_supposing(finding)} (a lower bound: more of its time was not measured)"
    more = f", or more because {COMPETES}" if finding.cost_kind is CostKind.OR_MORE else ""
    return f"{both} {_supposing(finding)} (an estimate from its share of the time{more})"


def gains(report: Report) -> Sequence[str]:
    """Return what the verdict's fix gives, in lines; empty: that is not known."""
    verdict = report.verdict
    if verdict.gain is None:
        return [verdict.gives] if verdict.gives else []
    exceeds = _exceeds_input(report, verdict.gain)
    supposed = _supposed(verdict.gain, report, exceeds)
    told = " ".join(filter(None, (_rates(verdict.gain), supposed)))
    return [told, _FREED if _cpus_are_full(report) else _FASTER] if exceeds else [told]


def _exceeds_input(report: Report, gained: Gain) -> bool:
    """Return whether a change of the input gives more than a step without any input would."""
    rule, step = BY_ID.get(report.verdict.finding), report.step
    if rule is None or not rule.of_input or step is None or not gained.before or not gained.after:
        return False
    rest = 1 - sum(step.stages.get(name, 0.0) for name in INPUT_STAGES) / step.mean_s
    return rest * gained.after > _ABOVE * gained.before


def _cpus_are_full(report: Report) -> bool:
    """Tell whether hardly a CPU was free while the steps ran: what is spared helps the rest then."""
    use = report.cpus
    return use is not None and use.free is not None and use.free < _FREE * use.allowed


def _supposed(gained: Gain, report: Report, exceeds: bool) -> str:
    """Return what a gain supposes; empty: that its fix is made, or that the cost is gone.

    Args:
        exceeds: a sentence of its own says what an estimate supposes.
    """
    first = next((one for one in report.findings if one.rule_id == report.verdict.finding), None)
    if first is not None and gained.kind is GainKind.PREDICTED:
        return predicting(first)
    if first is None or exceeds or gained.kind is not GainKind.ABOUT:
        return ""
    supposing = _supposing(first)
    return "" if supposing == Rule.supposing else supposing


def predicting(finding: Finding) -> str:
    """Return what a prediction of its gain supposes; empty: its fix, as it stands."""
    rule = BY_ID.get(finding.rule_id)
    return "" if rule is None or finding.names_known_call else rule.predicting


def _supposing(finding: Finding) -> str:
    """Return what an estimate of its gain supposes.

    The cost of a known call is what its fix saves, which may not be all that it takes.
    """
    rule = BY_ID.get(finding.rule_id)
    if rule is None:
        return ""
    return Rule.supposing if finding.names_known_call else rule.supposing


def gain_or_why(finding: Finding, report: Report) -> str:
    """Return the throughput with the fix and, where it is not predicted, why.

    It is empty if the finding costs no time or asks for no change.
    """
    told = _gain(finding, report)
    asks = (
        finding.severity is not Severity.INFO
        and finding.cost_s > 0
        and finding.cost_kind is not CostKind.PREDICTED
    )
    why = finding.refused if asks and finding.predicted is None else ""
    if told:
        return f"{full_stop(told)} {why}".rstrip()
    return f"Not predicted. {why}" if why else ""


def together(report: Report) -> tuple[str, str] | None:
    """Return a heading, and the throughput with several fixes at once.

    None where that is not predicted.
    """
    findings = findings_together(report.findings)
    if report.together is None or len(findings) < 2:
        return None
    named = [finding.rule_id for finding in findings]
    told = (
        f"{_rates(predicted_gain(report.together))}{next_limit.beyond_together(findings, report)}"
    )
    supposed = [f" ({one.rule_id}: {predicting(one)})" for one in findings if predicting(one)]
    return "Fixes", f"{', '.join(named[:-1])} and {named[-1]} together: {told}{''.join(supposed)}"


def details(report: Report) -> Iterator[Block]:
    """Yield what the conclusion is from, without the lines that say where files are."""
    if report.step and report.step.boundary != "none":
        yield Note(" · ".join([*phrases.pace(report), phrases.steps(report.throughput)]))
    if said := phrases.ranks(report):
        yield Note(said)
    for title, blocks in _parts(report):
        if shown := list(blocks):
            yield Section(title)
            yield from shown


def _parts(report: Report) -> Iterator[tuple[str, Iterable[Block]]]:
    """Yield the title and the blocks of each part, from the step to the notes."""
    if report.step:
        yield phrases.step_title(report.step), _step(report.step)
        yield "The whole run", _whole_run(phrases.run_parts(report.ledger))
        for own, title, mean_s in phrases.own_codes(report.step):
            yield title, _own_code(own, mean_s)
    if report.user_code and report.user_code.functions:
        yield "Your code", _user_code(report.user_code)
    if report.step:
        yield phrases.waits_title(report), _waits(report.step, phrases.waits(report))
    if report.traces:
        yield "Device and input, rank by rank", _traces(report)
    elif report.workers:
        in_worker = " in a worker" if report.workers.processes else ""
        yield f"One sample{in_worker}", _samples(report.workers)
        yield "Operations", _operations(report.workers)
    yield "Loaders", map(_loader, report.loaders)
    if report.cpus and report.cpus.own is not None:
        yield "CPUs", (Note(phrases.cpus(report.cpus)),)
    if report.roofline:
        yield "Roofline", (Note(phrases.roofline(report.roofline)),)
    yield "Graph breaks of torch.compile", _graph_breaks(report.graph_breaks)
    yield "Communication", _communication(report)
    yield "Convergence", _convergence(report)
    yield "Findings", _findings(report)
    refused = phrases.refused_that_matter(report.hooks)
    yield "Hooks that could not be attached", _items(f"{hook.name}: {hook.why}" for hook in refused)
    yield "Notes", _items(report.notes)


def _graph_breaks(breaks: Sequence[GraphBreak]) -> Iterator[Block]:
    """Yield the lines at which graphs ended, and why; what that costs is not known."""
    if breaks:
        rows = (
            (one.place or "a library", one.function, count(one.times), one.reason) for one in breaks
        )
        yield Table(
            tuple(rows), ("line", "function", "compilations", "reason"), right=frozenset((2,))
        )


def _items(rows: Iterable[str]) -> Iterator[Items]:
    """Yield a list; nothing without rows."""
    if listed := tuple(rows):
        yield Items(listed)


def _figures(rows: Iterable[tuple[str, ...]], heads: Sequence[str], names: int = 1) -> Table:
    """Return a table whose first columns are names, and the others figures."""
    return Table(tuple(rows), tuple(heads), right=frozenset(range(names, len(heads))))


def _step(step: StepSummary) -> Iterator[Block]:
    """Yield the stages of the mean step with their sum, and how much steps differ."""
    total = math.fsum(step.stages.values())
    scale = Scale.column(max(total, step.mean_s))
    on_gpu = {stage: scale(s) for stage, s in (step.gpu_stages or {}).items()}
    bars = []
    for stage, s in step.stages.items():
        part = s / total if total > 0 else 0.0
        figures = (scale(s), share(part) if total > 0 else BLANK, on_gpu.get(stage, ""))
        bars.append(Bar(stage, figures if on_gpu else figures[:2], part, family(stage)))
    bars.append(Bar("sum", (scale(total), share(1.0) if total > 0 else BLANK), 0.0))
    yield Bars(tuple(bars), (scale.unit, "share", *["GPU span"] * bool(on_gpu)))
    yield Note(_spread(step))


def _spread(step: StepSummary) -> str:
    """Return how much steps differ, and where they are cut."""
    cut = phrases.BOUNDARIES.get(step.boundary, step.boundary)
    if step.boundary == "none":
        return cut
    return " · ".join([f"median {seconds(step.median_s)}", f"p95 {seconds(step.p95_s)}", cut])


def _whole_run(parts: Sequence[tuple[str, float, float]]) -> Iterator[Table]:
    """Yield where the time of the run went.

    Args:
        parts: (what, seconds, share from 0 to 1) of each part.
    """
    if parts:
        scale = Scale.column(max(took for _, took, _ in parts))
        rows = ((what, scale(took), share(part)) for what, took, part in parts)
        yield _figures(rows, ("", scale.unit, "share"))


def _own_code(own: OwnCode, mean_s: float | None) -> Iterator[Block]:
    """Yield functions and lines outside the stages.

    Args:
        mean_s: of the step; None: the figures are totals.
    """
    scale = Scale.column(own.s)
    rows = []
    for function in own.functions:
        mainly = f", mostly in {function.mainly}" if function.mainly else ""
        of_step = (share(function.s / mean_s),) if mean_s else ()
        rows.append((f"{function.name}{mainly}", scale(function.s), *of_step))
    heads = ("function, or lines between two recorded calls", scale.unit, "share")
    yield _figures(rows, heads if mean_s else heads[:2])
    yield Note(phrases.full_stop(phrases.own_code(own)))


def _user_code(code: UserCode) -> Iterator[Block]:
    """Yield the program's functions, each below the one that calls it."""
    rows: list[tuple[str, ...]] = []
    place = None
    for function in code.functions:
        if place != (function.kind, function.place):
            place = (function.kind, function.place)
            rows.append((f"{function.place}, {function.kind}",))
        rows.append(
            (
                f"{'  ' * function.depth}{function.function}",
                f"{function.file}:{function.line}",
                share(function.share),
                share_range(function.low, function.high),
            )
        )
    yield _figures(rows, ("function", "line that takes most", "share", "95 % interval"), names=2)
    making = f"Shares of making a sample ({counted(code.making_samples, 'stack')})"
    stacks = counted(code.step_samples, "stack")
    if any(function.place == EVALUATION for function in code.functions):
        yield Note(
            f"{making}, of the step, or, for evaluation, of both together ({stacks} of the main "
            "process)."
        )
    else:
        yield Note(f"{making}, or of the step ({stacks}).")
    for why in code.refused:
        yield Note(f"Not sampled: {why}.")


def _waits(step: StepSummary, meaning: Mapping[str, str]) -> Iterator[Table]:
    """Yield why the main process waited for a batch.

    Args:
        meaning: of each kind.
    """
    total = sum(step.waits.values())
    if total <= 0:
        return
    scale = Scale.column(total)
    rows = tuple(
        (kind, scale.full(s), share(s / total), meaning.get(kind, ""))
        for kind, s in step.waits.items()
        if s > 0
    )
    yield Table(rows, right=frozenset({1, 2}))


def _samples(workers: Workers) -> Iterator[Block]:
    """Yield what a sample costs, stage by stage."""
    if not workers.per_sample:
        yield Note(phrases.NO_SAMPLES)
        return
    scale = Scale.column(max(cost.wall_s for cost in workers.per_sample.values()))
    rows = []
    for name, _, cost, nbytes in phrases.sample_table(workers):
        times = map(scale, (cost.wall_s, cost.cpu_s, cost.runqueue_s, cost.blocked_s))
        rows.append((name, *times, BLANK if nbytes is None else size(nbytes)))
    yield _figures(
        rows, ("stage", f"wall {scale.unit}", "CPU", "waiting for CPU", "blocked", "bytes")
    )
    yield Note(" · ".join(phrases.workers(workers)))


def _operations(workers: Workers) -> Iterator[Table]:
    """Yield the operations inside a sample, the slowest first."""
    if not workers.operations:
        return
    ordered = sorted(workers.operations, key=lambda operation: -operation.wall_s)
    scale = Scale.of_seconds(ordered[0].wall_s, digits=3)
    rows = (
        (
            operation.name,
            operation.stage,
            scale(operation.wall_s),
            scale(operation.cpu_s),
            count(operation.calls),
        )
        for operation in ordered
    )
    heads = ("operation, per sample", "stage", f"wall {scale.unit}", "CPU", "calls")
    yield _figures(rows, heads, names=2)


def _loader(loader: Loader) -> Headline:
    """Return a loader and its settings."""
    facts = [
        f"{loader.kind}, {loader.role}",
        counted(loader.batches, "batch"),
        counted(loader.samples, "sample"),
    ]
    if loader.batch_bytes is not None:
        facts.append(f"{size(loader.batch_bytes)} per batch")
    if loader.pickle_bytes is not None:
        facts.append(f"{size(loader.pickle_bytes)} pickled")
    if loader.first_batch_s is not None:
        facts.append(f"first batch after {seconds(loader.first_batch_s)}")
    settings = ", ".join(
        f"{name}={json.dumps(plain(setting), ensure_ascii=False)}"
        for name, setting in loader.settings.items()
    )
    return Headline(f"{loader.name}: {' · '.join([*facts, *loader.flags])}", settings)


def _traces(report: Report) -> Iterator[Block]:
    """Yield the device and the input of each rank, and why cells are blank."""
    if report.traces:
        yield Note(f"Figures cover {report.traces.basis}.")
    yield _trace_table(report)
    yield from (Note(f"{BLANK} {why}") for why in of_traces.reasons(report))
    for note in report.traces.budget_notes if report.traces else ():
        yield Note(phrases.sentence(note))
    yield from _items(_kernels(report))


def _trace_table(report: Report) -> Block:
    """Return the device and input of the ranks.

    A column that is blank for all of them is left out, and without any it says why.
    """
    rows = of_traces.rows(report, narrow=True)
    heads = of_traces.heads(narrow=True)
    told = [at for at in range(len(heads)) if any(cells[at] != BLANK for _, cells in rows)]
    if not told:
        why = of_traces.reasons(report)[:1] or ["the traces hold no device and no loader"]
        return Note(f"Not measured: {why[0]}.")
    shown = ((rank, *(cells[at] for at in told)) for rank, cells in rows)
    return _figures(shown, ("rank", *(heads[at] for at in told)))


def _kernels(report: Report) -> Iterator[str]:
    """Yield the kernels that keep the device busy longest, of the rank that is shown."""
    for row in report.traces.kernels[:_KERNELS] if report.traces else ():
        operator = (
            f" ({row.operator})"
            if row.operator
            else " (communication)"
            if row.communication
            else ""
        )
        name = kernel_names.fitting_name(row.name, _LONGEST_KERNEL)
        yield f"{share(row.busy_share)} of busy time: {name}{operator}"


def _communication(report: Report) -> Iterator[Block]:
    if not report.comm:
        return
    shown, left_out = phrases.ranks_to_show(report, _RANKS)
    if shown:
        yield _ranks(shown)
    if left_out:
        yield Note(f"{left_out} more ranks are in the JSON report.")
    yield Note(" ".join(phrases.communication(report)))
    yield from _items(_replayed(report))
    answers = report.comm.what_if
    if answers and answers[0].step_s is None:
        yield Note(f"No predictions: {answers[0].why}.")


def _ranks(shown: Mapping[str, RankParts]) -> Table:
    """Return the computing, transfer and waiting of these ranks.

    There is a column for queueing, which is rare, where there is any.
    """
    scale = Scale.column(
        max(getattr(own, part) or 0.0 for own in shown.values() for part in PART_LABELS)
    )
    names = {
        part: name
        for part, (_, name, _) in PART_LABELS.items()
        if part != QUEUE_KEY or any(own.queue_s for own in shown.values())
    }
    rows = ((rank, *(scale(getattr(own, part)) for part in names)) for rank, own in shown.items())
    return _figures(rows, (f"rank, {scale.unit}", *names.values()))


def _replayed(report: Report) -> Iterator[str]:
    """Yield the step with other settings, where that would tell; first as recorded."""
    answers = report.comm.what_if if report.comm else []
    worth = [
        one
        for one in answers[1:]
        if one.step_s is not None and phrases.tells(one) and abs(one.gain_s) >= _WORTH * one.step_s
    ]
    if worth and answers[0].step_s is not None:
        # its steps are not quite those of the mean: gains are against this
        yield f"{answers[0].what}, replayed: {seconds(answers[0].step_s)} per step"
    for one in worth:
        known = one.low is not None and one.high is not None
        between = f" ({seconds(one.low)} to {seconds(one.high)})" if known else ""
        yield f"predicted with {one.what}: {seconds(one.step_s)} per step{between}"


def _convergence(report: Report) -> Iterator[Block]:
    yield from map(Note, of_convergence.sentences(report))
    yield from _items(of_convergence.mistakes(report))


def _findings(report: Report) -> Iterator[Block]:
    for number, finding in enumerate(report.findings, 1):
        yield from _finding(number, finding, report)
    if gains := together(report):
        yield Note(": ".join(gains))


def _finding(number: int, finding: Finding, report: Report) -> Iterator[Block]:
    """Yield a finding: what it costs, what it says, what it is from, its fix and its check."""
    severity = finding.severity.value
    cost = phrases.cost(finding, report.step.mean_s if report.step else None)
    said = " ".join(map(phrases.full_stop, [finding.message, *finding.more]))
    head = f"{number}. {severity.upper()}  {finding.rule_id}"
    yield Headline(f"{head}  {cost}" if cost else head, said, _TONES.get(severity, ""))
    seen = [f"{one.what}: {value(one.value, one.unit)}" for one in finding.evidence]
    rows = [
        *(Field("" if at else "Seen", text) for at, text in enumerate(seen)),
        Field("Fix", phrases.whole_fix(finding)),
        Field("Gain", gain_or_why(finding, report)),
        Field("Check", finding.how_to_check),
    ]
    if shown := tuple(row for row in rows if row.text):
        yield Fields(shown, indented=True)
