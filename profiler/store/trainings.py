"""The trainings of a run: the program's own process is one, and each group of ranks that it started is another.

RUN/rank0/                  the process that ``feedline run`` became
RUN/training-1/rank0/ ...   ranks of a training that began in processes below it
RUN/training-0              names the training in RUN/rank0, ... where there are others; its report lies there
RUN/parts/2                 names the second training of one process wherever a run folder can be named; its report lies there
RUN/processes.jsonl         what each Python process below it did

A sweep or a cross-validation makes an optimizer for each of its trainings. Optimizers belong to one training if they have parameters of the
same modules, if one goes on after the other began (a GAN, an ensemble), or if no pass over a loader began between them; all else is a
training of its own (record/optimizer_tracker.py writes down what that takes). It begins where its loader's pass began, and holds what was
recorded from there on until the next one begins: its own evaluation too, which is in none of its steps.
"""

import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.profiler.errors import FeedlineError, RunDamaged, RunNotFound
from feedline.profiler.events import Flag, Stage
from feedline.profiler.files.bounded import refuse_link
from feedline.profiler.files.own_folders import read_list
from feedline.profiler.store import process_log
from feedline.profiler.store.layout import (
    BINS,
    FIELDS,
    SAMPLE_HISTOGRAM,
    STAGES,
    bin_of,
)
from feedline.profiler.store.manifest import PROGRAM, Manifest
from feedline.profiler.store.record_columns import Records, sums_of
from feedline.profiler.store.run_folder import PartNumber, Rank, Run, Slice, rank_folders
from feedline.profiler.store.segment_reader import Process


def open_run(path: Path) -> Run:
    """Open a run folder with a single training, which may be of a process below the program's own.

    ``RUN/parts/2`` opens the second of several trainings of one process.

    Raises:
        RunNotFound: there is none, or it holds several trainings.
        RunDamaged, SchemaTooNew: as ``Run.of_folder``.
    """
    if (place := parse_part_path(path)) is not None:
        return pick_training(open_run(place[0]), place[1])
    listed = trainings(path)
    if len(listed) > 1:
        raise RunNotFound(
            f"{path} holds {len(listed)} training runs: name one of them, "
            f"{' or '.join(str(training.folder) for training in listed[:4])}"
        )
    return listed[0].run


TRAINING_PREFIX = "training-"
_OWN_TRAINING = f"{TRAINING_PREFIX}0"


@dataclass(frozen=True)
class Training:
    """A training.

    Attributes:
        folder: by which it goes, and where its report lies: the run folder, or one of its own in
            it.
        run: its ranks.
    """

    folder: Path
    run: Run

    @property
    def name(self) -> str:
        return self.folder.name


def trainings(path: Path) -> list[Training]:
    """Return the trainings of a run, in order of their start.

    Processes without a step are left out if others have some.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
    """
    listed = _trainings(path)
    by_program = process_log.ended(path.parent if path.name.startswith(TRAINING_PREFIX) else path)
    _mark_ended_by_program(
        [rank.manifest for training in listed for rank in training.run.ranks.values()], by_program
    )
    return listed


def _mark_ended_by_program(manifests: list[Manifest], by_program: set[tuple[int, int]]) -> None:
    """Mark the processes without a recorded end that the program itself ended.

    It ended them directly or through their parent.
    """
    for manifest in manifests:
        if not manifest.ended and by_program.intersection(
            [(manifest.pid, manifest.pid_started), tuple(manifest.parent)]
        ):
            manifest.ended_by = PROGRAM


def _trainings(path: Path) -> list[Training]:
    if _is_own(path):
        return [Training(path, _own_of(path.parent))]
    inner = inner_trainings(path)
    if not inner and _is_run(path) and not rank_folders(path):
        said = (
            "; ".join(process_log.notes(path, set(), set()))
            or "none of its processes imported torch"
        )
        raise RunNotFound(f"{path} holds no training: no step was made ({said})")
    if not inner:
        return [Training(path, Run.of_folder(path))]
    readable: list[Training] = []
    failed: list[FeedlineError] = []
    damaged: list[str] = []
    for folder in [path, *inner]:
        try:
            readable.append(
                Training(path / _OWN_TRAINING, _own_of(path))
                if folder == path
                else Training(folder, Run.of_folder(folder))
            )
        except (RunNotFound, RunDamaged) as error:
            failed.append(error)
            if isinstance(error, RunDamaged):
                damaged.append(
                    f"the training in {path.name if folder == path else folder.name} is left out: "
                    f"{error}"
                )
    if not readable:
        raise failed[-1]
    readable = [training for training in readable if _trained(training.run)] or readable[:1]
    readable[0].run.notes += damaged
    if len(readable) == 1:
        readable[0].run.path = path  # what a person calls it by
    return readable


def _is_own(path: Path) -> bool:
    """Return whether a path names the training of a run's own process, if there are others."""
    return path.name == _OWN_TRAINING and bool(
        path.parent.is_dir() and rank_folders(path.parent) and inner_trainings(path.parent)
    )


def _own_of(run: Path) -> Run:
    """Return the training of a run's own process, if there are others.

    Raises as ``Run.of_folder``.
    """
    own = Run.of_folder(run)
    own.path = run / _OWN_TRAINING
    return own


def worker_pids(listed: list[Training]) -> set[int]:
    """Return the pids of the loaders' workers, but for ranks that cannot be read."""
    pids: set[int] = set()
    for rank in (rank for training in listed for rank in training.run.ranks.values()):
        with suppress(RunDamaged):  # the report leaves it out, and says so
            pids |= {
                int(str(process.header["pid"])) for process in rank.processes if process.is_worker
            }
    return pids


def _is_run(path: Path) -> bool:
    """Return whether feedline created this folder for a run."""
    listing = read_list(path)
    return listing is not None and listing.kind == "run"


def inner_trainings(path: Path) -> list[Path]:
    """Return the folders of trainings inside a run folder, in order of their start.

    Raises RunDamaged if one is a link.
    """
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return []
    numbered = [
        (int(match[1]), path / match[0])
        for name in names
        if (match := re.fullmatch(rf"{TRAINING_PREFIX}([1-9]\d{{0,8}})", name, re.ASCII))
    ]
    for _, folder in numbered:
        refuse_link(folder)
    return [folder for _, folder in sorted(numbered)]


def _trained(run: Run) -> bool:
    """Return whether a rank of it updated parameters or ran a backward pass."""
    return any(_made_steps(rank) for rank in run.ranks.values())


def _made_steps(rank: Rank) -> bool:
    """Return whether it made a step."""
    try:
        return any(rank.main.total(stage)["records"] for stage in (Stage.OPTIMIZER, Stage.BACKWARD))
    except RunDamaged:
        return False


PARTS_FOLDER = "parts"
# updates on both sides of a boundary that no loader's pass marks: a GAN that is tried for one batch
# is one training
_MIN_UPDATES = 2
_MAX_JOINED = 16  # as in record/optimizer_tracker.py, which looks no further then
_SHARED_STAGES = (Stage.GROUP, Stage.CLOCK, Stage.START)  # told once, and of use to every part
_ACTIVE = (Stage.NEXT, Stage.FORWARD, Stage.LOSS, Stage.BACKWARD, Stage.OPTIMIZER, Stage.CHECKPOINT)
_FOREVER = int(np.iinfo(np.int64).max)
_OF_CPU = 256  # ``source`` of the second of a stage's two SUMS
_UNSUMMED = (Stage.BEGUN, Stage.SUMS)
_NUMBERED_STAGES = (Stage.VALUE, Stage.GRADIENT)  # their ``extra`` counts updates
_Sums = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Beginning:
    """Beginning of a training in one process.

    Attributes:
        at: ns.
        optimizer: number of its first optimizer.
        updates, samples: made and trained on before, as the convergence tap counts them.
        before: sums of the records before; None: they were not written down, and no window was
            forgotten.
    """

    at: int
    optimizer: int
    updates: int
    samples: int
    before: _Sums | None


def split_run(run: Run) -> list[Run]:
    """Return the trainings of a run, in order.

    It is the run itself if that is one training, or cannot be split.
    """
    if run.part is not None:
        return [run]
    readable, notes = {}, list(run.notes)
    for number, rank in sorted(run.ranks.items()):
        try:
            if rank.main.of(Stage.BEGUN).size:
                readable[number] = rank
        except FeedlineError as error:
            notes.append(f"rank {number}: {error}")
    wanted = _first_optimizers(readable[min(readable)]) if readable else []
    if len(wanted) < 2:
        return [run]
    slices = {number: _slices(rank, wanted) for number, rank in readable.items()}
    parts = []
    for index in range(len(slices[min(slices)])):
        ranks = {number: own[index] for number, own in slices.items() if index < len(own)}
        parts.append(
            Run(
                run.path / PARTS_FOLDER / str(index + 1),
                ranks,
                notes,
                PartNumber(index + 1, len(slices[min(slices)])),
            )
        )
    return parts


def require_one_training(run: Run) -> Run:
    """Return a run with exactly one training.

    Raises:
        RunNotFound: it is several.
    """
    if len(parts := split_run(run)) > 1:
        names = f"{run.path / PARTS_FOLDER}/1 to {len(parts)}"
        raise RunNotFound(
            f"{run.path} holds {len(parts)} training runs, made in sequence: name one of them "
            f"({names})"
        )
    return run


def pick_training(run: Run, number: int) -> Run:
    """Return one of the trainings of a run, numbered from 1.

    Raises:
        RunNotFound: it has no such training.
    """
    parts = split_run(run)
    if not 1 <= number <= len(parts):
        trainings = "1 training run" if len(parts) == 1 else f"{len(parts)} training runs"
        raise RunNotFound(f"{run.path} has no training {number}: it holds {trainings}")
    return parts[number - 1]


def parse_part_path(path: Path) -> tuple[Path, int] | None:
    """Return the run folder and the number of the training for a path such as ``RUN/parts/2``.

    None: it is another path.

    Raises:
        RunDamaged: the folder cannot be listed.
    """
    if path.parent.name != PARTS_FOLDER or not re.fullmatch(r"[1-9]\d{0,5}", path.name, re.ASCII):
        return None
    run = path.parent.parent
    return (
        (run, int(path.name))
        if _is_own(run) or run.is_dir() and (rank_folders(run) or inner_trainings(run))
        else None
    )


def _first_optimizers(rank: Rank) -> list[int]:
    """Return the numbers of the optimizers with which the trainings begin."""
    begun = rank.main.view(Stage.BEGUN)
    begins = np.zeros(int(begun["optimizer"].max()) + 1, bool)
    begins[begun["optimizer"]] = True
    for number, first in zip(begun["optimizer"].tolist(), begun["first_optimizer"].tolist()):
        begins[max(first, 0) + 1 : number + 1] = False
    chosen = np.flatnonzero(begins).tolist()
    beginnings = [_beginning(rank.main, number) for number in chosen]
    by_loader = {int(row["optimizer"]) for row in begun if row["flags"] & Flag.FIRST}
    again = begun["first_optimizer"][begun["flags"] & Flag.END != 0]
    # optimizers are made within one training: meta-learning
    takes_turns = len(again) > 0 and np.bincount(again).max() >= _MAX_JOINED
    kept = chosen[:1]  # none where the records are damaged
    for before, this, after in zip([None, *beginnings[:-1]], beginnings, [*beginnings[1:], None]):
        if before is not None and (
            this.optimizer in by_loader
            or not takes_turns
            and _apart(rank.main, before, this, after)
        ):
            kept.append(this.optimizer)
    return kept


def _apart(main: Process, before: _Beginning, this: _Beginning, after: _Beginning | None) -> bool:
    """Return whether two trainings without a loader are two.

    Each made updates, and no batch was asked for.
    """
    until = after.at if after is not None else _FOREVER
    asked = main.of(Stage.NEXT)["start"]
    updates = main.of(Stage.OPTIMIZER)["start"]
    own = [
        ((updates >= low) & (updates < high)).sum()
        for low, high in ((before.at, this.at), (this.at, until))
    ]
    return min(own) >= _MIN_UPDATES and not ((asked >= before.at) & (asked < until)).any()


def _beginning(main: Process, optimizer: int) -> _Beginning:
    """Return where the training of an optimizer begins that belongs to no earlier training."""
    begun = main.view(Stage.BEGUN)
    record = begun[begun["optimizer"] == optimizer][0]
    sums = main.of(Stage.SUMS)
    sums = sums[sums["start"] == record["start"]]
    before = np.zeros((STAGES, FIELDS), np.int64)
    for row in sums:
        stage, of_cpu = int(row["source"]) % _OF_CPU % STAGES, row["source"] >= _OF_CPU
        for column, name in (
            ((2, "cpu"), (3, "runqueue"))
            if of_cpu
            else ((0, "number"), (1, "cpu"), (4, "nbytes"), (5, "extra"))
        ):
            before[stage, column] = row[name]
    updates, samples = max(int(record["updates_before"]), 0), max(int(record["samples_before"]), 0)
    return _Beginning(
        int(record["start"]), optimizer, updates, samples, before if len(sums) else None
    )


def _slices(rank: Rank, wanted: list[int]) -> list[Rank]:
    """Return the trainings of a rank; fewer than wanted if it ended before the others."""
    there = set(rank.main.view(Stage.BEGUN)["optimizer"].tolist())
    begun = [_beginning(rank.main, number) for number in wanted if number in there]
    slices = []
    for this, after in zip(begun, [*begun[1:], None]):
        first = this is begun[0]
        processes = [
            own
            for process in rank.processes
            if (own := _cut(process, this, after, first)) is not None
        ]
        if not processes or processes[0].is_worker:  # feedline does not write records in this order
            continue
        span = this.at, _last(processes[0], this.at)
        about = _manifest_of(rank.manifest, processes, span, this, after)
        slices.append(dataclasses.replace(rank, manifest=about, slice=Slice(*span, processes)))
    return slices


def _last(main: Process, begun: int) -> int:
    """Return when the last thing ended that belongs to a training, ns."""
    own = main.of(*_ACTIVE)
    return int((own["start"] + np.maximum(own["wall"], 0)).max(initial=begun))


def _cut(
    process: Process, this: _Beginning, after: _Beginning | None, first: bool
) -> Process | None:
    """Return the records of a process from one beginning to the next. None: nothing.

    Those of the first training include what came before.
    """
    records = process.records
    begin, until = 0 if first else this.at, after.at if after is not None else _FOREVER
    inside = (records["start"] >= begin) & (records["start"] < until)
    if not (inside & ~np.isin(records["stage"], _SHARED_STAGES)).any():
        return None
    alone = bool(inside[records["stage"] == Stage.FETCH].all())
    own = records[
        inside
        | np.isin(records["stage"], _SHARED_STAGES if not process.is_worker else _SHARED_STAGES[:2])
    ]
    if not process.is_worker and not first:
        own = _renumbered(own, this)
    totals = (
        process.totals.copy()
        if alone and process.is_worker
        else _sums(process, own, this, after, first)
    )
    histograms = process.histograms if alone else _histograms(own)
    return Process(process.header, own, process.names, totals, histograms)


def _renumbered(records: Records, this: _Beginning) -> Records:
    """Count updates and samples from the training's own beginning on."""
    records = records.copy()
    counted = np.isin(records["stage"], _NUMBERED_STAGES)
    records["extra"][counted] = np.maximum(records["extra"][counted] - this.updates, 0)
    seen = records["stage"] == Stage.VALUE
    records["nbytes"][seen] = np.maximum(records["nbytes"][seen] - this.samples, 0)
    return records


def _sums(
    process: Process, own: Records, this: _Beginning, after: _Beginning | None, first: bool
) -> _Sums:
    """Return the sums of a part.

    They are those of its records where all were kept, differences of what the recording summed up,
    or an estimate for a worker.
    """
    kept = sums_of(own)
    kept[0] = process.totals[0]
    if process.stride == 1:
        return kept
    if process.is_worker:
        return _scaled(process, kept)
    lower = np.zeros_like(kept) if first or this.before is None else this.before
    upper = process.totals if after is None or after.before is None else after.before
    exact = np.maximum(upper - lower, kept)
    exact[0] = process.totals[0]
    exact[list(_UNSUMMED)] = kept[list(_UNSUMMED)]
    return exact


def _scaled(process: Process, kept: _Sums) -> _Sums:
    """Return the sums of a worker that forgot windows.

    They are as many times what was kept of this part as was made of what was kept of all.
    """
    total = sums_of(process.records)
    factor = np.where(total[:, :1] > 0, process.totals[:, :1] / np.maximum(total[:, :1], 1), 1.0)
    estimate = np.round(kept * factor).astype(np.int64)
    estimate[0] = process.totals[0]
    return estimate


def _histograms(own: Records) -> npt.NDArray[np.int64]:
    """Return the histograms of the samples seen in detail, which stand for all of the part's.

    They are rounded as running sums, so that none is lost between bins.
    """
    counts = np.zeros((2, BINS), np.float64)
    samples = own[(own["stage"] == Stage.SAMPLE) & (own["nbytes"] > 0) & (own["wall"] > 0)]
    for wall, size, times in zip(
        samples["wall"].tolist(), samples["nbytes"].tolist(), samples["extra"].tolist()
    ):
        counts[SAMPLE_HISTOGRAM, min(bin_of(wall // size), BINS - 1)] += size * max(times, 1)
    samples_made = float(own["extra"][own["stage"] == Stage.FETCH].sum())
    running = np.round(np.cumsum(counts, axis=1) * (samples_made / (counts.sum() or 1.0)))
    return np.diff(running, axis=1, prepend=0).astype(np.int64)


def _manifest_of(
    manifest: Manifest,
    processes: list[Process],
    span: tuple[int, int],
    this: _Beginning,
    after: _Beginning | None,
) -> Manifest:
    """Return the manifest of one training of a run.

    How the process ended was the end of its last training alone.
    """
    used = set(processes[0].of(Stage.EPOCH, Stage.NEXT)["source"].tolist())
    loaders = [
        about if number in used else {**about, "num_workers": 0}
        for number, about in enumerate(manifest.loaders)
    ]
    own = dataclasses.replace(
        manifest,
        loaders=loaders,
        training=_setup_of(manifest.training, this, after) if manifest.training else {},
        anchors=[_moved(manifest.anchors[0], at) for at in span] if manifest.anchors else [],
    )
    own.silent_s, own.read_ns = manifest.silent_s, manifest.read_ns
    if after is None:
        return own
    return dataclasses.replace(
        own, ended=True, exit_code=0, ended_by="", ended_at="", killed={}, notes=[]
    )


def _moved(anchor: dict[str, int], at: int) -> dict[str, int]:
    return {
        **anchor,
        "perf_counter_ns": at,
        "time_ns": anchor["time_ns"] + at - anchor["perf_counter_ns"],
    }


def _setup_of(
    setup: dict[str, object], this: _Beginning, after: _Beginning | None
) -> dict[str, object]:
    """Return the setup of one training: its own optimizers with their settings, and its own sums."""
    last = after.optimizer if after is not None else 1 << 62
    listed, schedulers = setup.get("optimizers"), setup.get("schedulers")
    own = listed[this.optimizer : last] if isinstance(listed, list) else []
    ended = {} if after is None else {"updates": after.updates, "samples": after.samples}
    sums = {
        name: int(str(value))
        for name, value in {**setup, **ended}.items()
        if name in ("updates", "samples")
    }
    return {
        **setup,
        "optimizers": own,
        "schedulers": [
            scheduler
            for scheduler in (schedulers if isinstance(schedulers, list) else [])
            if this.optimizer <= scheduler.get("optimizer", -1) < last
        ],
        "samplers": _added([sampler for about in own for sampler in about.get("samplers", ())]),
        **{name: max(value - getattr(this, name), 0) for name, value in sums.items()},
    }


def _added(samplers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of one shape as one."""
    merged: dict[tuple[object, ...], dict[str, Any]] = {}
    for sampler in samplers:
        shape = tuple(sampler.get(name) for name in ("kind", "shuffles", "samples", "of", "loader"))
        before = merged.get(shape)
        merged[shape] = (
            sampler
            if before is None
            else {
                **sampler,
                **{name: before[name] + sampler[name] for name in ("epochs", "distinct")},
            }
        )
    return list(merged.values())
