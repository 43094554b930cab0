"""Prints one line to the user, from inside a training."""

import sys
from contextlib import suppress

from feedline.profiler import printable


def say(text: object, lines: bool = False) -> None:
    """Print on the standard error that the process started with; the program may have replaced or closed it.

    Args:
        lines: keep line feeds in the text: it is ours.
    """
    with suppress(Exception):
        printable.say(text, lines, sys.__stderr__)
