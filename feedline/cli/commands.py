"""The table of commands by job, and the parser of their arguments.

Each command is a class in a file of its own.
"""

import argparse
import errno
import shlex
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from feedline import __version__
from feedline.cli import converge
from feedline.cli.attach import AttachCommand
from feedline.cli.check import CheckCommand
from feedline.cli.compare import CompareCommand
from feedline.cli.diff import DiffCommand
from feedline.cli.env import EnvCommand
from feedline.cli.ingest import IngestCommand
from feedline.cli.interrupt import interrupts
from feedline.cli.pack import PackCommand
from feedline.cli.parser import (
    Command,
    Parser,
    is_launcher,
    overview,
    split_options,
    training_at,
    with_options_first,
)
from feedline.cli.probe import ProbeCommand
from feedline.cli.report import ReportCommand
from feedline.cli.run import DASHES, RunCommand
from feedline.cli.runs import names_run
from feedline.cli.scale import ScaleCommand
from feedline.cli.tune import TuneCommand
from feedline.cli.verify import VerifyCommand
from feedline.cli.whatif import WhatifCommand
from feedline.profiler.deferred import deferred
from feedline.profiler.errors import FeedlineError, ScriptError, shows_tracebacks
from feedline.profiler.files.bounded import one_line
from feedline.profiler.printable import say

#: Job -> its commands: what `feedline --help` shows. Those of two words are subcommands.
JOBS: dict[str, dict[str, type[Command]]] = {
    "Record a training": {"run": RunCommand, "attach": AttachCommand, "env": EnvCommand},
    "Read a recording": {
        "report": ReportCommand,
        "ingest": IngestCommand,
        "diff": DiffCommand,
        "check": CheckCommand,
    },
    "Predict": {"whatif": WhatifCommand, "tune": TuneCommand, "scale": ScaleCommand},
    "Measure this machine and its loaders": {
        "probe": ProbeCommand,
        "compare": CompareCommand,
        "pack": PackCommand,
    },
    "Test a change": {"verify": VerifyCommand},
    "Recover accuracy lost to large batches": {
        f"converge {name}": kind for name, kind in converge.CONVERGE_COMMANDS.items()
    },
}
COMMANDS: dict[str, type[Command]] = {
    **{
        name: kind
        for commands in JOBS.values()
        for name, kind in commands.items()
        if " " not in name
    },
    "converge": converge.ConvergeCommand,
}
#: Commands that take a training after `--`; all that comes after it is the training's.
_BEFORE_TRAINING = ("scale", "verify")
#: Commands that read run folders, which others may have made.
_READ_RUNS = ("report", "diff", "check", "whatif", "tune", "scale", "converge", "verify")
_PURPOSE = "Find out what limits a PyTorch training run, and what to change."
_MORE = """\
`feedline COMMAND --help` explains a command and its options.

exit codes:
  0         done
  1         no prediction is possible (whatif, tune), no loader could be
            measured (compare), or your own MODULE:NAME fails
  2         wrong usage (verify: also if the unchanged training fails, and
            with RUN alone, which prints the command to type)
  75        the result cannot be judged (check, verify, scale)
  77        over the budget (check), or the change is rejected (verify)
  64 to 78  an error (except 75 and 77)
  130       Ctrl-C

`feedline run` exits with the training's own code, and `scale` with that of a training that fails.
docs/exit-codes.md explains all codes."""


def perform(words: list[str]) -> int:
    """Parse and run a command.

    Args:
        words: as they were typed, without "feedline".

    Returns:
        The exit code: the training's own for ``run``, else 0, or that of the error
        (profiler/errors.py).

    Raises:
        KeyboardInterrupt: Ctrl-C, which the command did not make an ``Interrupted``.
        SystemExit: of argparse, with 2; 0 after --help.
    """
    args = _parsed(words)
    if words[:1] != ["run"]:  # whose program is to find what it finds without feedline
        # interrupted while it is loaded, msgspec 0.22 crashes where it is used; attach needs none
        with deferred(), suppress(ImportError):
            import_module("msgspec")
    try:
        return int(args.act(args))
    except FeedlineError as error:
        say(error)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            say(f"{str(error.filename)[:60]}... is too long for a path")
            return ScriptError.exit_code
        if interrupts.came:  # and this came of it, as when a process that helped was ended
            raise KeyboardInterrupt from error
        if shows_tracebacks():
            raise
        say(_last_resort(error, _with_command(words)))
        return FeedlineError.exit_code


def _parsed(words: list[str]) -> argparse.Namespace:
    """Parse the arguments.

    ``program`` has everything after ``--``, for commands that take a training there. A run alone
    is shown.
    """
    parser = _parser_of_all()
    words = _with_command(words)
    parser.refuse_other(words[0] if words else "-", COMMANDS)
    if words[:1] == ["converge"]:
        parser.commands["converge"].refuse_other(
            words[1] if len(words) > 1 else "-", converge.CONVERGE_COMMANDS
        )
    if words[:1] == ["run"]:  # argparse would take the first "--" from the script's arguments
        words = [DASHES if word == "--" else word for word in words]
    if words[:1] == ["diff"] and "--" in words:
        words, after = _with_options_first(words)
        return parser.parse_args(words, argparse.Namespace(program=after))
    cut = len(words)
    if words and words[0] in _BEFORE_TRAINING:
        cut = words.index("--") if "--" in words else _training_in(parser, words)
    elif words and words[0] in _READ_RUNS:
        _refuse_training(parser, words)
    program = words[cut + (words[cut : cut + 1] == ["--"]) :]
    return parser.parse_args(words[:cut], argparse.Namespace(program=program))


def _with_command(words: list[str]) -> list[str]:
    """Return the words of a command: a run alone is to be shown."""
    shown = words and words[0] not in COMMANDS and names_run(words[0])
    return ["report", *words] if shown else words


def _training_in(parser: Parser, words: list[str]) -> int:
    """Return where a training begins for which ``--`` was forgotten; the end if there is none.

    Exits with code 2 and the line to type if options of the command follow it.
    """
    own = parser.commands[words[0]]
    at = training_at(own, words[1:])
    if at is None:
        return len(words)
    before, after = split_options(own, words[1 : 1 + at]), split_options(own, words[1 + at :])
    if after.known and not before.known:
        own.error(
            f"put `--` before the training: "
            f"{shlex.join(['feedline', *words[: 1 + at], '--', *words[1 + at :]])}; "
            f"or, if {after.known[0]} is feedline's: {with_options_first(own, words[1:], at)}"
        )
    return 1 + at


def _refuse_training(parser: Parser, words: list[str]) -> None:
    """Exit with code 2 and the lines to type if a training is given where a run is read."""
    own = parser.commands[words[0]]
    own = own.commands.get(words[1], own) if words[1:2] else own
    rest = words[len(own.prog.split()) - 1 :]
    at = training_at(own, rest)
    if at is None or any(rest[word].startswith("-") for word in own.positionals(rest[:at])):
        return  # a mistyped option is the error then
    known, others = split_options(own, rest[at:])
    script = next((word for word in others if word.endswith(".py")), "train.py")
    run = Path(script).stem
    dashes = ["--"] if is_launcher(others[0]) else []
    record = shlex.join(["feedline", "run", "-o", f"runs/{run}", *dashes, *others])
    read = shlex.join([*own.prog.split(), *rest[:at], run, *known])
    own.error(f"{others[0]} is a training, not a run: record it with `{record}`, then `{read}`")


def _with_options_first(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the words before ``--`` and those after it.

    Options that follow the names after ``--`` are moved before it.
    """
    cut = words.index("--")
    after = words[cut + 1 :]
    end = next((at for at, word in enumerate(after) if word.startswith("-")), len(after))
    return [*words[:cut], *after[end:]], after[:end]


def _parser_of_all() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="feedline", description=f"{_PURPOSE}\n\n{overview(JOBS)}", epilog=_MORE)
    parser.add_argument(
        "--version",
        action="version",
        version=f"feedline {__version__}",
        help="print the version and exit",
    )
    parser.add_commands(COMMANDS)
    return parser


def _last_resort(error: Exception, words: list[str]) -> str:
    """Return the message for an error in feedline itself."""
    what = f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__
    again = shlex.join(["feedline", *words])
    failed = (
        "the run cannot be analyzed" if words[0] in _READ_RUNS else f"feedline {words[0]} failed"
    )
    return f"{failed} ({what}): please report it, with the output of FEEDLINE_TRACEBACK=1 {again}"
