"""A program by others: where it is, how it is run, and what is true of it."""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Maker = Callable[[Path], None]
#: Steps and samples of one training; None: the program counts no samples, as one that trains on a
#: whole graph.
Counts = tuple[int, int | None]


@dataclass(frozen=True)
class Program:
    """One row of docs/measured/programs-of-others.md.

    Attributes:
        name: of the row.
        source: ``owner/repository`` below the folder of checkouts, or ``package:NAME`` for a
            program that an installed package ships.
        path: of the folder that is run, in the repository or package.
        words: script and arguments. ``-m`` and a module for one that a package has.
        trainings: of each training that it makes, sorted. A step is one round of its optimizers.
        counts: how these are known: from its options, and what it prints.
        makes: what makes its data in a copy of ``path``, one after the other.
        needs: modules that it imports besides torch.
        input: functions that make its batches where no DataLoader does, as ``module:function``: the
            timers by hand look at them.
        code: other functions of its loop, as ``module:function``: the timers by hand look at them,
            too.
        updates: the most updates that one of its optimizers makes, where that is not the number of
            steps. Summed over its processes.
        causes: findings that may be the first of a run that waits for its input: tried by hand, or
            read in its source.
        files: it reads a file for each sample.
        no_input: it makes its batches once, before the first step, so no step has a part for input.
        printed: pattern; how often it occurs in what the program prints is the number of its steps.
            With a group, what stands there the last time is that number, where it differs from run
            to run; each step is of ``batch`` samples then, and ``trainings`` is empty.
        batch: samples per step.
        environment: variables that it needs.
        on_path: folders of the repository for PYTHONPATH.
        start: the folder to run in, below ``path``.
    """

    name: str
    source: str
    path: str
    words: str
    trainings: tuple[Counts, ...]
    counts: str
    makes: tuple[Maker, ...] = ()
    needs: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    updates: int | None = None
    causes: tuple[str, ...] = ()
    files: bool = False
    no_input: bool = False
    printed: str | None = None
    batch: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    on_path: tuple[str, ...] = ()
    start: str = ""

    def root(self, repositories: Path | None) -> Path | None:
        """Of its repository or package; None when it is missing."""
        kind, _, name = self.source.rpartition(":")
        if kind == "package":
            spec = importlib.util.find_spec(name)
            return Path(spec.origin).parent if spec is not None and spec.origin else None
        return repositories / self.source if repositories is not None else None

    def folder(self, repositories: Path | None) -> Path | None:
        """Where it is; None when it is missing."""
        root = self.root(repositories)
        return root / self.path if root is not None and (root / self.path).exists() else None

    def counted(self, out: str) -> "tuple[Counts, ...]":
        """Its trainings, by its options or by what it printed."""
        if self.trainings or self.printed is None:
            return self.trainings
        found = re.findall(self.printed, out, re.MULTILINE)
        steps = int(found[-1]) if found else 0
        return ((steps, self.batch * steps if self.batch is not None else None),)

    def missing(self, repositories: Path | None) -> str:
        """What is not here of what it needs, in words; empty when it can run."""
        modules = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if modules:
            return f"not installed: {', '.join(modules)}"
        return "" if self.folder(repositories) is not None else f"no {self.source}/{self.path}"
