"""The step of N ranks from that of one: analysis/ranks/replay.py shares the link among the buckets, as if there were N ranks."""

import numpy as np

from feedline.analysis.ranks.buckets import Timeline
from feedline.analysis.ranks.replay import Link, simulate
from feedline.analysis.scaling.step_profile import Bucket, Ring, StepProfile, ring_s


def last_end(buckets: tuple[Bucket, ...], ranks: int, link: Ring) -> float:
    """When the last bucket is done, s after the begin of the step.

    Args:
        buckets: in order of ``ready_s``.
    """
    if ranks < 2 or not buckets:
        return max((bucket.ready_s for bucket in buckets), default=0.0)
    ready = np.rint(np.array([bucket.ready_s for bucket in buckets]) * 1e9).astype(np.int64)[None, :, None]
    nbytes = np.array([bucket.nbytes for bucket in buckets])
    together = np.zeros(len(buckets), bool)
    step = Timeline(ready, np.zeros(1, np.int64), nbytes, together, ranks, link.slots, "", np.zeros(1, np.int64))
    return float(simulate(ready, step, Link(link.bandwidth, 2 * (ranks - 1) * link.alpha_s, True))[0])


def step_s(anatomy: StepProfile, ranks: int, link: Ring) -> float:
    """The step with N ranks, if each did what a rank alone does: what follows the backward begins when the last bucket is done."""
    last = max(anatomy.backward_s[1], last_end(anatomy.buckets, ranks, link))
    blocked = sum(ring_s(nbytes, ranks, link.bandwidth, link.alpha_s) for nbytes in anatomy.blocking) if ranks > 1 else 0.0
    return anatomy.step_s - anatomy.backward_s[1] + last + blocked
