"""Finds the training in a command line in which the ``--`` before it was forgotten."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

_LAUNCHERS = re.compile(
    r"(python|pypy)[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|composer|horovodrun|uv"
)


class Options(Protocol):
    """What must be known of a command: the parser of it."""

    prog: str

    def positionals(self, words: Sequence[str]) -> Iterable[int]:
        """Return the places of words that are no option, nor the value of one."""

    def width_of(self, words: Sequence[str], at: int) -> int:
        """Return how many words an option takes; 0: it is none."""


def is_launcher(word: str) -> bool:
    """Return whether a word is a program that starts trainings, such as python or torchrun."""
    return _LAUNCHERS.fullmatch(Path(word).name) is not None and not Path(word).is_dir()


def _starts_training(word: str) -> bool:
    """Return whether a command line of a training may begin with this word."""
    return is_launcher(word) or Path(word).suffix == ".py" and not Path(word).is_dir()


def training_at(parser: Options, words: Sequence[str]) -> int | None:
    """Return where a training begins in the words of a command; None: nowhere.

    Args:
        parser: of the command.
        words: after the command's name.
    """
    return next(
        (
            at
            for at in parser.positionals(words)
            if _starts_training(words[at]) or words[at] == "-m" and at + 1 < len(words)
        ),
        None,
    )


class Split(NamedTuple):
    """Words in two groups, each in order."""

    known: list[str]
    others: list[str]


def split_options(parser: Options, words: Sequence[str]) -> Split:
    """Divide words into the options of a command with their values, and all others."""
    known: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(words):
        taken = parser.width_of(words, at)
        (known if taken else others).extend(words[at : at + (taken or 1)])
        at += taken or 1
    return Split(known, others)


def with_script_first(parser: Options, words: Sequence[str]) -> str:
    """Return ``feedline run`` with the script's own options behind the script.

    It is "" if the words hold no script.

    Args:
        parser: of the command.
        words: after "run".
    """
    at = training_at(parser, words)
    if at is None:
        return ""
    known, others = split_options(parser, words[:at])
    return shlex.join([*parser.prog.split(), *known, words[at], *others, *words[at + 1 :]])


def with_options_first(parser: Options, words: Sequence[str], at: int) -> str:
    """Return a command with its own options first, then ``--`` and the training.

    Args:
        parser: of the command.
        words: after its name.
        at: where the training begins.
    """
    known, others = split_options(parser, words[at:])
    return shlex.join([*parser.prog.split(), *words[:at], *known, "--", *others])
