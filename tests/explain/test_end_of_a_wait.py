"""Until when a process waited: where the call in which it did so failed, until then."""

from types import SimpleNamespace

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.explain.hung import _end
from feedline.profiler.events import Flag, Stage
from feedline.profiler.store.manifest import Manifest

S = 1_000_000_000
ANCHORS = [{"perf_counter_ns": at * S, "time_ns": at * S} for at in (0, 30)]


@pytest.mark.parametrize(
    ("ended_by", "fails_at_s", "until_s"),
    [("RuntimeError", 10, 25), ("", 10, 30), ("RuntimeError", 2, 30)],
    ids=["a timeout", "it went on and ended well", "something else was finished since"],
)
def test_a_wait_ends_with_the_call_that_failed(ended_by, fails_at_s, until_s):
    steps = MadeUp().forward(5 * S, 6 * S).backward(6 * S, 7 * S)
    steps.span(Stage.BACKWARD, fails_at_s * S, until_s * S, flags=Flag.FAILED)
    manifest = Manifest(ended=True, ended_by=ended_by, anchors=ANCHORS)
    rank = SimpleNamespace(main=steps.process(), rank=SimpleNamespace(manifest=manifest))

    assert _end(rank, SimpleNamespace(until=0)) == until_s * S
