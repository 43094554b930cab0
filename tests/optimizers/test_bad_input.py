"""What an optimizer cannot take is said, and what is wrong in the gradients is not hidden."""

import pytest
import torch
from optimizers.kinds import KINDS
from torch import nn

from feedline.convergence.fixes.muon import muon
from feedline.convergence.fixes.soap import soap
from feedline.profiler.errors import MissingDependency

NAMES = list(KINDS)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(shape))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": -1}, "lr must be at least 0, not -1"),
        ({"lr": float("nan")}, "lr must be at least 0"),
        ({"lr": torch.ones(2)}, "one element"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"excluded_lr_scale": -1}, "excluded_lr_scale must be"),
    ],
)
def test_a_number_out_of_its_range_is_named(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        KINDS[name].make([weight(2, 2)], **{"lr": 0.1, **wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("lars", {"momentum": 1}), ("larc", {"eps": -1}), ("lamb", {"betas": (0.9, 1.0)})],
)
def test_a_number_that_only_it_has_is_checked(name, wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least 0"):
        KINDS[name].make([weight(2, 2)], lr=0.1, **wrong)


@pytest.mark.parametrize("name", ["lamb", "novograd"])
def test_betas_are_two(name):
    with pytest.raises(ValueError, match="betas must be two numbers"):
        KINDS[name].make([weight(2, 2)], lr=0.1, betas=(0.9, 0.9, 0.9))


@pytest.mark.parametrize("name", NAMES)
def test_a_group_that_is_wrong_is_not_added(name):
    optimizer = KINDS[name].make([weight(2, 2)], lr=0.1)

    with pytest.raises(ValueError, match="weight_decay"):
        optimizer.add_param_group({"params": [weight(3, 3)], "weight_decay": -1})

    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("name", NAMES)
def test_no_parameters_are_refused(name):
    with pytest.raises(ValueError, match="empty parameter list"):
        KINDS[name].make([], lr=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_gradient_is_named_with_the_way_out(name):
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = KINDS[name].make([weight(2, 2), embedding.weight], lr=0.1)
    embedding(torch.tensor([1])).sum().backward()
    before = embedding.weight.detach().clone()

    with pytest.raises(
        RuntimeError, match="parameter 1 in group 0 is sparse.*sparse=False.*SparseAdam"
    ):
        optimizer.step()

    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("name", NAMES)
def test_complex_parameters_are_refused(name):
    with pytest.raises(ValueError, match="parameter 1 is complex.*view_as_real"):
        KINDS[name].make(
            [weight(2, 2), nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))], lr=0.1
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_hidden(name, bad):
    params = [weight(2, 2), weight(3)]
    plain = [weight(2, 2), weight(3)]
    optimizer = KINDS[name].make(params, lr=0.1)
    sgd = torch.optim.SGD(plain, lr=0.1)
    for param in [*params, *plain]:
        param.grad = torch.ones_like(param)
        param.grad.view(-1)[0] = bad

    optimizer.step()
    sgd.step()

    for param, other in zip(params, plain):
        assert not torch.isfinite(param[~torch.isfinite(other)]).any()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_zero_leave_finite_weights(name):
    params = [weight(2, 2), weight(3)]
    optimizer = KINDS[name].make(params, lr=0.1, weight_decay=0.0)
    for _ in range(2):
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step()

    assert all(torch.equal(param, torch.ones_like(param)) for param in params)


def test_soap_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pytorch_optimizer", None)

    with pytest.raises(MissingDependency, match="pip install pytorch_optimizer"):
        soap([weight(2, 2)], lr=0.1)


def test_muon_on_a_torch_without_it_says_which_has_it(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)

    with pytest.raises(MissingDependency, match="torch 2.9"):
        muon([weight(2, 2)], lr=0.1)


def test_a_rate_for_the_rest_needs_a_rate_to_be_a_multiple_of():
    with pytest.raises(ValueError, match="rest_lr"):
        muon([weight(2, 2)], lr=0.0, rest_lr=0.1)
