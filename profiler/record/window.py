"""Which steps torch.profiler is to record."""

from typing import NamedTuple


class Window(NamedTuple):
    """In torch.profiler's words: ``skip`` steps first, one to warm up, then ``active`` steps. ``active=0``: none."""

    skip: int
    active: int

    @classmethod
    def parse(cls, text: str) -> "Window":
        """From ``SKIP:ACTIVE`` or ``off``. Raises ValueError: it is neither, or a number is below 1."""
        if text == "off":
            return OFF
        skip, colon, active = text.partition(":")
        if not (colon and skip.isdecimal() and active.isdecimal() and int(skip) and int(active)):
            raise ValueError(f"expected SKIP:ACTIVE, two numbers of at least 1, such as 20:5, or off, got {text!r}")
        return cls(int(skip), int(active))

    def __str__(self) -> str:
        return f"{self.skip}:{self.active}" if self.active else "off"


OFF = Window(0, 0)
ON_A_GPU = Window(20, 5)  # when nothing else is asked: past the first allocations and autotuning, some 1 MB of trace
