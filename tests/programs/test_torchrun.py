"""Two ranks under torchrun, on gloo.

Other ways to start them, and that each trains as without feedline: tests/ways.
"""

import pytest

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_each_rank_is_recorded_and_rank_0_reports(record):
    done = record("ddp.py", launcher=(*TORCHRUN, "-m", "feedline"))

    done.check_split(steps=12, samples=48)
    done.check_workers(processes=1, batches=12, samples=48)
    ranks = done.report["ranks"]
    assert {name: (rank["steps"], rank["state"]) for name, rank in ranks.items()} == {
        "0": (12, "finished"),
        "1": (12, "finished"),
    }
    for rank in ranks.values():
        assert sum(rank["stages"].values()) == pytest.approx(rank["mean_s"], rel=0.01)
