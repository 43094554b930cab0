"""Fixes in trainings whose models are called one by one, each from outside."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from apply.fixed_training import Training, fixed

from feedline.convergence.fixes.ghost_bn import GhostBatchNorm1d
from feedline.convergence.fixes.muon import MuonWithAdamW


@pytest.mark.parametrize("first", ["backbone", "head"])
def test_layers_of_one_of_several_models_are_enough(first):
    backbone = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
    head = torch.nn.Linear(4, 3)
    with fixed("ghost_bn=2") as outside:
        if first == "head":
            head(torch.ones(4, 4))
            assert "Linear has no batch norm" in outside.failed["ghost_bn"]
        head(backbone(torch.ones(4, 5))).sum().backward()

    assert isinstance(backbone[1], GhostBatchNorm1d)
    assert outside.failed == {}
    assert outside.told[-1] == ("fix ghost_bn", True, "ghost_bn=2")


def test_a_batch_norm_that_cannot_be_converted_stays_a_failure_beside_one_that_can():
    synced = torch.nn.SyncBatchNorm(4)
    with fixed("ghost_bn=2") as outside:
        with contextlib.suppress(ValueError, RuntimeError):  # on a CPU its forward raises
            synced(torch.ones(4, 4))
        torch.nn.BatchNorm1d(4)(torch.ones(4, 4))

    assert "a SyncBatchNorm" in outside.failed["ghost_bn"]


class Criterion(torch.nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))

    def forward(self, output, labels):
        return F.cross_entropy(output * self.temperature, labels)


def test_noise_passes_by_the_loss_of_a_criterion_with_parameters():
    gradients = []
    for text in ("gradient_noise=0.5", "warmup=1000"):
        with fixed(text) as outside:
            training, criterion = Training(norm=False), Criterion()
            criterion(training.net(torch.ones(4, 5)), torch.arange(4) % 3).backward()
            gradients.append(training.net[0].weight.grad)
            training.optimizer.step()
        assert outside.failed == {}

    assert not torch.equal(*gradients)


def test_a_model_that_returns_its_loss_alone_gets_no_noise():
    class Whole(Criterion):
        def forward(self, inputs, labels):
            return super().forward(inputs, labels)

    with fixed("gradient_noise=0.5") as outside:
        Whole()(torch.ones(4, 3), torch.arange(4) % 3).backward()

    assert "the model returns a single number" in outside.failed["gradient_noise"]


def layers(*sizes):
    return torch.nn.Sequential(*map(torch.nn.Linear, sizes[:-1], sizes[1:]))


def at_muon(optimizer):
    return [
        param
        for group in optimizer.param_groups
        for param, hidden in zip(group["params"], group["hidden"], strict=True)
        if hidden
    ]


def is_same(some, others):
    return [id(param) for param in some] == [id(param) for param in others]


def test_muon_keeps_its_weights_where_two_models_are_trained_in_turn():
    torch.manual_seed(0)
    with fixed("muon=0.01") as outside:
        generator, discriminator = layers(3, 4, 4, 5), layers(5, 4, 4, 2)
        of_generator, of_discriminator = (
            torch.optim.Adam(net.parameters()) for net in (generator, discriminator)
        )
        for _ in range(2):
            with torch.no_grad():
                made = generator(torch.randn(6, 3))
            discriminator(made).mean().backward()
            of_discriminator.step()
            of_discriminator.zero_grad()
            discriminator(generator(torch.randn(6, 3))).mean().backward()
            of_generator.step()
            of_generator.zero_grad()

    assert outside.failed == {} and isinstance(of_generator, MuonWithAdamW)
    assert is_same(at_muon(of_generator), [generator[0].weight, generator[1].weight])
    assert is_same(at_muon(of_discriminator), [discriminator[0].weight, discriminator[1].weight])


def test_muon_keeps_its_weights_beside_a_module_that_is_first_called_after_an_update():
    torch.manual_seed(0)
    with fixed("muon=0.01"):
        net, late = layers(3, 4, 4, 5), layers(5, 4)
        optimizer = torch.optim.SGD([*net.parameters(), *late.parameters()], lr=0.1)
        for step in range(3):
            output = net(torch.randn(6, 3))
            (late(output) if step else output).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert is_same(at_muon(optimizer), [net[0].weight, net[1].weight, net[2].weight])


def test_muon_keeps_its_weights_beside_a_criterion_with_a_parameter():
    with fixed("muon=0.01"):
        net, criterion = layers(3, 4, 4, 5), Criterion()
        optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], lr=0.1)
        criterion(net(torch.ones(2, 3)), torch.arange(2)).backward()
        optimizer.step()

    assert is_same(at_muon(optimizer), [net[0].weight, net[1].weight])


def test_muon_knows_the_embeddings_and_the_output_of_modules_that_are_called_one_by_one():
    with fixed("muon=0.01"):
        table, hidden, head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 7)
        modules = torch.nn.ModuleList([table, hidden, head])
        optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)
        head(hidden(table(torch.arange(3)))).sum().backward()
        optimizer.step()

    assert is_same(at_muon(optimizer), [hidden.weight])
