"""The JSON Schema of the JSON report, made from the dataclasses' type hints.

``docs/report.schema.json`` is its output.
"""

import dataclasses
import enum
import types
import typing

from feedline.analysis.explain.model import REPORT_SCHEMA_VERSION, Report
from feedline.analysis.report.json_report import key_of
from report_docs.fields import FIELDS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {str: "string", bool: "boolean", int: "integer", type(None): "null"}

Node = dict[str, typing.Any]


def schema() -> Node:
    """Return a JSON Schema (draft 2020-12) that every JSON report fulfils.

    All fields are required; others may be added without a new ``schema_version``. Every float may
    be null: NaN and infinity are written so.
    """
    definitions: dict[str, Node] = {}
    root = _dataclass(Report, definitions)
    root["properties"]["schema_version"] = {"const": REPORT_SCHEMA_VERSION} | {
        "description": FIELDS["Report"]["schema_version"].text()
    }
    identity = {
        "$schema": DIALECT,
        "$id": f"urn:feedline:report:{REPORT_SCHEMA_VERSION}",
        "title": "feedline report",
    }
    return {**identity, **root, "$defs": dict(sorted(definitions.items()))}


def _dataclass(cls: type, definitions: dict[str, Node]) -> Node:
    hints = typing.get_type_hints(cls)
    properties = {}
    for field in dataclasses.fields(cls):
        described = {"description": FIELDS[cls.__name__][key_of(field)].text()}
        properties[key_of(field)] = {**_hint(hints[field.name], definitions), **described}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _hint(hint: typing.Any, definitions: dict[str, Node]) -> Node:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return {"type": ["number", "null"]}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if hint in (object, typing.Any):
        return {}
    if origin in (typing.Union, types.UnionType):
        return _union([_hint(argument, definitions) for argument in arguments])
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _hint(arguments[0], definitions)}
    if origin is tuple:
        items = [_hint(argument, definitions) for argument in arguments]
        return {
            "type": "array",
            "prefixItems": items,
            "minItems": len(items),
            "maxItems": len(items),
        }
    if origin is dict:
        return {"type": "object", "additionalProperties": _hint(arguments[1], definitions)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # before its fields, so that a class may hold itself
            definitions[hint.__name__] = _dataclass(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(
        f"no JSON Schema for the type hint {hint!r}: add it to scripts/report_docs/schema.py"
    )


def _union(parts: list[Node]) -> Node:
    if all(set(part) == {"type"} for part in parts):
        names = [
            name
            for part in parts
            for name in ([part["type"]] if isinstance(part["type"], str) else part["type"])
        ]
        return {"type": list(dict.fromkeys(names))}
    return {"anyOf": parts}
