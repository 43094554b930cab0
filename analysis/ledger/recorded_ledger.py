"""The ledger of a recorded rank.

It is its mean step by stage and what is known of their inside, and where the time of the whole run
went.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from feedline.analysis.intervals import (
    FloatArray,
    IntArray,
    clip,
    common,
    flatten,
    joined,
    length,
    union,
    without,
)
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable, sample_rows, step_rows
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Cost
from feedline.analysis.measure.pace import throughput_of
from feedline.analysis.measure.periodic import step_numbers
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.stages import STAGE_OF_RECORD
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.measure.steps import kept_moments
from feedline.analysis.ranks.communication import ExposedKind, RankParts
from feedline.profiler.events import Stage

_THIRDS = 3
_FEWEST_IN_THIRD = 5  # steps: fewer have no trend

#: Before the first step, between steps, and after the last one: what a stage took there is a row
#: below these.
_START, _BETWEEN, _END = "start", "between", "end"
#: In steps that count: what a stage took is a row below it. Those in which torch.profiler recorded
#: do not count.
_STEPS, _PROFILED, _EVALUATION = "steps", "profiled", "evaluation"


def ledger_of(
    rank: RankMetrics,
    step: StepSummary,
    costs: Mapping[str, Cost] = MappingProxyType({}),
    parts: RankParts | None = None,
    kinds: Sequence[ExposedKind] = (),
    code: SampledCode | None = None,
) -> Ledger:
    """Return where the time of a rank went.

    Args:
        step: its mean step, with the program's own code.
        costs: stage -> mean cost of one sample; empty: none was seen.
        parts, kinds: of its communication with other ranks, as for ``step_rows``.
        code: the program's functions in sampled stacks; None: none were sampled.
    """
    sample = LedgerTable.made_of("sample", *sample_rows(costs, code)) if costs else None
    return Ledger(_step_table(rank, step, parts, kinds, code), _run_table(rank), sample)


def _step_table(
    rank: RankMetrics,
    step: StepSummary,
    parts: RankParts | None,
    kinds: Sequence[ExposedKind],
    code: SampledCode | None,
) -> LedgerTable:
    """Return the mean step as rows.

    Each has the share of steps in which its stage lies, how often it comes, and how it changes.

    Args:
        step, parts, kinds, code: of the same rank, as for ``step_rows``.
    """
    rows = step_rows(step, parts, kinds, code)
    known = [
        replace(
            row,
            steps=_occurs(rank, row.where),
            period=_period(rank, row.where),
            trend=_trend(rank, row.where),
        )
        if row.where in step.stages
        else row
        for row in rows
    ]
    return LedgerTable.made_of("step", step.mean_s, known)


def _occurs(rank: RankMetrics, stage: str) -> float | None:
    """Return the share (0 to 1) of the steps in which a stage occurs.

    Those that were only counted have it as often as those that stand for them. None: no steps have
    that stage.
    """
    ns, estimate = _counting(rank, stage), rank.estimate
    if ns is None or not len(ns):
        return None
    if estimate is None:
        return float(np.count_nonzero(ns) / len(ns))
    has = rank.stages[stage] != 0
    with_it = has[estimate.alone].sum() + estimate.stand_for * has[estimate.alike].mean()
    return float(with_it / (estimate.alone.sum() + estimate.stand_for))


def _period(rank: RankMetrics, stage: str) -> float | None:
    """Return the steps from one in which a stage occurs to the next, the median.

    None: fewer than two have it, or windows were forgotten, of which the next may have been one.
    """
    ns = _counting(rank, stage)
    if ns is None or rank.main.stride > 1:
        return None
    apart = np.diff(step_numbers(rank)[rank.first :][ns != 0])
    return float(np.median(apart)) if len(apart) else None


def _trend(rank: RankMetrics, stage: str) -> float | None:
    """Return what a stage takes in the last third of the recorded steps over the first.

    None: they are too few, or it took nothing.
    """
    ns = _counting(rank, stage)
    third = len(ns) // _THIRDS if ns is not None else 0
    if ns is None or third < _FEWEST_IN_THIRD:
        return None
    first, last = float(ns[:third].mean()), float(ns[-third:].mean())
    return last / first if first > 0 else None


def _counting(rank: RankMetrics, stage: str) -> FloatArray | None:
    """Return what the steps that count in the means took, float64 [n], ns."""
    if rank.steps is None or stage not in rank.stages:
        return None
    return rank.stages[stage][rank.first :]


def _run_table(rank: RankMetrics) -> LedgerTable | None:
    """Return where the time went from the recording's begin to its end.

    None: no step was made. Of one of several trainings of a process, it begins at the end of the
    one before, and ends at its own.
    """
    part = rank.rank.slice
    begin, end = rank.rank.span_ns if part is None else (part.begin, part.end)
    if rank.steps is None or end <= begin:
        return None
    whole = np.array([[begin, end]], np.int64)
    cut, counted = rank.steps.boundaries, rank.counted
    evaluation = common(cut.evaluation, whole)
    recorded = without(common(union(cut.start, cut.end), whole), evaluation)
    only_counted = without(
        common(union(counted.start, counted.end), whole), joined(recorded, evaluation)
    )
    outside = without(whole, joined(recorded, only_counted, evaluation))
    windows = rank.main.of(Stage.PROFILED)
    profiled = common(union(windows["start"], windows["start"] + windows["wall"]), outside)
    outside = without(outside, profiled)
    steps = joined(recorded, only_counted)
    if not len(steps):
        return None
    first, last = int(steps[0, 0]), int(steps[-1, 1])
    if rank.main.stride > 1:
        kept = kept_moments(rank.main)
        # nothing is forgotten before the first record
        outside = common(outside, joined(np.array([[begin, kept[0, 0]]]), kept))
    rows = [
        *_in_steps(rank, length(recorded) + length(only_counted)),
        LedgerRow(_EVALUATION, length(evaluation) / 1e9),
        LedgerRow(_PROFILED, length(profiled) / 1e9),
        *_by_stage(rank, _START, clip(outside, 0, first)),
        *_by_stage(rank, _BETWEEN, clip(outside, first, last)),
        *_by_stage(rank, _END, clip(outside, last, end)),
    ]
    if rank.main.stride > 1:
        only_counted_s = length(only_counted) / 1e9
        rows = _of_all_windows(rank, rows, (end - begin) / 1e9, only_counted_s)
    return LedgerTable.made_of("run", (end - begin) / 1e9, rows)


def _of_all_windows(
    rank: RankMetrics, rows: Sequence[LedgerRow], whole_s: float, only_counted_s: float
) -> list[LedgerRow]:
    """Return the rows of a whole run that forgot windows.

    Steps and evaluation are as many times what was kept as their totals tell, and what is left is
    between the steps. What happens once stays as it is.

    Args:
        rows: of what was kept.
        only_counted_s: of the steps that were only counted.
    """
    assert rank.steps is not None
    every, walls = throughput_of(rank.main, rank.steps).steps - rank.counted.number, rank.steps.wall
    early, usual = walls[: rank.first], walls[rank.first :]
    recorded_s = float(early.sum() + usual.mean() * (every - len(early))) / 1e9
    seconds = {
        _STEPS: recorded_s + only_counted_s,
        _EVALUATION: _sum(rows, _EVALUATION) * rank.steps.boundaries.evaluation_stands_for,
    }
    once_s = _sum(rows, _PROFILED) + _sum(rows, _START) + _sum(rows, _END)
    known_s, room_s = sum(seconds.values()), max(whole_s - once_s, 0.0)
    if known_s > room_s:  # they are estimates
        seconds = {name: s * room_s / known_s for name, s in seconds.items()}
    seconds[_BETWEEN] = room_s - sum(seconds.values())
    rows = [*rows, LedgerRow(_BETWEEN, 0.0 if _sum(rows, _BETWEEN) else 1.0)]
    stand_for = {name: s / (_sum(rows, name) or 1.0) for name, s in seconds.items()}
    return [replace(row, s=row.s * stand_for.get(row.stage, 1.0)) for row in rows]


def _sum(rows: Sequence[LedgerRow], part: str) -> float:
    """Return the seconds of the rows of one part of a run."""
    return sum(row.s for row in rows if row.stage == part)


def _in_steps(rank: RankMetrics, taken_ns: int) -> Iterator[LedgerRow]:
    """Return the rows of all steps.

    Counted ones are like those recorded in full, their stages in proportion.
    """
    assert rank.steps is not None
    sums = {name: float(ns.sum()) for name, ns in rank.stages.items()}
    if rank.estimate is not None:
        every = len(rank.steps.wall) + rank.counted.number
        means = rank.estimate.means(rank.stages)
        sums = {name: max(ns * every, 0.0) for name, ns in means.items()}
    known = sum(sums.values())
    for name, ns in sums.items():
        yield LedgerRow(f"{_STEPS}/{name}", ns / known * taken_ns / 1e9 if known else 0.0)


def _by_stage(rank: RankMetrics, where: str, moments: IntArray) -> Iterator[LedgerRow]:
    """Return the rows of what stages took in these moments, and of the rest of them."""
    records = rank.main.records
    spans = records[(records["thread"] == 0) & np.isin(records["stage"], list(STAGE_OF_RECORD))]
    pieces = flatten(spans["start"], spans["wall"])
    stage = spans["stage"][pieces.owner]
    left = length(moments)
    for code in np.unique(stage).tolist():
        chosen = stage == code
        ns = length(common(union(pieces.start[chosen], pieces.end[chosen]), moments))
        left -= ns
        yield LedgerRow(f"{where}/{STAGE_OF_RECORD[Stage(code)]}", ns / 1e9)
    yield LedgerRow(where, left / 1e9)
