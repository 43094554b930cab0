"""Two gloo ranks, launched once for all tests of what ranks share."""

import os
import socket
from pathlib import Path

import pytest
from warm_python import WarmPython

PROGRAM = Path(__file__).parent / "programs" / "two_ranks.py"


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> Path:
    """A folder with a run for each of the program's ways, and the truth beside it."""
    folder = tmp_path_factory.mktemp("two_ranks")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        meeting = {
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(free.getsockname()[1]),
            "WORLD_SIZE": "2",
        }
    ranks = [
        warm_python.start(
            PROGRAM,
            folder,
            folder=folder,
            environment={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=200)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], errors[0][-3000:] + errors[1][-3000:]
    return folder
