"""Records torch.compile at work.

That is Dynamo, a backward that is compiled late, and the recording of a CUDA graph. It goes through
``torch._dynamo.callback``: the same in torch 2.8 to 2.15, though its package begins with an
underscore. Dynamo calls back when the first of several nested or simultaneous compilations begins
and when the last ends.
"""

import threading
from contextlib import suppress
from typing import Any

from torch._dynamo.callback import callback_handler

from feedline.profiler.events import Stage
from feedline.profiler.fail_open import fail_open
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.taps.patch import Patches


class CompileTap:
    """Registers with dynamo, and again after each ``torch._dynamo.reset()``."""

    def __init__(self) -> None:
        self._open: Span | None = None
        self._thread = 0
        self._attached = False

    def attach(self, patches: Patches) -> None:
        """Register. Raises AttributeError if this torch has no such callbacks."""
        clear = callback_handler.clear

        def clear_others() -> None:
            try:
                clear()
            finally:
                if self._attached:
                    self._register()

        patches.set(callback_handler, "clear", clear_others)
        self._register()
        self._attached = True

    def undo(self) -> None:
        self._attached = False
        for callbacks, ours in (
            (callback_handler.start_callbacks, self._begins),
            (callback_handler.end_callbacks, self._ends),
        ):
            with suppress(ValueError):
                callbacks.remove(ours)

    def _register(self) -> None:
        callback_handler.register_start_callback(self._begins)
        callback_handler.register_end_callback(self._ends)

    def _begins(self, args: Any) -> None:
        segment = recorder.resume()
        if segment is None:
            return
        with fail_open:
            source = segment.name_id(args.callback_trigger.name.lower())
            self._thread = threading.get_ident()
            self._open = Span(segment, Stage.COMPILE, source).__enter__()
            self._open.extra = _graph_number(args.compile_id)

    def _ends(self, args: Any) -> None:
        span, self._open = self._open, None
        if (
            span is None
            or span.segment is not recorder.main
            or self._thread != threading.get_ident()
        ):
            # the last of simultaneous compilations ended in another thread: its time is not one
            # thread's
            return
        with fail_open:
            span.__exit__(None, None, None)


def _graph_number(compile_id: object) -> int:
    """Return ``frame << 32 | attempt`` of a compile id such as "3/1"; 0 for others."""
    frame, _, attempt = str(compile_id).partition("/")
    return int(frame) << 32 | int(attempt) if frame.isdecimal() and attempt.isdecimal() else 0
