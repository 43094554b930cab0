"""Wrappers around functions of other libraries, with a span in recorded samples.

The size of a result is bytes and pixels; asking for it reads no values and copies nothing.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NamedTuple

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.nvtx_ranges import NAMES
from feedline.profiler.record.detail import Write, detail, looking
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.patch import SKIPPED_FILE_SUFFIX, skip_in_warnings

# a result -> (nbytes, extra), as the stage says in events.py
Size = Callable[[Any], tuple[int, int]]
_Timed = Callable[[Write, str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

# No globals are used: torchvision_.py gives a wrapper those of its original.
_WRAPPER = """
def make(_original, _looking, _look):
    def wrapper({parameters}):
        if not _looking:
            return _original({arguments})
        return _look(({positional}), {{{keywords}}})
    return wrapper
"""


def stopwatch(stage: Stage, size: Size) -> _Timed:
    """Return a function that calls another one and records a span, whether it returns or raises.

    The span of a call that raised has 0 bytes and 0 extra; the exception passes unchanged.
    """

    def timed(
        write: Write,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        result = None
        ranges = recorder.ranges
        if ranges is not None:
            ranges.push(NAMES[stage])
        begun = clock.now()
        try:
            result = function(*args, **kwargs)
            return result
        finally:
            wall, cpu, runqueue = clock.since(begun)
            if ranges is not None:
                ranges.pop()
            try:
                nbytes, extra = size(result)
            except Exception:
                reraise_of_handler()
                nbytes = extra = 0
            write(stage, name, begun[0], wall, cpu, runqueue, nbytes, extra)

    return skip_in_warnings(timed)


def spanned(
    original: Callable[..., Any], stage: Stage, size: Size, name: str | None = None
) -> Callable[..., Any]:
    """Wrap a function or a method.

    Args:
        original: what is called.
        stage: of the span.
        size: bytes and pixels of a result.
        name: of the span; None: the class of the first argument, for methods.
    """
    timed = stopwatch(stage, size)

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        write = detail.write
        if write is None:
            return original(*args, **kwargs)
        return timed(write, name or type(args[0]).__name__, original, args, kwargs)

    return transparent(original, look)


def transparent(
    original: Callable[..., Any], look: Callable[[tuple[Any, ...], dict[str, Any]], Any]
) -> Callable[..., Any]:
    """Return a function that calls ``original``, or ``look(args, kwargs)`` for recorded samples.

    It has the parameters of the original: passing them one by one costs 50 ns, through ``*args``
    and ``**kwargs`` it would be 150 to 250.
    """
    parameters, arguments = ("*args, **kwargs",) * 2
    positional, keywords = "*args,", "**kwargs"
    if isinstance(original, FunctionType):
        code = original.__code__
        plain = code.co_varnames[: code.co_argcount]
        named = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        if not (
            code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_posonlyargcount
        ):
            parameters = ", ".join([*plain, *(["*", *named] if named else [])])
            arguments = ", ".join([*plain, *(f"{name}={name}" for name in named)])
            positional = "".join(f"{name}, " for name in plain)
            keywords = ", ".join(f"{name!r}: {name}" for name in named)
    made: dict[str, Any] = {}
    source = _WRAPPER.format(
        parameters=parameters, arguments=arguments, positional=positional, keywords=keywords
    )
    exec(compile(source, f"a tap{SKIPPED_FILE_SUFFIX}", "exec"), made)
    wrapper = made["make"](original, looking, skip_in_warnings(look))
    if isinstance(original, FunctionType):
        if parameters != "*args, **kwargs":
            wrapper.__defaults__, wrapper.__kwdefaults__ = (
                original.__defaults__,
                original.__kwdefaults__,
            )
        wrapper._torchdynamo_inline = original  # torch.compile traces the original
    return functools.wraps(original)(wrapper)


def _pixels_of(image: Any) -> int:
    """Return width times height of a PIL image, a tensor [..., H, W] or an array [H, W(, C)].

    Of a tuple or list the first part counts, of a dict its "image".

    Raises:
        AttributeError: it is none of these.
    """
    if isinstance(image, dict):
        image = image.get("image")
    elif isinstance(image, (tuple, list)) and image:
        image = image[0]
    size = getattr(image, "size", None)
    if isinstance(size, tuple):
        return size[0] * size[1]
    shape = image.shape
    if len(shape) < 2:
        return 0
    # a tensor's size is a method, an array's a number
    height, width = shape[-2:] if callable(size) else shape[:2]
    return int(height) * int(width)


def read_size(result: Any) -> tuple[int, int]:
    """Return the bytes of an array or a tensor, for READ.

    It is 0 for data still on the disk (memmap, an archive's index).
    """
    return 0 if hasattr(result, "_mmap") else int(getattr(result, "nbytes", 0)), 0


def decoded_size(result: Any) -> tuple[int, int]:
    """Return the bytes and pixels of an array or a tensor, for DECODE."""
    return result.nbytes, _pixels_of(result)


def augmented_size(result: Any) -> tuple[int, int]:
    """Return the pixels of the result, for AUGMENT."""
    return 0, _pixels_of(result)


class _Written(NamedTuple):
    """A span as a tap wrote it."""

    stage: Stage
    name: str
    start_ns: int
    wall_ns: int
    cpu_ns: int
    runqueue_ns: int
    nbytes: int
    extra: int


def collect(action: Callable[[], Any]) -> list[_Written]:
    """Return the spans that the taps write during ``action()``, in order of their end."""
    spans: list[_Written] = []
    before, detail.write = detail.write, lambda *fields: spans.append(_Written(*fields))
    try:
        action()
    finally:
        detail.write = before
    return spans


def missing(spans: Iterable[_Written], *expected: tuple[Stage, str]) -> str | None:
    """Return the expected (stage, name) that are missing, as text; None if none is."""
    there = {(span.stage, span.name) for span in spans}
    absent = [
        f"{stage.name.lower()} {name}" for stage, name in expected if (stage, name) not in there
    ]
    return f"no span of {', '.join(absent)}" if absent else None
