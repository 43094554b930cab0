"""The advice in the terminal: the evidence under each sentence, and last what to do first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedline.analysis.convergence import curves
from feedline.analysis.convergence.advisor import Advice, Advised, is_written
from feedline.analysis.convergence.batch_cost import DOUBT
from feedline.analysis.convergence.curves import TRAIN, VERDICT_WORDS, LossKind, Verdict
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.convergence.training_series import TimeToTarget
from feedline.analysis.formatting import BLANK, count, counted, number, seconds, sentence
from feedline.analysis.ledger.finding import Finding, Severity, advice
from feedline.analysis.report.console import Console
from feedline.analysis.report.document_text import plain
from feedline.analysis.report.tables import SEVERITY_COLORS, columns
from feedline.profiler.printable import printable_in

_MAX_WIDTH = 80


@dataclass(frozen=True)
class TimesToTarget:
    """Time to a target by number of ranks, from the curve of ``run``."""

    name: str
    value: float
    run: str
    rows: list[TimeToTarget]


def show(
    runs: Sequence[TrainingRecord], advised: Advised, times: TimesToTarget | None, console: Console
) -> None:
    """Print the advice, at most 80 columns wide."""
    for part in _parts(printable_in(runs), printable_in(advised), printable_in(times)):
        console.print(part, width=min(_MAX_WIDTH, console.width))


def _parts(
    runs: Sequence[TrainingRecord], advised: Advised, times: TimesToTarget | None
) -> Iterator[RenderableType]:
    yield _runs(runs)
    mistakes = [
        part
        for name, finding in advised.findings
        for part in _finding(len(runs) > 1, name, finding)
    ]
    yield from _section("Set-up", mistakes or [plain("no mistake found")])
    if not advised.stopped:
        yield from _section("Diagnosis", [_verdict(verdict) for verdict in advised.verdicts])
        yield from _section("Batch size", list(_price(advised)))
        yield from _section(
            "To try, cheapest first",
            [part for n, advice in enumerate(advised.advice, 1) for part in _advice(n, advice)],
        )
        if times is not None:
            yield from _section(
                f"Time to {times.name} = {number(times.value)}, from {times.run}",
                list(_target(times)),
            )
        yield from _section(
            "To get a better answer, record", [_item(need) for need in advised.needs]
        )
    yield Text()
    yield from (plain(line, "bold") for line in _conclusion(advised))


def _conclusion(advised: Advised) -> list[str]:
    """Return what to do first, what it would give, and the line that tries it if there is one."""
    if advised.stopped:
        return [
            "Fix this first; until then all other numbers reflect the misconfiguration, and "
            "nothing else is advised."
        ]
    if not advised.advice:
        if any(finding.severity is not Severity.INFO for _, finding in advised.findings):
            return ["Fix what is wrong with the set-up first."]
        healthy = all(verdict.kind == LossKind.HEALTHY for verdict in advised.verdicts)
        return [
            "No change needed: the batch size is not too large."
            if healthy
            else "No advice possible from what was recorded."
        ]
    first = advised.advice[0]
    gain = f" Expected gain: {first.gain}." if first.gain else ""
    return [f"Try first: {first.what}.{gain}", *([first.verify] if first.verify else [])]


def _section(title: str, parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    """Return a heading and the parts under it; nothing without parts."""
    if not parts:
        return
    yield Text()
    yield Text(title, style="bold underline")
    yield from parts


def _item(text: str) -> Padding:
    return Padding(plain(f"- {text}"), 0)


def _runs(runs: Sequence[TrainingRecord]) -> Table:
    table = columns("run", "batch", "ranks", "samples", "updates", TRAIN, gap=2)
    for run in sorted(runs, key=lambda run: run.batch or 0.0):
        last = curves.final_value_of(TRAIN, run.curves[TRAIN]) if TRAIN in run.curves else None
        samples = count(round(run.samples)) if run.samples_known else BLANK
        cells = [
            count(run.batch) if run.batch else BLANK,
            str(run.ranks),
            samples,
            count(run.updates),
        ]
        table.add_row(plain(run.name), *cells, number(last) if last is not None else BLANK)
    return table


def _finding(several: bool, name: str, finding: Finding) -> Iterator[RenderableType]:
    head = Text.assemble(
        (f"{finding.severity.value} ", SEVERITY_COLORS[finding.severity.value]),
        (f"{finding.rule_id} ", "bold"),
    )
    yield Text.assemble(head, plain(f"{name}: " if several else ""), plain(finding.message))
    if finding.more:
        yield _under("because", ". ".join(map(sentence, finding.more)))
    yield _under("fix", " ".join([advice(finding), *finding.fix_more]))
    yield _under("how to check", finding.how_to_check)


def _under(label: str, text: str) -> Padding:
    return Padding(Text.assemble((f"{label}: ", "dim"), plain(text)), (0, 0, 0, 2))


def _verdict(verdict: Verdict) -> Text:
    who = f"{verdict.run} compared with {verdict.reference}" if verdict.reference else verdict.run
    maybe = "suspected " if verdict.suspected else ""
    return Text.assemble(
        plain(f"{who}: "),
        (maybe, "yellow"),
        plain(VERDICT_WORDS[verdict.kind], "bold"),
        plain(f". {sentence(verdict.message)}."),
    )


def _price(advised: Advised) -> Iterator[Text]:
    if advised.price is None:
        yield plain("unknown: samples per update were not recorded")
        return
    yield plain(f"{sentence(advised.price.message)}.")
    if advised.noise.value is not None or advised.noise.low is not None:
        yield plain(f"{DOUBT}.", "dim")


def _advice(n: int, advice: Advice) -> Iterator[RenderableType]:
    yield Text.assemble((f"{n}. ", "bold"), plain(sentence(advice.what), "bold"))
    if advice.fix:
        how = (
            f"`feedline run --fix {advice.fix} SCRIPT` prints the lines to add to the program"
            if is_written(advice.fix)
            else f"--fix {advice.fix}"
        )
        yield _under("fix", how)
    yield _under("why", advice.why)
    if advice.gain:
        yield _under("expected gain", advice.gain)
    yield _under("control", advice.control)
    if advice.verify:
        yield _under("verify", advice.verify)


def _target(times: TimesToTarget) -> Iterator[RenderableType]:
    rows = [row for row in times.rows if row.updates is not None]
    if rows:
        table = columns("ranks", "batch", "updates", "band", "time", "band", "faster", gap=1)
        first = next((row for row in rows if row.time_s), None)
        for row in rows:
            faster = (
                f"{first.time_s / row.time_s:.2f}x"
                if first and first.time_s and row.time_s
                else BLANK
            )
            cells = [
                count(round(row.updates or 0)),
                _band(row.updates_low, row.updates_high),
                seconds(row.time_s) if row.time_s else BLANK,
            ]
            band = (
                f"{seconds(row.low_s)} {BLANK} {seconds(row.high_s)}"
                if row.low_s is not None and row.high_s is not None
                else BLANK
            )
            table.add_row(str(row.workers), count(row.batch), *cells, band, faster)
        yield table
    for why in dict.fromkeys(
        f"{counted(row.workers, 'rank')}: {row.why}" for row in times.rows if row.why
    ):
        yield _item(why)


def _band(low: float | None, high: float | None) -> str:
    return (
        BLANK
        if low is None or high is None
        else f"{count(round(low))} {BLANK} {count(round(high))}"
    )
