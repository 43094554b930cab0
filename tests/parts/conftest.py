"""Records trainings in this process, and cuts them apart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from truth import one_number

import feedline
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.trainings import open_run, split_run


@dataclass(frozen=True)
class Trained:
    """What feedline says of a program's trainings, one by one."""

    reports: list[Report]
    runs: list[Run]

    @property
    def counts(self) -> list[tuple[int, int]]:
        """(steps, samples) of each."""
        return [(report.throughput.steps, report.throughput.samples) for report in self.reports]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More of them cost such small models most of their time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


Record = Callable[..., Trained]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Record a function, and read the trainings that it made."""

    def recorded(train: Callable[..., Any], *args: object) -> Trained:
        with feedline.record(tmp_path / "run"):
            train(*args)
        runs = split_run(open_run(tmp_path / "run"))
        reports = [recorded_report(run) for run in runs]
        for report in reports:
            one_number.check(report)
        return Trained(reports, runs)

    return recorded
