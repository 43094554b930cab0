"""What a signal's handler raises reaches the program, also from within a hook."""

import ast
import functools
import gc
import signal
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline
from feedline import profiler
from feedline.profiler.deferred import deferred
from feedline.profiler.fail_open import fail_open, reraise_of_handler

PROFILER = Path(profiler.__file__).parent


class Alarm(Exception):
    """Raised by a signal's handler."""


def ring(*_: object) -> None:
    raise Alarm


class Bell:
    """Has a handler that is a method."""

    def ring(self, number: int, frame: object) -> None:
        raise Alarm


HANDLERS = [
    ring,
    Bell().ring,
    functools.partial(Bell.ring, Bell()),
    lambda number, frame: ring(),
]


@pytest.fixture(params=HANDLERS, ids=["function", "method", "partial", "lambda"])
def handler(request):
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


def caught() -> None:
    try:
        signal.raise_signal(signal.SIGUSR1)
    except Exception:
        reraise_of_handler()


def suppressed() -> None:
    with fail_open:
        signal.raise_signal(signal.SIGUSR1)


def suppressed_twice() -> None:
    with fail_open:
        suppressed()


@pytest.mark.parametrize("hook", [caught, suppressed, suppressed_twice])
def test_what_a_handler_raises_goes_through_a_hook(handler, hook):
    with pytest.raises(Alarm):
        hook()


def test_errors_of_the_hook_itself_do_not():
    with fail_open:
        ring(14, "no frame")
    try:
        ring()
    except Exception:
        reraise_of_handler()


def test_what_ends_a_program_is_never_kept():
    with pytest.raises(KeyboardInterrupt), fail_open:
        raise KeyboardInterrupt


def test_no_alarm_of_a_recorded_training_is_lost(tmp_path):
    rows = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(net.parameters())
    rung: list[str] = []

    def note(*_: object) -> None:
        rung.append("")
        raise Alarm

    def step(batches, after_s: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        x, y = next(batches)
        loss = (net(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        signal.setitimer(signal.ITIMER_REAL, 0)

    raised, before = 0, signal.signal(signal.SIGALRM, note)
    gc.disable()  # in callbacks of collections, Python drops what a handler raises
    try:
        with feedline.record(tmp_path / "run"):
            for epoch in range(30):
                batches = iter(DataLoader(rows, batch_size=8))
                for number in range(60):
                    try:  # the first steps are let go: they import what they need
                        step(batches, 2e-5 + 3e-5 * number if epoch else 0)
                    except Alarm:
                        raised += 1
                        torch.set_grad_enabled(True)  # the handler came in torch's no_grad()
                    except StopIteration:  # the handler came in the sampler, a generator
                        try:
                            signal.setitimer(signal.ITIMER_REAL, 0)
                        except Alarm:  # it comes only now
                            raised += 1
                        break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()

    assert len(rung) > 100 and raised == len(rung)


def hook_files() -> list[Path]:
    return [path for folder in ("taps", "record") for path in (PROFILER / folder).rglob("*.py")]


@pytest.mark.parametrize("path", hook_files(), ids=lambda path: str(path.relative_to(PROFILER)))
def test_whatever_a_hook_keeps_from_the_training_is_its_own(path: Path):
    tree = ast.parse(path.read_text())
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]

    for one in handlers:
        if one.type is not None and ast.unparse(one.type) == "Exception":
            assert ast.unparse(one.body[0]) == "reraise_of_handler()", f"line {one.lineno}"
    assert "suppress(Exception)" not in ast.unparse(tree), "use fail_open"


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "method", "partial", "lambda"])
def test_what_a_handler_of_a_deferred_interrupt_raises_reaches_the_program(handler):
    before = signal.signal(signal.SIGINT, handler)
    done = []
    try:
        with pytest.raises(Alarm), fail_open:
            with deferred():
                signal.raise_signal(signal.SIGINT)
                done.append("the block")
        assert done == ["the block"]
    finally:
        signal.signal(signal.SIGINT, before)
