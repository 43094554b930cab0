"""A training computes the same with and without feedline: parameters, optimizer state, losses,
order of batches, random states.
"""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "training.py"


@pytest.mark.parametrize(
    ("method", "workers", "how"),
    [
        ("fork", 0, "eager"),
        ("fork", 2, "eager"),
        ("spawn", 2, "eager"),
        pytest.param("forkserver", 2, "eager", marks=pytest.mark.long),
        ("fork", 0, "compiled"),
    ],
)
def test_fifty_steps_are_bit_identical(tmp_path, warm_python, method, workers, how):
    program = [PROGRAM, method, workers, how]
    watch = ["-m", "feedline", "run", "-q", "--sample-interval", "1", "-o", tmp_path / "run"]

    without, watched = (warm_python.run(*start, *program, folder=tmp_path) for start in ([], watch))

    assert (without.returncode, watched.returncode) == (0, 0), without.stderr + watched.stderr
    assert without.stdout.startswith("50 ")
    assert watched.stdout == without.stdout
    assert (tmp_path / "run" / "report.json").exists()
