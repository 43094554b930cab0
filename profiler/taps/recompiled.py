"""Describes what torch.compile compiled again, and why, for ``Manifest.training``.

compiled  [{"function": "forward", "place": "model.py:12", "times": 9, "gave_up": true, "causes": [{"kind": "size", "name": "x",
           "values": [3, 4, 5]}]}]
          functions that were compiled more than once; times: in all, of those that torch still knows; gave_up: the limit of
          recompilations was reached, and the function runs without compilation; causes: what had changed, most frequent first;
          kind: size, rank, stride, dtype, gradients (grad mode, requires_grad), number (values: what it was), module (one that was not
          seen before) or other; name: of the variable, empty where it is not one
graph_breaks  [{"function": "forward", "place": "model.py:14", "reason": "Data-dependent branching", "times": 2}]
          lines at which torch.compile ended a graph and went on in Python, most often first; times: in all compilations, those again too;
          reason: in torch's words, where they are among those that it lists itself; else other

torch itself keeps the latest compilations (``torch._dynamo.utils.get_compilation_metrics``, 64 of them), so nothing is attached. Only
sizes and numbers are taken over from its reasons, no values of texts.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from feedline.profiler import masks
from feedline.profiler.fail_open import fail_open

_MOST_FUNCTIONS, _MOST_CAUSES, _MOST_VALUES = 8, 3, 8
_LIMIT = "recompile limit"
_NAME = re.compile(
    r"(?:L\['(?P<local>\w+)'\]|(?P<plain>[A-Za-z_][\w.]*)"
    r"|[\w.]*param_groups\[\d+\]\['(?P<option>\w+)'\])$"  # no other keys: those may be texts
)
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
    "number": re.compile(
        r"(?P<name>[\w.\[\]']+) == (?P<was>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s|$)"
    ),
}


def compiled() -> dict[str, object]:
    """Return what of these keys the training has; nothing where nothing is to be told."""
    described: dict[str, object] = {}
    for name, describe in (("compiled", _compilations), ("graph_breaks", _graph_breaks)):
        with fail_open:  # what another version of torch keeps may be of another kind
            if told := describe():
                described[name] = told
    return described


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
    name = next(filter(None, match.groups()), "") if match is not None else ""
    return name if name and masks.is_name(name) else ""


_MOST_BREAKS = 16
_OTHER = "other"
#: What torch writes of a branch that depends on a tensor, where that is no error of its own.
_JUMP = "generic_jump"
_BRANCHING = "Data-dependent branching"


def _graph_breaks() -> list[dict[str, object]]:
    """Return the lines at which graphs ended, most often first.

    It is empty where torch has not compiled anything, or does not keep them.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    reasons = getattr(dynamo, "graph_break_reasons", ())
    listed = _listed() if reasons else frozenset()
    times = Counter(_at(one) + (_reason(str(one.reason), listed),) for one in reasons)
    return [
        {"function": function, "place": place, "reason": reason, "times": number}
        for (function, place, reason), number in times.most_common(_MOST_BREAKS)
    ]


def _at(reason: Any) -> tuple[str, str]:
    """Return function and line of the program; the innermost that is no library's."""
    for frame in reversed(list(reason.user_stack or ())):
        if not masks.library(frame.filename):
            function = frame.name if masks.is_name(frame.name) else masks.MASK
            return function, f"{masks.source(frame.filename)}:{frame.lineno}"
    return "", ""


def _reason(text: str, listed: Collection[str]) -> str:
    first = text.partition("\n")[0].strip()
    if first.startswith(_JUMP):
        return _BRANCHING
    return first if first in listed else _OTHER


def _listed() -> frozenset[str]:
    """Return the reasons that torch lists; they hold nothing of the program."""
    import torch._dynamo

    file = Path(torch._dynamo.__file__).with_name("graph_break_registry.json")
    try:
        entries = json.loads(file.read_text()).values()
        return frozenset(each["Gb_type"].strip() for several in entries for each in several)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return frozenset()
