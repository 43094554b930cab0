"""Trainings recorded in this process, each with its report and its records."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from truth import one_number

import feedline
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.segment_reader import Process
from feedline.profiler.store.trainings import open_run


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of torch that spin for each other take a busy machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[Callable[[], Any]], tuple[Report, Process]]:
    """Record a training; returns its report and the training process's records."""
    numbers = itertools.count()

    def record(train: Callable[[], Any]) -> tuple[Report, Process]:
        folder = tmp_path / f"run{next(numbers)}"
        with feedline.record(folder, strict=True):
            train()
        run = open_run(folder)
        report = recorded_report(run)
        one_number.check(report)
        return report, run.ranks[0].main

    return record
