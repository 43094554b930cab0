"""From recorded collectives to the anatomy of a step."""

from dataclasses import replace

import numpy as np
import pytest
from scaling.made_up import MS, rank

from feedline.analysis.scaling.anatomy import Bucket
from feedline.analysis.scaling.recorded import anatomy_of


def test_evaluation_and_what_was_not_kept_is_no_part_of_the_usual_step():
    starts = np.tile(np.array([40, 79]) * MS, (12, 1))
    made = rank(0, starts, starts + MS, 1)
    moved = np.where(np.arange(12) >= 7, 60 * MS, 0)  # by the evaluation with which step 7 begins
    table = made.table.copy()
    table["start"] += np.repeat(moved, 2)
    table["end"] += np.repeat(moved, 2)
    steps = made.steps + np.stack([np.append(0, moved[:-1]), moved], 1)
    made = replace(
        made,
        table=table,
        steps=np.delete(steps, [3, 4], 0),
        evaluation=np.array([[700, 760]]) * MS,
        stages={"backward": made.stages["backward"] + moved[:, None]},
    )

    found = anatomy_of(made, 0.1)

    assert found.buckets == (Bucket(0.040, 1 << 20), Bucket(0.079, 1 << 20))
    assert found.backward_s == pytest.approx((0.030, 0.080))
    assert found.jitter_s == 0
