"""Every hook sees what it should with the torch that is installed; scripts/torch-matrix runs this
under several.
"""

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
def environment(env_command):
    lines = env_command["out"].splitlines()[:-2]
    return {line[4:30].strip(): (line.startswith("yes "), line[30:]) for line in lines}


@pytest.mark.parametrize("hook", HOOKS + WORKERS + COUNTERS)
def test_the_hook_works(environment, hook):
    works, says = environment[hook]
    assert works, says


def test_what_is_absent_says_why(environment):
    for _, says in environment.values():
        assert says
