"""Runs a way to start a training plainly and under feedline, and reads what each did."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warm_python import WarmPython
from ways.way import PROGRAMS, Way, split

LIMIT_S = 250  # for one run of a way
VARIES = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z?|(?<=rocess )\d+"
)  # times and pids in what launchers say
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@dataclass(frozen=True, order=True)
class Rank:
    """What one rank of a training did."""

    rank: int
    steps: int
    samples: int
    pid: int


@dataclass(frozen=True)
class Outcome:
    """One run of a command.

    Attributes:
        out: lines of standard output; those of several processes come in any order, and are sorted.
        said: what each rank said of itself, without its pid, by training and rank.
        trainings: the ranks of each training, sorted.
    """

    code: int
    out: list[str]
    err: str
    said: dict[str, dict[str, Any]]
    trainings: dict[str, list[Rank]]

    @property
    def ours(self) -> str:
        """What feedline said."""
        return "\n".join(line for line in self.err.splitlines() if line.startswith("feedline:"))


@dataclass(frozen=True)
class Both:
    """A way plainly and under feedline.

    Attributes:
        seen: ranks of each training that was recorded, sorted.
        states: how feedline thinks that each of them ended.
    """

    plain: Outcome
    feedline: Outcome
    seen: list[list[Rank]]
    states: set[str]

    @property
    def true(self) -> list[list[Rank]]:
        """What was there to be seen."""
        return sorted(self.feedline.trainings.values())


class Bench:
    """Runs ways in a folder of their own.

    Args:
        folder: empty.
        warm: for the ways that need no cold Python.
    """

    def __init__(self, folder: Path, warm: WarmPython) -> None:
        self.work, self.run_folder, self._folder, self._warm = (
            folder / "work",
            folder / "run",
            folder,
            warm,
        )

    def run(self, way: Way) -> Both:
        plain = self.outcome(way.plain, way.warm)
        self.work.rename(self._folder / "plain")
        feedline = self.outcome(way.recorded, way.warm, "-q")
        runs = (
            [self.run_folder]
            if self.run_folder.exists()
            else sorted((self.work / "runs").glob("*"))
        )
        seen = [(ranks, states) for run in runs for ranks, states in recorded(run)]
        return Both(
            plain,
            feedline,
            sorted(ranks for ranks, _ in seen),
            {state for _, states in seen for state in states},
        )

    def outcome(self, command: str, warm: bool = False, *options: str) -> Outcome:
        """Run a command beside all programs.

        Args:
            options: for ``feedline run``, besides the run folder.
        """
        shutil.copytree(PROGRAMS, self.work, ignore=shutil.ignore_patterns("__pycache__"))
        variables, words = split(command, [*options, "-o", str(self.run_folder)])
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": PATH, **variables}
        if warm:
            words = (
                ["-m", *words]
                if words[0] == "feedline"
                else [str(self.work / words[1]), *words[2:]]
            )
            done = self._warm.run(*words, folder=self.work, environment=settings)
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code, out, err = self._cold(words, settings)
        said = {
            path.stem: json.loads(path.read_text())
            for path in sorted((self.work / "said").glob("*.json"))
        }
        trainings = defaultdict(list)
        for one in said.values():
            trainings[one["training"]].append(
                Rank(one["rank"], one["steps"], one["samples"], one.pop("pid"))
            )
        return Outcome(
            code,
            sorted(VARIES.sub("*", out).splitlines()),
            err,
            said,
            {name: sorted(ranks) for name, ranks in trainings.items()},
        )

    def _cold(self, words: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        with open(self._folder / "out", "wb") as out, open(self._folder / "err", "wb") as err:
            process = subprocess.Popen(
                words,
                cwd=self.work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it left running, too
            process.wait()
        return process.returncode, *(
            (self._folder / name).read_bytes().decode(errors="replace") for name in ("out", "err")
        )


def recorded(run: Path) -> list[tuple[list[Rank], set[str]]]:
    """Ranks of each training in a run folder, and the states in which feedline thinks that they
    are.
    """
    from feedline.analysis.measure.rank_metrics import RankMetrics, throughput
    from feedline.profiler.store.trainings import split_run, trainings

    found = []
    for one in (part for training in trainings(run) for part in split_run(training.run)):
        ranks = []
        for number, rank in one.ranks.items():
            figures = throughput(RankMetrics.of(rank))
            ranks.append(Rank(number, figures.steps, figures.samples, rank.manifest.pid))
        found.append((sorted(ranks), {rank.manifest.state for rank in one.ranks.values()}))
    return found


def differences(way: Way, both: Both) -> list[str]:
    """What is not as it has to be, in words."""
    plain, feedline = both.plain, both.feedline
    if plain.code or {name: len(ranks) for name, ranks in plain.trainings.items()} != way.trainings:
        return [
            f"without feedline: exit code {plain.code}, trainings "
            f"{plain.trainings}:\n{plain.err[-3000:]}"
        ]
    found = (
        []
        if feedline.code == plain.code
        else [f"exit code {feedline.code}, without feedline {plain.code}"]
    )
    if feedline.out != plain.out:
        found.append(f"standard output {feedline.out}, without feedline {plain.out}")
    for said in (*plain.said.values(), *feedline.said.values()):
        if not way.repeats:
            said.pop("parameters", None)
    if feedline.said != plain.said:
        found.append(f"trained {feedline.said}, without feedline {plain.said}")
    if both.seen != both.true:
        found.append(f"seen {both.seen}, in truth {both.true}")
    elif both.states != {"ended" if way.kills else "finished"}:
        found.append(f"all ended well, but the run says {both.states}")
    return found
