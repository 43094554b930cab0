"""Trainings that run while a test looks at them, started as users start them: without feedline."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from attach.attaching import BEGUN, PROGRAMS, WITHOUT_US, Start

from feedline.profiler.samplers.processes import descendants


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ``python PROGRAM ARGUMENTS``; returns when it has printed ``begun`` so often.

    ``python`` is what comes before the program, where it is not this Python.
    """
    running: list[subprocess.Popen[str]] = []

    def started(
        *words: object, begun: int = 1, python: Sequence[str] = (sys.executable,)
    ) -> "subprocess.Popen[str]":
        program = subprocess.Popen(
            [*python, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=PROGRAMS,
            env=WITHOUT_US,
            start_new_session=True,
        )
        running.append(program)
        assert program.stdout
        while begun:
            line = program.stdout.readline()
            assert line, "the program ended"
            begun -= line.strip() == BEGUN
        return program

    yield started
    for program in running:
        for pid in [program.pid, *descendants(program.pid)]:  # torchrun gives ranks their own group
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        program.communicate()
