"""Types of arguments: what a command takes, and what it says of anything else."""

import argparse
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from feedline.profiler.errors import ScriptError
from feedline.profiler.printable import printable

MOST = 10**9  # of anything that is counted: what is larger was not meant
SCRIPT_MISSING = "the following arguments are required: script"


class Parser(argparse.ArgumentParser):
    """argparse, whose errors repeat the arguments and suggest what was meant."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._words = args or ()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        unknown = self._unknown_option()  # argparse complains of its value first, which it takes for an argument of its own
        of_training = "goes after `--`" in message and not self._words[0].startswith("-")  # its option, then
        if unknown and not of_training:
            message = f"unknown option {unknown}{meant(unknown, self._flags())}"
            if self.prog.endswith(" run"):
                message += f"; options of the script go after it: feedline run train.py {unknown} ..."
        elif message.endswith(" required: COMMAND"):
            message = f"no command given; {self.prog} --help lists them"
        elif message.startswith(SCRIPT_MISSING):
            message = "no script to run: give the path of the training script, then its arguments"
        super().error(printable(message))

    def _flags(self) -> dict[str, argparse.Action]:
        return {flag: action for action in self._actions for flag in action.option_strings}

    def _unknown_option(self) -> str:
        """The first option before any other program's that is not one of ours, nor begins like one; else empty."""
        flags, words = self._flags(), iter(self._words)
        others_follow = any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions)
        for word in words:
            if not word.startswith("-") or len(word) == 1:
                if others_follow:
                    return ""
                continue
            if word == "--":
                return ""
            name = word.partition("=")[0]
            if not name.startswith("--"):
                name = name[:2]
            near = [flags[name]] if name in flags else [flags[flag] for flag in flags if name.startswith("--") and flag.startswith(name)]
            if not near:
                return word.partition("=")[0]
            if near[0].nargs != 0 and word == name:
                next(words, None)
        return ""

    def refuse_other(self, word: str, commands: Iterable[str]) -> None:
        """End with exit code 2 where a word is not a command."""
        known = list(commands)
        if not word.startswith("-") and word not in known:
            script = f", or run a script with `feedline run {word}`" if Path(word).suffix == ".py" else ""
            self.error(f"unknown command {word!r}{meant(word, known)}; commands: {', '.join(known)}{script}")


def meant(word: str, known: Iterable[str]) -> str:
    """A suggestion, as Python 3.14's argparse makes one."""
    import difflib

    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def at_least(least: int, most: int = MOST) -> Callable[[str], int]:
    """Whole numbers."""

    def number(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most:,}, got {text[:40]!r}")
        return int(text)

    return number


def listed(text: str) -> list[str]:
    """Names with commas between them."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"expected names with commas between them, got {text[:40]!r}")
    return found


def positive(text: str) -> float:
    """Numbers above zero."""
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text[:40]!r}")
    return value


def finite(text: str) -> float:
    """Numbers that can be calculated with."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text[:40]!r}")
    return value


def refuse_twice(paths: Sequence[str | Path], what: str) -> None:
    """See that no file or folder is there twice, under whatever name.

    Args:
        what: they are, for the error.

    Raises:
        ScriptError: one is.
    """
    first: dict[str, str] = {}
    for path in map(str, paths):
        place = path if "://" in path else os.path.realpath(path)
        if place in first:
            also = f" (also as {first[place]})" if first[place] != path else ""
            raise ScriptError(f"{path} is given twice{also}: name each {what} once")
        first[place] = path
