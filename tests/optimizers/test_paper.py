"""Ten steps of each optimizer are those of its paper, to 1e-10."""

import pytest
import torch
from optimizers import paper
from optimizers.kinds import KINDS, WARM_UP, by_optimizer, by_paper, furthest
from optimizers.problems import PROBLEMS, Problem, made

from feedline.convergence.fixes import lars

NAMES = list(KINDS)


def matrices(tensor: torch.Tensor) -> bool:
    return tensor.ndim > 1


def all_of_them(tensor: torch.Tensor) -> bool:
    return True


def matrices_of_other_than_three_rows(tensor: torch.Tensor) -> bool:
    return tensor.ndim > 1 and tensor.shape[0] != 3


def make(name: str, problem: Problem, adapted=matrices, **more: object) -> torch.optim.Optimizer:
    kind = KINDS[name]
    how = {} if adapted is matrices else {"exclude": lambda tensor: not adapted(tensor)}
    return kind.make(problem.parameters(), kind.lr, **kind.settings, **how, **more)


@pytest.mark.parametrize("adapted", [matrices, all_of_them, matrices_of_other_than_three_rows])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("problem", list(PROBLEMS))
@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_with_a_warm_up_are_those_of_the_paper(name, problem, weight_decay, adapted):
    optimizer = make(name, PROBLEMS[problem], adapted, weight_decay=weight_decay)

    found = by_optimizer(optimizer, PROBLEMS[problem], WARM_UP)

    asked = by_paper(KINDS[name], PROBLEMS[problem], adapted, WARM_UP, weight_decay=weight_decay)
    assert furthest(found, asked) < 1e-10
    assert furthest(found[:1], found[-1:]) > 1e-3  # it moved


@pytest.mark.parametrize("name", NAMES)
def test_excluded_tensors_move_at_a_rate_of_their_own(name):
    optimizer = make(name, PROBLEMS["convolution"], excluded_lr_scale=0.3, weight_decay=0.01)

    found = by_optimizer(optimizer, PROBLEMS["convolution"], [1] * 10)

    same = {"excluded_lr_scale": 0.3, "weight_decay": 0.01}
    assert (
        furthest(found, by_paper(KINDS[name], PROBLEMS["convolution"], matrices, [1] * 10, **same))
        < 1e-10
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_group_can_say_that_its_tensors_are_adapted(name):
    problem, kind = PROBLEMS["convolution"], KINDS[name]
    optimizer = kind.make(
        [{"params": problem.parameters(), "excluded": False}],
        kind.lr,
        **kind.settings,
        weight_decay=0.01,
    )

    found = by_optimizer(optimizer, problem, [1] * 10)

    assert (
        furthest(found, by_paper(kind, problem, all_of_them, [1] * 10, weight_decay=0.01)) < 1e-10
    )


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_start_at_zero_leave_it(name):
    starts = Problem(
        lambda: [torch.zeros(4, 6).double(), made(4, seed=1)], PROBLEMS["logistic"].loss
    )

    found = by_optimizer(make(name, starts, weight_decay=0.01), starts, [1] * 10)

    assert (
        furthest(found, by_paper(KINDS[name], starts, matrices, [1] * 10, weight_decay=0.01))
        < 1e-10
    )
    assert float(found[-1][0].norm()) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_at_a_time_is_the_same_as_all_at_once(name):
    problem = PROBLEMS["convolution"]

    found = by_optimizer(make(name, problem, foreach=False, weight_decay=0.01), problem, WARM_UP)

    assert (
        furthest(found, by_optimizer(make(name, problem, weight_decay=0.01), problem, WARM_UP)) == 0
    )


@pytest.mark.parametrize("name", NAMES)
def test_batches_that_fit_the_cache_make_no_difference(name, monkeypatch):
    problem = PROBLEMS["convolution"]
    whole = by_optimizer(make(name, problem, weight_decay=0.01), problem, WARM_UP)
    monkeypatch.setattr(lars, "_CPU_BATCH_ELEMENTS", 4)

    assert (
        furthest(by_optimizer(make(name, problem, weight_decay=0.01), problem, WARM_UP), whole) == 0
    )


@pytest.mark.parametrize("name", NAMES)
def test_maximize_follows_the_gradient_of_the_negative_loss(name):
    problem = PROBLEMS["logistic"]
    negative = Problem(problem.start, lambda weights, step: -problem.loss(weights, step))

    found = by_optimizer(make(name, negative, maximize=True, weight_decay=0.01), negative, [1] * 10)

    assert (
        furthest(found, by_optimizer(make(name, problem, weight_decay=0.01), problem, [1] * 10))
        < 1e-12
    )


def test_larc_at_a_constant_rate_is_that_of_apex():
    problem, kind = PROBLEMS["quadratic"], KINDS["larc"]
    weights, memory = problem.start(), [{}, {}]

    found = by_optimizer(make("larc", problem, weight_decay=0.01), problem, [1] * 10)

    for step, ours in enumerate(found):
        grads = problem.gradients(weights, step)
        weights = [
            paper.apex_larc(w, g, seen, kind.lr, weight_decay=0.01)
            for w, g, seen in zip(weights, grads, memory)
        ]
        assert furthest([ours], [weights]) < 1e-10
