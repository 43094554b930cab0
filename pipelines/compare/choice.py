"""Predicts what a training gets from each loader, and recommends one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feedline.pipelines.compare.ranking import faster
from feedline.pipelines.compare.result import Compute, Feeds, Row

ALIKE = 0.05  # rates that differ by less are alike: choosing between them is luck
REFERENCE = "pillow-v1"
SYNTHETIC = "synthetic"


def feeds(row: Row, compute: Compute, cores: float, device: str) -> Feeds:
    """Predict samples/s of a training with this loader: the lowest of three limits.

    loader: what the loader gave when nothing else ran.
    compute: one step after the other in the main thread: receiving a sample, then computing with it; and the loader's time on the GPU.
    cores: the CPU seconds of loading and computing a sample, shared out over the cores.
    """
    stolen = (row.gpu_s or 0.0) if device != "cpu" else 0.0
    limits = {
        "loader": row.samples_per_s,
        "compute": 1 / (compute.step_s + row.main_s + stolen),
        "cores": cores / (row.cpu_s + compute.cpu_s),
    }
    limit = min(limits, key=lambda name: limits[name])
    return Feeds(limits[limit], limit, limits)


@dataclass(frozen=True)
class Choice:
    """A recommendation.

    Attributes:
        message: in words.
        takes: the loader to take instead of the present one; empty: none.
    """

    message: str
    takes: str = ""


def choose(rows: Sequence[Row], compute: Compute | None, cores: float) -> Choice:
    """Recommend a loader, with reasons. Only faultless loaders are candidates; pillow-v1 stays unless another one is clearly better."""
    rates = {row.name: row.feeds.samples_per_s if row.feeds else row.samples_per_s for row in rows if row.measured}
    candidates = [row for row in rows if row.faultless and row.name != SYNTHETIC]
    if not candidates:
        return Choice("No loader was measured without a fault, so none is recommended.")
    best = max(candidates, key=lambda row: rates[row.name])
    alike = _alike(candidates, best, rates)
    now = next((row for row in candidates if row.name == REFERENCE), None)
    less = _if_less_will_do(rows, rates, rates[best.name])
    if now is not None and now in alike:
        return Choice(f"Keep {now.name}: {_keep(now, rows, candidates, rates)}.{less}")
    if now is None and len(rates) == 1:
        return Choice(f"Only {best.name} was measured ({rates[best.name]:,.0f} samples/s), so there is nothing to compare it with.")
    chosen = min(alike, key=lambda row: row.cpu_s)
    return Choice(f"Use {chosen.name}: {_gains(chosen, now, rates, compute)}{_fewest(chosen, alike)}.{less}", chosen.name)


def _alike(candidates: Sequence[Row], best: Row, rates: dict[str, float]) -> list[Row]:
    """Those that give about as much as the best: within ALIKE, or where the loader is all that counts, with the same place in the table."""
    slower = {name for name, clearly in faster(candidates).items() if best.name in clearly}
    near = [row for row in candidates if rates[row.name] >= (1 - ALIKE) * rates[best.name]]
    return [row for row in candidates if row in near or (row.feeds is None and row.name not in slower)]


def _if_less_will_do(rows: Sequence[Row], rates: dict[str, float], best: float) -> str:
    """The best of those that would be candidates if they did all of the transform."""
    would_be = [row for row in rows if row.missing and row.name != SYNTHETIC and replace(row, missing=()).faultless]
    more = [row for row in would_be if rates[row.name] > best]
    if not more:
        return ""
    chosen = max(more, key=lambda row: rates[row.name])
    gain = rates[chosen.name] / best
    missing = ", ".join(one.partition(":")[0] for one in chosen.missing)
    return f" {chosen.name} would be {gain:.2f} times as fast, but does not support {missing}."


def _keep(now: Row, rows: Sequence[Row], candidates: Sequence[Row], rates: dict[str, float]) -> str:
    others = [row for row in rows if row.measured and row.name not in (now.name, SYNTHETIC)]
    rivals = [row for row in candidates if row is not now]
    if not others:
        same = "no other loader was measured"
    elif not rivals:
        names = ", ".join(row.name for row in others)
        same = f"no other measured loader supports the full transform without a fault ({names})"
    else:
        ratio = {row.name: rates[row.name] / rates[now.name] for row in rivals}
        fastest = max(ratio, key=lambda name: ratio[name])
        gain = f"more than {100 * ALIKE:.0f} %" if now.feeds else "clearly"
        same = f"no other loader that supports the full transform is {gain} faster ({fastest}: {ratio[fastest]:.2f} times as fast)"
    if now.feeds is None or now.feeds.limit == "loader":
        return f"{now.samples_per_s:,.0f} samples/s; {same}"
    model = now.feeds.limits["compute"]
    return f"the model takes {model:,.0f} samples/s and gets {now.feeds.samples_per_s:,.0f} with it; {same}"


def _gains(chosen: Row, now: Row | None, rates: dict[str, float], compute: Compute | None) -> str:
    rate = rates[chosen.name]
    what = f"the model would get {rate:,.0f} samples/s" if compute is not None else f"{rate:,.0f} samples/s"
    if now is None or now is chosen:
        said = what
    else:
        said = f"{what}, {rate / rates[now.name]:.2f} times as fast as {now.name}"
    if compute is None or chosen.feeds is None:
        return said
    why = {
        "loader": "the loader would still be the limit",
        "compute": "the model itself would be the limit",
        "cores": "loader and model would use all cores",
    }
    return f"{said}; {why[chosen.feeds.limit]}"


def _fewest(chosen: Row, alike: Sequence[Row]) -> str:
    others = [row.name for row in alike if row is not chosen]
    return f"; of the loaders that are about as fast ({', '.join(others)}) it needs the least CPU time" if others else ""
