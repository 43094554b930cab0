"""Predicts what a training gets from each loader, and recommends one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.pipelines.compare.comparison import MIN_ROUNDS, Compute, LoaderRow, TrainingRate, faster_loaders, lies_above, median_interval

_MIN_GAIN = 0.05  # rates that differ by less are alike: choosing between them is luck
_REFERENCE = "pillow-v1"


def predict_training_rate(row: LoaderRow, compute: Compute, cores: float, device: str) -> TrainingRate:
    """Predict samples/s of a training with this loader: the lowest of three limits.

    - loader: what the loader gave when nothing else ran.
    - compute: one step after the other in the main thread: receiving a sample, then computing with
      it; and the loader's time on the GPU.
    - cores: the CPU seconds of loading and computing a sample, shared out over the cores.
    """
    stolen = (row.gpu_s or 0.0) if device != "cpu" else 0.0

    def limited(rate: float, cpu_s: float, main_s: float) -> dict[str, float]:
        return {"loader": rate, "compute": 1 / (compute.step_s + main_s + stolen), "cores": cores / (cpu_s + compute.cpu_s)}

    limits = limited(row.samples_per_s, row.cpu_s, row.main_s)
    limit = min(limits, key=lambda name: limits[name])
    (slow, fast), (cheap, dear), (brief, long) = (median_interval(each) for each in (row.rates, row.cpu_each, row.main_each))
    ends = min(limited(slow, dear, long).values()), min(limited(fast, cheap, brief).values())
    return TrainingRate(limits[limit], limit, limits, *ends)


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
    clearly = _slower(measured)
    now = next((row for row in candidates if row.name == _REFERENCE), None)
    better = [row for row in candidates if now is None or row.name in clearly[now.name]]
    best = max(better or candidates, key=_rate)
    less = _if_less_will_do(rows, clearly, best if better else now or best)
    if now is not None and not better:
        return Choice(f"Keep {now.name}: {_keep(now, rows, candidates)}.{less}")
    if now is None and len(measured) == 1:
        return Choice(f"Only {best.name} was measured ({_rate(best):,.0f} samples/s), so there is nothing to compare it with.")
    alike = [row for row in better if best.name not in clearly[row.name]]
    chosen = min(alike, key=lambda row: row.cpu_s)
    return Choice(f"Use {chosen.name}: {_gains(chosen, now, compute)}{_why_cheapest(chosen, alike)}.{less}", chosen.name)


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
            better.name for better in rows if lies_above(_interval(better), _interval(row)) and _rate(better) > (1 + _MIN_GAIN) * _rate(row)
        }
        for row in rows
    }


def _if_less_will_do(rows: Sequence[LoaderRow], clearly: dict[str, set[str]], best: LoaderRow) -> str:
    """Name the best of those that would be candidates if they did all of the transform."""
    would_be = [row for row in rows if row.missing and not row.is_upper_bound and replace(row, missing=()).faultless]
    more = [row for row in would_be if row.name in clearly[best.name]]
    if not more:
        return ""
    chosen = max(more, key=_rate)
    missing = ", ".join(operation.partition(":")[0] for operation in chosen.missing)
    return f" {chosen.name} would be {_rate(chosen) / _rate(best):.2f} times as fast, but does not support {missing}."


def _keep(now: LoaderRow, rows: Sequence[LoaderRow], candidates: Sequence[LoaderRow]) -> str:
    others = [row for row in rows if row.measured and row.name != now.name and not row.is_upper_bound]
    rivals = [row for row in candidates if row is not now]
    if not others:
        same = "no other loader was measured"
    elif not rivals:
        names = ", ".join(row.name for row in others)
        same = f"no other measured loader supports the full transform without a fault ({names})"
    else:
        same = _no_gain(now, max(rivals, key=_rate))
    if now.feeds is None or now.feeds.limit == "loader":
        return f"{now.samples_per_s:,.0f} samples/s; {same}"
    model = now.feeds.limits["compute"]
    return f"the model takes {model:,.0f} samples/s and gets {now.feeds.samples_per_s:,.0f} with it; {same}"


def _no_gain(now: LoaderRow, fastest: LoaderRow) -> str:
    """Say why the fastest of the others is not chosen: too small a gain, or none shown."""
    if lies_above(_interval(fastest), _interval(now)):
        gain = f"more than {100 * _MIN_GAIN:.0f} %" if now.feeds else "clearly"
        times = _rate(fastest) / _rate(now)
        return f"no other loader that supports the full transform is {gain} faster ({fastest.name}: {times:.2f} times as fast)"
    if _rate(fastest) <= _rate(now):
        return f"no other loader that supports the full transform gave more ({fastest.name}: {_rate(fastest):,.0f})"
    rates = f"{_rate(fastest):,.0f} samples/s ({_spread(fastest)}) against {_rate(now):,.0f} ({_spread(now)})"
    more = f", and more rounds (--rounds {2 * len(now.parts)}) may" if len(now.parts) >= MIN_ROUNDS else ""
    return f"{fastest.name} shows no difference beyond the spread of the rounds, {rates}{more}"


def _spread(row: LoaderRow) -> str:
    """Write the interval in words."""
    low, high = _interval(row)
    return f"{low:,.0f} to {high:,.0f}"


def _gains(chosen: LoaderRow, now: LoaderRow | None, compute: Compute | None) -> str:
    what = f"the model would get {_rate(chosen):,.0f} samples/s" if compute is not None else f"{_rate(chosen):,.0f} samples/s"
    gain = what if now is None or now is chosen else f"{what}, {_rate(chosen) / _rate(now):.2f} times as fast as {now.name}"
    if compute is None or chosen.feeds is None:
        return gain
    why = {
        "loader": "the loader would still be the limit",
        "compute": "the model itself would be the limit",
        "cores": "loader and model would use all cores",
    }
    return f"{gain}; {why[chosen.feeds.limit]}"


def _why_cheapest(chosen: LoaderRow, alike: Sequence[LoaderRow]) -> str:
    """Say why it is chosen rather than one that is not clearly slower."""
    others = [row for row in alike if row is not chosen]
    if not others:
        return ""
    dear = median_interval(chosen.cpu_each)
    cheapest = all(lies_above(median_interval(row.cpu_each), dear) for row in others)
    names = ", ".join(row.name for row in others)
    return f"; these rounds show no difference in speed to {names}" + (
        f", which need{'s' * (len(others) == 1)} more CPU time" if cheapest else ""
    )
