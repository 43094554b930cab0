"""Runs the branches of a verification, one after another, and reads their recordings."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feedline.analysis.convergence.read_training import read
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.convergence.trial import Branch, FixTrial, decide, final_value, usual_metric
from feedline.cli import child
from feedline.cli.branch import command as recording
from feedline.cli.branch import filled
from feedline.cli.unfinished import Unfinished, fingerprint
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError, FixError, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import say


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        arms: arm -> its ``--fix`` text; "" for none.
        program: script or ``-m module``, and its arguments with {arm}, {seed} and {checkpoint}.
        metric: None: what the branches have.
    """

    arms: dict[str, str]
    program: list[str]
    checkpoint: Path | None
    seeds: int
    ranks: int
    folder: Path
    force: bool
    metric: str | None
    margin: float
    quiet: bool = False


def begin(plan: Plan) -> tuple[Unfinished, bool]:
    """Prepare the folder; also returns whether it is new. Raises OutputError if there are older branches, or it cannot be created."""
    new = results.prepare(plan.folder, [], plan.force)
    asked = [
        *fingerprint([*plan.program, str(plan.checkpoint or "")]),
        str(plan.ranks),
        *(f"{arm}: {fix}" for arm, fix in plan.arms.items()),
    ]
    names = [_name_of(arm, seed) for seed in range(plan.seeds) for arm in plan.arms]
    return Unfinished(plan.folder, asked, names, plan.force), new


def _name_of(arm: str, seed: int) -> str:
    """Name of a branch's run folder."""
    return f"{arm}-seed{seed}"


def record(plan: Plan, unfinished: Unfinished) -> FixTrial:
    """Run every branch and decide. Arms alternate, so that a machine that becomes slower affects all of them.

    Raises:
        OutputError: there is no room. ScriptError: the unchanged training fails with the first seed.
        FixError: the fix did not act, the seeds change nothing, or no branch has the metric.
    """
    runs: dict[tuple[str, int], TrainingRecord | str] = {}
    for seed in range(plan.seeds):
        for arm, fix in plan.arms.items():
            runs[arm, seed] = _branch(plan, arm, seed, fix, unfinished)
            if (arm, seed) == ("baseline", 0) and isinstance(failed := runs[arm, seed], str):
                raise ScriptError(*f"the unchanged training failed: {failed}".split("\n", 1))
            see_that_seeds_differ(runs)
    good = {key: run for key, run in runs.items() if isinstance(run, TrainingRecord)}
    try:
        metric = plan.metric or usual_metric(list(good.values()))
    except ValueError as error:
        raise FixError(str(error)) from error
    if not any(metric in run.curves for run in good.values()):
        names = sorted(set().union(*(run.curves for run in good.values())) - {"lr"})
        raise FixError(f"no branch has a metric {metric!r}; the metrics are {', '.join(names)}")
    branches = [_outcome(arm, seed, run, metric) for (arm, seed), run in runs.items()]
    return decide(plan.arms["fix"], plan.arms.get("control", ""), metric, branches, plan.margin)


def _branch(plan: Plan, arm: str, seed: int, fix: str, unfinished: Unfinished) -> TrainingRecord | str:
    """Train once, unless that was already done. Returns what was recorded, or why there is nothing.

    Raises:
        FixError: the fix could not be applied.
    """
    run, log = plan.folder / _name_of(arm, seed), plan.folder / f"{_name_of(arm, seed)}.log"
    if run.name not in unfinished:
        if not plan.quiet:
            say(f"{arm}, seed {seed}{': ' + fix if fix else ''}")
        if code := _train(plan, run, log, arm, seed):
            return f"exit code {code}; end of {log}:\n{child.tail(log)}"
        unfinished.add(run.name)
    try:
        found = read(run)
    except FeedlineError as error:
        return str(error)
    if fix and (refused := _not_applied(found)):
        raise FixError(f"{refused}; see {log}")
    return found


def _train(plan: Plan, run: Path, log: Path, arm: str, seed: int) -> int:
    """Record one training. Returns and raises as ``child.run``."""
    words, fix = {"{arm}": arm, "{seed}": str(seed), "{checkpoint}": str(plan.checkpoint or "")}, plan.arms[arm]
    program = [filled(word, words) for word in plan.program]
    command = recording(run, ["--fix", fix] if fix else [], program, plan.ranks)
    variables = {f"FEEDLINE_{name.strip('{}').upper()}": value for name, value in words.items()}
    environment = {**os.environ, **variables}
    return child.run(command, log, environment)


def _not_applied(run: TrainingRecord) -> str:
    """Fixes that were not applied."""
    failed = run.setup.get("fixes_failed")
    return "; ".join(f"{name}: {why}" for name, why in failed.items()) if isinstance(failed, dict) else ""


def see_that_seeds_differ(runs: dict[tuple[str, int], TrainingRecord | str]) -> None:
    """Raises FixError if the first two seeds of the baseline have identical losses."""
    first = [run for seed in (0, 1) if isinstance(run := runs.get(("baseline", seed)), TrainingRecord)]
    losses = [run.curves["train loss"].values for run in first if "train loss" in run.curves]
    if len(losses) == 2 and np.array_equal(losses[0], losses[1], equal_nan=True):
        raise FixError("two seeds gave identical losses: pass {seed} in the training's arguments, or read FEEDLINE_SEED in it")


def _outcome(arm: str, seed: int, run: TrainingRecord | str, metric: str) -> Branch:
    """The metric of a branch."""
    if isinstance(run, str):
        return Branch(arm, seed, None, 0.0, 0, None, masks.text(run.splitlines()[0]))
    value = final_value(run, metric)
    failed = "" if math.isfinite(value) else f"its {metric} is {value}"
    return Branch(arm, seed, value if not failed else None, run.samples, run.updates, run.step_s, failed)
