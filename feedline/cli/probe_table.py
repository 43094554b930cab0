"""The output of ``feedline probe``: a table of ceilings, what was not measured and why, and the model's figures."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedline.analysis.formatting import BLANK, number, seconds, share, size
from feedline.cli import probe_says
from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.printable import printable_in

_OF = {"core": "on one core", "machine": "of the machine", "device": "of the device"}
_LEFT_OUT_SHOWN = 5


def shown(ceilings: Ceilings) -> Iterator[RenderableType]:
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
            yield probe_says.batch_size(one)
