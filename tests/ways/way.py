"""One way to start a training: what is typed with feedline and without, and what is needed for it."""

import importlib.util
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Way:
    """A row of docs/ways-to-start.md.

    Attributes:
        name: of the row and of the test.
        recorded: the command under feedline; ``feedline run`` gets ``-q -o RUN`` besides. May begin
            with variables to set.
        plain: the same without feedline.
        trainings: training -> how many ranks it has.
        needs: modules and commands without which it cannot run.
        quick: one of those in scripts/test.
        warm: the command is a script of Python's and needs nothing that torch's being imported
            already would hide.
        repeats: the parameters are the same in every run.
        kills: it kills its idle processes when the trainings are over.
    """

    name: str
    recorded: str
    plain: str
    trainings: dict[str, int]
    needs: tuple[str, ...] = ()
    quick: bool = False
    warm: bool = False
    repeats: bool = True
    kills: bool = False

    @property
    def missing(self) -> list[str]:
        """What is not installed of what it needs."""
        return [
            name
            for name in self.needs
            if importlib.util.find_spec(name) is None and shutil.which(name) is None
        ]


def script(name: str, words: str, trainings: dict[str, int], *needs: str, **settings: bool) -> Way:
    """``feedline run SCRIPT ARGS``."""
    return Way(name, f"feedline run {words}", f"python {words}", trainings, needs, **settings)


def command(name: str, words: str, trainings: dict[str, int], *needs: str) -> Way:
    """``feedline run -- COMMAND``."""
    return Way(name, f"feedline run -- {words}", words, trainings, needs)


def split(text: str, options: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Variables and words of a command line.

    Args:
        options: for ``feedline run``.
    """
    words = shlex.split(text)
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if "feedline" in words:
        after = words.index("feedline") + 2
        words[after:after] = options
    return variables, words
