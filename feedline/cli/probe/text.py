"""The output of ``feedline probe``: a table of ceilings, what was not measured and why, and the model's figures."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedline.analysis.formatting import BLANK, counted, number, seconds, share, size
from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.printable import printable_in

_OF = {"core": "on one core", "machine": "of the machine", "device": "of the device"}
_LEFT_OUT_SHOWN = 5
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


def tables(ceilings: Ceilings) -> Iterator[RenderableType]:
    """Everything, in order."""
    ceilings = printable_in(ceilings)
    yield _table([one for one in ceilings.ceilings if one.value is not None])
    reasons = list(_not_measured(ceilings.ceilings))
    if reasons:
        yield Text("Not measured", style="bold underline")
        yield from reasons
    yield from (Padding(Text(line), (1, 0, 0, 0)) for line in _remarks(ceilings))
    if ceilings.conclusion:
        yield Padding(Text(ceilings.conclusion, style="bold"), (1, 0, 1, 0))


def _table(measured: list[Ceiling]) -> Table:
    """A row for each ceiling under the name of its part; of the same reading with 1, 4 and 16 processes only the fastest."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("part, how", overflow="fold", min_width=24)
    for name in ("ceiling", "spread", "CPU"):
        made.add_column(name, justify="right", no_wrap=True)
    for (part, per, unit), rows in groupby(fastest_only(measured), lambda one: (one.part, one.per, one.unit)):
        per_unit = {"B/s": "CPU / GB", "FLOP/s": "CPU / GFLOP"}.get(unit, "CPU / sample")
        made.add_row(Text(f"{part}, {_OF[per]}", "bold"), "", "", Text(per_unit, "dim"))
        for one in rows:
            made.add_row(Text(f"  {one.name.partition('/')[2]}"), Text(_rate(one), "bold"), Text(spread(one)), Text(cpu(one)))
    return made


def fastest_only(ceilings: list[Ceiling]) -> list[Ceiling]:
    """Drop ceilings that differ from another only in the number of readers, and are slower."""
    best: dict[str, Ceiling] = {}
    for one in ceilings:
        key = one.name.rpartition(" x")[0] if "readers" in one.settings and one.part == "read" else one.name
        if key not in best or (one.value or 0) > (best[key].value or 0):
            best[key] = one
    return list(best.values())


def _rate(one: Ceiling) -> str:
    """``1,240 samples/s``, ``3.27 GB/s``, ``43.7 GFLOP/s``."""
    assert one.value is not None
    if one.unit == "B/s":
        return f"{size(one.value)}/s"
    if one.unit == "FLOP/s":
        factor, prefix = next(pair for pair in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (0.0, "")) if one.value >= pair[0])
        return f"{number(one.value / (factor or 1.0))} {prefix}{one.unit}"
    return f"{number(one.value)} {one.unit}"


def spread(one: Ceiling) -> str:
    """The smallest and the largest round, as percent of the median."""
    if not one.value or one.low is None or one.high is None:
        return "specified"
    return f"{100 * (one.low / one.value - 1):+.0f} .. {100 * (one.high / one.value - 1):+.0f} %"


def cpu(one: Ceiling) -> str:
    """CPU time per sample, per GB, or per GFLOP."""
    if not one.cpu_s:
        return BLANK
    return seconds(one.cpu_s if one.unit == "samples/s" else one.cpu_s * 1e9)


def _not_measured(ceilings: list[Ceiling]) -> Iterator[RenderableType]:
    """Each reason once, with everything that it applies to."""
    names: dict[str, list[str]] = {}
    for one in ceilings:
        if one.value is None:
            names.setdefault(one.why, []).append(one.name)
    for why, holds_for in names.items():
        yield Padding(Text(f"{', '.join(holds_for)}: {why}", overflow="fold"), (0, 0, 0, 2))


def _remarks(ceilings: Ceilings) -> Iterator[str]:
    """Files that were left out, the model's MFU, and the knee of the batch size."""
    if ceilings.notes:
        more = len(ceilings.notes) - _LEFT_OUT_SHOWN
        yield "\n".join([f"Files left out: {len(ceilings.notes)}", *ceilings.notes[:_LEFT_OUT_SHOWN], *[f"and {more} more"][: more > 0]])
    for one in ceilings.ceilings:
        about = one.settings
        if one.name == "compute/model" and about.get("mfu"):
            flop, mfu = float(str(about["flop_per_sample"])), float(str(about["mfu"]))
            yield f"The model needs {number(flop / 1e9)} GFLOP per sample. MFU: {share(mfu)} of the peak, {about['peak_source']}"
        if one.name == "sweep/model" and one.value is not None:
            yield batch_size(one)


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
