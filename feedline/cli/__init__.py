"""The command line: one class a command, in a file of its own. Nothing heavy is imported before a command runs."""

import argparse
import shlex
import sys
from typing import NoReturn, Protocol

from feedline import __version__
from feedline.cli.compare import Compare
from feedline.cli.converge import Converge
from feedline.cli.env import Env
from feedline.cli.ingest import Ingest
from feedline.cli.pack import Pack
from feedline.cli.probe import Probe
from feedline.cli.ranks import Ranks
from feedline.cli.report import Report
from feedline.cli.run import DASHES, Run
from feedline.cli.scale import Scale
from feedline.profiler.errors import FeedlineError, shows_tracebacks
from feedline.profiler.files.reading import one_line
from feedline.profiler.printable import printable, say


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
    "converge": Converge,
}
#: Commands that take a training after `--`; all that comes after it is the training's.
BEFORE_TRAINING = ("scale",)
#: Commands that read run folders, which others may have made: an error of our own in one of them is told in one line.
READ_RUNS = ("report", "ranks", "scale", "converge")


class Parser(argparse.ArgumentParser):
    """argparse, whose errors repeat the arguments."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit code: the training's own for ``run``, else 0, or that of the error (profiler/errors.py).
    """
    parser = Parser(prog="feedline", description="Where every second of a PyTorch training step goes, and what to do about it.")
    parser.add_argument("--version", action="version", version=f"feedline {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, kind in COMMANDS.items():
        about = (kind.__doc__ or "").strip()
        sub = commands.add_parser(name, help=about.split("\n")[0], description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        command = kind()
        command.prepare_parser(sub)
        sub.set_defaults(act=command.run)
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["run"]:  # argparse would take the first "--" from the script's arguments
        words = [DASHES if word == "--" else word for word in words]
    cut = words.index("--") if words and words[0] in BEFORE_TRAINING and "--" in words else len(words)
    args = parser.parse_args(words[:cut], argparse.Namespace(program=words[cut + 1 :]))
    try:
        return int(args.act(args))
    except FeedlineError as error:
        say(error)
        return error.exit_code
    except Exception as error:
        if args.command not in READ_RUNS or shows_tracebacks():
            raise
        say(last_resort(error, words))
        return FeedlineError.exit_code


def last_resort(error: Exception, words: list[str]) -> str:
    """What to say of an error of feedline's own while it reads a run."""
    what = f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    again = shlex.join(["feedline", *words])
    return f"the run cannot be analysed ({what}): please report it, with what FEEDLINE_TRACEBACK=1 {again} prints"
