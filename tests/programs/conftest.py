"""Runs a program under ``feedline run``, and also as Python alone runs it."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from planted import photos
from truth import one_number
from warm_python import WarmPython

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SOURCES = Path(__file__).with_name("sources")
#: Without the hooks that look at the machine, and those into libraries that a program does not use.
NEEDED = {
    "DataLoader",
    "fetcher",
    "nn.Module",
    "autograd",
    "optimizer",
    "torch.save",
    "Tensor.to",
    "pin_memory",
}


@dataclass(frozen=True)
class Recorded:
    """What feedline said of a program that behaved as it does without feedline."""

    report: dict[str, Any]
    said: str  # by the program, on standard output

    @property
    def stages(self) -> dict[str, float]:
        return self.report["step"]["stages"]

    def check_split(self, steps: int, samples: int, hooks: Sequence[str] = ()) -> None:
        """Every step is there, and its time is split without a remainder."""
        throughput, step = self.report["throughput"], self.report["step"]
        assert (throughput["steps"], throughput["samples"]) == (steps, samples)
        assert step["boundary"] == "optimizer"
        assert sum(step["stages"].values()) == pytest.approx(step["mean_s"], rel=0.01)
        assert min(step["stages"].values()) >= 0
        for stage in ("wait", "forward", "backward", "optimizer"):
            assert step["stages"][stage] > 0, stage
        assert sum(step["waits"].values()) == pytest.approx(step["stages"]["wait"], rel=0.01)
        attached = {hook["name"]: hook for hook in self.report["hooks"]}
        for name in (*NEEDED, *hooks):
            assert attached[name]["attached"], attached[name]

    def check_workers(self, processes: int, batches: int, samples: int) -> None:
        """What making every batch of the training's loader cost."""
        workers = self.report["workers"]
        assert (workers["processes"], workers["batches"], workers["samples"]) == (
            processes,
            batches,
            samples,
        )
        assert not any("left no records" in note for note in self.report["notes"])
        costs = workers["per_sample"]
        assert costs["total"]["wall_s"] > 0
        assert sum(
            cost["wall_s"] for name, cost in costs.items() if name not in ("total", "transport")
        ) == pytest.approx(costs["total"]["wall_s"], rel=0.02)

    def roles(self) -> list[tuple[str, str, int]]:
        """(kind, role, batches) of the loaders, in the order in which they were first asked."""
        return [
            (loader["kind"], loader["role"], loader["batches"]) for loader in self.report["loaders"]
        ]


Record = Callable[..., Recorded]


@pytest.fixture
def record(tmp_path: Path, warm_python: WarmPython) -> Record:
    """Run ``sources/PROGRAM ARGS`` under ``feedline run``.

    Args of the function returned:
        program, args: of the command line.
        launcher: what stands before ``run`` in the arguments of Python.
        like_plain: also run it without feedline; both have to say the same on standard output.
        varies: a line of standard output that holds this word is not compared.
    """

    def say(*command: str) -> list[str]:
        done = warm_python.run(*command, folder=tmp_path, environment=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(keepends=True)

    def run(
        program: str,
        *args: object,
        launcher: Sequence[str] = ("-m", "feedline"),
        like_plain: bool = False,
        varies: str = "\0",
    ) -> Recorded:
        script = [str(SOURCES / program), *map(str, args)]
        said = say(
            *launcher,
            "run",
            "-q",
            "-o",
            str(tmp_path / "run"),
            "--json",
            str(tmp_path / "out.json"),
            *script,
        )
        if like_plain:
            assert [line for line in say(*script) if varies not in line] == [
                line for line in said if varies not in line
            ]
        report = json.loads((tmp_path / "out.json").read_text())
        one_number.check_run(tmp_path / "run")
        assert (report["run"]["state"], report["run"]["exit_code"]) == ("finished", 0)
        return Recorded(report, "".join(said))

    return run


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """18 JPEG photographs in two classes."""
    folder = tmp_path_factory.mktemp("photographs")
    for name in ("cats", "rockets"):
        photos.write(folder / name, 160, 120, 9)
    return folder
