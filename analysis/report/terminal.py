"""The report as text, at most 80 columns wide.

A terminal shows the last lines of what was printed. So all of a report ends with what limits the
training, what to change, what that gives, and where the files are. The default report is that and
little more (first_screen.py).
"""

import io
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from feedline.analysis.explain.model import Report
from feedline.analysis.formatting import BLANK, seconds, value
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.report import document_text, of_convergence, of_traces, phrases
from feedline.analysis.report.console import Console
from feedline.analysis.report.document import Document
from feedline.analysis.report.document_text import WIDTH, plain
from feedline.analysis.report.first_screen import conclusion, first_screen, places
from feedline.analysis.report.tables import (
    NAME,
    SEVERITY_COLORS,
    communication,
    item,
    kernels,
    loader,
    operations,
    own_code,
    samples,
    spread,
    step_table,
    traces,
    user_code,
    waits,
    whole_run,
)
from feedline.profiler.printable import printable_in

_RANKS = 8  # in the table of communication
_TOP_KERNELS = 5
_WHOLE_NAME = 56  # characters of a stage at most (feedline.stage)
_WORTH = 0.01  # of a step, from which on what would be different is told


@dataclass(frozen=True)
class Part:
    """A title, and what stands below it."""

    title: str
    body: RenderableType


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
    report = printable_in(report)
    end = places(list(_places(report, files, full, run)))
    if not full:
        screen = first_screen(report)
        document_text.show(Document((*screen.blocks, end)), console)
        return
    width = min(WIDTH, console.width)
    document_text.printed(Group(*_head(report)), console, width)
    for part in _everything(report, width):
        title = Text(part.title, style="bold underline")
        document_text.printed(Group("", title, part.body), console, width)
    console.print()
    document_text.show(Document((*conclusion(report), end)), console)


def _head(report: Report) -> Iterable[Text]:
    yield plain(phrases.about(report.run), "" if report.run.state != "finished" else "dim")
    if report.step and report.step.boundary != "none":
        yield plain(" · ".join([*phrases.pace(report), phrases.steps(report.throughput)]))
    if said := phrases.ranks(report):
        yield plain(said)


def _places(
    report: Report, files: Sequence[Path], full: bool, folder: Path | None
) -> Iterable[tuple[str, str]]:
    """Yield where the report is, and the commands that show more and prove it."""
    files = sorted(files, key=lambda file: file.suffix.lower() != ".html")
    run = (
        phrases.run_place(report.run)
        if folder is None
        else shlex.quote(min(os.path.relpath(folder), str(folder), key=len))
    )
    if files:
        yield "Report", os.path.relpath(files[0])
    if report.step is None:
        if not report.headline and not report.findings:
            # else those come first: a crash, Ctrl-C, a full disk, an empty loader
            yield "Next", phrases.NEXT_WITHOUT_STEPS
        return
    if not full:
        yield "More", f"feedline report {run} --full"
    elif not any(file.suffix.lower() == ".html" for file in files):
        yield "HTML", f"feedline report {run} --html"
    if _can_be_tried(report):
        yield "Prove", f"feedline verify {run}"


def _can_be_tried(report: Report) -> bool:
    """Whether ``feedline verify`` can make the change of the verdict, and its gain is predicted."""
    top = next((one for one in report.findings if one.rule_id == report.verdict.finding), None)
    return top is not None and top.predicted is not None and bool(top.settings or top.environment)


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
    if report.user_code and report.user_code.functions:
        yield Part("Your code", Group(*user_code(report.user_code)))
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
    said = [finding.message, *finding.more]
    body: list[RenderableType] = [plain(" ".join(map(phrases.full_stop, said)))]
    body += [item(e.what, value(e.value, e.unit)) for e in finding.evidence]
    if fix := phrases.whole_fix(finding):
        body.append(plain(f"Fix: {fix}", "bold"))
    if gains := phrases.gains(finding, report):
        body.append(plain(f"Gain: {gains}", "bold"))
    if finding.how_to_check:
        body.append(plain(f"How to check: {finding.how_to_check}", "dim"))
    return Group(head, Padding(Group(*body), (0, 0, 0, 3)))
