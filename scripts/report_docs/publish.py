"""Writes what docs say of fields, columns and tapped libraries: ``docs/report.schema.json``, and tables of ``docs/report.md``,
``docs/api.md`` and ``docs/recording.md``.

``scripts/docs-fields``
"""

import dataclasses
import json
import sys
import typing
from pathlib import Path

from feedline.analysis.convergence import training_series as convergence
from feedline.analysis.explain import model
from feedline.analysis.ledger import finding
from feedline.analysis.ledger import table as ledger
from feedline.analysis.measure import model as measured
from feedline.analysis.ranks import communication
from feedline.analysis.report.json_report import key_of
from feedline.analysis.report.run_frames import ALL_FRAMES
from feedline.profiler.taps.operations import LIBRARIES
from report_docs.fields import FIELDS
from report_docs.schema import schema

DESCRIBED = (model, measured, ledger, communication, convergence, finding)
MARK = "<!-- from here on written by scripts/report_docs -->\n"
FIRST, LAST = "<!-- written by scripts/report_docs -->\n", "<!-- end -->\n"


def schema_text() -> str:
    """What docs/report.schema.json holds."""
    return json.dumps(schema(), indent=2) + "\n"


def tables() -> str:
    """One Markdown section per dataclass, in the order of ``FIELDS``."""
    return "\n".join(_table(name) for name in FIELDS)


def frames() -> str:
    """One Markdown section per data frame."""
    return "\n".join(table.markdown() for table in ALL_FRAMES)


def libraries() -> str:
    """The libraries whose calls are timed inside a sample, and what each tap shows."""
    rows = [f"| {library.name} | {library.gives} |" for library in LIBRARIES]
    return "\n".join(["| library | what is recorded |", "|---|---|", *rows]) + "\n"


def within(current: str, written: str) -> str:
    """A page with what is between its two marks renewed."""
    before, _, rest = current.partition(FIRST)
    return before + FIRST + written + LAST + rest.partition(LAST)[2]


def page(current: str, written: str) -> str:
    """A page with what is below its mark renewed; what people wrote above it stays."""
    return current.partition(MARK)[0] + MARK + "\n" + written


def _table(name: str) -> str:
    cls = next(getattr(module, name) for module in DESCRIBED if hasattr(module, name))
    hints = typing.get_type_hints(cls)
    rows = ["| field | type | unit | meaning | null when |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(cls):
        described = FIELDS[name][key_of(field)]
        rows.append(f"| `{key_of(field)}` | {_type(hints[field.name])} | {described.unit} | {described.meaning} | {described.null} |")
    return f"## {name}\n\n" + "\n".join(rows) + "\n"


def _type(hint: typing.Any) -> str:
    """The JSON type in words; null is in a column of its own."""
    arguments = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    origin = typing.get_origin(hint)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"object of {_type(arguments[1])}"
    if origin is tuple:
        return "[" + ", ".join(_type(argument) for argument in arguments) + "]"
    if arguments:
        return _type(arguments[0])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return {str: "string", int: "integer", float: "number", bool: "true or false", object: "any"}.get(hint, "string")


def main(folder: Path) -> None:
    """Write them into the docs folder."""
    (folder / "report.schema.json").write_text(schema_text(), encoding="utf-8")
    for name, written in (("report.md", tables()), ("api.md", frames())):
        text = folder / name
        text.write_text(page(text.read_text(encoding="utf-8"), written), encoding="utf-8")
    recording = folder / "recording.md"
    recording.write_text(within(recording.read_text(encoding="utf-8"), libraries()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
