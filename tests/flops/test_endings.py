"""A step that is counted may end anywhere, the recording too: inside a backward, a forward, another
thread. The training goes on.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from flops.conftest import Recording, train
from torch import nn

from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps import flops
from feedline.profiler.taps.updates import CountedSteps

OPERATIONS = (
    2 * 5 * 4 * 2
)  # of a Linear(4, 2) on five samples, forward; as many again for the gradient of its weights


class Calls(nn.Linear):
    """Calls a function between its own operation and another one."""

    def __init__(self, inside: Callable[[], Any]) -> None:
        super().__init__(4, 2)
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = super().forward(x)
        self.inside()
        return output + super().forward(x)


def test_optimizers_that_step_inside_backward_are_counted_from_one_update_to_the_next(
    recording: Recording,
) -> None:
    model = nn.Linear(4, 2)
    optimizers = {parameter: torch.optim.SGD([parameter], 0.1) for parameter in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(
            lambda _, own=optimizer: (own.step(), own.zero_grad())[1]
        )
    for _ in range(6):
        model(torch.ones(5, 4)).sum().backward()

    assert recording.counted() == [(OPERATIONS, OPERATIONS)]


def test_an_optimizer_that_steps_in_the_hook_of_a_tensor_is_counted(recording: Recording) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(grad: torch.Tensor) -> None:
        with torch.no_grad():  # the saved weights stay what they are
            optimizer.step()

    for _ in range(6):
        output = model(torch.ones(5, 4))
        output.register_hook(step)
        output.sum().backward()

    assert recording.counted() == [(OPERATIONS, OPERATIONS)]


def test_an_optimizer_that_steps_inside_a_forward_is_counted(recording: Recording) -> None:
    class Trains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(4, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loss = self.model(x).sum()
            loss.backward()
            self.optimizer.step()
            return loss

    model = Trains()
    for _ in range(6):
        model(torch.ones(5, 4))

    assert recording.counted() == [
        (2 * OPERATIONS, 0)
    ]  # a backward inside a forward is a part of it


def test_an_optimizer_inside_another_one_and_hooks_that_run_backward_end_nothing(
    recording: Recording,
) -> None:
    model = nn.Linear(4, 2)

    class Outer(torch.optim.SGD):
        def __init__(self) -> None:
            super().__init__(model.parameters(), 0.1)
            self.inner = torch.optim.SGD(model.parameters(), 0.1)

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step()
            super().step()

    optimizer = Outer()
    optimizer.register_step_pre_hook(lambda *_: model(torch.ones(5, 4)).sum().backward())
    for _ in range(6):
        model(torch.ones(5, 4)).sum().backward()
        optimizer.step()

    assert len(recording.counted()) == 1
    assert recording.said == [("FLOP", True, flops.GIVES)]


def test_a_recording_that_ends_inside_a_forward_leaves_the_forward_alone(
    recording: Recording,
) -> None:
    calls: list[int] = []

    def inside() -> None:
        calls.append(1)
        if len(calls) == 3:
            recorder.flops.stop()

    train(Calls(inside), torch.ones(5, 4), steps=6)

    assert len(calls) == 6
    assert recording.counted() == []
    assert flops._flop_kernels.noted is None


def test_another_thread_ends_the_step_while_this_one_computes(recording: Recording) -> None:
    """And while torch has kept this thread's keys for a callback that runs later."""
    kept: list[torch.futures.Future[torch.Tensor]] = []

    def inside() -> None:
        promise: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        kept.append(promise)
        kept.append(promise.then(lambda done: done.value() @ done.value()))
        if len(kept) == 6:
            thread = threading.Thread(target=recorder.flops.stop)
            thread.start()
            thread.join()

    train(Calls(inside), torch.ones(5, 4), steps=6)
    gc.collect()
    for promise, then in zip(kept[::2], kept[1::2], strict=True):
        promise.set_result(torch.eye(3))
        assert then.wait().equal(torch.eye(3))

    assert recorder.flops is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_the_counted_step_raises_ends_the_count_and_not_the_training(
    recording: Recording, error: type[BaseException]
) -> None:
    calls: list[int] = []

    def inside() -> None:
        calls.append(1)
        if len(calls) == 3:
            if error is KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
            raise error

    model = Calls(inside)
    train(model, torch.ones(5, 4), steps=2)
    with pytest.raises(error):
        model(torch.ones(5, 4))
    train(model, torch.ones(5, 4), steps=4)

    assert recording.counted() == []
    assert recording.said == [("FLOP", False, f"the step that was counted raised {error.__name__}")]
    assert "GenericMode" not in str(torch._C._dispatch_tls_local_include_set())


def test_a_child_that_is_forked_inside_the_counted_step_computes(recording: Recording) -> None:
    ended: list[int] = []

    def inside() -> None:
        pid = os.fork()
        if pid == 0:
            product = torch.ones(2, 2) @ torch.ones(2, 2)
            os._exit(0 if product.sum() == 8 and flops._flop_kernels.noted is None else 1)
        ended.append(os.waitpid(pid, 0)[1])

    train(Calls(inside), torch.ones(5, 4), steps=4)

    assert ended == [0] * 4
    assert len(recording.counted()) == 1


@pytest.mark.parametrize("before", [1, 2])
def test_an_optimizer_that_takes_over_is_counted(recording: Recording, before: int) -> None:
    """While operations are counted, steps take several times as long."""
    model = nn.Linear(4, 2)
    first, second = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    for optimizer, count in ((first, before), (second, 80)):
        for _ in range(count):
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()

    assert recorder.flops is None
    assert recording.counted() == [(OPERATIONS, OPERATIONS)]
    first.step()


@pytest.mark.parametrize("before", [1, 2])
def test_updates_before_an_optimizer_took_over_are_made_too(
    recording: Recording, before: int
) -> None:
    """The second optimizer's 65th update is the first one that counts."""
    model = nn.Linear(4, 2)
    first, second = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    for optimizer, count in ((first, before), (second, 65)):
        for _ in range(count):
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()
    recorder.flops.stop()

    ((*_, why),) = recording.said
    assert why == (
        f"the training ended after {before + 65} updates, before one step could be counted"
    )
    first.step()


def test_optimizers_that_live_shortly_do_not_take_over_together() -> None:
    """They get the address of one that is gone."""
    steps, weight = CountedSteps(), nn.Parameter(torch.ones(2))
    kept = torch.optim.SGD([weight], 0.1)
    assert steps.ends(kept)

    for _ in range(200):
        assert not steps.ends(torch.optim.SGD([weight], 0.1))
    assert steps.ends(kept) and not steps.taken_over and steps.updates == 2


def test_a_second_recording_of_the_process_counts_too(recording: Recording) -> None:
    train(nn.Linear(4, 2), torch.ones(5, 4))
    second = flops.FlopTap(recording.tell)
    try:
        train(nn.Linear(4, 2), torch.ones(5, 4))
    finally:
        second.stop()

    assert recording.counted() == [(OPERATIONS, OPERATIONS)] * 2


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_operations_inside_a_transform_or_a_trace_are_not_disturbed(recording: Recording) -> None:
    weight = torch.ones(3, 4)

    def inside() -> None:
        assert torch.vmap(lambda row: weight @ row)(torch.ones(5, 4)).shape == (5, 3)
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(5, 4))
        assert "aten::size" not in str(traced.inlined_graph)

    train(Calls(inside), torch.ones(5, 4))

    assert recorder.flops is None


def test_it_can_be_switched_off(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.flops.stop()
    recording.said.clear()
    monkeypatch.setenv("FEEDLINE_FLOPS", "0")
    tap = flops.FlopTap(recording.tell)
    train(nn.Linear(4, 2), torch.ones(5, 4))
    tap.stop()

    assert recording.counted() == []
    assert recording.said == [("FLOP", False, "switched off by FEEDLINE_FLOPS=0")]
