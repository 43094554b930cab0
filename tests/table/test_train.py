import importlib
import math
import multiprocessing
import random
import socket
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from acceptance import data, model, race
from acceptance.arms import ARMS, BY_LETTER
from acceptance.schedule import Schedule
from acceptance.train import Run, train

from feedline.profiler.errors import MissingDependency

SHORT = {letter: replace(arm, epochs=1) for letter, arm in BY_LETTER.items()}


@pytest.fixture(autouse=True)
def one_thread():
    with race.one_thread():
        yield


def figures(run: Run):
    return run.test, run.train_loss, run.updates


def test_the_data_is_always_the_same_split(whole):
    assert whole.x.shape == (4096, 1, 40) and whole.x_test.shape == (1904, 1, 40)
    assert sorted(set(whole.y.tolist())) == list(range(10))
    assert whole.x.mean().abs() < 0.05 and abs(whole.x.std() - 1) < 0.05


def test_making_data_asks_no_network_and_leaves_random_states_alone(monkeypatch):
    def refuse(*_):
        raise AssertionError("a network was asked")

    importlib.import_module(
        "mnist1d.data"
    )  # imports requests, and that PySocks, whose sockets are a class made from this one
    monkeypatch.setattr(socket, "socket", refuse)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    made = [data.make(data.Recipe(num_samples=100)) for _ in range(2)]

    assert made[0].fingerprint() == made[1].fingerprint()
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    )


def test_without_mnist1d_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)

    with pytest.raises(MissingDependency, match=r"pip install 'feedline\[bench\]'"):
        data.make()


def test_a_seed_gives_the_same_figures_again_and_another_gives_others(small):
    first, again, other = (figures(train(SHORT["O"], seed, small)) for seed in (0, 0, 1))

    assert first == again
    assert first != other


def test_training_leaves_torch_s_random_state_alone(small):
    before = torch.get_rng_state()
    train(SHORT["E"], 0, small)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "arm",
    [arm for arm in ARMS if arm.optimizer != "muon" or hasattr(torch.optim, "Muon")],
    ids=lambda arm: arm.letter,
)
def test_every_arm_trains(arm, small):
    run = train(replace(arm, epochs=1), 0, small)

    assert run.updates == 512 // arm.batch
    assert math.isfinite(run.train_loss) and 0 < run.test < 100


def test_a_training_that_diverges_ends_and_says_so(small):
    run = train(replace(BY_LETTER["B"], rate=1e12, epochs=50), 0, small)

    assert run.updates < 100 and not math.isfinite(run.train_loss)


def test_the_norm_changes_neither_the_first_weights_nor_the_rest_of_the_model():
    made = []
    for norm in ("none", "batch", "ghost"):
        torch.manual_seed(0)
        made.append([one for one in model.make(norm).parameters() if one.ndim > 1])

    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))


def rates(letter, per_epoch):
    schedule = Schedule.of(BY_LETTER[letter], per_epoch)
    return [schedule.rate(update) for update in range(12 * per_epoch)]


def test_the_rate_without_warm_up_falls_along_half_a_cosine():
    found = rates("A", 128)

    assert found[0] == 0.08 and found[768] == pytest.approx(0.04) and 0 < found[-1] < 1e-6


def test_the_linear_rule_warms_up_from_the_old_rate_to_eight_times_it():
    found = rates("E", 16)

    assert found[0] == pytest.approx(0.08 + 0.56 / 80) and found[79] == pytest.approx(
        0.64
    ) == pytest.approx(max(found))
    assert found[80 + 56] == pytest.approx(0.32)


def test_the_square_root_rule_ends_its_warm_up_at_the_root_of_eight_times_the_rate():
    assert max(rates("E3", 16)) == pytest.approx(0.08 * 8**0.5)


def test_another_optimizer_warms_up_from_nothing_to_its_own_rate():
    found = rates("H", 16)

    assert found[0] == pytest.approx(0.04 / 32) and found[31] == pytest.approx(0.04)


def test_every_arm_names_controls_that_are_there_and_its_letter_is_its_own():
    assert len(BY_LETTER) == len(ARMS)
    assert all(other in BY_LETTER for arm in ARMS for other in (arm.control, *arm.also) if other)
    assert [arm.letter for arm in ARMS if not arm.control] == ["A"]


@pytest.mark.long
def test_two_processes_find_what_one_finds_and_an_interrupt_ends_them(small):
    chosen, one, two = [SHORT["C"], SHORT["H"]], [], []
    race.race(chosen, [0, 1], small, 1, lambda *_: None, one)

    def interrupt(what, done, of):
        if done == of - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        race.race(chosen, [0, 1], small, 2, interrupt, two)

    expected = {(run.letter, run.seed): figures(run) for run in one}
    assert len(two) == 3
    assert all(expected[run.letter, run.seed] == figures(run) for run in two)
    assert not multiprocessing.active_children()
