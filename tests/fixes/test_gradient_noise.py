"""Noise on the weight of each sample's gradient."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from feedline.convergence.fixes.gradient_noise import FIX, GradientNoise


def setting(samples=16):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    return net, torch.randn(samples, 4, dtype=torch.float64), torch.randint(0, 3, (samples,))


def gradients(net, loss):
    return torch.autograd.grad(loss, [*net.parameters()])


def drawn(samples, sigma, seed):
    """The weights, in float32 as the fix makes them: rounded elsewhere, a sum that nearly cancels
    is another on some processors.
    """
    return (
        1 + sigma * torch.randn(samples, generator=torch.Generator().manual_seed(seed))
    ).double()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_it_is_the_gradient_of_losses_weighted_sample_by_sample(reduction):
    net, x, y = setting()
    losses = functional.cross_entropy(net(x), y, reduction="none")
    wanted = gradients(net, getattr(drawn(16, 0.5, 3) * losses, reduction)())

    found = gradients(
        net, functional.cross_entropy(GradientNoise(0.5, seed=3)(net(x)), y, reduction=reduction)
    )

    for got, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)


def test_the_loss_itself_does_not_change():
    net, x, y = setting()
    output = net(x)

    assert GradientNoise(0.5)(output) is output
    assert torch.equal(functional.cross_entropy(output, y), functional.cross_entropy(net(x), y))


def test_an_output_of_more_dimensions_has_one_weight_for_a_sample():
    x = torch.ones(5, 2, 3, requires_grad=True)
    GradientNoise(0.5, seed=1)(x * 1).sum().backward()

    torch.testing.assert_close(x.grad, drawn(5, 0.5, 1).float().view(5, 1, 1).expand(5, 2, 3))


def test_its_mean_is_the_gradient_and_its_variance_sigma_squared():
    x = torch.ones(100_000, requires_grad=True)
    GradientNoise(0.5)(x * 1).sum().backward()

    assert x.grad.mean().item() == pytest.approx(1, abs=0.01)
    assert x.grad.std().item() == pytest.approx(0.5, abs=0.01)


def test_torchs_random_state_does_not_move():
    net, x, y = setting()
    before = torch.get_rng_state()
    functional.cross_entropy(GradientNoise(0.5)(net(x)), y).backward()

    assert torch.equal(torch.get_rng_state(), before)


def noisy(noise, steps):
    found = []
    for _ in range(steps):
        x = torch.ones(4, requires_grad=True)
        noise(x * 1).sum().backward()
        found.append(x.grad)
    return found


def test_it_goes_on_where_it_was():
    at_once, first, second = (
        noisy(GradientNoise(1.0), 5),
        GradientNoise(1.0),
        GradientNoise(1.0, seed=9),
    )
    before = noisy(first, 2)
    second.load_state_dict(first.state_dict())

    assert all(map(torch.equal, before + noisy(second, 3), at_once))


@pytest.mark.parametrize("samples", [1, 7])
def test_a_last_batch_of_any_size(samples):
    net = nn.Linear(4, 3)
    GradientNoise(0.5)(net(torch.randn(samples, 4))).sum().backward()

    assert net.weight.grad.isfinite().all()


def test_without_a_gradient_to_come_nothing_is_drawn():
    noise, net = GradientNoise(0.5), nn.Linear(4, 3)
    state = noise.state_dict()["generator"]
    with torch.no_grad():
        noise(net(torch.randn(2, 4)))
    noise(torch.randn(2, 4))

    assert torch.equal(noise.state_dict()["generator"], state)


def test_under_autocast_the_gradient_keeps_its_dtype():
    net = nn.Linear(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        output = GradientNoise(0.5)(net(torch.randn(2, 4)))
    output.float().sum().backward()

    assert output.dtype == torch.bfloat16
    assert net.weight.grad.isfinite().all()


def test_a_nan_in_one_sample_stays_there():
    x = torch.ones(4, requires_grad=True)
    (GradientNoise(0.5)(x * 1) * torch.tensor([1, torch.nan, 1, 1])).sum().backward()

    assert x.grad.isnan().tolist() == [False, True, False, False]


def test_an_output_without_samples_is_refused():
    with pytest.raises(ValueError, match="a first dimension of samples"):
        GradientNoise(0.5)(torch.ones((), requires_grad=True))


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_a_sigma_that_cannot_be_is_refused(sigma):
    with pytest.raises(ValueError, match="cannot have a standard deviation"):
        GradientNoise(sigma)


def test_attached_it_acts_on_the_output_as_its_lines_do(training):
    x = torch.ones(4, requires_grad=True)
    program = {"model": lambda inputs: inputs * 1, "inputs": x}
    exec(FIX.lines(FIX.parse("0.5:seed=3")), program)
    program["output"].sum().backward()
    by_hand, x.grad = x.grad, None

    FIX.attach(FIX.parse("0.5:seed=3"), training)
    training.acts["output"](x * 1).sum().backward()

    assert torch.equal(x.grad, by_hand)
    assert not torch.equal(x.grad, torch.ones(4))


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "0.5:sigma=1", "0.5:1"])
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="expected 0.5"):
        FIX.parse(text)
