"""The wrappers themselves: transparent when nobody looks, and with all clocks when somebody does."""

import inspect
import threading
import time

import pytest

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.record.detail import detail, looking
from feedline.profiler.taps.operations.span import augmented_size, collect, read_size, spanned


def plain(a, b=2):
    return a, b


def named(a, *, b, c=3):
    return a, b, c


def positional(a, b=2, /):
    return a, b


def anything(a, *more, b=2, **others):
    return a, more, b, others


CALLS = [
    (plain, (1,), {}),
    (plain, (1, 5), {}),
    (plain, (), {"b": 4, "a": 3}),
    (named, (1,), {"b": 2}),
    (named, (1,), {"b": 2, "c": 4}),
    (positional, (1,), {}),
    (positional, (1, 3), {}),
    (anything, (1, 2, 3), {"b": 4, "x": 5}),
    (max, (1, 2), {}),
    (max, ([],), {"default": 7}),
]


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_a_wrapper_passes_arguments_and_results_on_whether_looked_at_or_not(function, args, kwargs):
    wrapper = spanned(function, Stage.AUGMENT, augmented_size, "it")
    expected, seen = function(*args, **kwargs), []

    assert wrapper(*args, **kwargs) == expected
    (span,) = collect(lambda: seen.append(wrapper(*args, **kwargs)))

    assert seen == [expected]
    assert span.name == "it"


@pytest.mark.parametrize("function", [plain, named, positional, anything])
def test_a_wrapper_looks_like_its_original(function):
    wrapper = spanned(function, Stage.AUGMENT, augmented_size)

    assert inspect.signature(wrapper) == inspect.signature(function)
    assert (wrapper.__name__, wrapper.__module__, wrapper.__qualname__) == (
        function.__name__,
        __name__,
        function.__qualname__,
    )
    assert inspect.getsource(wrapper) == inspect.getsource(function)
    if function in (plain, named):
        assert inspect.getfullargspec(wrapper) == inspect.getfullargspec(function)


def test_wrong_arguments_are_told_as_without_us():
    wrapper = spanned(plain, Stage.AUGMENT, augmented_size)

    with pytest.raises(TypeError, match=r"plain\(\) missing 1 required positional argument: 'a'"):
        wrapper()


def test_what_is_raised_is_the_same_object_and_has_its_span():
    error = ValueError("x")

    def fail():
        raise error

    def use():
        with pytest.raises(ValueError) as caught:
            spanned(fail, Stage.READ, read_size, "fail")()
        assert caught.value is error

    (span,) = collect(use)
    assert (span.nbytes, span.extra) == (0, 0)


def test_a_result_of_unknown_kind_has_no_pixels():
    (span,) = collect(lambda: spanned(plain, Stage.AUGMENT, augmented_size, "plain")(object()))

    assert (span.nbytes, span.extra) == (0, 0)


def test_sleeping_is_wall_time_without_cpu_or_run_queue():
    (span,) = collect(lambda: spanned(time.sleep, Stage.READ, read_size, "sleep")(0.05))

    assert span.wall_ns >= 50e6
    assert span.cpu_ns < 10e6
    assert span.wall_ns - span.cpu_ns - span.runqueue_ns > 30e6


def test_where_the_kernel_tells_no_run_queue_it_is_unmeasured(monkeypatch):
    monkeypatch.setattr(clock.counters, "runqueue_ns", lambda: UNMEASURED)
    monkeypatch.setattr(clock, "_known", clock._Known())

    (span,) = collect(lambda: spanned(time.sleep, Stage.READ, read_size, "sleep")(0.001))

    assert span.runqueue_ns == UNMEASURED


def test_only_threads_that_look_are_counted_as_looking():
    seen = []

    def look():
        detail.write = seen.append
        seen.append(threading.get_ident() in looking)
        detail.write = None

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert seen == [True]
    assert detail.write is None and not looking
