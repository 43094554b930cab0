"""Writes what docs say of fields, columns and tapped libraries (``scripts/docs-fields``).

These are ``docs/report.schema.json``, and tables of ``docs/report.md``, ``docs/api.md`` and
``docs/recording.md``.
"""

import dataclasses
import json
import sys
import typing
from pathlib import Path

from feedline.analysis.report.json_report import key_of
from feedline.analysis.report.run_frames import ALL_FRAMES
from feedline.profiler.taps.operations import LIBRARIES
from report_docs.fields import TYPES, fields_of
from report_docs.schema import schema

MARK = "<!-- from here on written by scripts/report_docs -->\n"
FIRST, LAST = "<!-- written by scripts/report_docs -->\n", "<!-- end -->\n"


def schema_text() -> str:
    """Return what docs/report.schema.json holds."""
    return json.dumps(schema(), indent=2) + "\n"


def tables() -> str:
    """Return one Markdown section per dataclass."""
    return "\n".join(map(_table, TYPES))


def frames() -> str:
    """Return one Markdown section per data frame."""
    return "\n".join(table.markdown() for table in ALL_FRAMES)


def libraries() -> str:
    """Return the libraries whose calls are timed inside a sample, and what each tap shows."""
    rows = [f"| {library.name} | {library.gives} |" for library in LIBRARIES]
    return "\n".join(["| library | what is recorded |", "|---|---|", *rows]) + "\n"


def renew_between(current: str, written: str) -> str:
    """Return a page with what is between its two marks renewed."""
    before, _, rest = current.partition(FIRST)
    return before + FIRST + written + LAST + rest.partition(LAST)[2]


def renew_below(current: str, written: str) -> str:
    """Return a page with what is below its mark renewed; what people wrote above it stays."""
    return current.partition(MARK)[0] + MARK + "\n" + written


def _table(cls: type) -> str:
    hints, described = typing.get_type_hints(cls), fields_of(cls)
    rows = ["| field | type | unit | meaning | null when |", "|---|---|---|---|---|"]
    for field in dataclasses.fields(cls):
        about = described[key_of(field)]
        rows.append(
            f"| `{key_of(field)}` | {_type(hints[field.name])} | {about.unit} | {about.meaning} | "
            f"{about.null} |"
        )
    return f"## {cls.__name__}\n\n" + "\n".join(rows) + "\n"


def _type(hint: typing.Any) -> str:
    """Return the JSON type in words; null is in a column of its own."""
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
    return {
        str: "string",
        int: "integer",
        float: "number",
        bool: "true or false",
        object: "any",
    }.get(hint, "string")


def main(folder: Path) -> None:
    """Write them into the docs folder."""
    (folder / "report.schema.json").write_text(schema_text(), encoding="utf-8")
    for name, written in (("report.md", tables()), ("api.md", frames())):
        text = folder / name
        text.write_text(renew_below(text.read_text(encoding="utf-8"), written), encoding="utf-8")
    recording = folder / "recording.md"
    recording.write_text(
        renew_between(recording.read_text(encoding="utf-8"), libraries()), encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
