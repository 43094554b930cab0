"""A rate that grows over samples, beside any scheduler."""

import pytest
import torch
from torch.optim import lr_scheduler

from feedline.convergence.fix import TrainingProgress
from feedline.convergence.fixes.warmup import FIX, Warmup

SCHEDULERS = {
    "chainable": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "closed form": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "in steps": lambda o: lr_scheduler.MultiStepLR(o, [3, 7], 0.1),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=20),
    "chained": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5, 3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "on plateau": lambda o: Plateau(o),
}


class Plateau(lr_scheduler.ReduceLROnPlateau):
    def __init__(self, optimizer):
        super().__init__(optimizer, patience=1)

    def step(self):
        super().step(1.0)


def updates(optimizer, scheduler, batches, warmup=None):
    """The rate of each update, read off what it does to a parameter whose gradient is -1."""
    rates = []
    for batch in batches:
        (parameter,) = optimizer.param_groups[0]["params"]
        before = parameter.item()
        parameter.grad = torch.full_like(parameter, -1.0)
        if warmup is not None:
            warmup.count(batch)
        optimizer.step()
        rates.append(parameter.item() - before)
        if scheduler is not None:
            scheduler.step()
    return rates


def sgd(rate=1.0, **more):
    return torch.optim.SGD(
        [torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))], lr=rate, **more
    )


def test_it_is_linear_in_samples_whatever_the_batches():
    optimizer = sgd()

    assert updates(
        optimizer, None, [10, 30, 60, 1, 200], Warmup(optimizer, samples=101)
    ) == pytest.approx([10 / 101, 40 / 101, 100 / 101, 1, 1])


def test_it_starts_from_a_share_of_the_rate():
    optimizer = sgd()

    assert updates(optimizer, None, [25] * 5, Warmup(optimizer, 100, start=0.2)) == pytest.approx(
        [0.4, 0.6, 0.8, 1, 1]
    )


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_the_rate_is_that_of_the_scheduler_times_the_factor(kind):
    alone, both = sgd(), sgd()
    rates = updates(alone, SCHEDULERS[kind](alone), [10] * 12)
    schedule = SCHEDULERS[kind](both)

    found = updates(both, schedule, [10] * 12, Warmup(both, samples=80, start=0.1))

    assert found == pytest.approx(
        [rate * (0.1 + 0.9 * min(1, (n + 1) / 8)) for n, rate in enumerate(rates)], rel=1e-9
    )
    assert both.param_groups[0]["lr"] == alone.param_groups[0]["lr"]


def test_a_warm_up_put_on_before_the_scheduler_is_the_same():
    optimizer, other = sgd(), sgd()
    warmup = Warmup(optimizer, 80)
    first = updates(optimizer, lr_scheduler.CosineAnnealingLR(optimizer, 20), [10] * 12, warmup)
    schedule = lr_scheduler.CosineAnnealingLR(other, 20)

    assert updates(other, schedule, [10] * 12, Warmup(other, 80)) == first


def test_a_rate_that_is_a_tensor_comes_back_as_the_same_tensor():
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD(
        [{"params": [parameter]}, {"params": [torch.nn.Parameter(torch.zeros(1))]}], lr=rate
    )
    warmup = Warmup(optimizer, samples=100)

    warmup.count(50)
    parameter.grad = -torch.ones_like(parameter)
    optimizer.step()

    assert parameter.item() == pytest.approx(0.25)
    assert all(group["lr"] is rate for group in optimizer.param_groups)
    assert rate == 0.5


def test_it_goes_on_where_it_was():
    whole, first, second = sgd(), sgd(), sgd()
    at_once = updates(whole, None, [10] * 8, Warmup(whole, 70))
    warmup = Warmup(first, 70)
    before = updates(first, None, [10] * 3, warmup)
    resumed = Warmup(second, 70)
    resumed.load_state_dict(warmup.state_dict())

    assert before + updates(second, None, [10] * 5, resumed) == pytest.approx(at_once)


def test_a_checkpoint_holds_the_rate_without_the_factor():
    optimizer = sgd()
    updates(optimizer, None, [10], Warmup(optimizer, 100))

    assert optimizer.state_dict()["param_groups"][0]["lr"] == 1.0


def test_an_update_that_raises_leaves_no_factor_behind():
    optimizer = sgd()
    warmup = Warmup(optimizer, 100)

    def closure():
        raise RuntimeError("out of memory")

    warmup.count(10)
    with pytest.raises(RuntimeError):
        optimizer.step(closure)

    assert updates(optimizer, None, [10], warmup) == pytest.approx([0.2])
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_with_a_gradient_scaler_an_update_that_it_skips_counts_its_samples():
    optimizer = sgd()
    warmup, scaler = Warmup(optimizer, 100), torch.amp.GradScaler("cpu", init_scale=4.0)
    (parameter,) = optimizer.param_groups[0]["params"]
    for gradient in (torch.inf, -1.0):
        warmup.count(25)
        optimizer.zero_grad()
        scaler.scale(parameter.sum() * gradient).backward()
        scaler.step(optimizer)
        scaler.update()

    assert parameter.item() == pytest.approx(0.5)


def test_forgetting_to_count_is_said_at_the_first_update():
    optimizer = sgd()
    Warmup(optimizer, 100)

    with pytest.raises(ValueError, match=r"call warmup.count\(samples\) before"):
        updates(optimizer, None, [10])


def test_taken_off_again_it_does_nothing():
    optimizer = sgd()
    Warmup(optimizer, 100).remove()

    assert updates(optimizer, None, [10]) == [1.0]


@pytest.mark.parametrize(
    ("samples", "start"), [(-1, 0), (float("nan"), 0), (100, -0.1), (100, 1.1)]
)
def test_numbers_that_cannot_be_are_refused(samples, start):
    with pytest.raises(ValueError, match="a warm-up cannot"):
        Warmup(sgd(), samples, start)


@pytest.mark.parametrize("samples", [-1, float("nan")])
def test_an_update_of_fewer_samples_than_none_is_refused(samples):
    with pytest.raises(ValueError, match="an update cannot have"):
        Warmup(sgd(), 100).count(samples)


def progress(samples, batch=50, epoch: int | None = 1000):
    return TrainingProgress(
        updates=0, samples=samples, samples_per_epoch=epoch, batch=batch, ranks=1
    )


@pytest.mark.parametrize(
    ("text", "samples", "factor"),
    [
        ("2ep", 0, 0.025),
        ("2ep", 950, 0.5),
        ("2ep", 5000, 1),
        ("200", 50, 0.5),
        ("200:from=0.5", 50, 0.75),
        ("0.1ep", 0, 0.5),
    ],
)
def test_attached_it_is_a_factor_of_the_progress(training, text, samples, factor):
    FIX.attach(FIX.parse(text), training)

    assert training.acts["rate"](progress(samples)) == pytest.approx(factor)


def test_epochs_of_a_loader_without_a_length_are_refused(training):
    FIX.attach(FIX.parse("2ep"), training)

    with pytest.raises(ValueError, match="give the length in samples"):
        training.acts["rate"](progress(0, epoch=None))


@pytest.mark.parametrize(
    "text",
    ["", "ep", "-1ep", "0", "1.5", "5 epochs", "5ep:to=1", "5ep:from=2", "5ep:from=x", "nan"],
)
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="expected 5ep"):
        FIX.parse(text)


def test_a_handful_of_samples_is_taken_for_epochs_by_mistake():
    with pytest.raises(ValueError, match="2 are samples, .* give 2ep"):
        FIX.parse("2")


def test_the_lines_do_what_the_fix_does():
    optimizer = sgd()
    program = {"optimizer": optimizer, "inputs": range(100)}
    exec(FIX.lines(FIX.parse("200:from=0.5")), program)
    (parameter,) = optimizer.param_groups[0]["params"]
    parameter.grad = -torch.ones_like(parameter)
    optimizer.step()

    assert parameter.item() == pytest.approx(0.75)
