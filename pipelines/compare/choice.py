"""What a training would get with each loader, and which one to take."""

from collections.abc import Sequence
from dataclasses import replace

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


def choose(rows: Sequence[Row], compute: Compute | None, cores: float) -> str:
    """Which loader to take, and why. Only those that are faultless are candidates; pillow-v1 stays if nothing is better."""
    rates = {row.name: row.feeds.samples_per_s if row.feeds else row.samples_per_s for row in rows if row.measured}
    candidates = [row for row in rows if row.faultless and row.name != SYNTHETIC]
    if not candidates:
        return "No loader was measured without a fault, so none is recommended."
    best = max(rates[row.name] for row in candidates)
    alike = [row for row in candidates if rates[row.name] >= (1 - ALIKE) * best]
    now = next((row for row in candidates if row.name == REFERENCE), None)
    if now is not None and (candidates == [now] or (compute is not None and now in alike)):
        return f"Keep {now.name}: {_keep(now, compute)}.{_if_less_will_do(rows, rates, best)}"
    chosen = min(alike, key=lambda row: row.cpu_s)
    return f"Take {chosen.name}: {_gains(chosen, now, rates, compute)}{_fewest(chosen, alike)}.{_if_less_will_do(rows, rates, best)}"


def _if_less_will_do(rows: Sequence[Row], rates: dict[str, float], best: float) -> str:
    """The best of those that would be candidates if they did all of the transform."""
    would_be = [row for row in rows if row.missing and row.name != SYNTHETIC and replace(row, missing=()).faultless]
    faster = [row for row in would_be if rates[row.name] > best]
    if not faster:
        return ""
    chosen = max(faster, key=lambda row: rates[row.name])
    gain = rates[chosen.name] / best
    return f" {chosen.name} would give {gain:.2f} times that, but leaves out {', '.join(one.partition(':')[0] for one in chosen.missing)}."


def _keep(now: Row, compute: Compute | None) -> str:
    same = f"no other loader that does all of the transform brings over {100 * ALIKE:.0f} % more"
    if compute is None or now.feeds is None or now.feeds.limit == "loader":
        return f"{now.samples_per_s:,.0f} samples/s, and {same}"
    return f"the model takes {1 / compute.step_s:,.0f} samples/s and gets {now.feeds.samples_per_s:,.0f} with it, and {same}"


def _gains(chosen: Row, now: Row | None, rates: dict[str, float], compute: Compute | None) -> str:
    rate = rates[chosen.name]
    what = f"the model would get {rate:,.0f} samples/s" if compute is not None else f"{rate:,.0f} samples/s"
    if now is None or now is chosen:
        said = what
    else:
        said = f"{what}, {rate / rates[now.name]:.2f} times as many as with {now.name}"
    if compute is None or chosen.feeds is None:
        return said
    why = {
        "loader": "the loader is then still the limit",
        "compute": "the model's own speed is then the limit",
        "cores": "loader and model then share the cores fully",
    }
    return f"{said}; {why[chosen.feeds.limit]}"


def _fewest(chosen: Row, alike: Sequence[Row]) -> str:
    others = [row.name for row in alike if row is not chosen]
    return f", with the fewest CPU seconds of those within {100 * ALIKE:.0f} % ({', '.join(others)})" if others else ""
