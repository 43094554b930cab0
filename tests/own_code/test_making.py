"""Functions that make a program's batches in its own thread are found and timed, by real trainings."""

import gc
import os
import re
import signal
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from own_code.loops import ROWS, TEXT, Timed, at_the_beginning, at_the_end, finding, train
from text.breath import said as text_of

from feedline.profiler.events import Stage
from feedline.profiler.taps.own_code.producers import _shorten, _StorageRef

NOBODY = "which part of the"


def input_s(report):
    return report.step.stages.get("input", 0.0)


def seen_and_own(main, made):
    """ns that a call took, and what the loop's timer says of the same calls: medians, for other
    programs may have the CPU meanwhile.
    """
    seen = main.of(Stage.MADE)
    return np.median(seen["wall"]), np.median(made.spent[-int(seen["number"].sum()) :])


def names(main):
    return {main.names[source] for source in main.of(Stage.MADE)["source"].tolist()}


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    TEXT.tofile(tmp_path / "text.bin")
    return tmp_path / "text.bin"


WAYS = {
    "a function between forward and backward": lambda made, file: at_the_end(made.get_batch),
    "a function before the forward": lambda made, file: at_the_beginning(made.get_batch),
    "a generator": lambda made, file: at_the_beginning(made.batches().__next__),
    "a memory map": lambda made, file: at_the_beginning(partial(made.from_file, file)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_makes_the_batches_is_named_and_its_time_is_that_of_a_timer_around_it(
    way, recorded, text_file
):
    made = Timed()
    report, main = recorded(lambda: train(WAYS[way](made, text_file)))

    assert len(names(main)) == 1 and re.search(r"\w+ \(tests/own_code/\w+\.py:\d+\)", *names(main))
    assert seen_and_own(main, made)[0] == pytest.approx(seen_and_own(main, made)[1], rel=0.15)
    found = finding(report) or finding(
        report, "too_short"
    )  # beside many other programs, 24 steps may vary too much
    low, high = (one.value for one in found.evidence if one.id == "input_share_end")
    assert low <= input_s(report) / report.step.mean_s <= high


def test_a_step_that_first_chooses_an_action_has_the_function_that_the_model_learns_from(recorded):
    """As in reinforcement learning with a replay buffer: the first forward of a step gets what the
    loop itself has made.
    """
    made = Timed()

    def step(model):
        model(torch.zeros(1, 1, dtype=torch.int64))
        return at_the_beginning(made.get_batch)(model)

    _, main = recorded(lambda: train(step))

    assert len(names(main)) == 1 and "get_batch" in names(main).pop()
    assert seen_and_own(main, made)[0] == pytest.approx(seen_and_own(main, made)[1], rel=0.15)


def test_a_function_that_mixes_what_models_got_and_gave_makes_no_batch(recorded):
    """As the gradient penalty of a GAN: it asks for the gradient of what it returns."""
    data = torch.randn(512, 64)

    def mixed(real, fake):
        return (0.5 * real + 0.5 * fake).detach().requires_grad_()

    def loop():
        first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
        for _ in range(24):
            x = data[torch.randint(512, (16,))]
            second(mixed(x, first(x))).sum().backward()
            optimizer.step()

    _, main = recorded(loop)

    assert not names(main)


def test_a_function_that_hands_on_what_another_has_made_in_the_step_makes_no_batch(recorded):
    """As the checks of a solver's arguments."""
    made = Timed()

    def checked(batch):
        if batch.ndim != 2:
            raise ValueError
        return batch

    def step(model):
        x, y = made.get_batch()
        return model(checked(x), y)[1]

    _, main = recorded(lambda: train(step))

    assert len(names(main)) == 1 and "get_batch" in names(main).pop()


class Graph:
    """Of PyTorch Geometric: the whole of it is in memory, and given out by a property."""

    def __init__(self):
        self.store = torch.randn(64, 64)

    @property
    def x(self):
        return self.store


def test_a_property_that_gives_out_what_is_in_memory_makes_no_batch(recorded):
    graph, layer = Graph(), torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(layer.parameters())

    def loop():
        for _ in range(24):
            layer(graph.x).sum().backward()
            optimizer.step()

    report, main = recorded(loop)

    assert len(names(main)) == 1 and "x (" in names(main).pop()
    assert "input" not in report.step.stages
    assert not any("make" in said for one in report.findings for said in one.more)


def test_all_batches_of_an_accumulating_step_count(recorded):
    made = Timed()
    report, main = recorded(lambda: train(at_the_end(made.get_batch), 12, accumulate=4))

    assert main.of(Stage.MADE)["number"].sum() >= 4 * 8
    assert seen_and_own(main, made)[0] == pytest.approx(seen_and_own(main, made)[1], rel=0.15)
    assert input_s(report) > 3 * np.median(made.spent) / 1e9
    assert any(
        name.startswith("Timed.get_batch (" if sys.version_info >= (3, 11) else "get_batch (")
        for name in names(main)
    )


@pytest.mark.long
def test_short_steps_that_are_mostly_counted_have_it_too(recorded):
    made = Timed()
    report, main = recorded(lambda: train(at_the_end(made.get_batch), 1500))

    assert len(main.of(Stage.REST))
    assert input_s(report) == pytest.approx(np.mean(made.spent) / 1e9, rel=0.5)


def test_a_loop_that_indexes_a_tensor_itself_stays_unknown(recorded):
    data = torch.from_numpy(TEXT.astype(np.int64)).unfold(0, 33, 1)

    def step(model):
        rows = data[torch.randint(len(data), (ROWS,))]
        return model(rows[:, :-1], rows[:, 1:])[1]

    report, main = recorded(lambda: train(step))

    assert not len(main.of(Stage.MADE)) and "input" not in report.step.stages
    (most,) = re.search(
        r"no loader was seen, .* step is unknown\nat most (.*) % of the step is input, unless a "
        r"model\'s forward\(\) loads data",
        text_of(finding(report, "input_not_seen")),
    ).groups()
    learns = sum(report.step.stages[stage] for stage in ("forward", "backward", "optimizer"))
    assert float(most) / 100 <= 1 - learns / report.step.mean_s + 0.006


def test_a_function_that_takes_next_to_nothing_does_not_hold_the_step_back(recorded):
    data = torch.randn(400, 1024)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6)))
    optimizer = torch.optim.SGD(model.parameters())

    def slice_of(number):
        return data[number : number + ROWS]

    def train_wide():
        for number in range(20):
            model(slice_of(number)).sum().backward()
            optimizer.step()

    report, _ = recorded(train_wide)

    said = [
        text_of(one)
        for one in report.findings
        if one.rule_id in ("compute_bound", "input_not_seen")
    ]  # by what is in other

    assert not finding(report) and said
    assert input_s(report) == 0.0  # a slice of what is in memory, in next to no time


@pytest.mark.long
def test_a_step_of_which_everything_is_known_but_its_input_is_not_held_back(recorded):
    layer = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(12)))
    optimizer = torch.optim.SGD(layer.parameters())

    def wide():
        data = torch.randn(256, 1024)
        for _ in range(30):
            layer(data * 1).sum().backward()
            optimizer.step()

    report, _ = recorded(wide)

    assert "the input at most" in finding(report, "compute_bound").message


def test_a_state_that_a_model_has_returned_is_no_batch(recorded):
    model = torch.nn.GRU(8, 8)
    optimizer = torch.optim.SGD(model.parameters())

    def detached(state):
        time.sleep(0.001)
        return state.detach()

    def recurrent():
        state = torch.zeros(1, 4, 8)
        data = torch.randn(40, 20, 4, 8)
        for x in data:
            out, state = model(x, detached(state))
            out.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    _, main = recorded(recurrent)

    assert names(main) == set()


def test_making_that_may_be_only_a_part_of_the_input_does_not_acquit_the_rest(recorded):
    def as_tensors(rows):
        return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])

    def step(model):
        rows = np.stack([TEXT[i : i + 33].astype(np.int64) for i in range(900)])[:ROWS]
        time.sleep(0.002)
        return model(*as_tensors(rows))[1]

    report, main = recorded(lambda: train(step))

    assert len(names(main)) == 1 and not finding(report, "compute_bound")
    assert "belong to no stage and may be input as well" in text_of(
        finding(report, "input_not_seen")
    )


def test_a_function_that_waits_is_said_to_wait(recorded):
    made = Timed()

    def waits():
        time.sleep(0.03)
        return made.get_batch()

    report, main = recorded(lambda: train(at_the_beginning(waits), 16))
    made_ns = main.of(Stage.MADE)

    assert made_ns["cpu"].sum() < 0.5 * made_ns["wall"].sum()
    assert finding(report) is None or "waits for each batch" in finding(report).message


def test_losses_are_bit_for_bit_the_same(recorded):
    losses = []
    recorded(lambda: losses.extend(train(at_the_beginning(Timed().get_batch), 40)))

    assert losses == train(at_the_beginning(Timed().get_batch), 40)


def test_no_batch_lives_longer(recorded):
    made, alive, seen = Timed(), [], []

    def get():
        x, y = made.get_batch()
        alive[:] = [one for one in alive if one() is not None]
        seen.append(len(alive))
        alive.append(weakref.ref(x))
        return x, y

    gc.disable()
    try:
        recorded(lambda: train(at_the_beginning(get)))
    finally:
        gc.enable()

    assert max(seen) <= 1


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="from Python 3.12 on, feedline uses sys.monitoring, which several tools can share",
)
def test_a_profile_function_of_the_program_stays(recorded):
    made, events, kept = Timed(), [], []

    def mine(frame, event, arg):
        events.append(event)

    def step(model):
        kept.append(sys.getprofile() is mine)
        return at_the_beginning(made.get_batch)(model)

    def profiled():
        sys.setprofile(mine)
        try:
            train(step)
        finally:
            sys.setprofile(None)

    _, main = recorded(profiled)

    assert all(kept) and events and not len(main.of(Stage.MADE))


def test_a_profile_function_that_is_set_in_between_stays(recorded):
    made, seen = Timed(), []

    def mine(frame, event, arg):
        seen.append(event)

    def get():
        before = sys.getprofile()
        sys.setprofile(mine)
        batch = made.get_batch()
        mine_still = sys.getprofile() is mine
        sys.setprofile(before)
        assert mine_still
        return batch

    recorded(lambda: train(at_the_beginning(get)))

    assert sys.getprofile() is None and seen


def test_what_the_function_raises_reaches_the_program_and_nothing_stays(recorded):
    made, raised = Timed(), []

    def get():
        if len(made.spent) == 9:
            made.spent.append(0)
            raise KeyError("mine")
        return made.get_batch()

    def go():
        try:
            train(at_the_beginning(get))
        except KeyError as error:
            raised.append(error)

    recorded(go)

    assert len(raised) == 1 and sys.getprofile() is None


class Alarm(Exception):
    """Raised by a signal's handler."""


def test_what_a_signals_handler_raises_is_never_lost(recorded):
    made, raised, caught = Timed(), [], []

    def ring(*_):
        raised.append(1)
        raise Alarm

    def get():
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                batch = made.get_batch()
                signal.setitimer(signal.ITIMER_REAL, 0)
                return batch
            except Alarm:
                caught.append(1)
                if len(caught) % 3 == 0:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    return made.get_batch()

    before = signal.signal(signal.SIGALRM, ring)
    # hypothesis has a callback for collections, in which Python drops what a handler raises
    gc.disable()
    try:
        recorded(lambda: train(at_the_beginning(get)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()

    assert raised and len(caught) == len(raised)


def test_a_fork_in_between_sees_no_calls(recorded):
    made, codes = Timed(), []

    def get():
        child = os.fork()
        if child == 0:
            os._exit(0 if sys.getprofile() is None else 3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return made.get_batch()

    recorded(lambda: train(at_the_beginning(get), 12))

    assert set(codes) == {0}


def test_with_a_loader_no_function_is_taken_for_what_makes_the_batches(recorded):
    rows = torch.from_numpy(TEXT.astype(np.int64)).unfold(0, 33, 1)[:768]

    def loop():
        batches = iter(torch.utils.data.DataLoader(rows, batch_size=32))

        def step(model):
            row = next(batches)
            return model(row[:, :-1], row[:, 1:])[1]

        train(step)

    report, main = recorded(loop)

    assert not len(main.of(Stage.MADE)) and report.loaders[0].role == "training"


def test_references_to_storages_that_are_gone_are_forgotten():
    kept = {}
    staying = [torch.zeros(1) for _ in range(20)]
    for step in range(400):
        tensor = staying[step] if step < len(staying) else torch.zeros(1)
        reference = _StorageRef(tensor.untyped_storage())
        kept[reference.cdata] = reference, step
        _shorten(kept)
        del tensor

    assert {_StorageRef(tensor.untyped_storage()).cdata for tensor in staying} <= set(kept)
    assert len(kept) < len(staying) + 20  # they kept the allocator from joining free blocks
