"""Starts ranks of a program on this machine, with and without feedline, and reads what was
recorded.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from warm_python import Program, WarmPython

from feedline.analysis.intervals import IntArray
from feedline.analysis.ranks.read_collectives import _in_order, collectives_of
from feedline.analysis.traces.collectives import PHASES, Collectives
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.trainings import open_run

PROGRAMS = Path(__file__).with_name("programs")
LIMIT_S = 120


@dataclass(frozen=True)
class Seen:
    """One collective, with words in place of indices."""

    name: str
    nbytes: int
    dtype: str
    group: str
    ranks: tuple[int, ...]
    backend: str
    sequence: int
    phase: str
    ended: bool
    wall: int
    bucket: int


class Rank:
    """What one rank did and what was recorded of it.

    Attributes:
        said: the JSON that the program left, None when it did not come to that.
        code: exit code.
        err: standard error.
    """

    def __init__(self, folder: Path, rank: int, code: int, err: str) -> None:
        self.number, self.code, self.err = rank, code, err
        said = folder / f"said{rank}.json"
        self.said = json.loads(said.read_text()) if said.exists() else None
        self._folder = folder

    @property
    def run(self) -> Path:
        """The run folder, of all ranks."""
        return self._folder / "run"

    @property
    def collectives(self) -> Collectives:
        found = collectives_of(open_run(self._folder / "run").ranks[self.number])
        assert found is not None
        return found

    def seen(self, section: str | None = None, until: int = np.iinfo(np.int64).max) -> list[Seen]:
        """The collectives begun within a section of the program, or up to some time."""
        found = self.collectives
        index = buckets(open_run(self._folder / "run").ranks[self.number].main)
        begin, end = self.said["sections"][section] if section is not None else (0, until)
        return [
            Seen(
                found.names[row["name"]],
                int(row["nbytes"]),
                found.dtypes[row["dtype"]],
                found.groups[row["group"]].name,
                found.groups[row["group"]].ranks,
                found.groups[row["group"]].backend,
                int(row["sequence"]),
                PHASES[row["phase"]],
                bool(row["end"] >= 0),
                int(row["end"] - row["start"]),
                int(bucket),
            )
            for row, bucket in zip(found.table, index, strict=True)
            if begin <= row["start"] <= end
        ]

    @property
    def hooks(self) -> dict[str, dict[str, object]]:
        return {
            str(hook["name"]): hook
            for hook in open_run(self._folder / "run").ranks[self.number].manifest.hooks
        }


def launch(
    folder: Path,
    program: str,
    ranks: int,
    *args: object,
    warm: WarmPython | None,
    recorded: bool = True,
) -> list[Rank]:
    """Run ``programs/PROGRAM ARGS`` as so many ranks that meet on localhost.

    Args:
        warm: for programs whose beginning and end are not what is tested; None: cold Pythons.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running = [
        start(folder, program, rank, ranks, args, warm, recorded, *ports)
        for ports in [free_ports()]
        for rank in range(ranks)
    ]
    until = time.monotonic() + LIMIT_S
    try:
        done = [
            process.communicate(timeout=max(0.0, until - time.monotonic()))[1]
            for process in running
        ]
    except subprocess.TimeoutExpired:
        for process in running:
            process.send_signal(
                signal.SIGABRT
            )  # PYTHONFAULTHANDLER: it says where each of its threads stands
        stand = "\n".join(process.communicate()[1][-6000:] for process in running)
        raise AssertionError(
            f"not all ranks of {program} came to an end within {LIMIT_S} s:\n{stand}"
        ) from None
    finally:
        for process in running:
            process.kill()
    return [
        Rank(folder, rank, process.returncode, done[rank]) for rank, process in enumerate(running)
    ]


def start(
    folder: Path,
    program: str,
    rank: int,
    ranks: int,
    args: Sequence[object],
    warm: WarmPython | None,
    recorded: bool,
    port: int,
    another: int,
) -> subprocess.Popen[str] | Program:
    """Start one of them."""
    feedline = ["-m", "feedline", "run", "-q", "-o", folder / "run"] if recorded else []
    command = [
        str(part) for part in (*feedline, PROGRAMS / program, folder / f"said{rank}.json", *args)
    ]
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": port,
        "ANOTHER_PORT": another,
    }
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **{name: str(value) for name, value in place.items()}, **quiet}
    if warm is not None:
        return warm.start(*command, folder=folder, environment=environment)
    command.insert(0, sys.executable)
    return subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def buckets(main: Process) -> IntArray:
    """Index of DistributedDataParallel's bucket, -1 for what is none: the order in which its
    reducer begins them within one backward.

    Not known of buckets that a communication hook in Python sends on.

    Returns:
        int64 [n], one for each collective in order of start.
    """
    records = _in_order(main)
    backward = np.sort(main.of(Stage.BACKWARD)["start"])
    found = np.full(len(records), -1, np.int64)
    counts: dict[tuple[int, int], int] = {}
    chosen = np.flatnonzero(records["flags"] & Flag.BUCKET)
    passes = np.searchsorted(backward, records["start"][chosen], "right").tolist()
    for index, key in zip(chosen.tolist(), zip(passes, records["group"][chosen].tolist())):
        found[index] = counts.get(key, 0)
        counts[key] = counts.get(key, 0) + 1
    return found


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0))
        other.bind(("localhost", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def say_what_went_wrong(ranks: list[Rank]) -> None:
    assert [rank.code for rank in ranks] == [0] * len(ranks), "\n".join(
        rank.err[-3000:] for rank in ranks
    )
