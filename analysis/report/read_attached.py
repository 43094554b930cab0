"""Reads what ``feedline attach -o FOLDER`` wrote of a training, to show it again."""

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

from feedline.analysis.explain.attached import ATTACHED_SCHEMA, AttachedReport
from feedline.analysis.report.json_report import key_of
from feedline.profiler.errors import RunDamaged, SchemaTooNew
from feedline.profiler.files.bounded import MOST_JSON, OF_RUN, json_of, one_line, whole
from feedline.profiler.files.checking import checked

ATTACHED_FILE = "attached.json"


def read_attached(folder: Path) -> AttachedReport:
    """Return what was seen.

    Raises:
        RunDamaged: the file is missing, or was changed or damaged.
        SchemaTooNew: a newer feedline wrote it.
    """
    path = folder / ATTACHED_FILE
    try:
        data = json_of(whole(path, MOST_JSON, OF_RUN))
        schema = data.get("schema_version") if isinstance(data, dict) else None
        if isinstance(schema, int) and schema > ATTACHED_SCHEMA:
            raise SchemaTooNew.of(path, schema, ATTACHED_SCHEMA)
        report: AttachedReport = checked(_named(AttachedReport, data), AttachedReport)
    except (OSError, ValueError) as error:
        raise RunDamaged(
            f"{path} cannot be read ({one_line(error)}): attach to the training again"
        ) from error
    return report


def _named(kind: Any, data: Any) -> Any:
    """Return JSON with the names that fields have in dataclasses, and what is unknown in them.

    It is the reverse of ``json_report.plain``; types are not checked.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        one = next(part for part in inside if part is not types.NoneType)
        return None if data is None else _named(one, data)
    if origin is list and isinstance(data, list):
        return [_named(inside[0], item) for item in data]
    if origin is dict and isinstance(data, dict):
        return {key: _named(inside[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(data, dict):
        hints = typing.get_type_hints(kind)
        return {
            field.name: field.metadata["unknown"]
            if data[key_of(field)] is None and "unknown" in field.metadata
            else _named(hints[field.name], data[key_of(field)])
            for field in dataclasses.fields(kind)
            if key_of(field) in data
        }
    return data
