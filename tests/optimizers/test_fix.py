"""``--fix lars=3:wd=0.001`` and its like: read, shown as Python, and put where the program makes
its optimizer.
"""

import pytest
import torch
from torch import nn

from feedline.convergence.fixes.adamw import FIX as ADAMW
from feedline.convergence.fixes.lamb import FIX as LAMB
from feedline.convergence.fixes.lamb import Lamb
from feedline.convergence.fixes.larc import FIX as LARC
from feedline.convergence.fixes.lars import FIX as LARS
from feedline.convergence.fixes.lars import Lars
from feedline.convergence.fixes.muon import FIX as MUON
from feedline.convergence.fixes.novograd import FIX as NOVOGRAD
from feedline.convergence.fixes.soap import FIX as SOAP

ALL = [LARS, LARC, LAMB, NOVOGRAD, MUON, SOAP, ADAMW]


class Program:
    """A training whose program makes SGD at 0.1."""

    ranks = 1

    def __init__(self) -> None:
        self.makes, self.sees = [], []

    def optimizer(self, make) -> None:
        self.makes.append(make)

    def model(self, act) -> None:
        self.sees.append(act)

    def run(self, params, **arguments) -> torch.optim.Optimizer:
        (make,) = self.makes
        return make(torch.optim.SGD, params, arguments)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(7, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4), nn.Linear(4, 3)
    )


@pytest.mark.parametrize("fix", ALL, ids=lambda fix: fix.name)
def test_the_lines_make_the_optimizer_that_attaching_makes(fix):
    setting, program, model = fix.parse("0.25:wd=0.5"), Program(), network()
    names = {"model": model}
    exec(fix.lines(setting), names)

    fix.attach(setting, program)
    attached = program.run(model.parameters(), lr=0.1, momentum=0.9)
    for act in program.sees:
        act(model)

    written = names["optimizer"]
    assert type(attached) is type(written)
    assert [
        {**group, "params": len(group["params"]), "param_names": 0}
        for group in attached.param_groups
    ] == [
        {**group, "params": len(group["params"]), "param_names": 0}
        for group in written.param_groups
    ]
    assert {group["lr"] for group in attached.param_groups} == {0.25}
    assert {group["weight_decay"] for group in attached.param_groups} <= {0.5, 0.0}


def test_every_setting_reaches_the_optimizer():
    setting = LAMB.parse("0.04:wd=0.2:beta1=0.8:beta2=0.95:eps=1e-5:excluded=0.5")

    assert setting.arguments == {
        "weight_decay": 0.2,
        "betas": (0.8, 0.95),
        "eps": 1e-5,
        "excluded_lr_scale": 0.5,
    }
    assert LAMB.lines(setting).endswith(
        "optimizer = Lamb(model.parameters(), lr=0.04, weight_decay=0.2, betas=(0.8, 0.95), "
        "eps=1e-05, excluded_lr_scale=0.5)\n"
    )


def test_settings_by_the_names_of_the_arguments_and_by_their_short_names_are_the_same():
    by_name = LAMB.parse(
        "0.04:weight_decay=0.2:beta1=0.8:beta2=0.95:eps=1e-5:excluded_lr_scale=0.5"
    )

    assert by_name == LAMB.parse("0.04:wd=0.2:beta1=0.8:beta2=0.95:eps=1e-5:excluded=0.5")


def test_one_beta_leaves_the_other_at_its_default():
    assert NOVOGRAD.parse("0.1:beta2=0.9").arguments == {"betas": (0.8, 0.9)}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "learning rate must be a number"),
        ("fast", "learning rate must be a number, not 'fast'"),
        ("-1", "at least 0"),
        ("nan", "finite"),
        ("3:wd", "wd must be a number"),
        (
            "3:decay=1",
            "'decay' is not one of its settings .weight_decay, momentum, trust_coefficient, "
            "excluded_lr_scale",
        ),
    ],
)
def test_a_value_that_cannot_be_read_says_what_it_may_be(value, message):
    with pytest.raises(ValueError, match=message):
        LARS.parse(value)


def test_groups_keep_the_proportions_of_their_rates_and_their_lack_of_decay():
    program, model = Program(), network()
    LARS.attach(LARS.parse("2:wd=0.3"), program)
    groups = [
        {"params": model[1].parameters(), "lr": 0.01, "momentum": 0.5},
        {"params": model[3].parameters(), "weight_decay": 0},
        {"params": model[4].parameters(), "weight_decay": 1e-4},
    ]

    optimizer = program.run(groups, lr=0.1)

    assert isinstance(optimizer, Lars)
    assert [
        (group["lr"], group["weight_decay"], group["momentum"]) for group in optimizer.param_groups
    ] == [
        (pytest.approx(0.2), 0.3, 0.9),
        (2, 0, 0.9),
        (2, 0.3, 0.9),
    ]


def test_named_parameters_are_taken():
    program = Program()
    LAMB.attach(LAMB.parse("0.1"), program)

    optimizer = program.run(network().named_parameters(), lr=0.1)

    assert isinstance(optimizer, Lamb) and "1.weight" in optimizer.param_groups[0]["param_names"]


def test_muon_leaves_embeddings_and_the_output_layer_to_adamw():
    program, model = Program(), network()
    MUON.attach(MUON.parse("0.02"), program)

    optimizer = program.run(model.parameters(), lr=0.1)
    for act in program.sees:
        act(model)

    (group,) = optimizer.param_groups
    assert [param for param, hidden in zip(group["params"], group["hidden"]) if hidden] == [
        model[1].weight,
        model[3].weight,
    ]


def test_adamw_does_not_decay_vectors():
    program, model = Program(), network()
    ADAMW.attach(ADAMW.parse("0.1:wd=0.2"), program)

    optimizer = program.run(model.parameters(), lr=0.1)

    assert [
        (group["weight_decay"], {param.ndim for param in group["params"]})
        for group in optimizer.param_groups
    ] == [
        (0.2, {2}),
        (0.0, {1}),
    ]
