"""Describes what torch.compile compiled again, and why, for ``Manifest.training``.

compiled  [{"function": "forward", "place": "model.py:12", "times": 9, "gave_up": true, "causes": [{"kind": "size", "name": "x",
           "values": [3, 4, 5]}]}]
          functions that were compiled more than once; times: in all, of those that torch still knows; gave_up: the limit of
          recompilations was reached, and the function runs without compilation; causes: what had changed, most frequent first;
          kind: size, rank, stride, dtype, gradients (grad mode, requires_grad), number (values: what it was), module (one that was not
          seen before) or other; name: of the variable, empty where it is not one

torch itself keeps the latest compilations (``torch._dynamo.utils.get_compilation_metrics``, 64 of them), so nothing is attached. Only
sizes and numbers are taken over from its reasons, no values of texts.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from feedline.profiler import masks

_MOST_FUNCTIONS, _MOST_CAUSES, _MOST_VALUES = 8, 3, 8
_LIMIT = "recompile limit"
_NAME = re.compile(r"(?:L\['(?P<local>\w+)'\]|(?P<plain>[A-Za-z_][\w.]*))$")
#: kind -> what torch writes, with the name of a variable and a value where there are.
_KINDS = {
    "size": re.compile(
        r"tensor '(?P<name>.+?)' size mismatch at index \d+\. expected (?P<was>\d+), "
        r"actual (?P<value>\d+)"
    ),
    "rank": re.compile(r"tensor '(?P<name>.+?)' rank mismatch"),
    "stride": re.compile(r"tensor '(?P<name>.+?)' stride mismatch"),
    "dtype": re.compile(r"tensor '(?P<name>.+?)' dtype mismatch"),
    "gradients": re.compile(r"requires_grad mismatch|grad_mode"),
    "module": re.compile(r"___check_obj_id|___check_type_id"),
    "number": re.compile(r"(?P<name>[\w.\[\]']+) == (?P<was>-?\d+(?:\.\d+)?)(?:\s|$)"),
}


def compiled() -> dict[str, object]:
    """Return the key ``compiled`` of the training; nothing where no function was compiled again."""
    described = _compilations()
    return {"compiled": described} if described else {}


def _compilations() -> list[dict[str, Any]]:
    """Return the functions that were compiled more than once, most often compiled first.

    It is empty where torch has not compiled anything, or does not keep what it has.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    frames: dict[str, list[Any]] = {}
    for one in dynamo.get_compilation_metrics() if dynamo is not None else ():
        frames.setdefault(str(one.compile_id).partition("/")[0], []).append(one)
    described = [_described(several) for several in frames.values()]
    often = [each for each in described if each is not None and each["times"] > 1]
    return sorted(often, key=lambda each: -each["times"])[:_MOST_FUNCTIONS]


def _described(several: list[Any]) -> dict[str, Any] | None:
    """Describe the compilations of one function; those that failed have no name of it."""
    named = next((one for one in several if one.co_filename), None)
    if named is None:
        return None
    file, function = named.co_filename, named.co_name
    return {
        "function": function if masks.is_name(function) else masks.MASK,
        "place": "" if masks.library(file) else f"{masks.source(file)}:{named.co_firstlineno}",
        "times": sum(bool(one.co_filename) and not one.fail_type for one in several),
        "gave_up": any(_LIMIT in str(one.fail_reason) for one in several),
        "causes": _causes(str(one.recompile_reason) for one in several if one.recompile_reason),
    }


def _causes(reasons: Iterable[str]) -> list[dict[str, object]]:
    """Return what had changed, most frequent first. A reason names one change for each graph."""
    times: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], list[float]] = {}
    for reason in reasons:
        kind, match = _kind(reason)
        given = match.groupdict() if match is not None else {}
        key = kind, _name(given.get("name") or "")
        times[key] += 1
        for value in (given.get("was"), given.get("value")):
            if value is not None and float(value) not in values.setdefault(key, []):
                values[key].append(float(value))
    return [
        {"kind": key[0], "name": key[1], "values": values.get(key, [])[:_MOST_VALUES]}
        for key, _ in times.most_common(_MOST_CAUSES)
    ]


def _kind(reason: str) -> tuple[str, re.Match[str] | None]:
    for kind, pattern in _KINDS.items():
        if (match := pattern.search(reason)) is not None:
            return kind, match
    return "other", None


def _name(written: str) -> str:
    match = _NAME.match(written)
    name = (match["local"] or match["plain"]) if match is not None else ""
    return name if name and masks.is_name(name) else ""
