"""Parts of the report as text: tables, lists, and the words above them.

``terminal`` puts them into an order.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedline.analysis.explain.model import Report
from feedline.analysis.formatting import (
    BLANK,
    Scale,
    count,
    counted,
    seconds,
    share,
    share_range,
    size,
)
from feedline.analysis.measure.model import Loader, OwnCode, StepSummary, Workers
from feedline.analysis.measure.user_code import UserCode
from feedline.analysis.ranks.communication import RankParts
from feedline.analysis.report import of_traces, phrases
from feedline.analysis.report.document_text import COLORS, plain
from feedline.analysis.report.figures.rank_parts import PART_LABELS, QUEUE_KEY
from feedline.analysis.report.json_report import plain as as_json
from feedline.analysis.report.palette import family
from feedline.analysis.traces import kernel_names

_NARROW = 64  # below it, a sample's cost is told in lines instead of a table
NAME = 20  # longest stage name shown
_GPU = "GPU span"
_LONGEST_NAME = 40
SEVERITY_COLORS = {"high": "bold red", "low": "bold yellow", "info": "bold"}


def item(name: str, text: str) -> RenderableType:
    """Return a line of a list."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_row("-", plain(f"{name}: {text}" if name else text))
    return table


def columns(*heads: str, gap: int = 1) -> Table:
    """Return a table whose first column is text and the others figures."""
    made = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    for _ in heads[1:]:
        made.add_column(justify="right", no_wrap=True)
    made.add_row(*(Text(head, "dim") for head in heads))
    return made


def _name(stage: str, longest: int = NAME) -> Text:
    return plain(stage if len(stage) <= longest else stage[: longest - 1] + "…")


def step_table(step: StepSummary, width: int, longest_name: int = NAME) -> RenderableType:
    """Return the stages of the mean step, with their shares and bars."""
    total = math.fsum(step.stages.values())
    scale = Scale.column(max(total, step.mean_s))
    figures = {
        stage: (scale(time), share(time / total) if total > 0 else BLANK)
        for stage, time in step.stages.items()
    }
    names = max([len("stage"), *(min(longest_name, len(stage)) for stage in step.stages)])
    on_gpu = {stage: scale(time) for stage, time in (step.gpu_stages or {}).items()}
    beside = max((len(_GPU), *map(len, on_gpu.values()))) + 2 if on_gpu else 0
    room = width - names - max(len(scale.full(total)), 8) - len("100.0 %") - 6 - beside
    longest = max(step.stages.values(), default=0.0)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3 if on_gpu else 2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    head = [Text(_GPU, "dim")] if on_gpu else []
    table.add_row(Text("stage", "dim"), Text(scale.unit, "dim"), Text("share", "dim"), *head, "")
    for stage, (time, part) in figures.items():
        bar = (
            "█" * max(0, round(max(room, 0) * step.stages[stage] / longest)) if longest > 0 else ""
        )
        beside_it = [Text(on_gpu.get(stage, ""))] if on_gpu else []
        table.add_row(
            _name(stage, longest_name), time, part, *beside_it, Text(bar, COLORS[family(stage)])
        )
    table.add_row(
        Text("sum", "bold"),
        Text(scale(total), "bold"),
        Text(share(1.0) if total > 0 else BLANK, "bold"),
        "",
    )
    return table


def whole_run(parts: Sequence[tuple[str, float, float]]) -> RenderableType:
    """Return where the time of the run went: (what, seconds, share from 0 to 1) of each part."""
    scale = Scale.column(max(took for _, took, _ in parts))
    table = columns("", scale.unit, "share", gap=2)
    for what, took, part in parts:
        table.add_row(plain(what), scale(took), share(part))
    return table


def spread(step: StepSummary, usual: Sequence[str] = ()) -> Text:
    """Return how much steps differ.

    It says where they are cut if that is not one of the ``usual`` ways.
    """
    if step.boundary == "none":
        return plain(phrases.BOUNDARIES["none"], "dim")
    cut = [] if step.boundary in usual else [phrases.BOUNDARIES.get(step.boundary, step.boundary)]
    return plain(
        " · ".join([f"median {seconds(step.median_s)}", f"p95 {seconds(step.p95_s)}", *cut]), "dim"
    )


def own_code(own: OwnCode, mean_s: float | None) -> Iterable[RenderableType]:
    """Return functions and lines outside the stages.

    Args:
        mean_s: of the step; None: the figures are totals.
    """
    scale = Scale.column(own.s)
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(overflow="fold")
    for _ in range(2 if mean_s else 1):
        table.add_column(justify="right", no_wrap=True)
    heads = (
        "function, or lines between two recorded calls",
        scale.unit,
        *(["share"] if mean_s else []),
    )
    table.add_row(*(Text(head, "dim") for head in heads))
    for one in own.functions:
        mainly = f", mostly in {one.mainly}" if one.mainly else ""
        table.add_row(
            plain(f"{one.name}{mainly}"), scale(one.s), *([share(one.s / mean_s)] if mean_s else [])
        )
    yield table
    yield plain(phrases.own_code(own), "dim")


def user_code(code: UserCode) -> Iterable[RenderableType]:
    """Yield the program's functions, each below the one that calls it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    heads = ("function", "line that takes most", "share", "95 % interval")
    table.add_row(*(Text(head, "dim") for head in heads))
    place = None
    for one in code.functions:
        if place != (one.kind, one.place):
            place = (one.kind, one.place)
            table.add_row(Text(f"{one.place}, {one.kind}", "bold"))
        table.add_row(
            plain(f"{'  ' * one.depth}{one.function}"),
            plain(f"{one.file}:{one.line}"),
            share(one.share),
            share_range(one.low, one.high),
        )
    yield table
    yield plain(
        f"shares of making a sample ({counted(code.making_samples, 'stack')}), or of the step "
        f"({counted(code.step_samples, 'stack')})",
        "dim",
    )
    for why in code.refused:
        yield plain(f"not sampled: {why}", "dim")


def waits(step: StepSummary, width: int, meaning: Mapping[str, str]) -> RenderableType:
    """Say why the main process waited for a batch.

    Args:
        meaning: of each kind.
    """
    total = sum(step.waits.values())
    scale = Scale.column(total)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for kind, time in step.waits.items():
        if time > 0:
            why = meaning.get(kind, "")
            table.add_row(
                _name(kind),
                scale.full(time),
                share(time / total),
                plain(why if width >= _NARROW else "", "dim"),
            )
    return table


def samples(workers: Workers, width: int) -> Iterable[RenderableType]:
    """Return what a sample costs, stage by stage."""
    if not workers.per_sample:
        yield plain(phrases.NO_SAMPLES)
        return
    scale = Scale.column(max(cost.wall_s for cost in workers.per_sample.values()))
    if width < _NARROW:
        for name, _, cost, nbytes in phrases.sample_rows(workers):
            parts = f"wall {scale.full(cost.wall_s)}, CPU {scale(cost.cpu_s)}"
            parts += f", waiting for CPU {scale(cost.runqueue_s)}, blocked {scale(cost.blocked_s)}"
            yield item(name, parts if nbytes is None else f"{parts}, {size(nbytes)}")
    else:
        yield _sample_table(workers, scale)
    yield plain(" · ".join(phrases.workers(workers)), "dim")


def _sample_table(workers: Workers, scale: Scale) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    titles = [f"wall {scale.unit}", "CPU", "waiting for CPU", "blocked", "bytes"]
    for _ in titles:
        table.add_column(justify="right", no_wrap=True)
    table.add_row(Text("stage", "dim"), *(Text(title, "dim") for title in titles))
    for name, stage, cost, nbytes in phrases.sample_rows(workers):
        times = [scale(time) for time in (cost.wall_s, cost.cpu_s, cost.runqueue_s, cost.blocked_s)]
        style = "bold" if stage == "total" else ""
        table.add_row(_name(name), *times, BLANK if nbytes is None else size(nbytes), style=style)
    return table


def operations(workers: Workers) -> RenderableType:
    """Return the operations inside a sample, the slowest first."""
    ordered = sorted(workers.operations, key=lambda operation: -operation.wall_s)
    scale = Scale.of_seconds(ordered[0].wall_s if ordered else 0.0, digits=3)
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for _ in range(2):
        table.add_column(overflow="fold")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(
        *(
            Text(head, "dim")
            for head in ("operation, per sample", "stage", f"wall {scale.unit}", "CPU", "calls")
        )
    )
    for one in ordered:
        table.add_row(
            plain(one.name), plain(one.stage), scale(one.wall_s), scale(one.cpu_s), count(one.calls)
        )
    return table


def loader(made: Loader) -> Iterable[RenderableType]:
    """Return a loader and its settings."""
    facts = [
        f"{made.kind}, {made.role}",
        counted(made.batches, "batch"),
        counted(made.samples, "sample"),
    ]
    if made.batch_bytes is not None:
        facts.append(f"{size(made.batch_bytes)} per batch")
    if made.pickle_bytes is not None:
        facts.append(f"{size(made.pickle_bytes)} pickled")
    if made.first_batch_s is not None:
        facts.append(f"first batch after {seconds(made.first_batch_s)}")
    yield item(made.name, " · ".join([*facts, *made.flags]))
    settings = ", ".join(
        f"{name}={json.dumps(as_json(value), ensure_ascii=False)}"
        for name, value in made.settings.items()
    )
    yield Padding(plain(settings, "dim"), (0, 0, 0, 2))


def traces(report: Report, ranks: Sequence[str]) -> RenderableType:
    """Return the device and input of these ranks.

    A column that is blank for all of them is left out, and without any it says why.
    """
    rows = [(rank, cells) for rank, cells in of_traces.rows(report, narrow=True) if rank in ranks]
    heads = of_traces.heads(narrow=True)
    told = [at for at in range(len(heads)) if any(cells[at] != BLANK for _, cells in rows)]
    if not told:
        return plain(
            f"not measured: "
            f"{'; '.join(of_traces.reasons(report)[:1]) or 'the traces hold no device and no loader'}"
        )
    table = columns("rank", *(heads[at] for at in told), gap=2)
    for rank, cells in rows:
        table.add_row(rank, *(cells[at] for at in told))
    return table


def kernels(report: Report, most: int) -> Iterable[RenderableType]:
    """Return the kernels that keep the device busy longest, of the rank that is shown."""
    for row in report.traces.kernels[:most] if report.traces else ():
        operator = (
            f" ({row.operator})"
            if row.operator
            else " (communication)"
            if row.communication
            else ""
        )
        yield item(
            f"{share(row.busy_share)} of busy time",
            f"{kernel_names.fitting_name(row.name, _LONGEST_NAME)}{operator}",
        )


def communication(shown: dict[str, RankParts], width: int) -> Iterable[RenderableType]:
    """Return the computing, transfer and waiting of these ranks.

    There is a column for queueing, which is rare, where there is any.
    """
    scale = Scale.column(
        max(
            (getattr(own, part) or 0.0 for own in shown.values() for part in PART_LABELS),
            default=0.0,
        )
    )
    names = {
        part: name
        for part, (_, name, _) in PART_LABELS.items()
        if part != QUEUE_KEY or any(own.queue_s for own in shown.values())
    }
    if width < _NARROW:
        for rank, own in shown.items():
            yield item(
                f"rank {rank}",
                ", ".join(
                    f"{name} {scale.full(getattr(own, part))}" for part, name in names.items()
                ),
            )
    elif shown:
        yield _rank_table(shown, names, scale)


def _rank_table(
    shown: dict[str, RankParts], names: Mapping[str, str], scale: Scale
) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in names:
        table.add_column(justify="right")
    table.add_row(
        Text(f"rank, {scale.unit}", "dim"), *(Text(name, "dim") for name in names.values())
    )
    for rank, own in shown.items():
        table.add_row(rank, *(scale(getattr(own, part)) for part in names))
    return table
