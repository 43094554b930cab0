"""Exact statistics for inference."""

import random
from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from feedline.convergence.fixes.ghost_bn import convert_ghost_batchnorm
from feedline.convergence.fixes.recalibrate_bn import FIX, recalibrate


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.BatchNorm2d(3),
        nn.Dropout(0.5),
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, momentum=None),
    )


def batches(*sizes):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(size, 2, 8, 8, generator=generator) * (1 + number) + number
        for number, size in enumerate(sizes)
    ]


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def test_the_first_layer_gets_mean_and_variance_of_all_samples_together():
    net, data = model(), batches(8, 8, 3)
    whole = net[0](torch.cat(data)).double()

    assert recalibrate(net, data) == 3

    torch.testing.assert_close(
        net[1].running_mean.double(), whole.mean((0, 2, 3)), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(
        net[1].running_var.double(), whole.var((0, 2, 3)), rtol=1e-6, atol=1e-6
    )


def test_a_later_layer_sees_what_batches_normalised_by_themselves_bring_it_without_dropout():
    net, data = model(), batches(8, 5)
    layer = nn.BatchNorm2d(3)
    with torch.no_grad():
        inputs = torch.cat([net[3](layer(net[0](batch))) for batch in data]).double()

    recalibrate(net, data)

    torch.testing.assert_close(
        net[4].running_var.double(), inputs.var((0, 2, 3)), rtol=1e-5, atol=1e-6
    )


def test_update_bn_of_torch_leaves_out_how_means_of_batches_differ():
    net, data = (
        nn.Sequential(nn.BatchNorm1d(1, affine=False)),
        [torch.randn(50, 1), torch.randn(50, 1) + 10],
    )

    recalibrate(net, data)
    exact = net[0].running_var.item()
    torch.optim.swa_utils.update_bn(data, net)

    assert exact == pytest.approx(torch.cat(data).var().item(), rel=1e-5)
    assert net[0].running_var.item() < exact / 10


def test_nothing_but_the_statistics_changes():
    net = model()
    net.train()
    net[4].eval()
    net[3].requires_grad_(False)
    before, modes = state(net), [module.training for module in net.modules()]

    recalibrate(net, batches(8, 8))

    assert [module.training for module in net.modules()] == modes
    changed = {
        name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])
    }
    assert changed == {f"{layer}.running_{which}" for layer in (1, 4) for which in ("mean", "var")}
    assert [layer.momentum for layer in (net[1], net[4])] == [0.1, None]
    assert net[1].track_running_stats and not net[1]._forward_pre_hooks
    assert all(parameter.grad is None for parameter in net.parameters())


def test_no_random_state_moves():
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            return self.tensors[0][index] + random.random() + np.random.rand() + torch.rand(1)

    loader = DataLoader(Noisy(torch.cat(batches(16))), batch_size=8, shuffle=True)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    recalibrate(model(), loader)

    assert (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    ) == before


def test_ghost_batch_norm_gets_the_statistics_of_the_whole():
    net, data = convert_ghost_batchnorm(model(), 4), batches(8, 8)
    whole = net[0](torch.cat(data))

    recalibrate(net, data)

    torch.testing.assert_close(net[1].running_var, whole.var((0, 2, 3)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pack", [lambda x: x, lambda x: (x, torch.zeros(len(x))), lambda x: [x]])
def test_a_batch_may_be_the_inputs_or_begin_with_them(pack):
    plain, packed = model(), model()
    recalibrate(plain, batches(8, 8))

    recalibrate(packed, map(pack, batches(8, 8)))

    assert torch.equal(packed[1].running_var, plain[1].running_var)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_batch_may_be_named_inputs_or_go_through_a_forward_of_its_own(kind):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, pixels):
            return self.net(pixels)

    named, own = Named(), model()
    recalibrate(named, [kind(pixels=batch) for batch in batches(8, 8)])
    recalibrate(own, batches(8, 8), forward=lambda net, batch: net(batch))

    assert torch.equal(named.net[1].running_var, own[1].running_var)


def test_a_compiled_model_is_stepped_around():
    plain, net = model(), model()
    recalibrate(plain, batches(8, 8))

    recalibrate(torch.compile(net, backend="eager"), batches(8, 8))

    assert torch.equal(net[4].running_var, plain[4].running_var)


def nothing(net):
    return []


def infinite(net):
    data = batches(8, 8)
    data[1][0, 0, 0, 0] = torch.inf
    return data


def single(net):
    return [torch.randn(1, 2, 5, 5)]


def broken(net):
    yield batches(8)[0]
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (nothing, ValueError, "1: 0 batches gave 0 values per channel"),
        (infinite, ValueError, "1: its inputs hold NaN or infinity"),
        (single, ValueError, "Expected more than 1 value per channel when training"),
        (broken, OSError, "the disk is gone"),
    ],
)
def test_what_cannot_be_leaves_everything_as_it_was(bad, error, message):
    net = model().eval()
    before = state(net)

    with pytest.raises(error, match=message):
        recalibrate(net, bad(net))

    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(module.training for module in net.modules())
    assert net[1].track_running_stats and not net[1]._forward_pre_hooks


@pytest.mark.parametrize("net", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_a_model_without_running_statistics_is_refused(net):
    with pytest.raises(ValueError, match="no batch norm with running statistics"):
        recalibrate(net, [torch.randn(4, 2)])


def test_a_layer_that_no_batch_reached_is_named():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.BatchNorm1d(2), nn.BatchNorm1d(2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(ValueError, match="unused: 1 batches gave 0 values"):
        recalibrate(Branches(), [torch.randn(4, 2)])


def test_it_cannot_be_attached_and_its_lines_do_it():
    net = model()
    program = {"model": net, "loader": batches(8, 8, 8)}

    exec(FIX.lines(FIX.parse("2")), program)

    other = model()
    recalibrate(other, batches(8, 8))
    assert FIX.attach is None
    assert torch.equal(net[1].running_var, other[1].running_var)
    with pytest.raises(ValueError, match="expected 50"):
        FIX.parse("none")
