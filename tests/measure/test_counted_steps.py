"""What recorded steps say of those that were only counted."""

from dataclasses import replace

import numpy as np
import pytest

from feedline.analysis.measure.counted_steps import Counted, Estimate

US = 1_000


def estimate(counted_us: int) -> Estimate:
    """Four steps of 1,500 us, of which recording takes 990 us around the calls that it records."""
    counted = Counted(
        start=np.array([0]),
        end=np.array([100 * counted_us * US]),
        steps=np.array([100]),
        taken={},
        cost_ns=990.0 * US,
    )
    wall = np.full(4, 1500.0 * US)
    return Estimate(
        counted,
        alike=np.ones(4, bool),
        alone=np.zeros(4, bool),
        cost_ns=990.0 * US,
        lies={"other": 1.0},
        wall=wall,
        window=np.arange(4),
        longer=True,
    )


@pytest.mark.parametrize(("counted_us", "share"), [(900, 0.0), (2000, 0.5)])
def test_what_is_in_no_stage_is_what_the_stages_lack(counted_us, share):
    """Batches that the loop makes take 1,000 us of each step: more than recording leaves of it."""
    steps, of_input = estimate(counted_us), np.full(4, 1000.0 * US)
    stages = {"input": of_input, "other": 1500.0 * US - of_input}

    means = steps.means(stages)

    assert steps.unattributed_share(stages) == pytest.approx(share)
    assert means.get("unattributed", 0.0) == pytest.approx(share * counted_us * US)
    assert sum(means.values()) == pytest.approx(counted_us * US)
    assert replace(steps, longer=False).unattributed_share(stages) == 0.0
