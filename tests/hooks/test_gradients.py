"""Clearing, unscaling and clipping gradients is a stage of its own, by real trainings."""

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from measure.made_up_records import MadeUp
from own_code.conftest import one_thread as one_thread
from own_code.conftest import recorded as recorded
from torch.nn.utils import clip_grad_norm_

from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Flag, Stage


def sources(main):
    return [main.names[source] for source in main.of(Stage.GRADIENTS)["source"].tolist()]


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 256)
    return model, torch.optim.SGD(model.parameters(), 1e-3)


def test_each_call_between_model_backward_and_optimizer_is_recorded_once(recorded):
    """A function imported by name before the recording is seen too;

    Module.zero_grad as well as the optimizer's.
    """
    model, optimizer = model_and_optimizer()
    scaler, x = torch.amp.GradScaler("cpu"), torch.ones(8, 256)

    def train():
        for _ in range(10):
            optimizer.zero_grad()
            model.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    report, main = recorded(train)

    assert sources(main) == 10 * [
        "zero_grad",
        "zero_grad",
        "unscale_",
        "clip_grad_norm_",
        "clip_grad_value_",
    ]
    each = main.of(Stage.GRADIENTS)["wall"].reshape(10, 5).sum(axis=1) / 1e9
    assert each.min() < report.step.stages["gradients"] < each.max()


def test_the_functions_are_torchs_own_again_after_a_recording(recorded):
    before = (
        torch.optim.Optimizer.zero_grad,
        torch.nn.Module.zero_grad,
        torch.amp.GradScaler.unscale_,
        clip_grad_norm_.__code__,
    )
    model, optimizer = model_and_optimizer()

    def train():
        assert torch.optim.Optimizer.zero_grad is not before[0]
        model(torch.ones(8, 256)).sum().backward()
        optimizer.step()

    recorded(train)

    assert (
        torch.optim.Optimizer.zero_grad,
        torch.nn.Module.zero_grad,
        torch.amp.GradScaler.unscale_,
        clip_grad_norm_.__code__,
    ) == before


def test_steps_that_are_only_counted_leave_what_other_taps_do_to_clipping_as_it_is(recorded):
    """The gradient noise scale is measured before clipping, by a tap that enters the same function."""
    model, codes = torch.nn.Linear(2, 2), []
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def train():
        for _ in range(600):
            model(torch.ones(1, 2)).sum().backward()
            codes.append(clip_grad_norm_.__code__)
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    report, main = recorded(train)

    assert report.throughput.steps == 600 and len(main.of(Stage.REST))
    assert all(code is codes[0] for code in codes)


def test_gradients_that_a_backward_clears_itself_belong_to_it(recorded):
    """As in recipes that update each parameter as soon as its gradient is there."""
    model, optimizer = model_and_optimizer()

    def clip(_):
        clip_grad_norm_(model.parameters(), 1.0)

    def train():
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(clip)
        for _ in range(4):
            model(torch.ones(8, 256)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    _, main = recorded(train)

    assert sources(main) == 4 * ["zero_grad"]


def test_a_failing_call_is_raised_and_recorded(recorded):
    model, optimizer = model_and_optimizer()

    def train():
        for _ in range(3):
            (model(torch.ones(8, 256)).sum() * torch.inf).backward()
            with pytest.raises(RuntimeError, match="non-finite"):
                clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            optimizer.step()

    _, main = recorded(train)

    assert (main.of(Stage.GRADIENTS)["flags"] & Flag.FAILED != 0).tolist() == 3 * [True]


@pytest.mark.parametrize(
    "clears",
    [(10, 14), (22, 26), (26, 30)],
    ids=["after the forward", "between", "before the backward"],
)
def test_the_loss_between_a_forward_and_its_backward_is_one_where_zero_grad_is_called_in_it(clears):
    main = MadeUp()
    for step in range(8):
        at = 100 * step
        main.span(Stage.FORWARD, at, at + 10, flags=Flag.GRAD | Flag.TRAINING)
        main.span(Stage.GRADIENTS, at + clears[0], at + clears[1])
        main.backward(at + 30, at + 60).span(Stage.GRADIENTS, at + 62, at + 65).update(
            at + 65, at + 75
        )

    found = steps_of(main.process())

    assert found.stages["loss"].tolist() == 8 * [16] and found.stages["gradients"].tolist() == 8 * [
        7
    ]
    assert np.array_equal(sum(found.stages.values()), found.wall)


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore"
)  # those that tracing a whole step gives without a recording too
def test_a_compiled_training_step_is_compiled_as_without(recorded):
    """Tracing a step that clears and clips gradients gives the same graphs, and the same
    parameters.
    """

    def trained(steps=3):
        torch._dynamo.reset()
        model, optimizer = model_and_optimizer()
        counter = torch._dynamo.testing.CompileCounter()

        @torch.compile(backend=counter)
        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        for _ in range(steps):
            step(torch.ones(8, 256))
        return counter.frame_count, counter.op_count, model.weight.detach().clone()

    frames, operators, weight = trained()
    inside = []
    recorded(lambda: inside.append(trained()))

    assert inside[0][:2] == (frames, operators)
    assert torch.equal(inside[0][2], weight)
