"""Every hook sees what it should with the torch that is installed; scripts/torch-matrix runs this
under several.
"""

import json
import subprocess
import sys

import pytest

HOOKS = [
    "DataLoader",
    "fetcher",
    "pin_memory",
    "nn.Module",
    "autograd",
    "optimizer",
    "torch.save",
    "Tensor.to",
    "collectives",
]
WORKERS = [f"workers by {method}" for method in ("fork", "spawn", "forkserver")]
COUNTERS = ["run queue", "file traffic"]


@pytest.fixture(scope="session")
def environment(made_once):
    def ask(folder):
        with (folder / "answer.json").open("w") as file:
            subprocess.run(
                [sys.executable, "-m", "feedline", "env", "--json", "-"],
                stdout=file,
                check=True,
                timeout=300,
            )

    return {
        result["name"]: result
        for result in json.loads((made_once("environment", ask) / "answer.json").read_text())
    }


@pytest.mark.parametrize("hook", HOOKS + WORKERS + COUNTERS)
def test_the_hook_works(environment, hook):
    assert environment[hook]["works"], environment[hook]["says"]


def test_what_is_absent_says_why(environment):
    for result in environment.values():
        assert result["says"]
