"""The two programs that most tests look at, each launched once."""

import pytest
from comm_tap.launching import Rank, launch, say_what_went_wrong
from warm_python import WarmPython


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> list[Rank]:
    """Two ranks that train and talk in every way (programs/every_way.py)."""
    ranks = launch(tmp_path_factory.mktemp("two"), "every_way.py", 2, warm=warm_python)
    say_what_went_wrong(ranks)
    return ranks


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> list[Rank]:
    """Four ranks with groups of two, the last of which is killed in the middle of a collective (programs/groups_of_four.py)."""
    return launch(tmp_path_factory.mktemp("four"), "groups_of_four.py", 4, warm=warm_python)
