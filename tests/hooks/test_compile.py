"""Compilations by torch.compile, in real ones. That numbers stay the same is tests/numbers."""

from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch._dynamo.callback import CallbackTrigger, callback_handler

from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.compile import CompileTap, _graph_number
from feedline.profiler.taps.patch import Patches

PROGRAM = Path(__file__).resolve().parents[1] / "numbers" / "training.py"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory, warm_python):
    """The main process of a training whose model is compiled with aot_eager."""
    folder = tmp_path_factory.mktemp("compiled")
    done = warm_python.run(
        "-m", "feedline", "run", "-q", "-o", "run", PROGRAM, "fork", 0, "compiled", folder=folder
    )
    assert done.returncode == 0, done.stderr
    return open_run(folder / "run").ranks[0].main


@pytest.fixture
def tap(tmp_path):
    segment, patches, tap = (
        Segment(tmp_path / "main.seg", {"role": "main"}),
        Patches(),
        CompileTap(),
    )
    recorder.open_main(segment)
    tap.attach(patches)
    yield segment
    tap.undo()
    patches.undo()
    recorder.close()
    assert callback_handler.start_callbacks == callback_handler.end_callbacks == []


def seen(segment):
    return read_segment(segment.path).of(Stage.COMPILE)


def test_the_first_step_compiles_inside_its_forward(compiled):
    forward = compiled.of(Stage.FORWARD)[0]
    compile = compiled.of(Stage.COMPILE)[0]

    assert compile["wall"] > 0
    assert forward["start"] <= compile["start"]
    assert compile["start"] + compile["wall"] <= forward["start"] + forward["wall"]


def test_steps_that_compile_nothing_have_no_compilation(compiled):
    forward, second = compiled.of(Stage.FORWARD), compiled.of(Stage.FORWARD)["start"][1]

    assert len(forward) == 50
    assert (compiled.of(Stage.COMPILE)["start"] < second).all()


def test_a_backward_that_is_compiled_when_first_run_is_told_from_the_forward(compiled):
    backward = compiled.of(Stage.BACKWARD)[0]
    inside = compiled.of(Stage.COMPILE)["start"] > backward["start"]
    who = [compiled.names[source] for source in compiled.of(Stage.COMPILE)["source"].tolist()]

    assert who[0] == "dynamo"
    assert [name == "lazy_backward" for name in who] == inside.tolist()


def test_compilations_are_seen_after_a_reset_of_dynamo(tap):
    torch._dynamo.reset()
    with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "0/0"):
        pass

    assert len(seen(tap)) == 1


def test_nested_compilations_are_one(tap):
    with callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "0/0"):
        with callback_handler.install_callbacks(CallbackTrigger.LAZY_BACKWARD, "0/0"):
            pass

    assert len(seen(tap)) == 1


def test_a_compilation_that_raises_is_closed(tap):
    with (
        pytest.raises(ZeroDivisionError),
        callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "2/1"),
    ):
        raise ZeroDivisionError

    assert seen(tap)["extra"].tolist() == [2 << 32 | 1]


@pytest.mark.parametrize(
    ("text", "number"), [("0/0", 0), ("3/1", 3 << 32 | 1), ("None", 0), ("!0/1", 0), ("", 0)]
)
def test_an_unknown_compile_id_is_zero(text, number):
    assert _graph_number(text) == number
