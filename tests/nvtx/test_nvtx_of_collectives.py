"""Collectives as NVTX ranges with their bytes, told to a real tool."""

PROGRAM = """
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from feedline.profiler.session.session import Session

session = Session(Path("run"), ["program"])
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(10))
dist.broadcast(torch.ones(20), 0)
dist.destroy_process_group()
session.stop()
"""


def test_a_collective_is_a_range_with_its_bytes(under_tool):
    seen = under_tool(PROGRAM)

    pushed = [(call.name, call.payload) for call in seen.calls if call.what == "push"]
    assert pushed == [("all_reduce", "40"), ("broadcast", "80")]
    assert len([call for call in seen.calls if call.what == "pop"]) == 2
