"""The report as JSON: exactly the dataclasses, field by field.

docs/report.md says what each field means.
"""

import dataclasses
import enum
import json
import math
import numbers

from feedline.analysis.explain.model import Report


def render(report: Report) -> str:
    """Return the JSON text that ``docs/report.schema.json`` describes.

    Floats that are no number (NaN, infinity) become null.
    """
    return json.dumps(plain(report), indent=1, allow_nan=False) + "\n"


def key_of(field: "dataclasses.Field[object]") -> str:
    """Return the key of a field: its name, unless the format keeps an older one."""
    return str(field.metadata.get("key", field.name))


def _known(holder: object, field: "dataclasses.Field[object]") -> object:
    """Return the value of a field; None where it is what stands for "unknown" there."""
    value = getattr(holder, field.name)
    return None if "unknown" in field.metadata and value == field.metadata["unknown"] else value


def plain(value: object) -> object:
    """Return dataclasses, enums, tuples and NumPy scalars as what JSON has.

    An object that is none of these becomes its ``repr``.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key_of(field): plain(_known(value, field)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return {_text(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1:
        return plain(value.item())  # type: ignore[attr-defined]
    return _text(value if isinstance(value, str) else repr(value))


def _text(text: str) -> str:
    """Write the bytes of a path that are not UTF-8 as escapes of their code points.

    They arrive as lone surrogates, which strict JSON readers refuse.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
