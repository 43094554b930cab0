"""Writes what docs say of fields, columns, tapped libraries and rules (``scripts/docs-fields``).

These are ``docs/report.schema.json``, and tables of ``docs/report.md``, ``docs/api.md``,
``docs/recording.md`` and the pages in ``docs/rules``.
"""

import dataclasses
import json
import sys
import typing
from pathlib import Path
from typing import Any

from feedline.analysis import rules
from feedline.analysis.ledger.rule import Effort, Rule
from feedline.analysis.report.json_report import key_of
from feedline.analysis.report.loaded import ALL_FRAMES
from feedline.profiler.taps.operations import LIBRARIES
from report_docs.fields import TYPES, fields_of
from report_docs.schema import schema

MARK = "<!-- from here on written by scripts/report_docs -->\n"
FIRST, LAST = "<!-- written by scripts/report_docs -->\n", "<!-- end -->\n"

_EFFORTS = {
    Effort.SETTING: "a setting of the loader",
    Effort.ENVIRONMENT: "a variable, or another program",
    Effort.CODE: "code",
    Effort.DATA: "the data in another form or place",
    Effort.HARDWARE: "hardware",
}
_GROUPS = {
    "What is trained on": rules.DATA,
    "What ended a training": rules.ENDED,
    "The input": rules.INPUT,
    "The machine": rules.MACHINE,
    "The training loop": rules.LOOP,
    "Ranks": rules.CROSS_RANK,
    "Traces": [rule for rule in rules.TRACE if rules.BY_ID[rule.rule_id] is rule],
    "Where no rule about the input speaks": rules.OTHERWISE,
}


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


def declared(rule: Rule[Any]) -> str:
    """Return what a rule declares: what it claims, what its fix asks for, and what it needs."""
    claims = ", ".join(f"`{pattern}`" for pattern in rule.claims) or "no time"
    effort = "another recording" if rule.asks_for_more else _EFFORTS[rule.effort]
    needs = rule.needs.value if rule.needs else "nothing"
    heads = "| claims | the fix asks for | beside the usual, the run must show |"
    return f"{heads}\n|---|---|---|\n| {claims} | {effort} | {needs} |\n"


def rule_index(folder: Path) -> str:
    """Return a table of all findings, with the first sentence of each one's page.

    Args:
        folder: docs/rules.
    """
    parts = []
    for title, members in _GROUPS.items():
        rows = [
            f"| [{rule.rule_id}]({rule.rule_id}.md) | {_lead(folder / f'{rule.rule_id}.md')} |"
            for rule in members
        ]
        parts.append("\n".join([f"## {title}", "", "| finding | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _lead(page: Path) -> str:
    """Return the first sentence of a rule's page, below what the rule declares."""
    text = page.read_text(encoding="utf-8").partition(LAST)[2]
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


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
    _renew(recording, libraries())
    for rule in rules.BY_ID.values():
        _renew(folder / "rules" / f"{rule.rule_id}.md", declared(rule))
    _renew(folder / "rules" / "index.md", rule_index(folder / "rules"))


def _renew(page: Path, written: str) -> None:
    page.write_text(renew_between(page.read_text(encoding="utf-8"), written), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
