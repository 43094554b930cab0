"""What is recorded in detail.

It is samples, which taps/fetch.py chooses, and the steps that torch.profiler records.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from feedline.profiler.events import Stage

#: stage, name, start_ns, wall_ns, cpu_ns, runqueue_ns, nbytes, extra; the last two as the stage
#: says in events.py. Never raises.
Write = Callable[[Stage, str, int, int, int, int, int, int], None]

#: The threads that are looking just now. Nearly always empty: asking that first is what makes an
#: idle tap cheap.
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


class ProfilerWindow(NamedTuple):
    """A schedule in torch.profiler's terms.

    ``skip`` steps first, one to warm up, then ``active`` steps. ``active=0``: none.
    """

    skip: int
    active: int

    @classmethod
    def parse(cls, text: str) -> "ProfilerWindow":
        """Parse ``SKIP:ACTIVE`` or ``off``.

        Raises:
            ValueError: it is neither, or a number is below 1.
        """
        if text == "off":
            return _OFF
        skip, colon, active = text.partition(":")
        if not (colon and skip.isdecimal() and active.isdecimal() and int(skip) and int(active)):
            raise ValueError(
                f"expected SKIP:ACTIVE, two numbers of at least 1, such as 20:5, or off, got "
                f"{text!r}"
            )
        return cls(int(skip), int(active))

    def __str__(self) -> str:
        return f"{self.skip}:{self.active}" if self.active else "off"


_OFF = ProfilerWindow(0, 0)
