"""Compares what a report says with what it said before, numbers and texts apart: expected/NAME.json
and expected/NAME.KIND.txt.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).with_name("expected")
DIGITS = 12  # of a stored number
REL, ABS = 1e-9, 1e-12  # of sums in another order, on another CPU
SHOWN = 30  # differences in a message
ROWS = 10  # of a table, from which on it is stored by columns
AGAIN = (
    "If this was meant: `python -m pytest tests/golden --regenerate`, then look at `git diff "
    "tests/golden/expected`."
)
VERSION = re.compile(
    r"\b(feedline|python) \d[\w.+]*"
)  # of those that make the report, which is no part of what it says
#: Strings that programs read. All others are for people, and may change without a number.
IDS = frozenset(
    (
        "backend",
        "boundary",
        "cause",
        "cost_kind",
        "kind",
        "part",
        "phase",
        "role",
        "severity",
        "stage",
        "state",
        "unit",
        "where",
    )
)


@dataclass(frozen=True)
class Pinned:
    """The stored reports.

    Attributes:
        folder: where they are.
        regenerate: store what is given in place of comparing it.
    """

    folder: Path = EXPECTED
    regenerate: bool = False

    def numbers(self, name: str, told: Any) -> None:
        """Fail where a number, or an id beside it, is not what it was."""
        path, now = self.folder / f"{name}.json", dict(leaves(told))
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        moved = list(differences(before, now))
        lines = ",\n".join(
            f"{json.dumps(at)}: {json.dumps(shortened(leaf))}" for at, leaf in now.items()
        )
        more = [f"... and {len(moved) - SHOWN} more"] if len(moved) > SHOWN else []
        self._settle(
            path,
            bool(moved),
            f"{{\n{lines}\n}}\n",
            lambda: [f"numbers of {name} moved:", *moved[:SHOWN], *more],
        )

    def text(self, name: str, text: str) -> None:
        """Fail where a text is not what it was.

        Args:
            name: of the report and of what shows it: ``ranks.terminal``.
        """
        path, text = self.folder / f"{name}.txt", VERSION.sub(r"\1 X", text)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        changed = difflib.unified_diff(
            before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=1
        )
        self._settle(
            path,
            text != before,
            text,
            lambda: [f"{name} reads differently:", *islice(changed, 4 * SHOWN)],
        )

    def _settle(self, path: Path, changed: bool, now: str, says: Callable[[], list[str]]) -> None:
        if not changed:
            return
        if not self.regenerate:
            raise AssertionError("\n".join([*says(), AGAIN]))
        self.folder.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")


def leaves(told: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Each number and each id, by its place; lists of numbers and columns of long tables as one."""
    if isinstance(told, dict):
        for key, value in told.items():
            if not isinstance(value, str) or key in IDS:
                yield from leaves(value, f"{at}.{key}" if at else key)
    elif not isinstance(told, list):
        yield at, told
    elif all(isinstance(value, (int, float, type(None))) for value in told):
        yield from [(at, told)] if told else []  # else it may be of texts
    elif all(isinstance(value, dict) for value in told):
        yield from table(told, at)
    else:
        for number, value in enumerate(told):
            if not isinstance(value, str):
                yield from leaves(value, f"{at}[{number}]")


def table(rows: list[dict[str, Any]], at: str) -> Iterator[tuple[str, Any]]:
    """Leaves of a list of objects: a long one by columns, findings by their cause, others by their
    number.
    """
    causes = [row.get("cause") for row in rows]
    if len(rows) >= ROWS:
        flat = [dict(leaves(row)) for row in rows]
        for column in dict.fromkeys(key for row in flat for key in row):
            yield f"{at}[].{column}", [row.get(column) for row in flat]
    elif None not in causes and len(set(causes)) == len(rows):
        yield f"{at}[].cause", causes
        for rule_id, row in zip(causes, rows):
            yield from leaves(
                {key: value for key, value in row.items() if key != "cause"}, f"{at}[{rule_id}]"
            )
    else:
        for number, row in enumerate(rows):
            yield from leaves(row, f"{at}[{number}]")


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What is gone, what is new, and what moved, in words."""
    yield from (f"- {at} is gone: it was {before[at]!r}" for at in before if at not in now)
    yield from (f"+ {at} is new: {now[at]!r}" for at in now if at not in before)
    for at in before:
        if at in now and not alike(before[at], now[at]):
            yield from moves(at, before[at], now[at])


def moves(at: str, before: Any, now: Any) -> Iterator[str]:
    """How a leaf moved; of two lists of one length, which of their numbers."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now)):
            if not alike(*pair):
                yield f"  {at}[{number}]: {pair[0]!r} is {pair[1]!r} now"
    else:
        yield f"  {at}: {before!r} is {now!r} now"


def alike(before: Any, now: Any) -> bool:
    """Whether a leaf is what it was."""
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(alike, before, now))
    if {type(before), type(now)} in ({float}, {float, int}):
        return math.isclose(before, now, rel_tol=REL, abs_tol=ABS)
    return type(before) is type(now) and bool(before == now)


def shortened(leaf: Any) -> Any:
    """With as many digits as a comparison needs."""
    if isinstance(leaf, list):
        return [shortened(value) for value in leaf]
    return float(f"{leaf:.{DIGITS}g}") if isinstance(leaf, float) else leaf
