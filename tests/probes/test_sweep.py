"""The line through the times of a step, the knee, and the end of a sweep, on times that are made
up.
"""

import resource

import numpy as np
import pytest
import torch
from torch import nn

from feedline.pipelines.probes import sweep
from feedline.pipelines.probes.probe_rounds import ProbePlan, Workload
from feedline.pipelines.probes.training_step import Step

SIZES = [1, 2, 4, 8, 16, 32, 64]


class MadeUp(Step):
    """A step of a size that takes ``a + b B`` on the fake clock, and more memory than there is from
    some size on.
    """

    def __init__(
        self,
        clock,
        a: float,
        b: float,
        size: int = 2,
        fits: int = 10**9,
        error=torch.OutOfMemoryError,
    ) -> None:
        super().__init__(nn.Linear(1, 1), torch.zeros(size, 1), None)  # type: ignore[arg-type]
        self.__dict__.update(clock=clock, a=a, b=b, fits=fits, error=error)

    def with_samples(self, number: int) -> Step:
        return MadeUp(self.clock, self.a, self.b, number, self.fits, self.error)

    def works(self) -> dict[str, Workload]:
        def run() -> int:
            if len(self) > self.fits:
                raise self.error("no more")
            self.clock.spend(self.a + self.b * len(self))
            return len(self)

        return {"model": Workload(run)}


def test_exact_times_give_the_exact_line():
    line = sweep._fit_step_times(SIZES, [0.010 + 0.002 * size for size in SIZES])

    assert line.a_s == pytest.approx(0.010) and line.b_s == pytest.approx(0.002)
    assert line.a_error_s < 1e-12 and line.b_error_s < 1e-12 and line.worst_share < 1e-9


def test_the_errors_say_how_far_off_the_line_is():
    times = [
        (0.010 + 0.002 * size) * (1.05 if number % 2 else 0.95) for number, size in enumerate(SIZES)
    ]

    line = sweep._fit_step_times(SIZES, times)

    assert abs(line.a_s - 0.010) < 3 * line.a_error_s and abs(line.b_s - 0.002) < 3 * line.b_error_s
    assert 0.03 < line.worst_share < 0.1


def test_two_sizes_give_no_line():
    assert sweep._fit_step_times([1, 2], [0.1, 0.2]) is None


def test_the_knee_is_the_smallest_batch_with_95_percent_of_the_best():
    assert sweep._knee([1, 2, 4, 8, 16], [10.0, 50.0, 94.9, 95.0, 100.0]) == 8
    assert sweep._knee([1, 2, 4], [10.0, 20.0, 40.0]) == 4
    assert sweep._knee([1, 2, 4], [100.0, 90.0, 80.0]) == 1


def test_a_sweep_ends_when_two_doublings_bring_nothing(fake_clock):
    sizes, stopped = sweep._reachable_batches(MadeUp(fake_clock, a=0.001, b=0.001), ProbePlan())

    # a + b B: with a = b the throughput is B / (1 + B), and from 32 to 128 it grows by less than 3
    # %
    assert (sizes[-1], stopped) == (128, "saturation")


def test_a_sweep_ends_where_memory_does(fake_clock):
    assert sweep._reachable_batches(MadeUp(fake_clock, a=1e-3, b=1e-6, fits=8), ProbePlan()) == (
        [1, 2, 4, 8],
        "memory",
    )


def test_a_sweep_whose_larger_batches_raise_keeps_the_sizes_before(fake_clock):
    step = MadeUp(fake_clock, a=1e-3, b=1e-6, fits=8, error=IndexError)

    assert sweep._reachable_batches(step, ProbePlan()) == ([1, 2, 4, 8], "error")
    with pytest.raises(IndexError):
        sweep._reachable_batches(
            MadeUp(fake_clock, a=1e-3, b=1e-6, fits=0, error=IndexError), ProbePlan()
        )


class Scale(nn.Module):
    """Takes samples of 16 MB, and about as much again for each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch * self.by).mean(1, keepdim=True)


def test_a_sweep_under_a_limit_of_address_space_keeps_the_sizes_that_fit(monkeypatch):
    monkeypatch.setattr(sweep, "_SATURATED", 0.0)
    step = Step.of(Scale(), torch.zeros(2, 4_000_000), "cpu")
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + (400 << 20), hard))
    try:
        sizes, stopped = sweep._reachable_batches(step, ProbePlan(seconds=10.0))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    assert stopped == "memory" and sizes[:2] == [1, 2] and sizes[-1] < 32


def test_what_was_freed_before_a_sweep_is_no_room_for_its_batches(monkeypatch):
    monkeypatch.setattr(sweep._MemoryRoom, "_available", lambda self: 300e6)
    np.ones(50_000_000)  # as a part before it does: 400 MB, which raise the peak of the process
    room = sweep._MemoryRoom(Step.of(Scale(), torch.zeros(1, 4), "cpu"))
    assert room.for_twice()

    np.ones(12_500_000)  # 100 MB: twice that is more than half of what is left

    assert not room.for_twice()


def test_a_sweep_that_finds_no_room_at_all_says_so(subject, monkeypatch):
    monkeypatch.setattr(sweep._MemoryRoom, "_available", lambda self: -1.0)

    [row] = sweep.probe(subject(model=nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 4))))

    assert row.value is None and row.why == "no memory is left for a training step"


def test_a_sweep_ends_when_a_step_takes_long(fake_clock):
    sizes, stopped = sweep._reachable_batches(
        MadeUp(fake_clock, a=1.0, b=0.3), ProbePlan(seconds=0.25)
    )

    assert (sizes, stopped) == ([1, 2, 4], "time")


def test_a_model_that_takes_no_single_sample_is_swept_from_two_on(subject, monkeypatch):
    monkeypatch.setattr(sweep, "_MAX_BATCH", 8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 4), nn.BatchNorm1d(4))

    [row] = sweep.probe(subject(model=model))

    assert row.value and row.settings["batches"][:2] == [2, 4]


def test_the_sweep_of_a_real_model_has_its_knee_and_its_line(subject, monkeypatch):
    monkeypatch.setattr(sweep, "_MAX_BATCH", 16)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 4))

    [row] = sweep.probe(subject(model=model))

    batches = row.settings["batches"]
    assert batches[:3] == [1, 2, 4] and row.settings["knee"] in batches
    assert row.value == max(row.settings["samples_per_s"])
    assert row.settings["b_s"] > 0 and row.settings["b_error_s"] >= 0
