import pytest

from feedline.convergence.table import arms, data
from feedline.convergence.table.data import Data
from feedline.convergence.table.result import Table
from feedline.convergence.table.summary import summarize
from feedline.convergence.table.train import Run


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
        runs = [Run(letter, seed, test, 0.2, 192, 1.0) for letter, each in tests.items() for seed, test in enumerate(each)]
        chosen = [arm for arm in arms.ARMS if arm.letter in tests]
        return summarize(chosen, range(max(map(len, tests.values()))), runs, small, 1.0)

    return table
