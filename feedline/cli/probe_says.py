"""The conclusion from the ceilings of ``feedline probe``, and from the sweep over batch sizes."""

from collections.abc import Iterator

from feedline.analysis.formatting import counted, number, seconds
from feedline.profiler.ceilings import Ceiling, Ceilings

#: What makes a sample in most trainings -> its ceilings, of which CPU seconds are summed: torchvision's ImageFolder in a DataLoader.
_USUAL = {
    "read": ("read/files read warm x1",),
    "decode": ("decode/Pillow",),
    "augment": ("augment/all own transform",),
    "transport": ("collate/float32 shared", "transport/float32 shared"),
}
_INSTEAD = {"decode": "decode/", "augment": "augment/all "}  # part -> how the names of all ways to do it begin
_COLD = {"pattern": "files", "cache": "cold"}  # settings of ceilings of reading
_NEAR = 0.95  # of the best throughput, as pipelines/probes/sweep.py
_WORTH = 1.1  # times faster, from which on another way is named
_WHY_ENDED = {
    "memory": "a larger batch does not fit into memory",
    "saturation": "two doublings gained less than 3 % in a first look",
    "time": "a larger step takes too long to measure",
}


def conclusion(ceilings: Ceilings) -> str:
    """Which part limits a training with these parts, by CPU time; empty if nothing that makes samples was measured."""
    known = {one.name: one for one in ceilings.ceilings if one.value is not None}
    stages = {part: sum(known[name].cpu_s or 0.0 for name in names) for part, names in _USUAL.items() if all(one in known for one in names)}
    stages = {part: cost for part, cost in stages.items() if cost > 0}
    if not stages or not ceilings.cores:
        return ""
    return " ".join(f"{one}." for one in _sentences(ceilings.cores, known, stages))


def _sentences(cores: float, known: dict[str, Ceiling], stages: dict[str, float]) -> Iterator[str]:
    total, most = sum(stages.values()), max(stages, key=lambda part: stages[part])
    missing = [part for part in _USUAL if part not in stages]
    left_out = f" ({', '.join(missing)} not measured)" if missing else ""
    rate = cores / total
    loads = "load" if cores != 1 else "loads"
    yield (
        f"{counted(cores, 'core')} {loads} about {number(rate)} samples/s: with ImageFolder and DataLoader, a sample costs "
        f"{seconds(total)} of CPU time{left_out}, {seconds(stages[most])} of it to {most}"
    )
    yield from _model(known.get("compute/model"), cores, total, rate)
    yield from _instead(known, most, stages[most])
    cold = max((one.value or 0.0 for one in known.values() if one.part == "read" and _COLD.items() <= one.settings.items()), default=0.0)
    if 0 < cold < rate:
        yield f"While the files are not in the page cache, reading gives about {number(cold)} samples/s"


def _model(model: Ceiling | None, cores: float, total: float, rate: float) -> Iterator[str]:
    """The model beside it: on the same cores, or on a device of its own."""
    if model is None or not model.value:
        return
    if str(model.settings.get("device", "cpu")) == "cpu" and model.cpu_s:
        larger = "the model" if model.cpu_s > total else "the input"
        both = number(cores / (total + model.cpu_s))
        need = f"The model needs {seconds(model.cpu_s)} of CPU time per sample on the same cores"
        yield f"{need}: together about {both} samples/s, and {larger} takes the larger share"
    else:
        limit = "input" if rate < model.value else "model"
        yield f"The model alone reaches {number(model.value)} samples/s, so the {limit} limits this training"


def _instead(known: dict[str, Ceiling], part: str, cost: float) -> Iterator[str]:
    """The way that costs least CPU time, where that is clearly less."""
    ways = {
        name: one.cpu_s
        for name, one in known.items()
        if part in _INSTEAD and name.startswith(_INSTEAD[part]) and one.per == "core" and one.cpu_s and not one.settings.get("left_out")
    }
    if not ways:
        return
    best = min(ways, key=lambda name: ways[name])
    if cost > _WORTH * ways[best]:
        yield f"{best.removeprefix(_INSTEAD[part])} {part}s in {seconds(ways[best])} (whole loaders: `feedline compare --data FOLDER`)"


def batch_size(sweep: Ceiling) -> str:
    """From which batch size on throughput is close to its best, and whether larger ones are better."""
    about = sweep.settings
    batches, rates = list(map(int, _list(about["batches"]))), list(map(float, _list(about["samples_per_s"])))
    best, largest = batches[rates.index(max(rates))], batches[-1]
    ended = _WHY_ENDED.get(str(about["stopped"]))
    tried = f"{largest:,}, the largest that was tried{f' ({ended})' if ended else ''}"
    near = [rate >= _NEAR * max(rates) for rate in rates]
    knee = batches[near.index(True)]
    if knee == largest:
        larger = "" if about["stopped"] == "memory" else ": a larger one may be faster"
        return f"Batch size: throughput was best at {tried}{larger}"
    if best == largest:
        return f"Batch size: {knee:,} is within 5 % of the best, which was at {tried}"
    after = near[batches.index(knee) :]
    if all(after):
        return f"Batch size: from {knee:,} up, throughput is within 5 % of its best (at {best:,}), up to {tried}"
    least = number(min(rates[batches.index(best) :]))
    return f"Batch size: throughput is best at {best:,} and lower beyond: {least} samples/s at the worst, up to {tried}"


def _list(values: object) -> list[float]:
    assert isinstance(values, list)
    return values
