"""Predicts what a training gets from each loader, and recommends one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.pipelines.compare.comparison_result import (
    MIN_ROUNDS,
    Compute,
    LoaderRow,
    faster_loaders,
    lies_above,
    median_interval,
)

_MIN_GAIN = 0.05  # rates that differ by less are alike: choosing between them is luck
_REFERENCE = "pillow-v1"


@dataclass(frozen=True)
class Choice:
    """A recommendation.

    Attributes:
        message: in words.
        takes: the loader to take instead of the present one; empty: none.
    """

    message: str
    takes: str = ""


def choose(rows: Sequence[LoaderRow], compute: Compute | None, cores: float) -> Choice:
    """Recommend a loader, with reasons.

    Only faultless loaders are candidates; pillow-v1 stays unless another one is clearly better.
    That one is faster than another is said only where their intervals lie apart.
    """
    measured = [row for row in rows if row.measured]
    candidates = [row for row in measured if row.faultless and not row.is_upper_bound]
    if not candidates:
        return Choice("No loader was measured without a fault, so none is recommended.")
    faster = _slower(measured)
    current = next((row for row in candidates if row.name == _REFERENCE), None)
    better = [row for row in candidates if current is None or row.name in faster[current.name]]
    best = max(better or candidates, key=_rate)
    incomplete = _faster_but_incomplete(rows, faster, best if better else current or best)
    if current is not None and not better:
        return Choice(f"Keep {current.name}: {_keep(current, rows, candidates)}.{incomplete}")
    if current is None and len(measured) == 1:
        return Choice(
            f"Only {best.name} was measured ({_rate(best):,.0f} samples/s), so there is nothing "
            f"to compare it with."
        )
    equally_fast = [row for row in better if best.name not in faster[row.name]]
    chosen = min(equally_fast, key=lambda row: row.cpu_s)
    return Choice(
        f"Use {chosen.name}: "
        f"{_gains(chosen, current, compute)}{_why_cheapest(chosen, equally_fast)}.{incomplete}",
        chosen.name,
    )


def _rate(row: LoaderRow) -> float:
    """Return the samples/s that count: those that the model gets, or the loader's own."""
    return row.feeds.samples_per_s if row.feeds else row.samples_per_s


def _interval(row: LoaderRow) -> tuple[float, float]:
    """Return the 95 % interval of ``_rate``."""
    return (row.feeds.low, row.feeds.high) if row.feeds else median_interval(row.rates)


def _slower(rows: Sequence[LoaderRow]) -> dict[str, set[str]]:
    """Map each loader to those that are clearly better.

    Without a model as in the table (``faster_loaders``); else those whose training has an interval
    above its own, and is faster by more than _MIN_GAIN.
    """
    if not all(row.feeds for row in rows):
        return faster_loaders(rows)
    return {
        row.name: {
            better.name
            for better in rows
            if lies_above(_interval(better), _interval(row))
            and _rate(better) > (1 + _MIN_GAIN) * _rate(row)
        }
        for row in rows
    }


def _faster_but_incomplete(
    rows: Sequence[LoaderRow], faster: dict[str, set[str]], best: LoaderRow
) -> str:
    """Name the best of those that would be candidates if they did all of the transform."""
    incomplete = [
        row
        for row in rows
        if row.missing and not row.is_upper_bound and replace(row, missing=()).faultless
    ]
    more = [row for row in incomplete if row.name in faster[best.name]]
    if not more:
        return ""
    chosen = max(more, key=_rate)
    missing = ", ".join(operation.partition(":")[0] for operation in chosen.missing)
    return (
        f" {chosen.name} would be {_rate(chosen) / _rate(best):.2f} times as fast, but does "
        f"not support {missing}."
    )


def _keep(current: LoaderRow, rows: Sequence[LoaderRow], candidates: Sequence[LoaderRow]) -> str:
    others = [
        row for row in rows if row.measured and row.name != current.name and not row.is_upper_bound
    ]
    rivals = [row for row in candidates if row is not current]
    if not others:
        same = "no other loader was measured"
    elif not rivals:
        names = ", ".join(row.name for row in others)
        same = f"no other measured loader supports the full transform without a fault ({names})"
    else:
        same = _no_gain(current, max(rivals, key=_rate))
    if current.feeds is None or current.feeds.limit == "loader":
        return f"{current.samples_per_s:,.0f} samples/s; {same}"
    model = current.feeds.limits["compute"]
    return (
        f"the model takes {model:,.0f} samples/s and gets {current.feeds.samples_per_s:,.0f} "
        f"with it; {same}"
    )


def _no_gain(current: LoaderRow, fastest: LoaderRow) -> str:
    """Say why the fastest of the others is not chosen: too small a gain, or none shown."""
    if lies_above(_interval(fastest), _interval(current)):
        gain = f"more than {100 * _MIN_GAIN:.0f} %" if current.feeds else "clearly"
        times = _rate(fastest) / _rate(current)
        return (
            f"no other loader that supports the full transform is {gain} faster "
            f"({fastest.name}: {times:.2f} times as fast)"
        )
    if _rate(fastest) <= _rate(current):
        return (
            f"no other loader that supports the full transform gave more ({fastest.name}: "
            f"{_rate(fastest):,.0f})"
        )
    rates = (
        f"{_rate(fastest):,.0f} samples/s ({_spread(fastest)}) against {_rate(current):,.0f} "
        f"({_spread(current)})"
    )
    more = (
        f", and more rounds (--rounds {2 * len(current.parts)}) may"
        if len(current.parts) >= MIN_ROUNDS
        else ""
    )
    return f"{fastest.name} shows no difference beyond the spread of the rounds, {rates}{more}"


def _spread(row: LoaderRow) -> str:
    """Write the interval in words."""
    low, high = _interval(row)
    return f"{low:,.0f} to {high:,.0f}"


def _gains(chosen: LoaderRow, current: LoaderRow | None, compute: Compute | None) -> str:
    what = (
        f"the model would get {_rate(chosen):,.0f} samples/s"
        if compute is not None
        else f"{_rate(chosen):,.0f} samples/s"
    )
    gain = (
        what
        if current is None or current is chosen
        else f"{what}, {_rate(chosen) / _rate(current):.2f} times as fast as {current.name}"
    )
    if compute is None or chosen.feeds is None:
        return gain
    why = {
        "loader": "the loader would still be the limit",
        "compute": "the model itself would be the limit",
        "cores": "loader and model would use all cores",
    }
    return f"{gain}; {why[chosen.feeds.limit]}"


def _why_cheapest(chosen: LoaderRow, equally_fast: Sequence[LoaderRow]) -> str:
    """Say why it is chosen rather than one that is not clearly slower."""
    others = [row for row in equally_fast if row is not chosen]
    if not others:
        return ""
    own_cpu_s = median_interval(chosen.cpu_each)
    cheapest = all(lies_above(median_interval(row.cpu_each), own_cpu_s) for row in others)
    *most, last = [row.name for row in others]
    names = f"{', '.join(most)} and {last}" if most else last
    are, need = ("are", "need") if most else ("is", "needs")
    return f"; {names} {are} about as fast" + f", but {need} more CPU time" * cheapest
