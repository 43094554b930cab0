"""Trainings recorded with their stacks."""

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.sampled_stacks import ProcessStacks
from feedline.profiler.store.stacks_reader import read_stacks

PROGRAM = Path(__file__).parent / "train.py"


@pytest.fixture
def recorded(warm_python, tmp_path) -> Callable[..., CompletedProcess[str]]:
    """Record train.py into ``run``."""

    def record(*arguments: str, options: tuple[str, ...] = ()) -> CompletedProcess[str]:
        command = ["-m", "feedline", "run", "-q", *options, "-o", tmp_path / "run"]
        environment = {**os.environ, "FEEDLINE_STACKS": "100"}
        return warm_python.run(
            *command, PROGRAM, *arguments, folder=tmp_path, environment=environment
        )

    return record


def stacks_of(run: Path) -> dict[str, ProcessStacks]:
    return {own.process: own for own in read_stacks(Run.of_folder(run).ranks[0])}


def functions(own: ProcessStacks, thread: str | None = None) -> set[str]:
    return {
        frame.function
        for stack in own.stacks
        if thread in (None, stack.thread)
        for frame in stack.frames
    }
