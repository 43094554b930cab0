"""How long a trial is: workers that stay need a second pass."""

from types import SimpleNamespace

import pytest
import torch
from rules.made_up import made_up_facts

from feedline.cli.verify.pairs import _check_passes
from feedline.profiler.errors import FixError
from feedline.profiler.session import stop_after

STAY = {"persistent_workers": True}


@pytest.mark.parametrize(
    ("settings", "samples", "steps", "asked"),
    [
        (STAY, 3200, 200, False),  # passes of 100 steps of 32 samples
        ({**STAY, "num_workers": 4}, 3200, 150, False),  # which the first pass shows
        (STAY, None, 150, True),
    ],
)
def test_a_trial_that_shows_it_is_made(settings, samples, steps, asked):
    _check_passes(settings, made_up_facts(settings={"epoch_samples": samples}), steps, asked)


@pytest.mark.parametrize(
    ("samples", "asked", "message"),
    [
        (3200, True, "which 150 steps do not reach: add --steps 200"),
        (None, False, "the steps of a pass are not known: add --steps N for two passes"),
    ],
)
def test_a_trial_that_cannot_show_it_is_refused(samples, asked, message):
    with pytest.raises(FixError, match=message):
        _check_passes(STAY, made_up_facts(settings={"epoch_samples": samples}), 150, asked)


def stopped_after(monkeypatch, updates):
    """Return how many of these updates, of optimizers by number, are made with --stop-after 3."""
    ended, undo = [], []
    monkeypatch.setattr(stop_after, "_end", lambda *_: ended.append(True))
    hooks = SimpleNamespace(when_imported=lambda _, act: act(), add_undo=undo.append)
    stop_after.StopAfter.parse("3").attach(hooks, lambda: None, None, None)
    made = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1) for _ in range(3)]
    number = 0
    try:
        while not ended:
            made[updates[number]].step()
            number += 1
    finally:
        undo[0]()
    return number


@pytest.mark.parametrize(
    ("updates", "made"),
    [
        ([0] * 9, 3),
        ([0, 1] * 9, 5),  # two that take turns make one step
        ([0, 0, 1, 1, 1, 2, 2], 4),  # another one for each fold
    ],
)
def test_a_trial_stops_after_its_steps(monkeypatch, updates, made):
    assert stopped_after(monkeypatch, updates) == made
