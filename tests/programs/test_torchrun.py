"""Two ranks under torchrun, on gloo. Other ways to start them: tests/ways."""

import sys

import pytest

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def as_module(recorded: bool) -> list[str]:
    """torchrun -m feedline run train.py"""
    return [*TORCHRUN, *(["-m", "feedline"] if recorded else [])]


def test_each_rank_is_recorded_and_rank_0_reports(record_warm):
    done = record_warm("ddp.py", launcher=as_module, like_plain=True)

    done.check_split(steps=12, samples=48)
    done.check_workers(processes=1, batches=12, samples=48)
    ranks = done.report["ranks"]
    assert {name: (rank["steps"], rank["state"]) for name, rank in ranks.items()} == {"0": (12, "finished"), "1": (12, "finished")}
    for rank in ranks.values():
        assert sum(rank["stages"].values()) == pytest.approx(rank["mean_s"], rel=0.01)
