"""The two programs that most tests look at, each launched once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from collectives.launching import Rank, launch, say_what_went_wrong
from warm_python import WarmPython

MadeOnce = Callable[[str, Callable[[Path], object]], Path]


def launched(made_once: MadeOnce, warm: WarmPython, program: str, ranks: int) -> list[Rank]:
    """The ranks of a program, as they ended."""

    def run(folder: Path) -> None:
        ends = [(rank.code, rank.err) for rank in launch(folder, program, ranks, warm=warm)]
        (folder / "ends.json").write_text(json.dumps(ends))

    folder = made_once(Path(program).stem, run)
    return [
        Rank(folder, rank, *end)
        for rank, end in enumerate(json.loads((folder / "ends.json").read_text()))
    ]


@pytest.fixture(scope="session")
def two(made_once: MadeOnce, warm_python: WarmPython) -> list[Rank]:
    """Two ranks that train and talk in every way (programs/every_way.py)."""
    ranks = launched(made_once, warm_python, "every_way.py", 2)
    say_what_went_wrong(ranks)
    return ranks


@pytest.fixture(scope="session")
def four(made_once: MadeOnce, warm_python: WarmPython) -> list[Rank]:
    """Four ranks with groups of two, the last of which is killed in the middle of a collective
    (programs/groups_of_four.py).
    """
    return launched(made_once, warm_python, "groups_of_four.py", 4)
