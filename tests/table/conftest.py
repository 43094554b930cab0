"""benchmarks/acceptance is the table."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from acceptance import arms, data
from acceptance.data import Data
from acceptance.result import Table
from acceptance.summary import summarize
from acceptance.train import Run


@pytest.fixture(scope="session")
def whole() -> Data:
    return data.make()


@pytest.fixture(scope="session")
def small(whole: Data) -> Data:
    return whole.first(512)


@pytest.fixture
def made_up(small: Data):
    """A table of given test accuracies: letter -> one per seed."""

    def table(**tests: list[float]) -> Table:
        runs = [
            Run(letter, seed, test, 0.2, 192, 1.0)
            for letter, each in tests.items()
            for seed, test in enumerate(each)
        ]
        chosen = [arm for arm in arms.ARMS if arm.letter in tests]
        return summarize(chosen, range(max(map(len, tests.values()))), runs, small, 1.0)

    return table
