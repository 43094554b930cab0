"""Open a run by its path: a folder that holds one training, or one of several. ``feedline report`` opens all of them (trainings.py)."""

from pathlib import Path

from feedline.profiler.errors import RunNotFound
from feedline.profiler.store import parts
from feedline.profiler.store.read import Run
from feedline.profiler.store.trainings import trainings


def open_run(path: Path) -> Run:
    """Open a run folder with a single training, which may be of a process below the program's own. ``RUN/parts/2`` opens the second of
    several trainings of one process.

    Raises:
        RunNotFound: there is none, or it holds several trainings.
        RunDamaged, SchemaTooNew: as ``Run.of_folder``.
    """
    if (place := parts.place_of(path)) is not None:
        return parts.part(open_run(place[0]), place[1])
    found = trainings(path)
    if len(found) > 1:
        raise RunNotFound(f"{path} holds {len(found)} training runs: name one of them, {' or '.join(str(one.folder) for one in found[:4])}")
    return found[0].run
