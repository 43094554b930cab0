"""Real run folders for damage: recorded once, and copied for each test."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from warm_python import WarmPython

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FUZZ = BENCHMARKS / "fuzz_runs.py"


@pytest.fixture(scope="session")
def bases(
    made_once: Callable[[str, Callable[[Path], object]], Path], warm_python: WarmPython
) -> Path:
    """Run folders of the four kinds that benchmarks/fuzz_runs.py records."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import fuzz_runs
    finally:
        sys.path.remove(str(BENCHMARKS))

    def start(arguments: list[str], environment: dict[str, str], place: Path) -> None:
        warm_python.run(*arguments, folder=place, environment=environment)

    def record(folder: Path) -> None:
        for run in fuzz_runs.record(folder, start):
            assert (run / "rank0" / "manifest.json").is_file(), run

    return made_once("bases", record)


@pytest.fixture
def finished(bases: Path, tmp_path: Path) -> Path:
    """A run that ended: Parquet, gauges, ceilings and a window of torch.profiler."""
    return Path(shutil.copytree(bases / "loader", tmp_path / "finished"))


@pytest.fixture
def killed(bases: Path, tmp_path: Path) -> Path:
    """A run that was killed: raw segments."""
    return Path(shutil.copytree(bases / "killed", tmp_path / "killed"))


@pytest.fixture
def traces(bases: Path, tmp_path: Path) -> Path:
    """Ingested traces of two ranks."""
    return Path(shutil.copytree(bases / "traces", tmp_path / "traces"))
