"""What a run folder says of a training beside its records.

That is who ran what, how it ended, what its manifest has of the model's optimizer and of
torch.compile, and the source of the program.
"""

import datetime
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from feedline.analysis.explain.headline import how
from feedline.analysis.explain.model import Hook
from feedline.analysis.measure.at_end import AtEnd
from feedline.analysis.measure.boundaries import trains_forward
from feedline.analysis.measure.kept_windows import times
from feedline.analysis.measure.model import GraphBreak, Recompiled, RunInfo, Updated
from feedline.analysis.measure.source_lines import SourceLines
from feedline.profiler import masks
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.session.ending import INTERRUPTED
from feedline.profiler.store.manifest import Manifest
from feedline.profiler.store.run_folder import Rank, Run
from feedline.profiler.store.sampled_stacks import FileState
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.stacks_reader import read_file_states

#: Variables that change what glibc's malloc returns to the system.
_SETTINGS_OF_MALLOC = frozenset(
    (
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_TOP_PAD_",
        "MALLOC_MMAP_MAX_",
        "GLIBC_TUNABLES",
    )
)
_PARENTS = 3  # of a run folder: it is usually below the folder that the program was started in


def run_info(run: Run, rank: Rank, ending: AtEnd, ranks: Iterable[Rank]) -> RunInfo:
    """Return who ran what, and how it ended.

    Args:
        run: of which this is.
        rank: that ended first, which tells how the run ended, not how long it took.
        ending: of that rank.
        ranks: all that can be read.
    """
    manifest = rank.manifest
    anchor = manifest.anchors[0] if manifest.anchors else {"time_ns": 0}
    spans = [one.span_ns for one in ranks]
    return RunInfo(
        name=run.name,
        path=_place(run),
        state=manifest.state,
        command=manifest.command,
        started=datetime.datetime.fromtimestamp(
            anchor["time_ns"] / 1e9, datetime.timezone.utc
        ).isoformat(timespec="seconds"),
        duration_s=max((max(end - begin, 0) for begin, end in spans), default=0) / 1e9,
        exit_code=manifest.exit_code,
        ranks=len(run.ranks),
        versions=manifest.versions,
        machine=manifest.machine,
        model=_model(rank.main),
        optimizer=_optimizers(manifest.training),
        ended_by=masks.text(manifest.ended_by),
        ended_at=masks.text(manifest.ended_at),
        waited_s=ending.wait.s if ending.wait is not None else None,
        silent_s=ending.silent_s,
        stopped=str(rank.main.header.get("stopped", "")),
    )


def _place(run: Run) -> str:
    """Return the run folder, or what names one of its trainings.

    Folders that are private are left out.
    """
    folder = masks.place(run.folder)
    return folder if run.part is None else f"{folder}/{run.path.relative_to(run.folder)}"


def _model(main: Process) -> str:
    """Return the class of the module that was called most in training."""
    called = main.records["source"][trains_forward(main.records)]
    return main.names.get(int(np.bincount(called).argmax()), "") if len(called) else ""


def _optimizers(training: dict[str, object]) -> str:
    """Return the classes and first learning rates of optimizers, each once."""
    listed = training.get("optimizers")
    named = []
    for optimizer in listed if isinstance(listed, list) else []:
        rate = optimizer["groups"][0].get("lr") if optimizer["groups"] else None
        named.append(optimizer["kind"] if rate is None else f"{optimizer['kind']}, lr {rate:g}")
    return " + ".join(dict.fromkeys(named))


def failure_of(manifest: Manifest) -> str:
    """Return how a run ended with an error.

    It is empty for one that did not, that goes on, or that a person interrupted.
    """
    return (
        ""
        if manifest.exit_code == INTERRUPTED or manifest.state == "ended"
        else how(manifest.state, manifest.exit_code, manifest.ended_by)
    )


def hooks_of(manifest: Manifest) -> list[Hook]:
    """Return the taps that were attached, and those that could not be."""
    return [
        Hook(
            str(hook["name"]),
            bool(hook["attached"]),
            str(hook["why"]),
            str(hook.get("reason", "")),
        )
        for hook in manifest.hooks
    ]


def effective_cpus(manifest: Manifest) -> float:
    """Return how many CPUs the training may use, as far as that was recorded."""
    machine = manifest.machine
    return float(machine.get("effective_cpus") or machine.get("cpus") or 1)  # type: ignore[arg-type]


def glibc_version(manifest: Manifest) -> tuple[int, ...]:
    """Return the version of glibc's malloc, where nothing has changed its thresholds.

    (): that is not known, or the environment has changed them.
    """
    version = re.fullmatch(r"glibc (\d+)\.(\d+)", str(manifest.machine.get("malloc", "")))
    return (
        tuple(map(int, version.groups()))
        if version and not manifest.environment.keys() & _SETTINGS_OF_MALLOC
        else ()
    )


_ONCE = 0.1  # of the steps, by which the updates of an optimizer in each step may differ from them


def updated_by(training: Mapping[str, Any], main: Process, steps: int) -> Updated | None:
    """Return what the optimizer of each step updates, or several of one kind together.

    None: they are of different kinds or take turns, or none was described.
    """
    listed = training.get("optimizers")
    if not isinstance(listed, list) or len({one.get("kind") for one in listed}) != 1:
        return None
    optimizers = main.of(Stage.OPTIMIZER)["number"]
    _, updates = np.unique(optimizers, return_counts=True)
    every = updates * times(main, Stage.OPTIMIZER, len(optimizers))
    in_each = len(updates) == len(listed) and np.all(abs(every - steps) <= _ONCE * steps)
    if len(listed) > 1 and not in_each:
        return None
    kind = str(listed[0].get("kind", ""))
    groups = [group for one in listed for group in one.get("groups") or []]
    tensors, elements, sparse, complex_ = (
        sum(int(group.get(name) or 0) for group in groups)
        for name in ("tensors", "elements", "sparse", "complex")
    )
    tables = training.get("embeddings")
    of_tables = tables if isinstance(tables, dict) else {}
    return Updated(
        kind,
        tensors,
        elements,
        all(group.get("fused") is True for group in groups),
        int(of_tables.get("elements", 0)),
        int(of_tables.get("rows", 0)),
        len(groups),
        _step_of(listed),
        any(group.get("foreach") is True for group in groups),
        sparse,
        complex_,
    )


def _step_of(optimizers: Sequence[Mapping[str, Any]]) -> str | None:
    """Return torch's class whose ``step()`` these optimizers run; empty: one of their own.

    Recordings of before it was recorded have their module alone. None: not even that.
    """
    steps = {one.get("step", _step_by_module(one)) for one in optimizers}
    found = steps.pop() if len(steps) == 1 else ""
    return None if found is None else str(found)


def _step_by_module(optimizer: Mapping[str, Any]) -> str | None:
    module = optimizer.get("module")
    if not isinstance(module, str):
        return None
    return str(optimizer.get("kind", "")) if module.startswith("torch.optim.") else ""


def recompiled_functions(training: Mapping[str, Any]) -> tuple[Recompiled, ...]:
    """Return the functions that were compiled more than once, with what had changed most often."""
    return tuple(
        Recompiled(
            each["function"],
            each["place"],
            each["times"],
            each["gave_up"],
            cause.get("kind", ""),
            cause.get("name", ""),
            tuple(cause.get("values", ())),
        )
        for each in training.get("compiled", ())
        for cause in (*each["causes"], {})[:1]
    )


def graph_breaks_of(training: Mapping[str, Any]) -> list[GraphBreak]:
    """Return the lines at which graphs of torch.compile ended, most often first."""
    return [
        GraphBreak(each["function"], each["place"], each["reason"], each["times"])
        for each in training.get("graph_breaks", ())
    ]


def source_of(rank: Rank) -> SourceLines:
    """Return what reads lines of the program that a rank ran."""
    anchors, folder = rank.manifest.anchors, rank.folder.parent
    states: Mapping[str, FileState] = {}
    with suppress(FeedlineError):
        states = read_file_states(rank)
    begun_s = anchors[0]["time_ns"] / 1e9 if anchors else None
    folders = [*list(folder.absolute().parents)[:_PARENTS], *_folders_of_program()]
    return SourceLines(begun_s, folders, states)


def _folders_of_program() -> list[Path]:
    """Return the folders of scripts on this process's command line, as it runs or ran one of them."""
    return [Path(word).parent for word in sys.argv if word.endswith(".py")]
