"""Runs the branches of a verification, one after another, and reads what they recorded."""

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feedline.analysis.convergence.read import read
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.convergence.trial import Branch, Trial, decide, final_value, usual_metric
from feedline.cli.scale_runs import end, tail
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError, FixError, PlaceTaken, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import say


@dataclass(frozen=True)
class Plan:
    """What is run.

    Attributes:
        arms: arm -> its ``--fix`` text; "" for none.
        program: script or ``-m module``, and its arguments with {seed} and {checkpoint}.
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


def record(plan: Plan) -> Trial:
    """Run every branch, arms in turns so that a machine that becomes slower slows all of them, and decide.

    Raises:
        OutputError: there are older branches. ScriptError: the training as it is fails with the first seed.
        FixError: the fix did not act, the seeds change nothing, or no branch has the metric.
    """
    make_room(plan)
    runs: dict[tuple[str, int], Recorded | str] = {}
    for seed in range(plan.seeds):
        for arm, fix in plan.arms.items():
            say(f"{arm}, seed {seed}{': ' + fix if fix else ''}")
            runs[arm, seed] = branch(plan, arm, seed, fix)
            if (arm, seed) == ("baseline", 0) and isinstance(failed := runs[arm, seed], str):
                raise ScriptError(*f"the training as it is failed: {failed}".split("\n", 1))
            see_that_seeds_differ(runs)
    good = {key: run for key, run in runs.items() if isinstance(run, Recorded)}
    try:
        metric = plan.metric or usual_metric(list(good.values()))
    except ValueError as error:
        raise FixError(str(error)) from error
    if not any(metric in run.curves for run in good.values()):
        names = sorted(set().union(*(run.curves for run in good.values())) - {"lr"})
        raise FixError(f"no branch has a metric {metric!r}: there are {', '.join(names)}")
    branches = [outcome(arm, seed, run, metric) for (arm, seed), run in runs.items()]
    return decide(plan.arms["fix"], plan.arms.get("control", ""), metric, branches, plan.margin)


def make_room(plan: Plan) -> None:
    """Raises OutputError: there are older branches, or the folder cannot be made."""
    branches = [f"{arm}-seed{seed}" for seed in range(plan.seeds) for arm in plan.arms]
    results.prepare(plan.folder, [f"{name}.log" for name in branches], plan.force)
    for run in (plan.folder / name for name in branches):
        if os.path.lexists(run) and not plan.force:
            raise PlaceTaken(f"{run} exists already: name another folder with -o, or overwrite it with -f")


def branch(plan: Plan, arm: str, seed: int, fix: str) -> Recorded | str:
    """Train once. Returns what was recorded, or why there is nothing.

    Raises:
        FixError: the fix could not be applied.
    """
    run, log = plan.folder / f"{arm}-seed{seed}", plan.folder / f"{arm}-seed{seed}.log"
    words = {"{seed}": str(seed), "{checkpoint}": str(plan.checkpoint or "")}
    program = [filled(word, words) for word in plan.program]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(plan.ranks)] if plan.ranks > 1 else []
    options = ["-q", "-f", "--strict", "-o", str(run), *(["--fix", fix] if fix else [])]
    command = [sys.executable, *launcher, "-m", "feedline", "run", *options, *program]
    environment = {**os.environ, "FEEDLINE_SEED": str(seed), "FEEDLINE_CHECKPOINT": words["{checkpoint}"]}
    with os.fdopen(results.log(log.parent, log.name), "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait()
        finally:
            end(process)
    if code:
        return f"exit code {code}; {log} ends with\n{tail(log)}"
    try:
        found = read(run)
    except FeedlineError as error:
        return str(error)
    if fix and (refused := not_applied(found)):
        raise FixError(f"{refused}; {log} has more")
    return found


def filled(word: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def not_applied(run: Recorded) -> str:
    """Which fixes did not act."""
    failed = run.setup.get("fixes_failed")
    return "; ".join(f"{name}: {why}" for name, why in failed.items()) if isinstance(failed, dict) else ""


def see_that_seeds_differ(runs: dict[tuple[str, int], Recorded | str]) -> None:
    """Raises FixError: the first two seeds of the baseline have the very same losses."""
    first = [run for seed in (0, 1) if isinstance(run := runs.get(("baseline", seed)), Recorded)]
    losses = [run.curves["train loss"].values for run in first if "train loss" in run.curves]
    if len(losses) == 2 and np.array_equal(losses[0], losses[1], equal_nan=True):
        raise FixError("the seeds change nothing: put {seed} among the training's arguments, or let it read FEEDLINE_SEED")


def outcome(arm: str, seed: int, run: Recorded | str, metric: str) -> Branch:
    """A branch as a number."""
    if isinstance(run, str):
        return Branch(arm, seed, None, 0.0, 0, None, masks.text(run.splitlines()[0]))
    value = final_value(run, metric)
    failed = "" if math.isfinite(value) else f"its {metric} is {value}"
    return Branch(arm, seed, value if not failed else None, run.samples, run.updates, run.step_s, failed)
