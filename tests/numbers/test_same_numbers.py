"""A training computes the same with and without feedline: parameters, optimizer state, losses, order of batches, random states."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "training.py"


@pytest.mark.parametrize(
    ("method", "workers", "how"),
    [("fork", 0, "eager"), ("fork", 2, "eager"), ("spawn", 2, "eager"), ("forkserver", 2, "eager"), ("fork", 0, "compiled")],
)
def test_fifty_steps_are_bit_identical(tmp_path, method, workers, how):
    program = [str(PROGRAM), method, str(workers), how]
    watch = [sys.executable, "-m", "feedline", "run", "-q", "--detail", "1", "-o", str(tmp_path / "run")]

    without, watched = (
        subprocess.run([*start, *program], stdout=subprocess.PIPE, text=True, check=True).stdout for start in ([sys.executable], watch)
    )

    assert without.startswith("50 ")
    assert watched == without
