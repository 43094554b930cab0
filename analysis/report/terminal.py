"""The report as text, at most 80 columns wide.

Everything is said in words and figures, color only repeats it. A terminal shows the last lines of
what was printed. So the report ends with what limits the training, what to change, what that would
give, and where the files are; before it comes what this rests on: at most 40 lines in all, or
everything.
"""

import io
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from feedline.analysis.explain.model import Report
from feedline.analysis.explain.verdict import leading
from feedline.analysis.formatting import BLANK, seconds, value
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.report import of_convergence, of_traces, phrases, short
from feedline.analysis.report.console import Console
from feedline.analysis.report.short import Part
from feedline.analysis.report.tables import (
    NAME,
    SEVERITY_COLORS,
    communication,
    item,
    kernels,
    loader,
    operations,
    own_code,
    plain,
    samples,
    spread,
    step_table,
    traces,
    waits,
    whole_run,
)
from feedline.profiler.printable import printable_in

WIDTH = 80
_LINES = 40  # of the short report
_RANKS = 8  # in the table of communication
_TOP_KERNELS = 5
_WHOLE_NAME = 56  # characters of a stage at most (feedline.stage)
_WORTH = 0.01  # of a step, from which on what would be different is told
_LABEL = 6  # characters of "Report", the longest label at the end

_Lines = list[list[Segment]]


def render(report: Report) -> str:
    """Return all of the report as plain text, 80 columns wide."""
    file = io.StringIO()
    show(
        report, Console(file=file, width=WIDTH, color_system=None, force_terminal=False), full=True
    )
    return file.getvalue()


def show(
    report: Report,
    console: Console,
    full: bool = False,
    files: Sequence[Path] = (),
    run: Path | None = None,
) -> None:
    """Print the report.

    Args:
        full: all of it, however long.
        files: those just written, for the line that says where the report is.
        run: its folder, for who may know where it is; None: as the report has it, perhaps masked.
    """
    page = _Page(console)
    report = printable_in(report)
    head, end = page.lines(_head(report)), page.lines(_end(report))
    places = list(_places(report, files, full, run))
    parts = list(_everything(report, page.width) if full else short.parts(report, page.width))
    if not full:
        room = _LINES - len(head) - len(end) - len(places) - 2
        parts = _fitting(parts, [_height(part, page) for part in parts], room)
    page.show(head)
    for before, part in zip([None, *parts], parts):
        page.show(
            page.heading(part) + page.lines([part.body])
            if part.title or not before or before.title
            else page.lines([part.body])
        )
    page.show([[], *end])
    for label, text in places:
        console.print(Text.assemble((f"{label:<{_LABEL}}  ", "dim"), plain(text)), soft_wrap=True)


class _Page:
    """Lays out what is printed, so that it can be counted before."""

    def __init__(self, console: Console) -> None:
        self._console, self.width = console, min(WIDTH, console.width)

    def lines(self, body: Iterable[RenderableType]) -> _Lines:
        """Return the lines without spaces at their ends."""
        options = self._console.options.update(width=self.width, highlight=False)
        return [
            _stripped(line)
            for part in body
            for line in self._console.render_lines(part, options, pad=False)
        ]

    def heading(self, part: Part) -> _Lines:
        """Return a blank line, and the part's title if it has one."""
        return [[], *self.lines([Text(part.title, style="bold underline")] if part.title else [])]

    def show(self, lines: _Lines) -> None:
        self._console.print(SegmentLines(lines, new_lines=True), end="")


def _stripped(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip(" "):
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(" "), kept[-1].style)] if kept else []


def _height(part: Part, page: _Page) -> int:
    return len(page.lines([part.body])) + (2 if part.title else 0)


def _fitting(parts: Sequence[Part], heights: Sequence[int], room: int) -> list[Part]:
    """Return as many as there is room for, those that matter most first, in the order given."""
    kept = set()
    for at in sorted(range(len(parts)), key=lambda at: parts[at].place):
        if heights[at] <= room:
            kept.add(at)
            room -= heights[at]
    return [part for at, part in enumerate(parts) if at in kept]


def _head(report: Report) -> Iterable[RenderableType]:
    yield plain(phrases.about(report.run), "" if report.run.state != "finished" else "dim")
    if report.step and report.step.boundary != "none":
        yield plain(" · ".join([*phrases.pace(report), phrases.steps(report.throughput)]))
    if said := phrases.ranks(report):
        yield plain(said)


def _end(report: Report) -> Iterable[RenderableType]:
    """Return the verdict, which says what the fix would give, and what to change."""
    if report.headline:
        yield plain(report.headline, "bold red")
    yield plain(phrases.sentence(report.verdict), "bold")
    top = leading(report.findings)
    table = Table.grid(padding=(0, 2))
    table.add_column(width=_LABEL)
    table.add_column(overflow="fold")
    if top and top.fix:
        table.add_row(Text("Fix", "dim"), plain(phrases.sentence(top.fix)))
    if (
        top and top.predicted is None and (gains := phrases.gains(top, report))
    ):  # else the verdict says it
        table.add_row(Text("Gain", "dim"), plain(gains))
    if together := phrases.together(report):
        table.add_row(Text(together[0], "dim"), plain(together[1]))
    if table.row_count:
        yield table


def _places(
    report: Report, files: Sequence[Path], full: bool, folder: Path | None
) -> Iterable[tuple[str, str]]:
    """Return where the report is, and the command that shows more than this.

    They are not wrapped, so that they can be copied.
    """
    files = sorted(files, key=lambda file: file.suffix.lower() != ".html")
    run = (
        phrases.run_place(report.run)
        if folder is None
        else shlex.quote(min(os.path.relpath(folder), str(folder), key=len))
    )
    if files:
        yield "Report", _named(files)
    if report.step is None:
        if (
            not report.headline and not report.findings
        ):  # else those come first: a crash, Ctrl-C, a full disk, an empty loader
            yield "Next", phrases.NEXT_WITHOUT_STEPS
    elif not any(file.suffix.lower() == ".html" for file in files):
        yield "Next", f"feedline report {run} -o report.html"
    if not full and report.step:
        yield "More", f"feedline report {run} --full"


def _named(files: Sequence[Path]) -> str:
    """Return ``runs/demo/report.html (beside it: report.json)``."""
    first, *more = (os.path.relpath(file) for file in files)
    beside = [
        os.path.basename(file) for file in more if os.path.dirname(file) == os.path.dirname(first)
    ]
    elsewhere = [
        _elsewhere(file) for file in more if os.path.dirname(file) != os.path.dirname(first)
    ]
    told = [
        *([f"beside it: {', '.join(beside)}"] if beside else []),
        *([f"and {', '.join(elsewhere)}"] if elsewhere else []),
    ]
    return f"{first} ({'; '.join(told)})" if told else first


def _elsewhere(file: str) -> str:
    """Return ``./report.json``: a bare name would be taken for a file beside the first."""
    return file if os.path.dirname(file) else os.path.join(os.curdir, file)


def _everything(report: Report, width: int) -> Iterable[Part]:
    """Return all parts, from the step to the notes; those that would say nothing are left out."""
    if report.step:
        name = _WHOLE_NAME if width == WIDTH else NAME
        yield Part(
            phrases.step_title(report.step),
            Group(step_table(report.step, width, name), spread(report.step)),
        )
    if parts := phrases.run_parts(report.ledger):
        yield Part("The whole run", whole_run(parts))
    for own, title, mean_s in phrases.own_codes(report.step) if report.step else ():
        yield Part(title, Group(*own_code(own, mean_s)))
    if report.step and sum(report.step.waits.values()) > 0:
        yield Part(phrases.waits_title(report), waits(report.step, width, phrases.waits(report)))
    if report.traces:
        yield Part("Device and input, rank by rank", Group(*_traces(report)))
    elif report.workers:
        yield Part(
            f"One sample{' in a worker' if report.workers.processes else ''}",
            Group(*samples(report.workers, width)),
        )
        if report.workers.operations:
            yield Part("Operations", operations(report.workers))
    if report.loaders:
        yield Part("Loaders", Group(*(line for one in report.loaders for line in loader(one))))
    if report.cpus and report.cpus.own is not None:
        yield Part("CPUs", plain(phrases.cpus(report.cpus)))
    if report.roofline:
        yield Part("Roofline", plain(phrases.roofline(report.roofline)))
    if report.comm:
        yield Part("Communication", Group(*_communication(report, width)))
    if trained := of_convergence.lines(report, width):
        yield Part("Convergence", Group(*map(plain, trained)))
    if report.findings:
        listed = [
            _finding(number, finding, report) for number, finding in enumerate(report.findings, 1)
        ]
        together = phrases.together(report)
        yield Part(
            "Findings", Group(*listed, *([plain(": ".join(together), "bold")] if together else []))
        )
    if refused := phrases.refused_that_matter(report.hooks):
        yield Part(
            "Hooks that could not be attached",
            Group(*(item(hook.name, hook.why) for hook in refused)),
        )
    if report.notes:
        yield Part("Notes", Group(*(item("", note) for note in report.notes)))


def _traces(report: Report) -> Iterable[RenderableType]:
    if report.traces:
        yield plain(f"Figures cover {report.traces.basis}.", "dim")
    yield traces(report, list(report.ranks))
    for why in of_traces.reasons(report):
        yield plain(f"{BLANK} {why}", "dim")
    for note in report.traces.budget_notes if report.traces else ():
        yield plain(phrases.sentence(note), "dim")
    yield from kernels(report, _TOP_KERNELS)


def _communication(report: Report, width: int) -> Iterable[RenderableType]:
    shown, left_out = phrases.ranks_to_show(report, _RANKS)
    yield from communication(shown, width)
    if left_out:
        yield plain(f"{left_out} more ranks are in the JSON report", "dim")
    yield plain(" ".join(phrases.communication(report)))
    answers = report.comm.what_if if report.comm else []
    worth = [
        one
        for one in answers[1:]
        if one.step_s is not None and phrases.tells(one) and abs(one.gain_s) >= _WORTH * one.step_s
    ]
    if (
        worth and answers[0].step_s is not None
    ):  # its steps are not quite those of the mean: gains are against this
        yield item(f"{answers[0].what}, replayed", f"{seconds(answers[0].step_s)} per step")
    for one in worth:
        if one.step_s is not None:
            between = (
                ""
                if one.low is None or one.high is None
                else f" ({seconds(one.low)} to {seconds(one.high)})"
            )
            yield item(f"predicted with {one.what}", f"{seconds(one.step_s)} per step{between}")
    if answers and answers[0].step_s is None:
        yield plain(f"No predictions: {answers[0].why}.", "dim")


def _finding(number: int, finding: Finding, report: Report) -> RenderableType:
    severity, mean_step_s = finding.severity.value, report.step.mean_s if report.step else None
    head = plain(
        f"{number}. {severity.upper()}  {finding.rule_id}", SEVERITY_COLORS.get(severity, "bold")
    )
    if cost := phrases.cost(finding, mean_step_s):
        head.append(f"  {cost}", "not bold default")
    body: list[RenderableType] = [plain(phrases.full_stop(finding.message))]
    body += [item(e.what, value(e.value, e.unit)) for e in finding.evidence]
    if finding.fix:
        body.append(plain(f"Fix: {finding.fix}", "bold"))
    if gains := phrases.gains(finding, report):
        body.append(plain(f"Gain: {gains}", "bold"))
    if finding.how_to_check:
        body.append(plain(f"How to check: {finding.how_to_check}", "dim"))
    return Group(head, Padding(Group(*body), (0, 0, 0, 3)))
