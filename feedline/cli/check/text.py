"""The result of a check: terminal, JUnit XML, Markdown, annotations of GitHub Actions, JSON."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from feedline.analysis.diff.budget import CheckedLimit, LimitOutcome, count_unmet
from feedline.analysis.diff.run_diff import Outcome, RunDiff
from feedline.analysis.diff.side import ComparedRun
from feedline.analysis.report import document_markdown
from feedline.analysis.report.document import (
    Document,
    Field,
    Fields,
    Headline,
    Note,
    Table,
    Title,
)
from feedline.analysis.report.json_report import plain as as_plain
from feedline.cli.outputs import save
from feedline.profiler import masks
from feedline.profiler.errors import OutputError
from feedline.profiler.printable import printable

_CHECK_SCHEMA_VERSION = 1
_TONES = {
    LimitOutcome.EXCEEDED: "bad",
    Outcome.UNKNOWN: "unsure",
    LimitOutcome.PASSED: "good",
}
_ORDER = tuple(_TONES)  # of the limits in the terminal
_OUTCOME_MARKS = {
    LimitOutcome.PASSED: "✅ passed",
    LimitOutcome.EXCEEDED: "❌ exceeded",
    Outcome.UNKNOWN: "❔ unknown",
}
_FILE_AND_LINE = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")


def _title(results: Sequence[CheckedLimit]) -> str:
    """Return the outcome in one line."""
    exceeded, unknown = count_unmet(list(results))
    if exceeded:
        return (
            f"Over budget: {exceeded} of {len(results)} limits "
            f"exceeded{f', {unknown} unknown' if unknown else ''}"
        )
    return (
        f"Not judged: {unknown} of {len(results)} limits unknown"
        if unknown
        else f"Within budget: all {len(results)} limits hold"
    )


def document_of(results: Sequence[CheckedLimit], run: ComparedRun) -> Document:
    """Return the outcome, then a line for each limit; those that do not hold come first."""
    ordered = sorted(results, key=lambda result: _ORDER.index(result.outcome))
    rows = (
        Field(result.outcome, f"{result.id}: {result.message}", tone=_TONES[result.outcome])
        for result in ordered
    )
    return Document((Headline(f"{_title(results)} ({run.report.run.name})"), Fields(tuple(rows))))


def print_annotations(results: Sequence[CheckedLimit], run: ComparedRun) -> None:
    """Print annotations for GitHub Actions."""
    for line in _annotations(results, run):
        print(line, flush=True)


def write(
    results: Sequence[CheckedLimit],
    run: ComparedRun,
    diffs: Mapping[str, RunDiff],
    args: argparse.Namespace,
    appends: bool,
) -> list[Path]:
    """Write the results to the requested files, and return these.

    Args:
        results: of each limit.
        run: that was checked.
        diffs: comparisons with the base, by limit.
        args: the command line.
        appends: whether to append the Markdown to its file.

    Raises:
        OutputError: a file cannot be written.
    """
    texts = [
        (args.junit, _junit(results, run)),
        (args.json, json.dumps(_as_json(results, run, diffs), indent=1)),
    ]
    written: list[Path] = []
    for path, text in texts:
        if path is not None:
            save(path, text)
            written.append(path)
    if args.markdown is not None:
        _save_markdown(args.markdown, _markdown(results, run), appends)
        written.append(args.markdown)
    return written


def _place(result: CheckedLimit, run: ComparedRun) -> tuple[str, str]:
    """Return the file and line that a result is about; "" if unknown.

    That is where to change the program, or else where the loader is made, or else the script.
    """
    if place := _FILE_AND_LINE.match(result.place):
        return place["file"], place["line"]
    for loader in run.report.loaders if result.about == "input" else ():
        if loader.role == "training" and (
            place := _FILE_AND_LINE.match(str(loader.settings.get("made_at", "")))
        ):
            return place["file"], place["line"]
    script = next((word for word in run.report.run.command if word.endswith(".py")), "")
    return script, ""


def _annotations(results: Sequence[CheckedLimit], run: ComparedRun) -> Iterator[str]:
    """Return workflow commands for limits that do not hold.

    They are ``::error file=train.py,line=31,title=...::...``.
    """
    for result in results:
        if result.outcome != LimitOutcome.PASSED:
            file, line = _place(result, run)
            file, line = ("", "") if masks.MASK in file else (file, line)
            properties = {"file": file, "line": line, "title": f"feedline: {result.id}"}
            parameters = ",".join(
                f"{name}={_escaped(text, ':,')}" for name, text in properties.items() if text
            )
            yield f"::error {parameters}::{_escaped(f'{result.outcome}: {result.message}')}"


def _escaped(text: str, also: str = "") -> str:
    """Escape the text of a workflow command.

    It is escaped as actions/toolkit does (packages/core/src/command.ts).
    """
    for sign in ("%", "\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


def _junit(results: Sequence[CheckedLimit], run: ComparedRun) -> str:
    """Render one test case per limit: exceeded is a failure, unknown an error."""
    exceeded, unknown = count_unmet(list(results))
    counts = {"tests": str(len(results)), "failures": str(exceeded), "errors": str(unknown)}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {"name": "feedline check", "time": f"{run.report.run.duration_s:.3f}", **counts},
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"feedline.{printable(run.report.run.name)}", "name": result.id},
        )
        message = printable(result.message)
        if result.outcome == LimitOutcome.PASSED:
            ElementTree.SubElement(case, "system-out").text = message
        else:
            kind = "failure" if result.outcome == LimitOutcome.EXCEEDED else "error"
            ElementTree.SubElement(
                case, kind, {"message": message, "type": result.outcome}
            ).text = f"{result.id}: {message}"
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(results: Sequence[CheckedLimit], run: ComparedRun) -> str:
    """Render a heading, what limits the run, and a table."""
    rows = tuple((result.id, _OUTCOME_MARKS[result.outcome], result.message) for result in results)
    return document_markdown.render(
        Document(
            (
                Title((f"feedline: {_title(results)}",)),
                Note(f"{run.report.run.name}: {run.report.verdict}"),
                Table(rows, ("limit", "outcome", "")),
            )
        )
    )


def _save_markdown(path: Path, text: str, appends: bool) -> None:
    """Write Markdown, or append it: the summary of a step is shared by several commands.

    Raises OutputError.
    """
    if not appends:
        save(path, text)
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputError.unwritable(path, error) from error


def _as_json(
    results: Sequence[CheckedLimit], run: ComparedRun, diffs: Mapping[str, RunDiff]
) -> object:
    """Return the results as data, with the comparisons that they are from."""
    exceeded, unknown = count_unmet(list(results))
    outcome = (
        LimitOutcome.EXCEEDED if exceeded else Outcome.UNKNOWN if unknown else LimitOutcome.PASSED
    )
    comparison = next(iter(diffs.values()), None)
    head = {"schema_version": _CHECK_SCHEMA_VERSION, "run": run.name, "outcome": outcome}
    return as_plain({**head, "limits": list(results), "diff": comparison})
