"""The result of a check: terminal, JUnit XML, Markdown, annotations of GitHub Actions, JSON."""

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
from feedline.cli.output import save
from feedline.profiler import masks
from feedline.profiler.errors import OutputError
from feedline.profiler.printable import printable

_SCHEMA_VERSION = 1
_STYLES = {PASSED: "green", EXCEEDED: "bold red", UNKNOWN: "bold yellow"}
_MARKS = {PASSED: "✅ passed", EXCEEDED: "❌ exceeded", UNKNOWN: "❔ unknown"}
_PLACE = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")


def title(checked: Sequence[Checked]) -> str:
    """What it comes to, in one line."""
    exceeded, unknown = unmet(list(checked))
    if exceeded:
        return f"Over budget: {exceeded} of {len(checked)} limits exceeded{f', {unknown} unknown' if unknown else ''}"
    return f"Not judged: {unknown} of {len(checked)} limits unknown" if unknown else f"Within budget: all {len(checked)} limits hold"


def show(checked: Sequence[Checked], run: Measured, console: Console) -> None:
    """Print it: what does not hold comes first."""
    console.print(plain(f"{title(checked)} ({run.report.run.name})", "bold"))
    console.print()
    for one in sorted(checked, key=lambda one: (EXCEEDED, UNKNOWN, PASSED).index(one.outcome)):
        line = Text(f"{one.outcome:9}", _STYLES[one.outcome])
        console.print(line.append(Text(printable(f"{one.id}: {one.message}"), style="default")), soft_wrap=True)
    console.print()


def _place(one: Checked, run: Measured) -> tuple[str, str]:
    """File and line that a result is about: where the loader is made, or else the script. "": unknown."""
    for loader in run.report.loaders if one.about == "input" else ():
        if loader.role == "training" and (found := _PLACE.match(str(loader.settings.get("made_at", "")))):
            return found["file"], found["line"]
    script = next((word for word in run.report.run.command if word.endswith(".py")), "")
    return script, ""


def annotations(checked: Sequence[Checked], run: Measured) -> Iterator[str]:
    """Workflow commands: ``::error file=train.py,line=31,title=...::...`` for what does not hold."""
    for one in checked:
        if one.outcome != PASSED:
            file, line = _place(one, run)
            file, line = ("", "") if masks.MASK in file else (file, line)
            of = {"file": file, "line": line, "title": f"feedline: {one.id}"}
            named = ",".join(f"{name}={escaped(text, ':,')}" for name, text in of.items() if text)
            yield f"::error {named}::{escaped(f'{one.outcome}: {one.message}')}"


def escaped(text: str, also: str = "") -> str:
    """Text of a workflow command, as actions/toolkit escapes it (packages/core/src/command.ts)."""
    for sign in ("%", "\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return printable(text)


def junit(checked: Sequence[Checked], run: Measured) -> str:
    """One test case per limit: exceeded is a failure, unknown an error."""
    exceeded, unknown = unmet(list(checked))
    counts = {"tests": str(len(checked)), "failures": str(exceeded), "errors": str(unknown)}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "feedline check", "time": f"{run.report.run.duration_s:.3f}", **counts})
    for one in checked:
        case = ElementTree.SubElement(suite, "testcase", {"classname": f"feedline.{printable(run.report.run.name)}", "name": one.id})
        said = printable(one.message)
        if one.outcome == PASSED:
            ElementTree.SubElement(case, "system-out").text = said
        else:
            kind = "failure" if one.outcome == EXCEEDED else "error"
            ElementTree.SubElement(case, kind, {"message": said, "type": one.outcome}).text = f"{one.id}: {said}"
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def markdown(checked: Sequence[Checked], run: Measured) -> str:
    """A heading and a table."""
    lines = [f"### feedline: {cell(title(checked))}", "", f"{cell(run.report.run.name)}: {cell(run.report.verdict)}", ""]
    lines += ["| limit | outcome | |", "|---|---|---|"]
    lines += [f"| {cell(one.id)} | {_MARKS[one.outcome]} | {cell(one.message)} |" for one in checked]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Text in a table, with nothing that Markdown or HTML would act on."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", printable(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")


def save_markdown(path: Path, text: str, appends: bool) -> None:
    """Write it; the summary of a step is a file that several commands append to. Raises OutputError."""
    if not appends:
        save(path, text)
        return
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputError.unwritable(path, error) from error


def as_json(checked: Sequence[Checked], run: Measured, diffs: Mapping[str, Diff]) -> object:
    """The results as data, with the comparisons that they are from."""
    exceeded, unknown = unmet(list(checked))
    outcome = EXCEEDED if exceeded else UNKNOWN if unknown else PASSED
    against = next(iter(diffs.values()), None)
    return as_plain({"schema_version": _SCHEMA_VERSION, "run": run.name, "outcome": outcome, "limits": list(checked), "diff": against})
