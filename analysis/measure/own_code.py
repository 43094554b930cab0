"""The program's own code: what runs between models, backward passes and updates.

It is in no other stage (profiler/taps/own_code/stretches.py). Stretches of it were looked at by
chance, and each stands for others. What a function takes of them is what it takes of the step's own
code: the stage ``other``, and the part of ``loss`` that lies between a forward and its backward.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import FloatArray, IntArray, holds
from feedline.analysis.measure.boundaries import Boundaries
from feedline.analysis.measure.noise import interval
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.measure.step_model import OwnCode, OwnFunction, StepSummary
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.record_columns import Records
from feedline.profiler.store.segment_reader import Process

_FEWEST = 3  # steps whose code was looked at that are worth a mean
_FEWEST_EVALUATIONS = 2
_UNLIKE = 2  # times the longest that was looked at
_Z = 1.96  # of a 95 % interval
_MOST = 8  # functions that are kept
# of a function's time that a function called in it takes, at least, to be told with it
_MAINLY = 0.5


def of_steps(rank: RankMetrics, step: StepSummary) -> OwnCode | None:
    """Return what the code in steps does; None: too little of it was looked at."""
    if rank.steps is None:
        return None
    looks, steps = _looks(rank.main), rank.steps.boundaries
    step_of = steps.step_of(looks["start"])
    mixed = np.isin(step_of, _evaluate_with_gradients(rank.main, steps))
    chosen = looks[~_for_evaluation(looks, steps) & ~mixed & (step_of >= rank.first)]
    loss = (
        float(rank.steps.stages["loss"][rank.first :].sum()) if "loss" in rank.steps.stages else 0.0
    )
    of_loss = float(rank.steps.computing_loss[rank.first :].sum()) / loss if loss else 0.0
    of_input = rank.steps.making.functions if rank.steps.making else ()
    whole_s = step.stages["other"] + of_loss * step.stages.get("loss", 0.0)
    if len(chosen) < _FEWEST or whole_s <= 0:  # recording it may cost more than it takes
        return None
    few_s = _in_few(chosen, rank) * whole_s
    found = _of(chosen, rank.main, whole_s - few_s, of_input)
    return replace(found, s=whole_s, few_s=few_s) if found is not None else None


def _in_few(looks: Records, rank: RankMetrics) -> float:
    """Return which share of this code lies in few long steps unlike any that was looked at.

    What such a step does, as at the end of an epoch, none of the functions that were seen does.
    """
    assert rank.steps is not None
    own = (rank.steps.stages["other"] + rank.steps.computing_loss)[rank.first :]
    beyond = np.maximum(own - _UNLIKE * int(looks["wall"].max()), 0)
    return float(beyond.sum() / own.sum()) if own.sum() > 0 else 0.0


def of_evaluation(rank: RankMetrics, step: StepSummary) -> OwnCode | None:
    """Return what the code in evaluation, rollouts or generation does, without what happens once.

    None: too little of it was looked at.
    """
    if rank.steps is None or not step.evaluation_s:
        return None
    looks = _looks(rank.main)
    chosen = looks[_for_evaluation(looks, rank.steps.boundaries)]
    if step.evaluation_once_s:
        ends = rank.steps.boundaries.end
        chosen = chosen[holds(np.array([[ends[0], ends[-1]]]), chosen["start"])]
    recurs = step.evaluating_s / step.evaluation_s
    return (
        _of(chosen, rank.main, recurs * rank.steps.evaluating / 1e9)
        if len(chosen) >= _FEWEST_EVALUATIONS
        else None
    )


def _looks(main: Process) -> Records:
    """Return the looks without those that only say what looking cost."""
    looks = main.view(Stage.OWN_CODE)
    return looks[looks["looks"] > 0]


def _for_evaluation(looks: Records, steps: Boundaries) -> npt.NDArray[np.bool_]:
    return holds(steps.evaluation, looks["start"]) & (looks["flags"] & Flag.GRAD == 0)


def _evaluate_with_gradients(main: Process, steps: Boundaries) -> IntArray:
    """Return the steps with an evaluation whose forwards have gradients.

    What was looked at in such a step is of both, and nothing tells which is which.
    """
    forwards = main.of(Stage.FORWARD)
    inside = holds(steps.evaluation, forwards["start"]) & (forwards["flags"] & Flag.GRAD != 0)
    return np.unique(steps.step_of(forwards["start"][inside]))


def _of(
    looks: Records, main: Process, whole_s: float, without: Collection[str] = ()
) -> OwnCode | None:
    """Return the functions that took ``whole_s`` together.

    Those that belong to another stage are left out.
    """
    took = looks["wall"].astype(float)
    at = {
        (start, flags): index
        for index, (start, flags) in enumerate(
            zip(looks["start"].tolist(), looks["flags"].tolist())
        )
    }
    outer, depth = defaultdict[str, FloatArray](lambda: np.zeros(len(took))), Counter[str]()
    for record in main.view(Stage.CALLED):
        index = at.get((int(record["start"]), int(record["flags"])))
        name = main.names.get(int(record["source"]))
        if index is not None and name is not None:  # a damaged record has neither
            outer[name][index] += float(record["outer"])
            depth[name] += int(record["wall"])
    left_out = 0.0
    for name in without:
        gone = outer.pop(name, np.zeros(len(took)))
        took, left_out = np.maximum(took - gone, 0), left_out + float(gone.sum())
    if took.sum() <= 0:
        return None
    shares = {name: float(ns.sum() / took.sum()) for name, ns in outer.items() if ns.any()}
    inside = {name: ns / float(took.sum()) for name, ns in depth.items() if name not in without}
    most, functions = sorted(shares, key=shares.__getitem__, reverse=True)[:_MOST], []
    for name in most:
        low, high = _interval(outer[name], took)
        functions.append(
            OwnFunction(
                name,
                shares[name] * whole_s,
                low * whole_s,
                high * whole_s,
                _mainly(
                    name, shares[name], 1 - shares[name] + left_out / float(took.sum()), inside
                ),
            )
        )
    return OwnCode(whole_s, int(looks["looks"].sum()), functions)


def _interval(part: FloatArray, whole: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of sum(part) / sum(whole), float64 [looks] each.

    What only some of the looks saw may be rarer or more frequent than in those: the interval is at
    least that of how often it occurs (Wilson, J. Am. Stat. Assoc. 22, 1927), from as many equal
    looks as these are worth (Kish, Survey Sampling, 1965).
    """
    low, high = interval(part, whole)
    seen = float(whole[part > 0].sum() / whole.sum())
    if seen >= 1 or seen <= 0:
        return low, high
    number, share = float(whole.sum() ** 2 / (whole**2).sum()), float(part.sum() / whole.sum())
    middle = seen + _Z**2 / (2 * number)
    half = _Z * math.sqrt(seen * (1 - seen) / number + _Z**2 / (4 * number**2))
    least, most = ((middle + sign * half) / (1 + _Z**2 / number) for sign in (-1, 1))
    return min(low, share * least / seen), max(high, min(share * most / seen, 1.0))


def _mainly(name: str, share: float, outside: float, depth: Mapping[str, float]) -> str:
    """Return the deepest function that surely has half of another one's time, or more.

    What that one takes cannot all be outside of it.

    Args:
        share: what it takes.
        outside: what all others take, those that belong to another stage too.
    """
    inside = {
        other: took
        for other, took in depth.items()
        if other != name and took - outside >= _MAINLY * share
    }
    return min(inside, key=inside.__getitem__) if inside else ""
