"""One line to the user, from inside a training."""

import sys
from contextlib import suppress


def say(text: str) -> None:
    """Print on the standard error that the process began with: the program may have put something else in its place, or closed it."""
    with suppress(Exception):
        print(f"feedline: {text}", file=sys.__stderr__, flush=True)
