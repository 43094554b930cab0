"""From a run folder to its reports: what ``feedline report`` and ``feedline.load`` share.

report_of                of one training
    recorded_report      of one that feedline recorded
        measure          records -> what each rank did, and the facts that rules read (measured.py)
        _predictions_of  limits (roofs.py), which predictions keep to (predictions.py)
        diagnose         findings in their order (diagnose.py, order.py), held against the limits
                         (next_limit.py)
        verdict          what holds the run back, in a sentence (verdict.py)
    traced_report        of traces of other tools
"""

import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np

from feedline.analysis.explain.diagnose import diagnose, diagnose_traces
from feedline.analysis.explain.measured import Measurement, measure
from feedline.analysis.explain.model import (
    CopyTime,
    KernelTime,
    OperatorTime,
    RankGpu,
    RankInput,
    RankSummary,
    Report,
    Roofline,
    TraceFile,
    Traces,
    Verdict,
)
from feedline.analysis.explain.next_limit import cap_at_next_limit, with_gains
from feedline.analysis.explain.predictions import Predictions, of_recording, refused_of_traces
from feedline.analysis.explain.roofs import roofline
from feedline.analysis.explain.speed_trial import REJECT, Trial, trials_of
from feedline.analysis.explain.verdict import of_finding, verdict, verdict_of_traces
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, PredictedRate
from feedline.analysis.ledger.trace_facts import SHOWN, TraceFacts, mean_step_s
from feedline.analysis.ledger.view.cpus import contended
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.measure.model import Gauge, RunInfo, Throughput
from feedline.analysis.measure.rank_metrics import RankMetrics, series
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.ranks.comparison import NO_HINTS, NetworkHints
from feedline.analysis.ranks.cross_rank import RankComparison
from feedline.analysis.ranks.many import rank_pool
from feedline.analysis.ranks.many.rank_pool import RankPool, chunked, each
from feedline.analysis.ranks.traced_ranks import compare
from feedline.analysis.rules import BY_ID, unknown_input
from feedline.analysis.rules.input import no_batch
from feedline.analysis.rules.loop import killed_worker
from feedline.analysis.traces import folder
from feedline.analysis.traces.kernel_names import short_name
from feedline.analysis.traces.rank_trace import RankTrace, summarise
from feedline.analysis.traces.trace_budget import FIGURES as GPU
from feedline.analysis.traces.trace_budget import StepBudget
from feedline.profiler import masks
from feedline.profiler.ceilings import CEILINGS_FILE, Ceilings
from feedline.profiler.errors import FeedlineError
from feedline.profiler.message import few, reworded
from feedline.profiler.store.layout import WINDOW
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import parse_part_path, pick_training, split_run

_SHOWN_ROWS = 100  # of each table
_INPUT = ("loader_pct", "stall_pct", "speedup_ceiling")


def report_of(
    run: Run,
    ceilings: Ceilings | None = None,
    hints: NetworkHints = NO_HINTS,
    processes: bool = True,
) -> Report:
    """Return the report of one training, or of traces.

    Args:
        processes: read the traces of several ranks in as many processes as there are CPUs.

    Raises:
        RunDamaged: no rank can be read.
    """
    if not holds_traces(run):
        return recorded_report(run, ceilings=ceilings, hints=hints)
    chosen: AbstractContextManager[rank_pool.RankPool] = (
        rank_pool.local() if processes and len(run.ranks) > 1 else rank_pool.here()
    )
    with chosen as workers:
        return traced_report(run, workers)


def holds_traces(run: Run) -> bool:
    """Tell whether a run folder was made of traces."""
    return any(folder.is_trace(rank.folder) for rank in run.ranks.values())


def recorded_report(
    run: Run, ceilings: Ceilings | None = None, hints: NetworkHints = NO_HINTS
) -> Report:
    """Read a run and say what it did and what holds it back.

    Args:
        run: an open run folder.
        ceilings: what the parts of the machine can do, for the roofline and the network.
        hints: what is known about the network.

    Raises:
        RunDamaged: the records of every rank's training process are missing.
    """
    read = measure(run, ceilings, hints)
    if read.facts is None:
        none = killed_worker.found(read.killed) or no_batch.found(
            read.end, read.run.loaders, read.run.run
        )
        said = of_finding(none, "" if none else _unknown(read.shown))
        return _report(read, said, [none] if none else [])
    predictions = _predictions_of(read, read.facts, ceilings, rejected_of(run))
    checks = read.run.convergence.checks if read.run.convergence else []
    findings = cap_at_next_limit(
        diagnose(read.facts, checks, predictions.attached),
        predictions.limits,
        read.facts.step.mean_s,
    )
    if read.ended_badly:
        findings = [_without_more(finding, read.facts) for finding in findings]
    beside_others = contended(read.facts) and not read.facts.on_gpu
    findings = with_gains(
        findings,
        read.run.throughput,
        read.run.step,
        beside_others,
        read.facts.all_steps_s,
        workers=_workers(read.facts),
    )
    together = predictions.together(findings)
    return _report(read, verdict(findings, read.facts), findings, predictions.limits, together)


def _unknown(shown: RankMetrics) -> str:
    """Return why nothing is known of the steps of a rank."""
    why = (
        f"Steps are longer than the windows of {WINDOW} batches that were kept"
        if shown.main.stride > 1 and shown.steps is not None
        else "No training step was recorded"
    )
    return f"{why}, so what limits the training is unknown."


def _workers(facts: RuleInputs) -> tuple[int, float] | None:
    """Return how many workers make batches, and the share of the time in which they do."""
    number, made = num_workers(facts), facts.workers
    return (number, (made.busy_share if made else None) or 1.0) if number else None


def _report(
    read: Measurement,
    said: Verdict,
    findings: list[Finding],
    limits: Roofline | None = None,
    together: PredictedRate | None = None,
) -> Report:
    """Return the report; of a run that hung, why that was comes before all else."""
    if read.hang is not None:
        said = of_finding(read.hang.finding, read.hang.limit, read.hang.cause, said.caveat)
        findings = [read.hang.finding, *findings]
    return Report.of(read.run, said, findings, limits, together)


def rejected_of(run: Run) -> list[Trial]:
    """Return the trials that rejected settings of this training.

    There are none if the process ran several, because trials do not say which.
    """
    return _rejected(run.path) if run.part is None else []


def _rejected(run: Path) -> list[Trial]:
    """Return the trials whose settings were rejected, and not accepted since."""
    last = {
        tuple(sorted(trial.settings.items())): trial
        for trial in sorted(trials_of(run), key=lambda trial: trial.at)
        if trial.settings
    }
    return [trial for trial in last.values() if trial.verdict == REJECT]


def _predictions_of(
    read: Measurement, facts: RuleInputs, ceilings: Ceilings | None, tried: Sequence[Trial]
) -> Predictions:
    """Return predictions for a run, held against its limits.

    They are those of its report, of ``whatif`` and of ``tune``. A rate is compared with limits of
    the input: how long steps wait for it must be known.

    Args:
        tried: trials that rejected settings, which are not predicted.
    """
    known = not facts.loader_elsewhere and unknown_input(facts) is None
    limits = roofline(read.run, ceilings) if known else None
    return of_recording(read.shown, facts, read.run.throughput.of_all_ranks, limits, tried)


def _without_more(finding: Finding, facts: RuleInputs) -> Finding:
    """Return the finding without its fix, where that is another recording.

    This run cannot simply be made longer, and the headline says why.
    """
    rule = BY_ID.get(finding.rule_id)
    if rule is None or not rule.asks_for_more or (rule.names_error and facts.failed):
        return finding
    return dataclasses.replace(finding, fix="")


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
    return _report_of_traces(run, traces, budgets, between, notes)


def _summaries(part: Sequence[tuple[int, Path]]) -> "list[tuple[int, RankTrace | FeedlineError]]":
    summaries: list[tuple[int, RankTrace | FeedlineError]] = []
    for number, place in part:
        try:
            summaries.append((number, summarise(folder.read(place))))
        except FeedlineError as error:
            summaries.append((number, error))
    return summaries


def _report_of_traces(
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
    findings = with_gains(
        diagnose_traces(facts, partial(refused_of_traces, facts=facts)), throughput, step
    )
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


@dataclasses.dataclass(frozen=True)
class TrainingInput:
    """What a prediction starts from.

    Attributes:
        shown: the rank that a report shows.
        facts: its training loader and its step; None: it made no step.
        throughput: of all its ranks.
        predictions: of that; None: it made no step.
    """

    shown: RankMetrics
    facts: RuleInputs | None
    gauges: list[Gauge]
    throughput: Throughput
    predictions: Predictions | None


def training_input(
    run: Run, ceilings: Ceilings | None = None, tried: Sequence[Trial] = ()
) -> TrainingInput:
    """Read what ``recorded_report`` reads, without its findings. Errors as there.

    Args:
        tried: trials that rejected settings, which are then not predicted.
    """
    read = measure(run, ceilings)
    predictions = _predictions_of(read, read.facts, ceilings, tried) if read.facts else None
    return TrainingInput(read.shown, read.facts, read.run.gauges, read.run.throughput, predictions)


def place(path: Path, training: int | None) -> tuple[Path, int | None]:
    """Return the run folder, and which of its trainings is meant.

    It is given as ``--part 2`` or ``RUN/parts/2``.

    Raises:
        RunDamaged: the folder cannot be listed.
    """
    named = parse_part_path(path)
    return (path, training) if named is None or training is not None else named


def of_process(run: Run, number: int | None) -> list[Run]:
    """Return the trainings that one process made one after the other; a run of traces is one.

    Args:
        number: only this one, from 1.

    Raises:
        RunNotFound: there is no such training.
    """
    if holds_traces(run):
        return [run]
    return split_run(run) if number is None else [pick_training(run, number)]


def ceilings_of(run: Path, files: Sequence[Path] | None = None) -> Ceilings | None:
    """Return what was measured of the machine; several files as one.

    Without files, it is ceilings.json of the run folder.

    Raises:
        CeilingsDamaged, SchemaTooNew: a file cannot be read.
    """
    own = (
        [Ceilings.read(run / CEILINGS_FILE, in_run=True)]
        if not files and os.path.lexists(run / CEILINGS_FILE)
        else []
    )
    ceilings = own or [Ceilings.read(file) for file in files or []]
    return Ceilings.joined(ceilings) if ceilings else None
