"""What ``feedline probe`` says: the conclusion, ceilings, what was not measured and why."""

from collections.abc import Iterator
from itertools import groupby

from feedline.analysis.report import phrases
from feedline.analysis.report.document import Block, Document, Headline, Items, Note, Table
from feedline.analysis.text.formatting import BLANK, counted, number, seconds, share, size
from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.printable import printable_in

_PER = {"core": "on one core", "machine": "of the machine", "device": "of the device"}
_MAX_LEFT_OUT = 5
#: What makes a sample in most trainings -> its ceilings, of which CPU seconds are summed:
#: torchvision's ImageFolder in a DataLoader.
_USUAL_CEILINGS = {
    "read": ("read/files read warm x1",),
    "decode": ("decode/Pillow",),
    "augment": ("augment/all own transform",),
    "transport": ("collate/float32 shared", "transport/float32 shared"),
}
# part -> how the names of all ways to do it begin
_ALTERNATIVES = {"decode": "decode/", "augment": "augment/all "}
_COLD_READING = {"pattern": "files", "cache": "cold"}  # settings of ceilings of reading
_NEAR_BEST = 0.95  # of the best throughput, as pipelines/probes/sweep.py
_MIN_SPEEDUP = 1.1  # times faster, from which on another way is named
_WHY_ENDED = {
    "memory": "a larger batch does not fit into memory",
    "saturation": "two doublings gained less than 3 % in a first look",
    "time": "a larger step takes too long to measure",
    "error": "a larger batch raises an error",
}


def document_of(ceilings: Ceilings) -> Document:
    """Return the conclusion, the ceilings, what was not measured and why, and remarks."""
    return Document(tuple(_blocks(printable_in(ceilings))))


def _blocks(ceilings: Ceilings) -> Iterator[Block]:
    if ceilings.conclusion:
        yield Headline(*phrases.opening(ceilings.conclusion))
    yield _table([ceiling for ceiling in ceilings.ceilings if ceiling.value is not None])
    yield from map(Note, _remarks(ceilings.ceilings))
    if reasons := tuple(_not_measured(ceilings.ceilings)):
        yield Items(reasons, "Not measured")
    if ceilings.notes:
        more = len(ceilings.notes) - _MAX_LEFT_OUT
        shown = (*ceilings.notes[:_MAX_LEFT_OUT], *[f"and {more} more"][: more > 0])
        yield Items(shown, f"Files left out: {len(ceilings.notes)}")


def _table(measured: list[Ceiling]) -> Table:
    """Return a row for each ceiling, under its part.

    Of the same reading with 1, 4 and 16 processes only the fastest is shown.
    """
    rows: list[tuple[str, ...]] = []
    parts = set()
    for (part, per, unit), ceilings in groupby(
        _fastest_only(measured), lambda ceiling: (ceiling.part, ceiling.per, ceiling.unit)
    ):
        per_unit = {"B/s": "CPU / GB", "FLOP/s": "CPU / GFLOP"}.get(unit, "CPU / sample")
        parts.add(len(rows))
        rows.append((f"{part}, {_PER[per]}", "", "", per_unit))
        for ceiling in ceilings:
            name = f"  {ceiling.name.partition('/')[2]}"
            rows.append((name, _rate(ceiling), _spread(ceiling), _cpu(ceiling)))
    heads = ("part, how", "ceiling", "spread", "CPU")
    return Table(tuple(rows), heads, right=frozenset({1, 2, 3}), marked=frozenset(parts))


def _fastest_only(ceilings: list[Ceiling]) -> list[Ceiling]:
    """Drop ceilings that differ from another only in the number of readers, and are slower."""
    fastest: dict[str | int, Ceiling] = {}
    for place, ceiling in enumerate(ceilings):
        key: str | int = place
        if "readers" in ceiling.settings and ceiling.part == "read":
            key = ceiling.name.rpartition(" x")[0]
        if key not in fastest or (ceiling.value or 0) > (fastest[key].value or 0):
            fastest[key] = ceiling
    return list(fastest.values())


def _rate(ceiling: Ceiling) -> str:
    """Return ``1,240 samples/s``, ``3.27 GB/s`` or ``43.7 GFLOP/s``."""
    assert ceiling.value is not None
    if ceiling.unit == "B/s":
        return f"{size(ceiling.value)}/s"
    if ceiling.unit == "FLOP/s":
        factor, prefix = next(
            pair
            for pair in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (0.0, ""))
            if ceiling.value >= pair[0]
        )
        return f"{number(ceiling.value / (factor or 1.0))} {prefix}{ceiling.unit}"
    return f"{number(ceiling.value)} {ceiling.unit}"


def _spread(ceiling: Ceiling) -> str:
    """Return the smallest and the largest round, as percent of the median."""
    if not ceiling.value or ceiling.low is None or ceiling.high is None:
        return "specified"
    return (
        f"{100 * (ceiling.low / ceiling.value - 1):+.0f} .. "
        f"{100 * (ceiling.high / ceiling.value - 1):+.0f} %"
    )


def _cpu(ceiling: Ceiling) -> str:
    """Return the CPU time per sample, per GB, or per GFLOP."""
    if not ceiling.cpu_s:
        return BLANK
    return seconds(ceiling.cpu_s if ceiling.unit == "samples/s" else ceiling.cpu_s * 1e9)


def _not_measured(ceilings: list[Ceiling]) -> Iterator[str]:
    """Return each reason once, with everything that it applies to."""
    names: dict[str, list[str]] = {}
    for ceiling in ceilings:
        if ceiling.value is None:
            names.setdefault(ceiling.why, []).append(ceiling.name)
    for why, holds_for in names.items():
        yield f"{', '.join(holds_for)}: {why}"


def _remarks(ceilings: list[Ceiling]) -> Iterator[str]:
    """Return the model's MFU, and the knee of the batch size."""
    for ceiling in ceilings:
        settings = ceiling.settings
        if ceiling.name == "compute/model" and settings.get("mfu"):
            flop, mfu = float(str(settings["flop_per_sample"])), float(str(settings["mfu"]))
            yield (
                f"The model needs {number(flop / 1e9)} GFLOP per sample. MFU: {share(mfu)} of "
                f"the peak, {settings['peak_source']}"
            )
        if ceiling.name == "sweep/model" and ceiling.value is not None:
            yield _batch_size(ceiling)


def conclusion(ceilings: Ceilings) -> str:
    """Say which part limits a training with these parts, by CPU time.

    It is "" if nothing that makes samples was measured.
    """
    known = {ceiling.name: ceiling for ceiling in ceilings.ceilings if ceiling.value is not None}
    stages = {
        part: sum(known[name].cpu_s or 0.0 for name in names)
        for part, names in _USUAL_CEILINGS.items()
        if all(name in known for name in names)
    }
    stages = {part: cost for part, cost in stages.items() if cost > 0}
    if not stages or not ceilings.cores:
        return ""
    return " ".join(f"{sentence}." for sentence in _sentences(ceilings.cores, known, stages))


def _sentences(cores: float, known: dict[str, Ceiling], stages: dict[str, float]) -> Iterator[str]:
    total, costliest = sum(stages.values()), max(stages, key=lambda part: stages[part])
    missing = [part for part in _USUAL_CEILINGS if part not in stages]
    left_out = f" ({', '.join(missing)} not measured)" if missing else ""
    rate = cores / total
    loads = "load" if cores != 1 else "loads"
    at_most = "at most " if missing else ""
    yield (
        f"{counted(cores, 'core')} {loads} {at_most}about {number(rate)} samples/s: with "
        f"ImageFolder and DataLoader, a sample costs "
        f"{seconds(total)} of CPU time{left_out}, {seconds(stages[costliest])} of it to {costliest}"
    )
    yield from _model(known.get("compute/model"), cores, total, at_most)
    yield from _instead(known, costliest, stages[costliest])
    reading = [ceiling for ceiling in known.values() if ceiling.part == "read"]
    cold = max(
        (
            ceiling.value or 0.0
            for ceiling in reading
            if _COLD_READING.items() <= ceiling.settings.items()
        ),
        default=0.0,
    )
    if 0 < cold < rate:
        yield (
            f"While the files are not in the page cache, reading gives about {number(cold)} "
            f"samples/s"
        )


def _model(model: Ceiling | None, cores: float, total: float, at_most: str) -> Iterator[str]:
    """Compare with the model: on the same cores, or on a device of its own.

    Args:
        model: its ceiling.
        cores: number of CPUs.
        total: CPU seconds to make a sample.
        at_most: "at most " if parts of the input are missing in it: then only the input can be
            said to be the limit.
    """
    if model is None or not model.value:
        return
    if str(model.settings.get("device", "cpu")) == "cpu" and model.cpu_s:
        larger = "the input" if model.cpu_s <= total else "" if at_most else "the model"
        both = number(cores / (total + model.cpu_s))
        need = f"The model needs {seconds(model.cpu_s)} of CPU time per sample on the same cores"
        takes = f", and {larger} takes the larger share" if larger else ""
        yield f"{need}: together {at_most}about {both} samples/s{takes}"
    elif cores / total < model.value or not at_most:
        limit = "input" if cores / total < model.value else "model"
        yield (
            f"The model alone reaches {number(model.value)} samples/s, so the {limit} limits "
            f"this training"
        )


def _instead(known: dict[str, Ceiling], part: str, cost: float) -> Iterator[str]:
    """Name the way that costs least CPU time, if it is clearly less, and takes all of these files."""
    files = known[_USUAL_CEILINGS[part][0]].settings.get("files")
    ways = {
        name: ceiling.cpu_s
        for name, ceiling in known.items()
        if part in _ALTERNATIVES
        and name.startswith(_ALTERNATIVES[part])
        and ceiling.per == "core"
        and ceiling.cpu_s
        and not ceiling.settings.get("left_out")
        and ceiling.settings.get("files") == files
    }
    if not ways:
        return
    best = min(ways, key=lambda name: ways[name])
    if cost > _MIN_SPEEDUP * ways[best]:
        # the user's own transform does that too
        less = " without converting and normalizing" * (
            known[best].settings.get("finishes") is False
        )
        yield (
            f"{best.removeprefix(_ALTERNATIVES[part])} {part}s in {seconds(ways[best])}{less} "
            f"(whole loaders: `feedline compare --data FOLDER`)"
        )


def _batch_size(sweep: Ceiling) -> str:
    """Say from which batch size on throughput is near its best, and whether larger ones are better."""
    settings = sweep.settings
    batches = list(map(int, _numbers(settings["batches"])))
    rates = list(map(float, _numbers(settings["samples_per_s"])))
    best, largest = batches[rates.index(max(rates))], batches[-1]
    ended = _WHY_ENDED.get(str(settings["stopped"]))
    tried = f"{largest:,}, the largest that was tried{f' ({ended})' if ended else ''}"
    near = [rate >= _NEAR_BEST * max(rates) for rate in rates]
    knee = batches[near.index(True)]
    if knee == largest:
        ends = settings["stopped"] in ("memory", "error")
        larger = "" if ends else ": a larger one may be faster"
        return f"Batch size: throughput was best at {tried}{larger}"
    if best == largest:
        return f"Batch size: {knee:,} is within 5 % of the best, which was at {tried}"
    after = near[batches.index(knee) :]
    if all(after):
        return (
            f"Batch size: from {knee:,} up, throughput is within 5 % of its best (at "
            f"{best:,}), up to {tried}"
        )
    least = number(min(rates[batches.index(best) :]))
    return (
        f"Batch size: throughput is best at {best:,} and lower beyond: {least} samples/s at "
        f"the worst, up to {tried}"
    )


def _numbers(values: object) -> list[float]:
    assert isinstance(values, list)
    return values
