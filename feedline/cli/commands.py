"""The commands, and the parser of their arguments: one class a command, in a file of its own."""

import argparse
import errno
import shlex
from typing import Protocol

from feedline import __version__
from feedline.cli import converge
from feedline.cli.arguments import Parser
from feedline.cli.compare import Compare
from feedline.cli.env import Env
from feedline.cli.ingest import Ingest
from feedline.cli.interrupt import interrupts
from feedline.cli.pack import Pack
from feedline.cli.probe import Probe
from feedline.cli.ranks import Ranks
from feedline.cli.report import Report
from feedline.cli.run import DASHES, Run
from feedline.cli.scale import Scale
from feedline.profiler.errors import FeedlineError, ScriptError, shows_tracebacks
from feedline.profiler.files.reading import one_line
from feedline.profiler.printable import say


class Command(Protocol):
    """A command: its docstring is its help."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Say what to ask."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code. Raises FeedlineError."""


COMMANDS: dict[str, type[Command]] = {
    "run": Run,
    "report": Report,
    "pack": Pack,
    "env": Env,
    "compare": Compare,
    "probe": Probe,
    "scale": Scale,
    "ranks": Ranks,
    "ingest": Ingest,
    "converge": converge.Converge,
}
#: Commands that take a training after `--`; all that comes after it is the training's.
BEFORE_TRAINING = ("scale",)
#: Commands that read run folders, which others may have made.
READ_RUNS = ("report", "ranks", "scale", "converge")


def perform(words: list[str]) -> int:
    """Parse and run a command.

    Args:
        words: as they were typed, without "feedline".

    Returns:
        The exit code: the training's own for ``run``, else 0, or that of the error (profiler/errors.py).

    Raises:
        KeyboardInterrupt: Ctrl-C, which the command did not make an ``Interrupted``.
        SystemExit: of argparse, with 2; 0 after --help.
    """
    args = parsed(words)
    try:
        return int(args.act(args))
    except FeedlineError as error:
        say(error)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            say(f"{str(error.filename)[:60]}... cannot be a path: it is too long")
            return ScriptError.exit_code
        if interrupts.came:  # and this came of it, as when a process that helped was ended
            raise KeyboardInterrupt from error
        if shows_tracebacks():
            raise
        say(last_resort(error, words))
        return FeedlineError.exit_code


def parsed(words: list[str]) -> argparse.Namespace:
    """The arguments; ``program`` has what comes after ``--``, where a training is taken there."""
    parser = Parser(prog="feedline", description="Where every second of a PyTorch training step goes, and what to do about it.")
    parser.add_argument("--version", action="version", version=f"feedline {__version__}")
    parser.refuse_other(words[0] if words else "-", COMMANDS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, kind in COMMANDS.items():
        about = (kind.__doc__ or "").strip()
        sub = commands.add_parser(name, help=about.split("\n")[0], description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        command = kind()
        command.prepare_parser(sub)
        sub.set_defaults(act=command.run)
    if words[:1] == ["converge"]:
        commands.choices["converge"].refuse_other(words[1] if len(words) > 1 else "-", converge.COMMANDS)
    if words[:1] == ["run"]:  # argparse would take the first "--" from the script's arguments
        words = [DASHES if word == "--" else word for word in words]
    cut = words.index("--") if words and words[0] in BEFORE_TRAINING and "--" in words else len(words)
    return parser.parse_args(words[:cut], argparse.Namespace(program=words[cut + 1 :]))


def last_resort(error: Exception, words: list[str]) -> str:
    """What to say of an error of feedline's own."""
    what = f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    again = shlex.join(["feedline", *words])
    failed = "the run cannot be analysed" if words[0] in READ_RUNS else f"feedline {words[0]} failed"
    return f"{failed} ({what}): please report it, with what FEEDLINE_TRACEBACK=1 {again} prints"
