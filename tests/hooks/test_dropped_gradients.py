"""Gradients that come after an update and are cleared before the next one are recorded as such."""

from pathlib import Path

import pytest
import torch
from torch import nn

import feedline
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps.dropped_gradients import _DroppedGradients


def deceive(critic, generator, detached: bool) -> None:
    """Twelve steps of a generator and its critic, in which the critic may reach the generator."""
    of_critic, of_generator = (
        torch.optim.SGD(model.parameters(), lr=1e-3) for model in (critic, generator)
    )
    for _ in range(12):
        fake = generator(torch.randn(4, 3))
        seen = fake.detach() if detached else fake
        of_critic.zero_grad()
        critic(seen).sum().backward(retain_graph=True)
        of_critic.step()
        of_generator.zero_grad()
        cost = critic(generator(torch.randn(4, 3))).sum()
        cost.backward(inputs=list(generator.parameters()))
        of_generator.step()


@pytest.mark.parametrize("detached", [False, True])
def test_gradients_that_another_loss_leaves_are_told_with_their_number(detached, tmp_path: Path):
    with feedline.record(tmp_path / "run"):
        deceive(nn.Linear(5, 1), nn.Linear(3, 5), detached)

    (segment,) = (tmp_path / "run").rglob("main*.seg")
    read = read_segment(segment)
    cleared = read.of(Stage.GRADIENTS)
    dropped = cleared[cleared["extra"] > 0]
    numbers = read.of(Stage.OPTIMIZER)["number"].tolist()
    assert dropped["extra"].tolist() == ([] if detached else [20] * len(dropped))
    if not detached:
        assert len(dropped) >= 8 and set(dropped["number"].tolist()) == {numbers[1]}


def test_what_an_update_left_is_known_until_it_is_cleared():
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    gradients = _DroppedGradients()
    weight.sum().backward()
    assert gradients.cleared(optimizer) == 0  # no update was seen

    gradients.updated(optimizer)
    assert gradients.cleared(optimizer) == 0
    gradients.updated(optimizer)
    weight.sum().backward()
    assert gradients.cleared(optimizer) == 3
    assert gradients.cleared(optimizer) == 0

    gradients.updated(optimizer)
    gradients.forget(optimizer)
    weight.sum().backward()
    assert gradients.cleared(optimizer) == 0

    gradients.updated(optimizer)
    weight.grad = None
    assert gradients.cleared(optimizer) == 0


def test_it_never_raises():
    gradients = _DroppedGradients()
    gradients.updated(object())
    assert gradients.cleared(object()) == 0


def test_what_another_optimizer_of_the_same_parameters_uses_is_not_dropped():
    """As in InfoGAN, where one optimizer updates both models by a loss of their own."""
    first, last = (nn.Parameter(torch.ones(3)) for _ in range(2))
    of_one = torch.optim.SGD([first], lr=0.1)
    of_both = torch.optim.SGD([last, first], lr=0.1)
    gradients = _DroppedGradients()

    for used in (False, True):
        first.sum().backward()
        gradients.updated(of_one)
        (first.sum() + last.sum()).backward()
        if used:
            gradients.updated(of_both)
        assert gradients.cleared(of_one) == (0 if used else 3)
        of_both.zero_grad(set_to_none=False)


def test_of_many_optimizers_that_update_before_any_is_cleared_nothing_is_known():
    """An optimizer for each of 300 parameters would be compared with 299 others in each step."""
    gradients, optimizers = _DroppedGradients(), []
    for _ in range(12):
        weight = nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        optimizers.append(torch.optim.SGD([weight], lr=0.1))
    for one in optimizers:
        gradients.updated(one)
    for one in optimizers:
        one.param_groups[0]["params"][0].grad += 1

    assert [gradients.cleared(one) for one in optimizers] == [0] * 8 + [3] * 4
