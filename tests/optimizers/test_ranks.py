"""Two ranks, replicated and sharded, come to the weights of one process with the whole batch."""

import json
import os
from pathlib import Path

import pytest
from optimizers.kinds import KINDS

NAMES = list(KINDS)


@pytest.fixture(scope="module")
def found(warm_python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    done = warm_python.run(
        Path(__file__).parent / "ranks.py",
        folder,
        folder=folder,
        environment={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", [*NAMES, "adamw", "muon", "soap"])
def test_replicas_are_equal_to_each_other(found, name):
    assert found[name]["between"] == 0


@pytest.mark.parametrize("name", [*NAMES, "adamw", "muon"])
def test_replicas_are_equal_to_one_process(found, name):
    assert (
        found[name]["ddp"] < 1e-12
    )  # not of SOAP: eigenvectors of equal eigenvalues turn with the last digit of a gradient


@pytest.mark.parametrize("name", [*NAMES, "adamw"])
def test_shards_have_the_norms_of_whole_tensors(found, name):
    assert found[name]["fsdp"] < 1e-12


def test_shards_of_muon_differ_by_the_rounding_of_bfloat16(found):
    assert found["muon"]["fsdp"] < 5e-3


@pytest.mark.parametrize("name", [*NAMES, "adamw", "muon"])
def test_sharded_state_goes_on_from_a_checkpoint(found, name):
    assert found[name]["resumed"] == 0
