"""Two ranks under torchrun, on gloo."""

import sys
from pathlib import Path

import pytest

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def as_module(recorded: bool) -> list[str]:
    """torchrun -m feedline run train.py"""
    return [*TORCHRUN, *(["-m", "feedline"] if recorded else [])]


def as_command(recorded: bool) -> list[str]:
    """torchrun --no-python feedline run train.py"""
    return [*TORCHRUN, *(["--no-python", str(Path(sys.executable).with_name("feedline"))] if recorded else [])]


@pytest.mark.parametrize(("launcher", "like_plain"), [(as_module, True), (as_command, False)])
def test_each_rank_is_recorded_and_rank_0_reports(record, launcher, like_plain):
    done = record("ddp.py", launcher=launcher, like_plain=like_plain)

    done.check_split(steps=12, samples=48)
    done.check_workers(processes=1, batches=12, samples=48)
    ranks = done.report["ranks"]
    assert {name: (rank["steps"], rank["state"]) for name, rank in ranks.items()} == {"0": (12, "finished"), "1": (12, "finished")}
    for rank in ranks.values():
        assert sum(rank["stages"].values()) == pytest.approx(rank["mean_s"], rel=0.01)
