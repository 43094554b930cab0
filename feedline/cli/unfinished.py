"""Resumes an interrupted command.

Given again, it keeps the complete runs in its folder and records the others. How long it takes is
said before, and again with each of its runs.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from feedline.analysis.text.formatting import duration
from feedline.profiler.errors import Interrupted, OutputError, PlaceTaken
from feedline.profiler.files import own_folders, owned, results
from feedline.profiler.printable import say

_FILE = "unfinished.json"
_WORTH_S = 10.0  # less is not worth a word


class Unfinished:
    """Runs in a folder, recorded one after another; a file lists the complete ones until all are.

    Args:
        folder: where results were prepared (files/results.py).
        request: what must be the same for a run to be kept. Only a digest of it is stored: there
            may be secrets in it.
        runs: names of all runs; the log of each is beside it.
        force: record all of them again.
        replaces: whether runs of an earlier command may be replaced, because its result is kept.

    Raises:
        OutputError: a run or log is there already, of another command or of the user.
    """

    def __init__(
        self,
        folder: Path,
        request: Sequence[str],
        runs: Sequence[str],
        force: bool,
        replaces: bool = False,
    ) -> None:
        self._folder, self._runs = folder, runs
        before = {} if force else _read(folder)
        self._salt = str(before.get("salt") or os.urandom(16).hex())
        self._digest = hashlib.sha256(json.dumps([self._salt, *request]).encode()).hexdigest()
        same = before.get("asked") == self._digest
        self._whole = [
            name for name in runs if same and name in before["whole"] and (folder / name).is_dir()
        ]
        if not same:
            earlier = [str(name) for name in before.get("failed", ())]
            for name in [*earlier, *(runs if replaces else ())]:
                self._drop(name)
            self._refuse_taken(force)
        if self._whole:
            say(
                f"{', '.join(self._whole)}: kept from the interrupted command; -f records all "
                f"runs again"
            )
        self._write()

    def __contains__(self, run: str) -> bool:
        """Return whether a run is complete."""
        return run in self._whole

    def add(self, run: str) -> None:
        """Mark a run as complete. Raises OutputError."""
        self._whole.append(run)
        self._write()

    @contextmanager
    def resumable(self, new: bool, named: bool) -> Iterator[None]:
        """Wrap the whole command, to its last file.

        After an error nothing is resumed, because the cause will be changed: the next attempt
        replaces its runs and logs. All are kept where only the result could not be written.

        Args:
            new: whether the folder was made for this; it is removed if no run in it is complete.
            named: whether the user chose it.

        Raises:
            Interrupted: Ctrl-C.
        """
        try:
            yield
        except KeyboardInterrupt as error:
            raise self._interrupted(new, named) from error
        except Exception as error:
            unwritten = isinstance(error, (OSError, OutputError))
            if not unwritten or not all(run in self._whole for run in self._runs):
                with suppress(OSError, OutputError):
                    results.save(
                        self._folder, _FILE, json.dumps({"whole": [], "failed": list(self._runs)})
                    )
            raise
        self._close()

    def _interrupted(self, new: bool, named: bool) -> Interrupted:
        for run in self._runs:
            if run not in self._whole:
                self._drop(run)
        if not self._whole:
            self._close()
            if new:
                results.drop_empty(self._folder)
            return Interrupted("interrupted: no run was complete, so none was kept")
        with_output = "" if named else f"with -o {self._folder} "
        return Interrupted(
            f"interrupted: {len(self._whole)} of {len(self._runs)} runs in {self._folder} are "
            f"complete; "
            f"run the same command {with_output}again to continue with the others"
        )

    def _drop(self, run: str) -> None:
        """Remove what there is of a run that was interrupted or failed, with its log.

        What a process still uses stays, and is replaced later; what feedline did not make stays as
        well.
        """
        if Path(run).name != run:
            return
        with suppress(OSError, OutputError):
            own_folders.remove(self._folder / run, "run")
        with suppress(OSError):
            owned.discard(self._folder, f"{run}.log")

    def _refuse_taken(self, force: bool) -> None:
        results.prepare(self._folder, [f"{name}.log" for name in self._runs], force)
        for name in self._runs:
            if os.path.lexists(self._folder / name) and not force:
                raise PlaceTaken.exists(self._folder / name)

    def _close(self) -> None:
        with suppress(OSError):
            owned.discard(self._folder, _FILE)

    def _write(self) -> None:
        results.save(
            self._folder,
            _FILE,
            json.dumps({"salt": self._salt, "asked": self._digest, "whole": self._whole}),
        )


def is_unfinished(folder: Path) -> bool:
    """Return whether a command in this folder was interrupted, or failed."""
    return bool(_read(folder))


def fingerprint(program: Sequence[str]) -> list[str]:
    """Return a command line and the state of the files that it names.

    A changed script is another training.
    """
    files = []
    for word in program:
        with suppress(OSError, ValueError):
            state = os.stat(word)
            files.append(f"{word} {state.st_size} {state.st_mtime_ns}")
    return [*program, *files]


def _read(folder: Path) -> dict[str, Any]:
    if _FILE not in own_folders.listed_names(folder):
        return {}
    try:
        content = json.loads((folder / _FILE).read_text())
        return (
            content if isinstance(content, dict) and isinstance(content.get("whole"), list) else {}
        )
    except (OSError, ValueError):
        return {}


def about(s: float) -> str:
    """Return a time to the second: 43 s, 2 min 10 s."""
    return f"{s:.0f} s" if s < 100 else duration(s)


class Remaining:
    """The time left of runs that are made one after another.

    Args:
        runs: how many.
        each_s: of one, as far as that is known before the first.
        expected: of each run, if they differ. Unit: s.
    """

    def __init__(
        self, runs: int, each_s: float | None = None, expected: Sequence[float] = ()
    ) -> None:
        self._left = list(expected) or [each_s or 1.0] * runs
        self._known = bool(expected) or each_s is not None
        self._took_s = self._expected_s = 0.0
        self._began = time.monotonic()

    def __str__(self) -> str:
        """Return ``, about 2 min 10 s left``; "" if that is unknown or hardly any time."""
        left_s = self.seconds
        return f", about {about(left_s)} left" if left_s and left_s >= _WORTH_S else ""

    @property
    def seconds(self) -> float | None:
        """Return the time left; None: not known."""
        left_s = sum(self._left)
        if self._expected_s:
            return left_s * self._took_s / self._expected_s
        return left_s if self._known else None

    def begin(self) -> None:
        """Note that a run begins."""
        self._began = time.monotonic()

    def end(self, made: bool = True) -> None:
        """Note that a run ended, or was there already."""
        expected_s = self._left.pop(0)
        if made:
            self._took_s += time.monotonic() - self._began
            self._expected_s += expected_s
