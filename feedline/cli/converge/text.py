"""The advice as a document: what to do first, then the evidence under each sentence."""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from feedline.analysis.convergence import curves
from feedline.analysis.convergence.advice import Advice, is_written
from feedline.analysis.convergence.advisor import Advised
from feedline.analysis.convergence.curves import TRAIN
from feedline.analysis.convergence.loss_kinds import LossKind, LossVerdict
from feedline.analysis.convergence.target import DOUBT
from feedline.analysis.convergence.training_record import TimeToTarget, TrainingRecord
from feedline.analysis.ledger.finding import Finding, Severity, advice
from feedline.analysis.report.document import (
    Block,
    Document,
    Field,
    Fields,
    Headline,
    Items,
    Note,
    Section,
    Table,
)
from feedline.analysis.report.phrases import full_stop
from feedline.analysis.text.formatting import BLANK, count, counted, number, seconds, sentence
from feedline.profiler.printable import printable_in

#: Of a run and its reference: what is different, and the name of that.
_VERDICT_WORDS = {
    LossKind.DEFICIT: (
        "{run} fits the training data less well than {reference}",
        "optimization deficit",
    ),
    LossKind.LAG: (
        "The running statistics of batch norm lag behind the weights in {run}",
        "statistics lag",
    ),
    LossKind.GAP: (
        "{run} fits the training data as well as {reference}, but held-out data less well",
        "generalization gap",
    ),
    LossKind.INSTABILITY: ("The loss of {run} spiked or diverged", "instability"),
    LossKind.HEALTHY: ("{run} does not differ from {reference} beyond the noise", "healthy"),
    LossKind.UNKNOWN: ("Whether the batch of {run} costs accuracy is unknown", ""),
}


@dataclass(frozen=True)
class TimesToTarget:
    """Time to a target by number of ranks, from the curve of ``run``."""

    name: str
    value: float
    run: str
    rows: list[TimeToTarget]


def document_of(
    runs: Sequence[TrainingRecord], advised: Advised, times: TimesToTarget | None
) -> Document:
    """Return what to do first, then the runs and what the advice is from."""
    return Document(tuple(_blocks(printable_in(runs), printable_in(advised), printable_in(times))))


def _blocks(
    runs: Sequence[TrainingRecord], advised: Advised, times: TimesToTarget | None
) -> Iterator[Block]:
    yield from _conclusion(advised)
    yield _runs(runs)
    yield Section("Setup")
    for name, finding in advised.findings:
        yield from _finding(len(runs) > 1, name, finding)
    if not advised.findings:
        yield Note("No mistake found.")
    if advised.stopped:
        return
    if advised.verdicts:
        yield Section("Diagnosis")
        yield Items(tuple(map(_verdict, advised.verdicts)))
    yield Section("Batch size")
    yield from map(Note, _price(advised))
    if advised.advice:
        yield Section("To try, cheapest first")
    diagnosed = {verdict.message for verdict in advised.verdicts}
    for n, one in enumerate(advised.advice, 1):
        yield from _advice(n, one, diagnosed)
    if times is not None:
        yield Section(f"Time to {times.name} = {number(times.value)}, from {times.run}")
        yield from _target(times)
    if advised.needs:
        yield Items(tuple(advised.needs), "To get a better answer, record")


def _conclusion(advised: Advised) -> Iterator[Block]:
    """Yield what to do first, what it would give, and the line that tries it if there is one."""
    if advised.stopped:
        yield Headline(
            "Fix the setup first; until then all other numbers reflect the misconfiguration, "
            "and nothing else is advised."
        )
        return
    if not advised.advice:
        yield Headline(_without_advice(advised))
        return
    first = advised.advice[0]
    gain = f"Expected gain: {first.gain}." if first.gain else ""
    yield Headline(f"Try first: {first.what}.", gain)
    if first.verify:
        yield Fields((Field("Test", first.verify, copied=True),), indented=True)


def _without_advice(advised: Advised) -> str:
    if any(finding.severity is not Severity.INFO for _, finding in advised.findings):
        return "Fix what is wrong with the setup first."
    if all(verdict.kind == LossKind.HEALTHY for verdict in advised.verdicts):
        return "No change needed: the batch size is not too large."
    return "No advice possible from what was recorded."


def _runs(runs: Sequence[TrainingRecord]) -> Table:
    rows = []
    for run in sorted(runs, key=lambda run: run.batch or 0.0):
        last = curves.final_value_of(TRAIN, run.curves[TRAIN]) if TRAIN in run.curves else None
        rows.append(
            (
                run.name,
                count(run.batch) if run.batch else BLANK,
                str(run.ranks),
                count(round(run.samples)) if run.samples_known else BLANK,
                count(run.updates),
                number(last) if last is not None else BLANK,
            )
        )
    heads = ("run", "batch", "ranks", "samples", "updates", TRAIN)
    return Table(tuple(rows), heads, right=frozenset(range(1, len(heads))))


def _finding(several: bool, name: str, finding: Finding) -> Iterator[Block]:
    of_run = f" ({name})" if several else ""
    yield Headline(
        f"{finding.severity.value.upper()}  {finding.rule_id}{of_run}",
        " ".join(map(full_stop, (finding.message, *finding.more))),
    )
    yield Fields(
        (
            Field("Fix", " ".join([advice(finding), *finding.fix_more])),
            Field("Check", finding.how_to_check),
        ),
        indented=True,
    )


def _verdict(verdict: LossVerdict) -> str:
    words, name = _VERDICT_WORDS[verdict.kind]
    said = words.format(run=verdict.run, reference=verdict.reference)
    kind = f" ({name})" if name else ""
    return f"{'Suspected: ' * verdict.suspected}{said}{kind}. {sentence(verdict.message)}."


def _price(advised: Advised) -> Iterator[str]:
    if advised.price is None:
        yield "Unknown: samples per update were not recorded."
        return
    yield f"{sentence(advised.price.message)}."
    if advised.noise.value is not None or advised.noise.low is not None:
        yield f"{DOUBT}."


def _advice(n: int, advice: Advice, diagnosed: Container[str]) -> Iterator[Block]:
    """Yield one piece of advice.

    What was said above is left out: the command that tries the first, and the diagnosis.
    """
    rows = (
        *_fix(advice.fix),
        Field("Gain", advice.gain),
        Field("Control", advice.control),
        Field("Test", advice.verify if n > 1 else "", copied=True),
    )
    why = "" if advice.why in diagnosed else full_stop(advice.why)
    yield Headline(f"{n}. {sentence(advice.what)}", why)
    yield Fields(tuple(row for row in rows if row.text), indented=True)


def _fix(name: str) -> Iterator[Field]:
    if name and is_written(name):
        yield Field("Fix", f"feedline run --fix {name} SCRIPT", copied=True)
        yield Field("", "prints the lines to add to the program")
    elif name:
        yield Field("Fix", f"--fix {name}", copied=True)


def _target(times: TimesToTarget) -> Iterator[Block]:
    rows = [row for row in times.rows if row.updates is not None]
    if rows:
        first = next((row for row in rows if row.time_s), None)
        heads = ("ranks", "batch", "updates", "band", "time", "band", "faster")
        cells = tuple(_target_cells(row, first) for row in rows)
        yield Table(cells, heads, right=frozenset(range(len(heads))))
    if reasons := dict.fromkeys(
        f"{counted(row.workers, 'rank')}: {row.why}" for row in times.rows if row.why
    ):
        yield Items(tuple(reasons))


def _target_cells(row: TimeToTarget, first: TimeToTarget | None) -> tuple[str, ...]:
    faster = row.time_s and first and first.time_s and first.time_s / row.time_s
    return (
        str(row.workers),
        count(row.batch),
        count(round(row.updates or 0)),
        _band(row.updates_low, row.updates_high, lambda updates: count(round(updates))),
        seconds(row.time_s) if row.time_s else BLANK,
        _band(row.low_s, row.high_s, seconds),
        f"{faster:.2f}x" if faster else BLANK,
    )


def _band(low: float | None, high: float | None, shown: Callable[[float], str]) -> str:
    """Return a band's ends as they are shown; without an upper end, what it has at least."""
    if low is None:
        return BLANK
    return f"{shown(low)} or more" if high is None else f"{shown(low)} to {shown(high)}"
