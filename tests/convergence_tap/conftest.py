"""Two gloo ranks, launched once for all tests of what ranks share."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "two_ranks.py"


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run for each of the program's ways, and the truth beside it."""
    folder = tmp_path_factory.mktemp("two_ranks")
    launcher = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=200, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
