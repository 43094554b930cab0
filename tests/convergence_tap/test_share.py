"""How much of a training's time gradient norms take, by a clock that goes on when it is told to."""

from types import SimpleNamespace

import pytest
import torch

from feedline.profiler.taps.convergence import norms as module
from feedline.profiler.taps.convergence.norms import _COST_SHARE, _FIRST_SECONDS, GradientNormTap

UPDATE_S, END_S = 0.01, 600


@pytest.mark.parametrize("cost_s", [0.0003, 0.0016])
def test_norms_take_their_share_of_the_first_minute_and_half_of_it_later(cost_s, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(module, "place", lambda: SimpleNamespace(world_size=2))
    counts = SimpleNamespace(updates=0, fresh=32)
    norms, optimizer = GradientNormTap(counts, None), torch.optim.SGD([torch.zeros(1)])
    spent: dict[bool, float] = {True: 0.0, False: 0.0}

    def measure():
        now[0] += cost_s
        spent[now[0] < _FIRST_SECONDS] += cost_s

    while now[0] < END_S:
        if norms.wanted:
            norms.guarded(measure)
        now[0] += UPDATE_S
        norms.update(optimizer)
        counts.updates += 1

    assert (
        _COST_SHARE / 2 < spent[True] / _FIRST_SECONDS < _COST_SHARE * 1.1
    )  # the first looks come after they have cost more
    assert _COST_SHARE / 4 < spent[False] / (END_S - _FIRST_SECONDS) < _COST_SHARE / 2 * 1.01
