"""The trainings of a run: the program's own process is one, and each group of ranks that it started is another.

RUN/rank0/                  the process that ``feedline run`` became
RUN/training-1/rank0/ ...   ranks of a training that began in processes below it
RUN/training-0              names the training in RUN/rank0, ... where there are others; its report lies there
RUN/processes.jsonl         what each Python process below it did
"""

import re
from dataclasses import dataclass
from pathlib import Path

from feedline.profiler.errors import FeedlineError, RunDamaged, RunNotFound
from feedline.profiler.events import Stage
from feedline.profiler.files.lists import read_list
from feedline.profiler.files.reading import refuse_link
from feedline.profiler.store import processes
from feedline.profiler.store.manifest import PROGRAM, Manifest
from feedline.profiler.store.read import Rank, Run, rank_folders

TRAINING = "training-"
_OWN = f"{TRAINING}0"


@dataclass(frozen=True)
class Training:
    """A training.

    Attributes:
        folder: by which it goes, and where its report lies: the run folder, or one of its own in it.
        run: its ranks.
    """

    folder: Path
    run: Run

    @property
    def name(self) -> str:
        return self.folder.name


def trainings(path: Path) -> list[Training]:
    """The trainings of a run, in order of their start. Processes without a step are left out if others have some.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: as ``open_run``.
    """
    found = _trainings(path)
    by_program = processes.ended(path.parent if path.name.startswith(TRAINING) else path)
    _tell_ends([rank.manifest for one in found for rank in one.run.ranks.values()], by_program)
    return found


def _tell_ends(manifests: list[Manifest], by_program: set[tuple[int, int]]) -> None:
    """Mark the processes without a recorded end that the program itself ended, directly or through their parent."""
    for one in manifests:
        if not one.ended and by_program.intersection([(one.pid, one.pid_started), tuple(one.parent)]):
            one.ended_by = PROGRAM


def _trainings(path: Path) -> list[Training]:
    if is_own(path):
        return [Training(path, _own_of(path.parent))]
    inner = inner_folders(path)
    if not inner and _is_run(path) and not rank_folders(path):
        said = "; ".join(processes.notes(path, set(), set())) or "none of its processes imported torch"
        raise RunNotFound(f"{path} holds no training: no step was made ({said})")
    if not inner:
        return [Training(path, Run.of_folder(path))]
    found: list[Training] = []
    failed: list[FeedlineError] = []
    damaged: list[str] = []
    for folder in [path, *inner]:
        try:
            found.append(Training(path / _OWN, _own_of(path)) if folder == path else Training(folder, Run.of_folder(folder)))
        except (RunNotFound, RunDamaged) as error:
            failed.append(error)
            if isinstance(error, RunDamaged):
                damaged.append(f"the training in {path.name if folder == path else folder.name} is left out: {error}")
    if not found:
        raise failed[-1]
    found = [training for training in found if _trained(training.run)] or found[:1]
    found[0].run.notes += damaged
    if len(found) == 1:
        found[0].run.path = path  # what a person calls it by
    return found


def is_own(path: Path) -> bool:
    """Whether a path names the training of a run's own process, if there are others."""
    return path.name == _OWN and bool(path.parent.is_dir() and rank_folders(path.parent) and inner_folders(path.parent))


def _own_of(run: Path) -> Run:
    """The training of a run's own process, if there are others. Raises as ``Run.of_folder``."""
    own = Run.of_folder(run)
    own.path = run / _OWN
    return own


def workers(found: list[Training]) -> set[int]:
    """Pids of the loaders' workers."""
    processes = (process for one in found for rank in one.run.ranks.values() for process in rank.processes)
    return {int(str(process.header["pid"])) for process in processes if process.is_worker}


def _is_run(path: Path) -> bool:
    """Whether feedline created this folder for a run."""
    listing = read_list(path)
    return listing is not None and listing.kind == "run"


def inner_folders(path: Path) -> list[Path]:
    """Folders of trainings inside a run folder, in order of their start. Raises RunDamaged if one is a link."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return []
    found = [(int(match[1]), path / match[0]) for name in names if (match := re.fullmatch(rf"{TRAINING}([1-9]\d{{0,8}})", name, re.ASCII))]
    for _, folder in found:
        refuse_link(folder)
    return [folder for _, folder in sorted(found)]


def _trained(run: Run) -> bool:
    """Whether a rank of it updated parameters or ran a backward pass."""
    return any(_made_steps(rank) for rank in run.ranks.values())


def _made_steps(rank: Rank) -> bool:
    """Whether it made a step."""
    try:
        return any(rank.main.total(stage)["records"] for stage in (Stage.OPTIMIZER, Stage.BACKWARD))
    except RunDamaged:
        return False
