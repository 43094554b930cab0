"""Whether the sample that this thread is making is recorded in detail; taps/fetch.py decides which ones are."""

import os
import threading
from collections.abc import Callable
from typing import Any

from feedline.profiler.events import Stage

#: stage, name, start_ns, wall_ns, cpu_ns, runqueue_ns, nbytes, extra; the last two as the stage says in events.py. Never raises.
Write = Callable[[Stage, str, int, int, int, int, int, int], None]

#: The threads that are looking just now. Nearly always empty: asking that first is what makes an idle tap cheap.
looking: set[int] = set()
os.register_at_fork(after_in_child=looking.clear)


class _Detail(threading.local):
    """What the taps in taps/operations write to.

    Attributes:
        write: takes one span inside the sample. None outside of samples that are looked at.
    """

    write: Write | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        (looking.discard if self.write is None else looking.add)(threading.get_ident())


detail = _Detail()
