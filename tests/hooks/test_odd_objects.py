"""Models, tensors and errors of a program that answer otherwise than torch's own do."""

import builtins
import collections
import dataclasses
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.fx
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.profiler.errors import leave_out_us
from feedline.profiler.events import Flag, Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps import worker
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.training import attach_copies


@pytest.fixture
def recorded(tmp_path: Path):
    """Record a function of the program; returns the rank, of whose taps none has failed."""

    def record(run):
        with feedline.record(tmp_path / "run", strict=True):
            run()
        rank = open_run(tmp_path / "run").ranks[0]
        for hook in rank.manifest.hooks:
            assert "until" not in str(hook), hook
        return rank

    return record


def train(net, batch=lambda: torch.randn(8, 4), steps=6):
    optimizer = torch.optim.SGD(torch.nn.Module.parameters(net), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        output = net(batch())
        (
            output["loss"] if isinstance(output, dict) else output.as_subclass(torch.Tensor)
        ).mean().backward()
        optimizer.step()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


class Listed(Net):
    def parameters(self):
        return list(self.layer.parameters())


class Grouped(Net):
    def parameters(self, group):
        return self.layer.parameters()


class Configured(Net):
    parameters = {"lr": 0.1}


@pytest.mark.parametrize("kind", [Listed, Grouped, Configured])
def test_a_model_with_parameters_of_its_own_is_recorded(kind, recorded):
    rank = recorded(lambda: train(kind()))

    forwards = rank.main.of(Stage.FORWARD)
    assert len(forwards) == 6 and not (forwards["flags"] & Flag.BARE).any()
    assert rank.manifest.training["samples"] == 6 * 8


class Output(dict):
    def get(self, name, default):
        return super().get(name, default)


class Shy(torch.Tensor):
    def dim(self):
        raise RuntimeError("do not ask")


class Wrapping(Net):
    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.layer(x).mean())


@pytest.mark.parametrize(
    "wrap", [lambda loss: Output(loss=loss), lambda loss: loss.as_subclass(Shy)]
)
def test_a_model_that_returns_what_cannot_be_asked_is_recorded(wrap, recorded):
    rank = recorded(lambda: train(Wrapping(wrap)))

    assert len(rank.main.of(Stage.FORWARD)) == 6


def test_functions_inside_vmap_are_seen_and_the_batch_has_its_maker(recorded):
    def plus_one(x):
        return x + torch.ones(4)

    def get_batch():
        return torch.func.vmap(plus_one)(torch.randn(8, 4))

    main = recorded(lambda: train(Net(), get_batch, steps=24)).main

    made = {main.names[source] for source in main.of(Stage.MADE)["source"].tolist()}
    assert len(made) == 1 and "get_batch" in made.pop()


def test_a_model_called_inside_vmap_does_not_hide_who_makes_the_batches(recorded):
    net = Net()

    def get_batch():
        return torch.randn(8, 4)

    def run():
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(24):
            batch = get_batch()
            torch.func.vmap(net)(batch)
            net(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    main = recorded(run).main

    made = {main.names[source] for source in main.of(Stage.MADE)["source"].tolist()}
    assert len(made) == 1 and "get_batch" in made.pop()


def test_a_function_mode_sees_no_question_for_what_a_function_returned(recorded):
    class Counting(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = collections.Counter()

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.seen[str(function)] += 1
            return function(*args, **(kwargs or {}))

    def get_batch():
        return torch.ones(8, 4)

    def run(mode):
        with mode:
            train(Net(), get_batch)

    plain, under = Counting(), Counting()
    run(plain)
    recorded(lambda: run(under))

    assert plain.seen and under.seen == plain.seen


class Moving(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(4.0).to(x.device)


class Moved:
    """What a subclass returns in place of a tensor."""


class Remote(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return Moved()


class Timer:
    """As much of a GPU timer as copies need."""

    def __init__(self):
        self.began, self.ended = [], []

    def begin(self, stage):
        self.began.append(object())
        return self.began[-1]

    def end_copy(self, pair, start, source, target):
        assert source == target
        self.ended.append(pair)


@pytest.fixture
def timer(tmp_path):
    """A timer of copies, which are recorded."""
    patches = Patches()
    recorder.open_main(Segment(tmp_path / "main.seg", {"role": "main"}))
    recorder.gpu = timer = Timer()
    attach_copies(patches)
    yield timer
    patches.undo()
    recorder.gpu = None
    recorder.close()


def test_a_copy_that_returns_no_tensor_is_none_and_gives_its_events_back(timer):
    graph = torch.fx.symbolic_trace(Moving())
    assert graph(torch.zeros(4)).tolist() == [0, 1, 2, 3]

    assert type(torch.ones(4).as_subclass(Remote).to(torch.float64)) is Moved
    assert len(timer.began) >= 2 and timer.ended == timer.began


class WithAttribute(Exception):
    exceptions = None


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    number: int = 20


class Raising(Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 16

    def __getitem__(self, index):
        if index == 6:
            raise self.error("record 6 is broken")
        return torch.ones(4)


def test_an_error_in_a_worker_with_attributes_of_its_own_reaches_the_program(recorded):
    got = []

    def run():
        with pytest.raises(WithAttribute, match="record 6 is broken") as raised:
            for batch in DataLoader(Raising(WithAttribute), 4, num_workers=1):
                got.append(batch)
        assert "feedline" not in str(raised.value)

    recorded(run)

    assert len(got) == 1


def test_a_worker_whose_error_cannot_be_looked_at_tells_it_as_it_is(monkeypatch):
    def fail(error):
        raise RuntimeError("do not look")

    monkeypatch.setattr(worker, "leave_out_us", fail)
    try:
        raise KeyError("row")
    except KeyError as error:
        told = worker._without_our_frames(lambda about, where: (about, where))(where="in worker 0")
        assert told == ((KeyError, error, error.__traceback__), "in worker 0")


def raised_by(error):
    """The error, with a frame that says it is of feedline around one that does not."""
    inner = {"error": error, "__name__": "data"}
    exec("def get(): raise error", inner)
    ours = {"get": inner["get"], "__name__": "feedline.profiler.taps.fetch"}
    exec("def fetch(): get()", ours)
    with pytest.raises(type(error)) as raised:
        ours["fetch"]()
    return raised.value


def functions(error):
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return found


@pytest.mark.parametrize("error", [WithAttribute(), Frozen(), ValueError()], ids=repr)
def test_our_frames_leave_the_traceback_of_any_error(error):
    raised = raised_by(error)
    assert functions(raised)[-2:] == ["fetch", "get"]

    leave_out_us(raised)

    assert functions(raised)[-1] == "get" and "fetch" not in functions(raised)


def test_the_frame_that_stands_for_a_function_of_a_library_leaves_too():
    def save():
        raise ValueError

    def ours(original):
        return lambda: original()

    patches = Patches()
    patches.enter(save, ours)
    with pytest.raises(ValueError) as raised:
        save()
    assert functions(raised.value)[-3:] == ["save", "<lambda>", "save"]

    patches.undo()

    leave_out_us(raised.value)

    trace = traceback.extract_tb(raised.value.__traceback__)
    assert [(frame.name, frame.filename) for frame in trace[1:]] == [("save", __file__)]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups from 3.11 on")
def test_our_frames_leave_the_errors_of_a_group():
    inside = raised_by(ValueError())

    leave_out_us(builtins.ExceptionGroup("several", [inside]))

    assert "fetch" not in functions(inside)
