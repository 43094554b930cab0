"""From a run folder to its reports: what ``feedline report`` and ``feedline.load`` share."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from feedline.analysis.explain.build import recorded_report
from feedline.analysis.explain.build_traces import holds_traces, traced_report
from feedline.analysis.explain.model import Report
from feedline.analysis.ranks.comparison import NO_HINTS, NetworkHints
from feedline.analysis.ranks.many import rank_pool
from feedline.profiler.ceilings import CEILINGS_FILE, Ceilings
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import parse_part_path, pick_training, split_run


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
