"""The way of a report, a record and a prediction through the code: the files in order.

    python benchmarks/report_path.py tests/golden/runs/loader

A tracer notes each function when it is called for the first time, as somebody would read it who
follows the calls. A file counts where the way enters it, and as a return where it was left before.
Functions deeper than ``--depth`` changes of file below the start are details, and left out.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report, training_input
from feedline.analysis.ledger.finding import Change
from feedline.analysis.report import terminal
from feedline.profiler.store.trainings import open_run

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("feedline", "profiler", "analysis", "pipelines", "convergence")


class Way:
    """Files in the order in which the way enters them.

    Attributes:
        stays: names of files; one that is entered again after others is there again.
    """

    def __init__(self, depth: int) -> None:
        self.stays: list[str] = []
        self._depth = depth
        self._seen: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in self._seen:
            return
        name = file_of(frame.f_code)
        if name is None or frame.f_code.co_name.startswith("<"):
            return
        self._seen.add(frame.f_code)
        if changes_above(frame) <= self._depth and (not self.stays or self.stays[-1] != name):
            self.stays.append(name)

    @property
    def returns(self) -> int:
        """How often the way comes back to a file that it has left."""
        return len(self.stays) - len(set(self.stays))


def file_of(code: CodeType) -> str | None:
    """A file of the product, relative to the repository; None: it is another."""
    path = Path(code.co_filename.partition(" (")[0])  # a tap's code says that it is feedline's
    if not path.is_absolute():
        return None
    parts = path.resolve().parts[len(ROOT.parts) :]
    return "/".join(parts) if path.resolve().is_relative_to(ROOT) and parts[0] in PACKAGES else None


def changes_above(frame: FrameType) -> int:
    """How many calls from file to file lead to this one."""
    files = [name for name in map(file_of, codes_above(frame)) if name is not None]
    return sum(one != other for one, other in zip(files, files[1:]))


def codes_above(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


@contextmanager
def followed(depth: int) -> Iterator[Way]:
    """The way of the body."""
    way = Way(depth)
    sys.setprofile(way)
    try:
        yield way
    finally:
        sys.setprofile(None)


def report(stored: Path, depth: int) -> Way:
    """From a run folder to its report."""
    run = open_run(stored)
    with followed(depth) as way:
        recorded_report(run)
    return way


def terminal_text(stored: Path, depth: int) -> Way:
    """From a report to its text on a terminal."""
    built = recorded_report(open_run(stored))
    with followed(depth) as way:
        terminal.render(built)
    return way


def prediction(stored: Path, depth: int) -> Way:
    """From what was measured of a run to its rate with a change."""
    inputs = training_input(open_run(stored))
    assert inputs.predictions is not None
    with followed(depth) as way:
        inputs.predictions.of(Change(settings={"num_workers": 2}))
    return way


def record(_: Path, depth: int) -> Way:
    """From a call that the recorder watches to its record in the segment."""
    model = torch.nn.Linear(2, 2)
    with tempfile.TemporaryDirectory() as scratch, feedline.record(f"{scratch}/run"):
        with followed(depth) as way:
            model(torch.zeros(1, 2))
    return way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--depth", type=int, default=1)
    args = parser.parse_args()
    for follow in (report, terminal_text, record, prediction):
        way = follow(args.run, args.depth)
        print(f"{follow.__name__}: {len(set(way.stays))} files, {way.returns} returns")
        print("   ", " -> ".join(way.stays))


if __name__ == "__main__":
    main()
