"""Samples of the main thread in rests say how the time of the counted steps divides."""

import numpy as np
import pytest

from feedline.analysis.measure import counted_steps
from feedline.analysis.measure.counted_steps import samples_in_rests
from feedline.profiler.errors import RunDamaged
from feedline.profiler.store.sampled_stacks import ProcessStacks, SampledStack, StackFrame

LOOP = StackFrame("***/train.py", 9, "<module>")
WAITS = (
    LOOP,
    StackFrame(
        "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 800, "__next__"
    ),
)
LEARNS = (LOOP, StackFrame("/venv/lib/python3.11/site-packages/torch/_tensor.py", 600, "backward"))
RESTS = np.array([100, 1000]), np.array([500, 2000])


def stack(frames, moments, thread="main"):
    return SampledStack("loop", thread, tuple(frames), len(moments), 1.0, tuple(moments))


def said(monkeypatch, *stacks, kind="main"):
    processes = (ProcessStacks("main", kind, 1, 1.0, 1, "", tuple(stacks)),)
    monkeypatch.setattr(counted_steps, "read_stacks", lambda rank: processes)
    return samples_in_rests(None, *RESTS)


def test_only_moments_in_rests_count(monkeypatch):
    waits = stack(WAITS, [*range(110, 230), *range(500, 900), *range(2000, 2400)])
    learns = stack(LEARNS, [*range(300, 330), *range(600, 700)])
    own = stack([LOOP], [*range(1000, 1040), *range(0, 100)])

    assert said(monkeypatch, waits, learns, own) == (190, 120, 30)


def test_other_threads_and_workers_do_not_count(monkeypatch):
    both = [stack(WAITS, range(100, 250)), stack([LOOP], range(250, 400))]

    assert said(monkeypatch, *both) == (300, 150, 0)
    assert said(monkeypatch, *both, stack([LOOP], range(100, 400), "other")) == (300, 150, 0)
    assert said(monkeypatch, *both, kind="worker") is None


def test_few_samples_and_damaged_stacks_say_nothing(monkeypatch):
    assert said(monkeypatch, stack(WAITS, range(100, 140)), stack([LOOP], range(140, 160))) is None

    def damaged(rank):
        raise RunDamaged("stacks")

    monkeypatch.setattr(counted_steps, "read_stacks", damaged)
    assert samples_in_rests(None, *RESTS) is None


@pytest.mark.parametrize(
    ("frame", "counts"),
    [
        (("torch/nn/modules/loss.py", "forward"), (200, 0, 150)),
        (("torchmetrics/metric.py", "forward"), (200, 0, 0)),
        (("torch/utils/data/_utils/pin_memory.py", "pin_memory"), (200, 0, 0)),
    ],
    ids=["loss", "metric", "pinning"],
)
def test_what_has_a_stage_of_its_own_or_none_is_neither_model_nor_input(monkeypatch, frame, counts):
    """Their frames stand in a module's call, or in the loader's."""
    site = "/venv/lib/python3.11/site-packages/"
    file, function = frame
    call = StackFrame(site + "torch/nn/modules/module.py", 1773, "_call_impl")
    around = WAITS[1] if "pin_memory" in file else call
    inside = stack((LOOP, around, StackFrame(site + file, 9, function)), range(100, 250))

    assert said(monkeypatch, inside, stack([LOOP], range(250, 300))) == counts
