"""What ``feedline env`` says here, asked once for all tests of it."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def env_command(made_once):
    """The exit code, standard output and standard error of the command."""

    def ask(folder):
        done = subprocess.run(
            [sys.executable, "-m", "feedline", "env"], capture_output=True, text=True, timeout=300
        )
        said = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        (folder / "said.json").write_text(json.dumps(said))

    return json.loads((made_once("environment", ask) / "said.json").read_text())
