"""The command line: ``feedline``, or ``python -m feedline``.

Imports nothing slow at first: each command imports what it needs inside ``main``, where Ctrl-C is
handled.
"""

import sys

from feedline.cli.interrupt import interrupts
from feedline.profiler.errors import Interrupted


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: without "feedline"; None: those of this process, which is a command and nothing else.

    Returns:
        The exit code (docs/exit-codes.md).

    Raises:
        KeyboardInterrupt: the training under ``run`` was interrupted; Python then ends by the
            signal itself.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    owns_process = argv is None and words[:1] != ["run"]
    if owns_process:
        interrupts.attach()
    try:
        from feedline.cli.commands import perform

        code = perform(words)
    except KeyboardInterrupt:
        if words[:1] == ["run"]:
            sys.excepthook = lambda *_: None  # what the program printed for it is printed
            raise
        code = _print_interrupted(words)
    finally:
        if owns_process:
            interrupts.detach()
    return code


def _print_interrupted(words: list[str]) -> int:
    """Print one line for Ctrl-C, and return the exit code."""
    from feedline.profiler.printable import say

    if "--finish" not in words:  # `feedline run` says more about it
        say("interrupted: nothing was written")
    return Interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())
