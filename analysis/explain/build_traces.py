"""The report of a run folder that holds traces of other tools."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from feedline.analysis.explain.diagnose import diagnose_traces
from feedline.analysis.explain.gain import with_gains
from feedline.analysis.explain.model import (
    CopyTime,
    KernelTime,
    OperatorTime,
    RankGpu,
    RankInput,
    RankSummary,
    Report,
    TraceFile,
    Traces,
)
from feedline.analysis.explain.verdict import verdict_of_traces
from feedline.analysis.ledger.trace_facts import SHOWN, TraceFacts, mean_step_s
from feedline.analysis.measure.model import RunInfo, Throughput
from feedline.analysis.measure.rank_metrics import series
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.ranks.cross_rank import RankComparison
from feedline.analysis.ranks.many.rank_pool import RankPool, chunked, each
from feedline.analysis.ranks.traced_ranks import compare
from feedline.analysis.traces import folder
from feedline.analysis.traces.kernel_names import short_name
from feedline.analysis.traces.rank_trace import RankTrace, summarise
from feedline.analysis.traces.trace_budget import FIGURES as GPU
from feedline.analysis.traces.trace_budget import StepBudget
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError
from feedline.profiler.message import few, reworded
from feedline.profiler.store.run_folder import Run

_SHOWN_ROWS = 100  # of each table
_INPUT = ("loader_pct", "stall_pct", "speedup_ceiling")


def holds_traces(run: Run) -> bool:
    """Tell whether a run folder was made of traces."""
    return any(folder.is_trace(rank.folder) for rank in run.ranks.values())


def traced_report(run: Run, pool: RankPool) -> Report:
    """Read all ranks' traces and say what they show.

    Args:
        pool: who reads them.

    Raises:
        RunDamaged: no rank's trace can be read.
    """
    notes = list(run.notes)
    traces: dict[int, RankTrace] = {}
    problem: FeedlineError | None = None
    todo = [(number, rank.folder) for number, rank in run.ranks.items()]
    for summaries in each(pool, _summaries, chunked(todo, 1), (), "working out figures"):
        for number, summary in summaries:
            if isinstance(summary, RankTrace):
                traces[number] = summary
            else:
                problem = summary
                notes.append(f"rank {number}: {summary}")
    if not traces:
        assert problem is not None
        raise problem
    traces = dict(sorted(traces.items()))
    between = compare(traces)
    budgets = {
        number: (between.budgets.get(number) if between else None) or trace.budget
        for number, trace in traces.items()
    }
    return _report(run, traces, budgets, between, notes)


def _summaries(part: Sequence[tuple[int, Path]]) -> "list[tuple[int, RankTrace | FeedlineError]]":
    summaries: list[tuple[int, RankTrace | FeedlineError]] = []
    for number, place in part:
        try:
            summaries.append((number, summarise(folder.read(place))))
        except FeedlineError as error:
            summaries.append((number, error))
    return summaries


def _report(
    run: Run,
    traces: Mapping[int, RankTrace],
    budgets: Mapping[int, StepBudget],
    between: RankComparison | None,
    notes: list[str],
) -> Report:
    first = min(traces)
    shown = traces[first]
    facts = TraceFacts(shown, budgets, between)
    step, throughput = _step(shown, budgets[first]), _throughput(shown, budgets[first])
    findings = with_gains(diagnose_traces(facts), throughput, step)
    return Report(
        run=_run_info(run, traces),
        verdict=verdict_of_traces(findings, facts),
        findings=findings,
        throughput=throughput,
        step=step,
        workers=None,
        loaders=[],
        ranks={
            str(number): _rank(trace, budgets[number], between, number)
            for number, trace in traces.items()
        },
        gauges=[],
        hooks=[],
        notes=[
            reworded(note, masks.text(run.named(note))) for note in (*notes, *_notes(run, between))
        ],
        comm=between.communication if between else None,
        traces=_traces(traces, budgets[first], facts),
        ledger=facts.ledger,
    )


def _run_info(run: Run, traces: Mapping[int, RankTrace]) -> RunInfo:
    first = run.ranks[min(traces)].manifest
    begin = min(
        (trace.origin_ns + trace.begin_ns for trace in traces.values() if trace.origin_ns),
        default=0,
    )
    return RunInfo(
        name=run.path.name,
        path=masks.place(run.path),
        state="finished",
        command=first.command,
        started=datetime.datetime.fromtimestamp(begin / 1e9, datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        duration_s=max((trace.end_ns - trace.begin_ns for trace in traces.values()), default=0)
        / 1e9,
        exit_code=None,
        ranks=len(traces),
        versions=first.versions,
        machine=first.machine,
    )


def _throughput(shown: RankTrace, budget: StepBudget) -> Throughput:
    mean, steps = mean_step_s(budget), shown.basis.steps
    return Throughput(None, 1 / mean if mean and steps else None, 0, steps, steps, None)


def _step(shown: RankTrace, budget: StepBudget) -> StepSummary | None:
    """Return the mean step by its budget; without steps, the whole trace as one."""
    if len(budget.edges) < 2:
        return None
    wall = np.diff(budget.edges)
    stages = {name: part.astype(float) for name, part in budget.parts.items() if part.any()}
    return StepSummary(
        mean_s=float(wall.mean()) / 1e9,
        median_s=float(np.median(wall)) / 1e9,
        p95_s=float(np.quantile(wall, 0.95)) / 1e9,
        stages={name: float(part.mean()) / 1e9 for name, part in stages.items()},
        waits={},
        boundary=shown.steps.by,
        evaluation_s=0.0,
        series=series(budget.edges[:-1], wall, stages),
    )


def _rank(
    trace: RankTrace, budget: StepBudget, between: RankComparison | None, number: int
) -> RankSummary:
    return RankSummary(
        steps=len(trace.steps),
        mean_s=mean_step_s(budget) or None,
        stages={name: float(part.mean()) / 1e9 for name, part in budget.parts.items() if len(part)},
        state="finished",
        comm=between.parts.get(number) if between else None,
        gpu=RankGpu(**{name: getattr(trace.gpu, name) for name in (*GPU, "reasons")}),
        input=RankInput(**{name: getattr(trace.input, name) for name in (*_INPUT, "reasons")}),
        budget=budget.shares,
    )


def _notes(run: Run, between: RankComparison | None) -> Iterator[str]:
    several = len(run.ranks) > 1
    for number, rank in run.ranks.items():
        for note in rank.manifest.notes:
            yield f"rank {number}: {note}" if several else note
    if between is not None:
        yield from between.notes


def _traces(traces: Mapping[int, RankTrace], budget: StepBudget, facts: TraceFacts) -> Traces:
    shown = facts.shown
    perhaps = facts.perhaps_communication
    unsure = (
        f"compute includes kernels that may be communication by their names: "
        f"{few([short_name(row.name) for row in perhaps], SHOWN)}"
    )
    return Traces(
        files=[
            TraceFile(number, trace.source, trace.maker, trace.events, (trace.end_ns - trace.begin_ns) / 1e9, trace.steps.how)
            for number, trace in traces.items()
        ],
        basis=shown.basis.says(shown.end_ns - shown.begin_ns),
        budget_notes=[*budget.notes, *([unsure] if perhaps else [])],
        kernels=[
            KernelTime(row.name, row.count, row.total_ns / 1e9, row.busy_share, row.communication, row.operator)
            for row in shown.kernels[:_SHOWN_ROWS]
        ],
        operators=[
            OperatorTime(row.name, row.kind.name.lower(), row.count, row.total_ns / 1e9, row.own_ns / 1e9, row.device_ns / 1e9,
                         row.flop, row.nbytes, row.flop_per_s, row.flop_per_byte)
            for row in shown.calls[:_SHOWN_ROWS]
        ],
        copies=[
            CopyTime(row.which.direction, row.which.memory, row.count, row.total_ns / 1e9, row.nbytes, row.gb_per_s)
            for row in shown.copies
        ],
    )  # fmt: skip
