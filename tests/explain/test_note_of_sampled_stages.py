"""What is said of stages that were recorded in few of the steps."""

from types import SimpleNamespace

import numpy as np
import pytest

from feedline.analysis.explain import notes_of_rank
from feedline.analysis.measure.step_model import Sampled


@pytest.mark.parametrize(
    ("unattributed", "corrections"), [(0.0, ()), (0.44, ()), (0.0, ("input",))]
)
def test_the_largest_stage_is_that_of_the_mean_step_and_not_the_least_certain(
    monkeypatch, unattributed, corrections
):
    low, high = {"transport": 0.19, "other": 0.0}, {"transport": 0.42, "other": 0.49}
    estimate = SimpleNamespace(
        alike=np.ones(63, bool),
        cost_ns=0.0,
        longer=False,
        corrections=corrections,
        sampled=lambda stages: Sampled(136, 63, 8, low, high, 0.0),
        means=lambda stages: {"transport": 1.317e6, "other": 1.068e6},
        unattributed_share=lambda stages: unattributed,
    )
    steps = SimpleNamespace(steps=200, steps_in_detail=63)
    monkeypatch.setattr(notes_of_rank, "throughput", lambda rank: steps)

    (note,) = notes_of_rank._sampled(SimpleNamespace(estimate=estimate, stages={}))

    assert "The largest stage, transport, is 19 to 42 % of the mean step" in note
    assert ("44" in note) == bool(unattributed)
    assert ("corrected by sampled stacks" in note) == bool(corrections)
