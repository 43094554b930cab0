"""The result of a check: terminal, JUnit XML, Markdown, annotations of GitHub Actions, JSON."""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rich.text import Text

from feedline.analysis.diff.budget import EXCEEDED, PASSED, Checked, unmet
from feedline.analysis.diff.model import UNKNOWN, Diff
from feedline.analysis.diff.side import Measured
from feedline.analysis.report.console import Console
from feedline.analysis.report.json_report import plain as as_plain
from feedline.analysis.report.tables import plain
from feedline.cli.outputs import save
from feedline.profiler import masks
from feedline.profiler.errors import OutputError
from feedline.profiler.printable import printable

_CHECK_SCHEMA_VERSION = 1
_OUTCOME_STYLES = {PASSED: "green", EXCEEDED: "bold red", UNKNOWN: "bold yellow"}
_OUTCOME_MARKS = {PASSED: "✅ passed", EXCEEDED: "❌ exceeded", UNKNOWN: "❔ unknown"}
_FILE_AND_LINE = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")


def _title(results: Sequence[Checked]) -> str:
    """Return the outcome in one line."""
    exceeded, unknown = unmet(list(results))
    if exceeded:
        return f"Over budget: {exceeded} of {len(results)} limits exceeded{f', {unknown} unknown' if unknown else ''}"
    return f"Not judged: {unknown} of {len(results)} limits unknown" if unknown else f"Within budget: all {len(results)} limits hold"


def show(results: Sequence[Checked], run: Measured, console: Console) -> None:
    """Print the results; limits that do not hold come first."""
    console.print(plain(f"{_title(results)} ({run.report.run.name})", "bold"))
    console.print()
    for result in sorted(results, key=lambda result: (EXCEEDED, UNKNOWN, PASSED).index(result.outcome)):
        line = Text(f"{result.outcome:9}", _OUTCOME_STYLES[result.outcome])
        console.print(line.append(Text(printable(f"{result.id}: {result.message}"), style="default")), soft_wrap=True)
    console.print()


def print_annotations(results: Sequence[Checked], run: Measured) -> None:
    """Print annotations for GitHub Actions."""
    for line in _annotations(results, run):
        print(line, flush=True)


def write(
    results: Sequence[Checked],
    run: Measured,
    diffs: Mapping[str, Diff],
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
    written = [path for path, text in texts if path is not None and not save(path, text)]
    if args.markdown is not None:
        _save_markdown(args.markdown, _markdown(results, run), appends)
        written.append(args.markdown)
    return written


def _place(result: Checked, run: Measured) -> tuple[str, str]:
    """Return the file and line that a result is about; "" if unknown.

    That is where the loader is made, or else the script.
    """
    for loader in run.report.loaders if result.about == "input" else ():
        if loader.role == "training" and (place := _FILE_AND_LINE.match(str(loader.settings.get("made_at", "")))):
            return place["file"], place["line"]
    script = next((word for word in run.report.run.command if word.endswith(".py")), "")
    return script, ""


def _annotations(results: Sequence[Checked], run: Measured) -> Iterator[str]:
    """Return workflow commands for limits that do not hold.

    They are ``::error file=train.py,line=31,title=...::...``.
    """
    for result in results:
        if result.outcome != PASSED:
            file, line = _place(result, run)
            file, line = ("", "") if masks.MASK in file else (file, line)
            properties = {"file": file, "line": line, "title": f"feedline: {result.id}"}
            parameters = ",".join(f"{name}={escaped(text, ':,')}" for name, text in properties.items() if text)
            yield f"::error {parameters}::{escaped(f'{result.outcome}: {result.message}')}"


def escaped(text: str, also: str = "") -> str:
    """Escape the text of a workflow command.

    It is escaped as actions/toolkit does (packages/core/src/command.ts).
    """
    for sign in ("%", "\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


def _junit(results: Sequence[Checked], run: Measured) -> str:
    """Render one test case per limit: exceeded is a failure, unknown an error."""
    exceeded, unknown = unmet(list(results))
    counts = {"tests": str(len(results)), "failures": str(exceeded), "errors": str(unknown)}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "feedline check", "time": f"{run.report.run.duration_s:.3f}", **counts})
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": f"feedline.{printable(run.report.run.name)}", "name": result.id})
        message = printable(result.message)
        if result.outcome == PASSED:
            ElementTree.SubElement(case, "system-out").text = message
        else:
            kind = "failure" if result.outcome == EXCEEDED else "error"
            ElementTree.SubElement(case, kind, {"message": message, "type": result.outcome}).text = f"{result.id}: {message}"
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _markdown(results: Sequence[Checked], run: Measured) -> str:
    """Render a heading and a table."""
    lines = [f"### feedline: {cell(_title(results))}", "", f"{cell(run.report.run.name)}: {cell(run.report.verdict)}", ""]
    lines += ["| limit | outcome | |", "|---|---|---|"]
    lines += [f"| {cell(result.id)} | {_OUTCOME_MARKS[result.outcome]} | {cell(result.message)} |" for result in results]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Escape text for a table: nothing in it acts as Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


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


def _as_json(results: Sequence[Checked], run: Measured, diffs: Mapping[str, Diff]) -> object:
    """Return the results as data, with the comparisons that they are from."""
    exceeded, unknown = unmet(list(results))
    outcome = EXCEEDED if exceeded else UNKNOWN if unknown else PASSED
    comparison = next(iter(diffs.values()), None)
    head = {"schema_version": _CHECK_SCHEMA_VERSION, "run": run.name, "outcome": outcome}
    return as_plain({**head, "limits": list(results), "diff": comparison})
