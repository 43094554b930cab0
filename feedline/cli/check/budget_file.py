"""The file of ``feedline check --budget``: TOML, read strictly, and a first one to start from.

Every key must be known. The first one has limits that a run holds, with room for its noise.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from feedline.analysis.convergence.checks import GRAVE, STOPS
from feedline.analysis.diff.budget import (
    MIN_STEPS,
    Budget,
    Figure,
    LimitOutcome,
    check_budget,
    figures_of,
    why_lost,
    why_unjudged,
)
from feedline.analysis.diff.side import ComparedRun
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules import BY_ID
from feedline.cli.parser import suggestion
from feedline.profiler.errors import BudgetError, NotJudged

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Table -> its keys; a key that ends in a dot is a table of stages.
_AT_LEAST = ("samples_per_s", "steps_per_s")
_AT_MOST = (
    "step_mean_s",
    "step_median_s",
    "step_p95_s",
    "step_cpu_s",
    "input_share",
    "stage_s.",
    "stage_share.",
    "sample_cpu_s.",
)
_THAN_BASE = ("step", "stage", "sample_cpu")
_FINDINGS = ("none_of_severity", "none_of")
_TOP = ("base", "min_steps", "at_least", "at_most", "findings", "than_base")
_DEFAULT = 0.05  # of [than_base], where there is a base and no limit
_MAX_BYTES = 1_000_000
_MAX_LIMIT = 1e30  # of a limit: what is larger, infinity too, limits nothing
#: Shares, in which a number from 1 on is a percentage by mistake.
_SHARES = ("at_most.input_share", "at_most.stage_share.", "than_base.")
#: Checks of how a training is set up that neither stop it nor are grave.
_OTHER_CHECKS = ("rate_outside_momentum", "sync_batch_norm", "rate_at_top", "skipped_steps")
_LESS, _MORE = 0.9, 1.2  # of what was measured: what a limit leaves for another run
_SHARE_ROOM, _MOST_SHARE = 0.1, 0.95
_COSTS = ("step_cpu_s", "sample_cpu_s.total")


def read(path: Path) -> Budget:
    """Read a budget; folders of ``base`` are relative to the file.

    Raises:
        BudgetError: it cannot be read, has an unknown key, a value of another kind, or no limit.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BudgetError(
                f"{path} is too large for a budget: give a TOML file with limits (docs/jobs/ci.md)"
            )
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BudgetError(
            f"cannot read {path} ({error.strerror}): give a TOML file with limits (docs/jobs/ci.md)"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BudgetError(f"{path} is not TOML: {error}") from error
    try:
        return _budget_of(table, path.parent)
    except ValueError as error:
        raise BudgetError(f"{path}: {error}") from error


def _budget_of(table: Mapping[str, Any], folder: Path) -> Budget:
    """Build a budget from its tables. Raises ValueError."""
    _refuse_unknown(table, _TOP, "")
    findings = _inner(table, "findings")
    _refuse_unknown(findings, _FINDINGS, "findings.")
    base = _texts(table, "base")
    than_base = _limits(_inner(table, "than_base"), _THAN_BASE, "than_base.")
    if than_base and not base:
        raise ValueError('[than_base] needs a base: add base = "runs/good" at the top of the file')
    budget = Budget(
        at_least=_limits(_inner(table, "at_least"), _AT_LEAST, "at_least."),
        at_most=_limits(_inner(table, "at_most"), _AT_MOST, "at_most."),
        severity=_severity(findings),
        rules=tuple(_rule(text) for text in _texts(findings, "none_of", "findings.")),
        than_base=than_base or (dict.fromkeys(_THAN_BASE, _DEFAULT) if base else {}),
        base=tuple(str(folder / text) for text in base),
        min_steps=_step_count(table.get("min_steps", MIN_STEPS)),
    )
    if not (
        budget.at_least or budget.at_most or budget.severity or budget.rules or budget.than_base
    ):
        raise ValueError("no limit is set: add at least one, such as step_mean_s under [at_most]")
    return budget


def _refuse_unknown(table: Mapping[str, Any], keys: Iterable[str], before: str) -> None:
    """Refuse a key that does not exist. Raises ValueError."""
    names = [key.rstrip(".") for key in keys]
    for key in table:
        if key not in names:
            raise ValueError(
                f"unknown key {before}{key}{suggestion(key, names)}; known: {', '.join(names)}"
            )


def _inner(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table in a table, empty if the key is missing. Raises ValueError."""
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} must be a table: [{key}]")
    return value


def _limits(table: Mapping[str, Any], keys: Iterable[str], before: str) -> dict[str, float]:
    """Return numbers by key, those of tables of stages as ``stage_s.forward``.

    Raises ValueError.
    """
    _refuse_unknown(table, keys, before)
    numbers: dict[str, float] = {}
    for key, value in table.items():
        if f"{key}." in keys:
            stages = _inner(table, key)
            numbers |= {
                f"{key}.{stage}": _limit(number, f"{before}{key}.{stage}")
                for stage, number in stages.items()
            }
        else:
            numbers[key] = _limit(value, f"{before}{key}")
    return numbers


def _limit(value: object, key: str) -> float:
    """Return a number of at least 0, below 1 if it is a share. Raises ValueError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= _MAX_LIMIT
    ):
        raise ValueError(f"{key} must be a number of at least 0, not {value!r:.40}")
    if key.startswith(_SHARES) and value >= 1:
        raise ValueError(f"{key} is a share: write 0.05 for 5 %, not {value!r}")
    if key.startswith(("than_base.", "at_least.")) and value <= 0:
        why = (
            "two runs are never exactly equal"
            if key.startswith("than_base.")
            else "no rate is below 0"
        )
        raise ValueError(f"{key} must be above 0: {why}")
    return float(value)


def _step_count(value: object) -> int:
    """Return the number of steps that are needed. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"min_steps must be a whole number of at least 1, not {value!r}")
    return value


def _texts(table: Mapping[str, Any], key: str, before: str = "") -> list[str]:
    """Return a text or a list of them, empty if the key is missing. Raises ValueError."""
    value = table.get(key, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{before}{key} must be a string or a list of strings, not {value!r}")
    if key in table and not texts:
        raise ValueError(
            f"{before}{key} is empty, so it would limit nothing: name at least one, or remove the "
            f"key"
        )
    return texts


def _severity(findings: Mapping[str, Any]) -> str:
    """Return ``high``, ``low`` or ``info``, or "" if the key is missing. Raises ValueError."""
    names = [member.value for member in Severity]
    value = findings.get("none_of_severity")
    if value is not None and value not in names:
        raise ValueError(
            f"findings.none_of_severity must be one of {', '.join(names)}, not {value!r}"
        )
    return value or ""


def _rule(rule_id: str) -> str:
    """Check the id of a rule. Raises ValueError."""
    rules = sorted({*BY_ID, *GRAVE, *STOPS, *_OTHER_CHECKS})
    if rule_id not in rules:
        pages = "docs/rules/index.md and docs/jobs/ci.md list all"
        raise ValueError(
            f"findings.none_of: there is no rule {rule_id!r}{suggestion(rule_id, rules)}; {pages}"
        )
    return rule_id


def starter_budget(run: ComparedRun, path: Path) -> str:
    """Return the text of a budget file that the run passes.

    Args:
        run: what the limits are from.
        path: its folder.

    Raises:
        NotJudged: the run is too short, or did not end.
    """
    if why := why_unjudged(Budget(), run) or why_lost(run):
        raise NotJudged(f"no budget can be made from {path}: {why}")
    figures = dict(figures_of(run))
    shown = os.path.relpath(path)
    lines = [
        f"# Limits that {shown} holds, with room for noise. Edit them, and then:",
        "#   feedline check RUN --budget budget.toml",
        "# docs/jobs/ci.md lists all keys.",
    ]
    for table, limits in (("at_least", _at_least), ("at_most", _at_most)):
        if held := list(limits(figures)):
            lines += ["", f"[{table}]", *held]
    (severe,) = check_budget(Budget(severity=Severity.HIGH.value), run, [], {})
    if severe.outcome == LimitOutcome.PASSED:
        lines += ["", "[findings]", 'none_of_severity = "high"']
    return "\n".join(lines) + "\n"


def _at_least(figures: dict[str, Figure]) -> Iterator[str]:
    name = "samples_per_s" if "samples_per_s" in figures else "steps_per_s"
    if (rate := figures.get(name)) is not None:
        limit = _rounded(min(_LESS * rate.value, rate.low or rate.value), math.floor)
        yield _line(name, limit, rate)


def _at_most(figures: dict[str, Figure]) -> Iterator[str]:
    if (waits := figures.get("input_share")) is not None:
        reached = max(waits.value, waits.high or 0.0)
        if reached <= _MOST_SHARE:  # else no limit leaves room for noise
            limit = min(max(waits.value + _SHARE_ROOM, reached), _MOST_SHARE)
            yield _line("input_share", math.ceil(100 * limit) / 100, waits)
    for name in _COSTS:
        if (cost := figures.get(name)) is not None and cost.value > 0:
            highest = max(_MORE * cost.value, cost.high or 0.0)
            yield _line(name, _rounded(highest, math.ceil), cost)


def _line(name: str, limit: float, figure: Figure) -> str:
    return f"{f'{name} = {limit:g}':32}  # measured: {figure.text(figure.value)}"


def _rounded(x: float, how: Callable[[float], int]) -> float:
    """Round to two significant digits, down or up."""
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{how(x / unit) * unit:.6g}")
