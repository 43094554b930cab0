"""The report as text: 80 columns, narrower where the terminal is; everything is said in words and figures, color only repeats it."""

import io
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from feedline.analysis.finding import Finding
from feedline.analysis.model import Report, StepSummary, Workers
from feedline.analysis.quantities import BLANK, Scale, seconds, share, size, value
from feedline.analysis.reports import of_convergence, of_traces, words
from feedline.analysis.reports.console import Console
from feedline.analysis.reports.palette import family
from feedline.profiler.printable import printable, printable_in

WIDTH = 80
NARROW = 64  # below it, a sample's cost is told in lines instead of a table
NAME = 20  # longest stage name shown
GPU = "on the GPU"
RANKS = 8  # in the table of ranks
TOP_KERNELS, LONGEST_NAME = 5, 40
WORTH = 0.01  # of a step, from which on what would be different is told
COMM_PARTS = {
    "compute_s": "compute",
    "hidden_transfer_s": "transfer, hidden",
    "exposed_transfer_s": "transfer, exposed",
    "hidden_wait_s": "waiting, hidden",
    "exposed_wait_s": "waiting, exposed",
    "queue_s": "queue",
}
COLORS = {"wait": "red", "input": "yellow", "move": "green", "compute": "blue", "rest": "bright_black", "user": "cyan"}
SEVERITY_COLORS = {"high": "bold red", "low": "bold yellow", "info": "bold"}


def render(report: Report) -> str:
    """The report as plain text, 80 columns wide."""
    file = io.StringIO()
    show(report, Console(file=file, width=WIDTH, color_system=None, force_terminal=False))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def show(report: Report, console: Console) -> None:
    """Print the report, at most 80 columns wide."""
    width = min(WIDTH, console.width)
    for part in _parts(printable_in(report), width):
        console.print(part, width=width)


def _parts(report: Report, width: int) -> Iterable[RenderableType]:
    yield plain(words.sentence(report.verdict), "bold")
    yield plain(" · ".join([*words.pace(report.throughput), words.steps(report.throughput)]))
    yield plain(words.about(report.run), "" if report.run.state != "finished" else "dim")
    if said := words.ranks(report):
        yield plain(said)
    yield from _section("Mean step", _step(report.step, width) if report.step else [plain(words.NO_STEP)])
    if report.step and sum(report.step.waits.values()) > 0:
        yield from _section("Why the main process waited for a batch", [_waits(report.step, width)])
    if report.traces:
        yield from _section("Device and input, rank by rank", _traces(report))
    else:
        where = "" if report.workers and not report.workers.processes else " in a worker"
        yield from _section(f"One sample{where}", _samples(report.workers, width) if report.workers else [plain(words.NO_WORKERS)])
    if report.roofline:
        yield from _section("Roofline", [plain(words.roofline(report.roofline))])
    if report.comm:
        yield from _section("Communication", _communication(report, width))
    if trained := of_convergence.lines(report, width):
        yield from _section("Convergence", [plain(line) for line in trained])
    mean = report.step.mean_s if report.step else None
    yield from _section("Findings", [_finding(n, f, mean) for n, f in enumerate(report.findings, 1)] or [plain(words.NO_FINDINGS)])
    if refused := words.refused_that_matter(report.hooks):
        yield from _section("Could not be attached", [_item(hook.name, hook.why) for hook in refused])
    if report.notes:
        yield from _section("Notes", [_item("", note) for note in report.notes])
    command, gives = words.next_command(report)
    yield from _section("Next", [plain(command, "bold"), plain(gives, "dim")])


def plain(text: object, style: str = "") -> Text:
    """Text as it is: no markup, and nothing that a terminal would act on."""
    return Text(printable(text), style=style, overflow="fold")


def _section(title: str, body: Iterable[RenderableType]) -> Iterable[RenderableType]:
    yield Text("")
    yield Text(title, style="bold underline")
    yield from body


def _item(name: str, text: str) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    table.add_row("-", plain(f"{name}: {text}" if name else text))
    return table


def columns(*heads: str, gap: int = 1) -> Table:
    """A table whose first column is text and the others figures."""
    made = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    made.add_column(no_wrap=True)
    for _ in heads[1:]:
        made.add_column(justify="right", no_wrap=True)
    made.add_row(*(Text(head, "dim") for head in heads))
    return made


def _name(stage: str) -> Text:
    return plain(stage if len(stage) <= NAME else stage[: NAME - 1] + "…")


def _step(step: StepSummary, width: int) -> Iterable[RenderableType]:
    total = sum(step.stages.values())
    scale = Scale.column(max(total, step.mean_s))
    figures = {stage: (scale(time), share(time / total) if total > 0 else BLANK) for stage, time in step.stages.items()}
    names = max([len("stage"), *(min(NAME, len(stage)) for stage in step.stages)])
    on_gpu = {stage: scale(time) for stage, time in (step.gpu_stages or {}).items()}
    beside = max((len(GPU), *map(len, on_gpu.values()))) + 2 if on_gpu else 0
    room = width - names - max(len(scale.full(total)), 8) - len("100.0 %") - 6 - beside
    longest = max(step.stages.values(), default=0.0)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3 if on_gpu else 2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    head = [Text(GPU, "dim")] if on_gpu else []
    table.add_row(Text("stage", "dim"), Text(scale.unit, "dim"), Text("share", "dim"), *head, "")
    for stage, (time, part) in figures.items():
        bar = "█" * max(0, round(max(room, 0) * step.stages[stage] / longest)) if longest > 0 else ""
        beside_it = [Text(on_gpu.get(stage, ""))] if on_gpu else []
        table.add_row(_name(stage), time, part, *beside_it, Text(bar, COLORS[family(stage)]))
    table.add_row(Text("sum", "bold"), Text(scale(total), "bold"), Text(share(1.0) if total > 0 else BLANK, "bold"), "")
    yield table
    spread = f"median {seconds(step.median_s)} · 95 % within {seconds(step.p95_s)} · {words.BOUNDARIES.get(step.boundary, step.boundary)}"
    yield plain(spread, "dim")
    if step.evaluation_s > 0:
        yield plain(f"evaluation, outside the steps: {seconds(step.evaluation_s)} in all", "dim")


def _waits(step: StepSummary, width: int) -> RenderableType:
    total = sum(step.waits.values())
    scale = Scale.column(total)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for kind, time in step.waits.items():
        if time > 0:
            why = words.WAITS.get(kind, "") if width >= NARROW else ""
            table.add_row(_name(kind), scale.full(time), share(time / total), plain(why, "dim"))
    return table


def _samples(workers: Workers, width: int) -> Iterable[RenderableType]:
    if not workers.per_sample:
        yield plain(words.NO_SAMPLES)
        return
    scale = Scale.column(max(cost.wall_s for cost in workers.per_sample.values()))
    if width < NARROW:
        for stage, cost in workers.per_sample.items():
            parts = f"wall {scale.full(cost.wall_s)}, CPU {scale(cost.cpu_s)}"
            parts += f", waiting for CPU {scale(cost.runqueue_s)}, blocked {scale(cost.blocked_s)}"
            yield _item(stage, parts if cost.bytes is None else f"{parts}, {size(cost.bytes)}")
    else:
        yield _sample_table(workers, scale)
    yield plain(" · ".join(words.workers(workers)), "dim")


def _sample_table(workers: Workers, scale: Scale) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    titles = [f"wall {scale.unit}", "CPU", "waiting for CPU", "blocked", "bytes"]
    for _ in titles:
        table.add_column(justify="right", no_wrap=True)
    table.add_row(Text("stage", "dim"), *(Text(title, "dim") for title in titles))
    for stage, cost in workers.per_sample.items():
        times = [scale(time) for time in (cost.wall_s, cost.cpu_s, cost.runqueue_s, cost.blocked_s)]
        style = "bold" if stage == "total" else ""
        table.add_row(_name(stage), *times, BLANK if cost.bytes is None else size(cost.bytes), style=style)
    return table


def _traces(report: Report) -> Iterable[RenderableType]:
    table = columns("rank", *of_traces.heads(narrow=True), gap=2)
    for rank, cells in of_traces.rows(report, narrow=True):
        table.add_row(rank, *cells)
    yield table
    for why in of_traces.reasons(report):
        yield plain(f"{BLANK} {why}", "dim")
    for note in report.traces.budget_notes if report.traces else ():
        yield plain(words.sentence(note), "dim")
    for row in report.traces.kernels[:TOP_KERNELS] if report.traces else ():
        yield _item(
            f"{share(row.busy_share)} of busy time",
            f"{of_traces.kernel(row.name)[:LONGEST_NAME]}{f' ({row.operator})' if row.operator else ''}",
        )


def _communication(report: Report, width: int) -> Iterable[RenderableType]:
    shown, left_out = words.ranks_to_show(report, RANKS)
    scale = Scale.column(max((max(part or 0.0 for part in own.values()) for own in shown.values()), default=0.0))
    if width < NARROW:
        for rank, own in shown.items():
            yield _item(f"rank {rank}", ", ".join(f"{name} {scale.full(own.get(part))}" for part, name in COMM_PARTS.items()))
    elif shown:
        yield _rank_table(shown, scale)
    if left_out:
        yield plain(f"{left_out} more ranks are in the JSON report", "dim")
    yield plain(" ".join(words.communication(report)))
    answers = report.comm.what_if if report.comm else []
    for one in answers[1:]:
        if one.step_s is not None and abs(one.gain_s) >= WORTH * one.step_s:
            between = "" if one.low is None or one.high is None else f" ({seconds(one.low)} to {seconds(one.high)})"
            yield _item(f"with {one.what}", f"{seconds(one.step_s)} a step{between}")
    if answers and answers[0].step_s is None:
        yield plain(f"Nothing is predicted: {answers[0].why}.", "dim")


def _rank_table(shown: dict[str, dict[str, float | None]], scale: Scale) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in COMM_PARTS:
        table.add_column(justify="right")
    table.add_row(Text(f"rank, {scale.unit}", "dim"), *(Text(name, "dim") for name in COMM_PARTS.values()))
    for rank, own in shown.items():
        table.add_row(rank, *(scale(own.get(part)) for part in COMM_PARTS))
    return table


def _finding(number: int, finding: Finding, mean_step_s: float | None) -> RenderableType:
    severity = finding.severity.value
    head = plain(f"{number}. {severity.upper()}  {finding.cause}", SEVERITY_COLORS.get(severity, "bold"))
    if cost := words.cost(finding, mean_step_s):
        head.append(f"  {cost}", "not bold default")
    body: list[RenderableType] = [plain(words.sentence(finding.says))]
    body += [_item(e.what, value(e.value, e.unit, e.what)) for e in finding.evidence]
    if finding.fix:
        body.append(plain(f"Fix: {finding.fix}", "bold"))
    if finding.disproof:
        body.append(plain(f"Disproof: {finding.disproof}", "dim"))
    return Group(head, Padding(Group(*body), (0, 0, 0, 3)))
