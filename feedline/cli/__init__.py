"""The command line. Nothing that takes time is imported here: what a command needs comes inside ``main``, where Ctrl-C is one line."""

import sys

from feedline.cli.interrupt import interrupts
from feedline.profiler.errors import Interrupted


def main(argv: list[str] | None = None) -> int:
    """Run a command. Returns the exit code (docs/exit-codes.md).

    Args:
        argv: without "feedline"; None: those of this process, which is a command and nothing else.

    Raises:
        KeyboardInterrupt: the training under ``run`` was interrupted; Python then ends by the signal itself.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    alone = argv is None and words[:1] != ["run"]
    if alone:
        interrupts.attach()
    try:
        from feedline.cli.commands import perform

        code = perform(words)
    except KeyboardInterrupt:
        if words[:1] == ["run"]:
            sys.excepthook = lambda *_: None  # what the program printed for it is printed
            raise
        code = interrupted(words)
    finally:
        if alone:
            interrupts.detach()
    return code


def interrupted(words: list[str]) -> int:
    """Say it, in one line. Returns the exit code."""
    from feedline.profiler.printable import say

    if "--finish" not in words:  # `feedline run` says more about it
        say("interrupted: nothing was written")
    return Interrupted.exit_code
