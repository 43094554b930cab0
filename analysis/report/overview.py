"""Several trainings of one run side by side: a row each, and where the report of each lies."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import escape

from feedline.analysis import report as reports
from feedline.analysis.explain.headline import how
from feedline.analysis.explain.model import Report, Verdict
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.report import document_markdown, document_text, page, phrases
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Document, Note, Table, Title
from feedline.analysis.report.document_text import WIDTH
from feedline.analysis.report.json_report import plain as as_json
from feedline.analysis.report.terminal import first_screen, render
from feedline.analysis.report.terminal import show as show_terminal
from feedline.analysis.text.formatting import BLANK, count, duration, number, seconds
from feedline.profiler.message import few
from feedline.profiler.printable import printable_in

_SCHEMA_VERSION = 1
_TEXT = "text"
# format -> ending of a file of it
_ENDING_OF = {"markdown": ".md", "json": ".json", "html": ".html"}
_SHOWN = 12  # trainings in the terminal; more are in the files


@dataclass(frozen=True)
class Row:
    """One training.

    Attributes:
        name: short, unique in the run: "1".
        report: path of its HTML report, relative to the run folder; empty where it has none.
        epochs: None where the loader's length is unknown.
        rule_id: of the finding that its verdict tells; "" where there is none.
        message: its verdict.
        fix: what to change, with its line; empty: nothing is known.
    """

    name: str
    report: str
    model: str
    optimizer: str
    steps: int
    samples: int
    epochs: float | None
    samples_per_s: float | None
    steps_per_s: float | None
    duration_s: float
    evaluation_s: float
    state: str
    exit_code: int | None
    ended_by: str
    rule_id: str = field(metadata={"key": "cause"})
    message: str = field(metadata={"key": "says"})
    fix: str = ""


@dataclass(frozen=True)
class Outside:
    """The time that is in no training.

    It goes to imports, preparing data, evaluation by what does not call the model.

    Attributes:
        before_s: from the start of the recording to the first training.
        between_s: from the end of each training to the beginning of the next.
        after_s: from the end of the last training to the end of the recording.
        whole_s: the whole recording.
    """

    before_s: float
    between_s: list[float]
    after_s: float
    whole_s: float


@dataclass(frozen=True)
class Overview:
    """All trainings of a run.

    Attributes:
        name: of the run.
        command: masked argv.
        rows: the trainings, in order.
        outside: None where the trainings are those of several processes.
        notes: what else a reader has to know.
    """

    name: str
    command: list[str]
    rows: list[Row]
    outside: Outside | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What is said below the table."""
        return [
            *(_time_outside(self.outside, self.rows) if self.outside is not None else []),
            *self.notes,
        ]


def row(name: str, report: Report, path: Path | None) -> Row:
    """Return a training's row.

    Args:
        path: of its report, relative to the run folder; None: it has none.
    """
    made, pace = report.convergence, report.throughput
    per_epoch = made.samples_per_epoch if made is not None else None
    return Row(
        name=name,
        report=str(path or ""),
        model=report.run.model,
        optimizer=report.run.optimizer,
        steps=pace.steps,
        samples=pace.samples,
        epochs=made.samples / per_epoch
        if made is not None and made.samples is not None and per_epoch
        else None,
        samples_per_s=pace.of_all_ranks,
        steps_per_s=pace.steps_per_s,
        duration_s=report.run.duration_s,
        evaluation_s=report.step.evaluation_s if report.step is not None else 0.0,
        state=report.run.state,
        exit_code=report.run.exit_code,
        ended_by=report.run.ended_by,
        rule_id=report.verdict.finding,
        message=str(report.verdict),
        fix=_fix(report.verdict),
    )


def _fix(verdict: Verdict) -> str:
    """Return what to change, as in ``Lower the learning rate (train.py:20)``."""
    if not verdict.fix:
        return ""
    where = phrases.where_and_if(verdict)
    return f"{verdict.fix.removesuffix('.')}{f' ({where})' if where else ''}."


_HEADS = ("training", "model", "optimizer", "steps", "epochs", "samples/s", "time", "main finding")
_NUMBERED = 4  # of the columns in the terminal, that of the first figure


def _cells(one: Row) -> list[str]:
    """Return a row as text, in the order of _HEADS."""
    return [
        one.name,
        one.model or BLANK,
        one.optimizer or BLANK,
        count(one.steps),
        BLANK if one.epochs is None else number(one.epochs),
        BLANK if one.samples_per_s is None else number(one.samples_per_s),
        duration(one.duration_s),
        one.rule_id or BLANK,
    ]


def _title(overview: Overview) -> str:
    """Return how many trainings there are."""
    return f"{len(overview.rows)} training runs"


def document_of(overview: Overview, alone: bool = True) -> Document:
    """Return a table, then what holds the trainings back.

    Args:
        alone: the report of each training is elsewhere; say where.
    """
    overview = printable_in(overview)
    rows = tuple(tuple(_cells(one)[:-1]) for one in overview.rows[:_SHOWN])
    heads = tuple(_HEADS[:-1])
    notes = []
    if left := len(overview.rows) - len(rows):
        where = "are in report.html and report.json" if alone else "are not in this table"
        notes.append(f"{left} more training runs {where}.")
    if alone and (pages := [one.report for one in overview.rows if one.report]):
        here = "; show one here with --part N" if overview.outside is not None else ""
        notes.append(f"Reports: {pages[0]} to {pages[-1]}{here}")
    return Document(
        (
            Title((overview.name, _title(overview))),
            Table(rows, heads, right=frozenset(range(_NUMBERED - 1, len(heads)))),
            *map(Note, (*notes, *_verdicts(overview.rows), *overview.lines)),
        )
    )


def _verdicts(rows: Sequence[Row]) -> list[str]:
    """Return what holds the trainings back, each cause once with the first training's figures.

    How they ended follows, where not well.
    """
    by_cause: dict[str, list[Row]] = {}
    for one in rows:  # without a finding, what is said differs
        by_cause.setdefault(one.rule_id or one.message, []).append(one)
    said = []
    for own in by_cause.values():
        rule_id = own[0].rule_id
        names = (
            f"Training {own[0].name}"
            if len(own) == 1
            else f"Training runs {few([one.name for one in own], _SHOWN)}"
        )
        of_first = f" (Showing training {own[0].name}.)" if len(own) > 1 else ""
        fix = f" Fix: {own[0].fix}" if own[0].fix else ""
        said.append(
            f"{names}{f' ({rule_id})' if rule_id else ''} – {own[0].message}{fix}{of_first}"
        )
    return [*said, *(f"Training {one.name} {ended}." for one in rows if (ended := _ending(one)))]


def _ending(one: Row) -> str:
    """Return how a training ended; empty where it came to its end."""
    return (
        "is still running" if one.state == "live" else how(one.state, one.exit_code, one.ended_by)
    )


def _render_text(overview: Overview, reports: Sequence[Report] = ()) -> str:
    """Return the overview as text, 80 columns wide.

    Args:
        reports: of the trainings, in order, to be in it.
    """
    file = io.StringIO()
    document_text.show(
        document_of(overview, alone=not reports),
        Console(file=file, width=WIDTH, color_system=None, force_terminal=False),
    )
    texts = [
        file.getvalue(),
        *(
            f"\n{'=' * WIDTH}\nTraining {one.name}\n\n{render(made)}"
            for one, made in zip(overview.rows, reports)
        ),
    ]
    return "".join(f"{line.rstrip()}\n" for text in texts for line in text.splitlines())


def render_json(overview: Overview, reports: Sequence[Report] = ()) -> str:
    """Return the overview as JSON: exactly the dataclasses, and ``schema_version``.

    Its member ``trainings`` tells it from the report of one training.

    Args:
        reports: of the trainings, in order: its member ``reports``.
    """
    found: dict[str, object] = {
        "schema_version": _SCHEMA_VERSION,
        "name": overview.name,
        "command": overview.command,
        "trainings": overview.rows,
        "outside": overview.outside,
        "notes": overview.notes,
    }
    if reports:
        found["reports"] = reports
    return json.dumps(as_json(found), indent=1, allow_nan=False) + "\n"


def _render_html(overview: Overview, reports: Sequence[Report] = ()) -> str:
    """Return the overview as a page with a link to each training's own.

    Args:
        reports: of the trainings, in order, to be in the page itself: each in a frame, for it has a
            script and anchors of its own.
    """
    from feedline.analysis.report import html_report  # draws all figures: not for an overview alone

    overview = printable_in(overview)
    return page.render(
        page.HERE / "overview.html",
        it=overview,
        pages=[escape(html_report.render(report)) for report in reports],
        title_of=_title(overview),
        heads=_HEADS,
        cells=_cells,
        verdicts=_verdicts(overview.rows),
        shell=phrases.shell,
    )


def _render_markdown(overview: Overview, reports: Sequence[Report] = ()) -> str:
    """Return the first screens of the trainings as Markdown, one after another."""
    blocks = [block for report in reports for block in first_screen(report).blocks]
    title = Title((overview.name, f"{len(reports)} training runs"))
    return document_markdown.render(Document((title, *blocks)))


ENDINGS = {
    ".html": _render_html,
    ".json": render_json,
    ".txt": _render_text,
    ".md": _render_markdown,
}


def _time_outside(outside: Outside, rows: Sequence[Row]) -> list[str]:
    """Return where the time went that is in no step of any training, in sentences."""
    between = outside.between_s
    longest = max(between, default=0.0)
    at = (
        f" (at most {seconds(longest)}, before training {rows[between.index(longest) + 1].name})"
        if len(between) > 1
        else ""
    )
    total = outside.before_s + sum(between) + outside.after_s
    evaluation_s = sum(one.evaluation_s for one in rows)
    said = [
        f"Outside the training runs: {seconds(total)} of {seconds(outside.whole_s)}. Of that, "
        f"{seconds(outside.before_s)} is before the "
        f"first, {seconds(sum(between))} between training runs{at}, and "
        f"{seconds(outside.after_s)} after the last. "
        "This is where imports and data preparation happen."
    ]
    if evaluation_s > 0:
        said.append(
            f"Evaluation, rollouts or generation outside the steps of the training runs: "
            f"{seconds(evaluation_s)}."
        )
    return said


def show_as(
    built: Sequence[Report],
    summary: Overview,
    form: str,
    full: bool,
    console: Console,
    run: Path,
    source: SourceLines | None = None,
) -> None:
    """Print reports in one format, which may be piped: to a file, a pull request, a browser.

    Args:
        built: the reports.
        summary: of them, if they are several.
        form: text, markdown, json or html.
        full: all of the text.
        console: to print on.
        run: the run folder.
        source: reads lines of the program that HTML is to quote; None: it quotes none.
    """
    several = len(summary.rows) > 1
    if form == _TEXT:
        if several:
            document_text.show(document_of(summary, alone=False), console)
        else:
            show_terminal(built[0], console, full, (), run)
        return
    if several:
        text = ENDINGS[_ENDING_OF[form]](summary, built)
    else:
        text = reports.text(built[0], Path(f"report{_ENDING_OF[form]}"), source)
    if not console.quiet:
        console.file.write(text)
