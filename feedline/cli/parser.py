"""The parser of the command line: argparse, with help by job and errors that make suggestions.

It also finds the training in a command line in which the ``--`` before it was forgotten.
"""

import argparse
import inspect
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from feedline.profiler.printable import printable

_LAUNCHERS = re.compile(
    r"(python|pypy)[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|composer|horovodrun|uv"
)
_SCRIPT_MISSING = "the following arguments are required: SCRIPT"
_VALUE_MISSING = re.compile(r"argument (\S+): expected one argument")
_NAME_WIDTH = 18  # of the commands in `feedline --help`
#: Options that people know by another name, from other tools or from PyTorch: what is typed ->
#: what is meant, in the order in which a command is asked for it.
_MEANINGS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--num-workers", "--num_workers", "--workers", "-w", "-j", "--jobs"): (
        "--workers",
        "--max-workers",
        "--set num_workers=N",
        "--processes",
    ),
    ("--prefetch-factor", "--prefetch_factor", "--prefetch"): (
        "--prefetch",
        "--set prefetch_factor=N",
    ),
    ("--persistent-workers", "--persistent_workers", "--persistent"): (
        "--persistent",
        "--set persistent_workers=true",
    ),
    ("--pin-memory", "--pin_memory"): ("--set pin_memory=true",),
    (
        "--out",
        "--outdir",
        "--out-dir",
        "--output-dir",
        "--output_dir",
        "--dest",
        "--save",
        "--to",
    ): ("--output",),
    ("--verbose", "-v", "--all", "--long", "--details", "--detailed"): ("--full",),
    ("--silent", "-s", "--no-output"): ("--quiet",),
    ("--overwrite", "--yes", "-y", "--replace"): ("--force",),
    ("--limits", "--limit", "--thresholds", "--gate", "--config"): ("--budget",),
    ("--threshold", "--tolerance", "--noise", "--min-diff"): ("--min-change", "--margin"),
    ("--gpus", "--gpu", "--n-gpus", "--devices", "--nproc", "--nproc-per-node", "--world-size"): (
        "--ranks",
    ),
    ("--cpus", "--cpu", "--num-cpus"): ("--cores", "--processes"),
    ("--mem", "--ram", "--max-memory"): ("--memory",),
    ("--batch", "--bs", "-b", "--batch_size", "--batchsize"): (
        "--batch-size",
        "--set batch_size=N",
    ),
    ("--dataset", "--data-dir", "--data_dir", "--images", "--folder", "--root"): ("--data",),
    ("--transform", "--augment"): ("--transforms",),
    ("--repeats", "--repeat", "--runs", "--trials", "-n"): ("--pairs", "--rounds", "--seeds"),
    ("--duration", "--time", "--iterations", "--iters", "--max-steps"): ("--steps",),
    ("--fast", "--short"): ("--quick",),
    ("--change", "--override", "--param", "--with"): ("--set",),
    ("--format-json", "--as-json", "--output-json"): ("--json",),
    ("--md",): ("--markdown", "--format markdown"),
    ("--markdown",): ("--format markdown",),
    ("--text", "--txt"): ("--format text",),
    ("--profiler", "--kineto", "--trace"): ("--torch-profiler",),
}


class Command(Protocol):
    """A command.

    Its docstring is its help: a summary in one line, paragraphs, and ``Examples:``.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Run it and return the exit code. Raises FeedlineError."""


class Parser(argparse.ArgumentParser):
    """argparse with errors that repeat the arguments and suggest corrections.

    Attributes:
        commands: the parsers of its commands, by name.
    """

    _words: Sequence[str] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter, **settings})
        self.commands: dict[str, Parser] = {}

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self._words = args or ()
        arguments, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments, unknown

    def error(self, message: str) -> NoReturn:
        # argparse complains of its value first, which it takes for an argument of its own
        unknown = self._unknown_option()
        # its option, then
        of_training = "goes after `--`" in message and not self._words[0].startswith("-")
        if unknown and not of_training:
            suggested = self._suggested(unknown)
            message = f"unknown option {unknown}{suggested}"
            if self.prog.endswith(" run"):
                message += "; put the script's own options after the script"
                message += "" if suggested else f": {self._line(unknown)}"
        elif missing := _VALUE_MISSING.fullmatch(message):
            message = self._value_missing(missing[1].split("/")[-1])
        elif message.endswith(" required: COMMAND"):
            message = f"no command given; see {self.prog} --help"
        elif message.startswith(_SCRIPT_MISSING):
            message = (
                "no script given: add the path of the training script, followed by its arguments"
            )
        super().error(printable(message))

    def add_commands(self, commands: Mapping[str, type[Command]]) -> None:
        """Add commands. argparse's own list of them is left out; ``overview`` makes one by job."""
        self.usage = f"{self.prog} COMMAND [OPTIONS]"
        added = self.add_subparsers(
            required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=self.prog
        )
        self.commands = {
            name: self._add_command(added, name, kind) for name, kind in commands.items()
        }

    def _add_command(self, commands: Any, name: str, kind: type[Command]) -> "Parser":
        about, command = _HelpText.of(kind), kind()
        examples = (
            "\n".join(["examples:", *(f"  {line}" for line in about.examples)])
            if about.examples
            else ""
        )
        parser: Parser = commands.add_parser(
            name, description=f"{about.summary}\n\n{about.text}".strip(), epilog=examples
        )
        command.prepare_parser(parser)
        parser.set_defaults(act=command.run)
        return parser

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """Return the options that an abbreviation may mean: never an internal one."""
        return [
            option
            for option in super()._get_option_tuples(option_string)
            if option[0].help != argparse.SUPPRESS
        ]

    def _flags(self, shown: bool = False) -> dict[str, argparse.Action]:
        return {
            flag: action
            for action in self._actions
            for flag in action.option_strings
            if not shown or action.help != argparse.SUPPRESS
        }

    def _unknown_option(self) -> str:
        """Return the first option that is not one of ours, nor begins like one; else "".

        Options of another program, which follow a positional argument, do not count.
        """
        others_follow = any(
            action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions
        )
        at = 0
        while at < len(self._words):
            word = self._words[at]
            if word == "--":
                return ""
            if not word.startswith("-") or len(word) == 1:
                if others_follow:
                    return ""
                at += 1
            elif taken := self.width_of(self._words, at):
                at += taken
            else:
                return word.partition("=")[0]
        return ""

    def positionals(self, words: Sequence[str]) -> Iterator[int]:
        """Return the places of words that are no option of this command, nor the value of one."""
        at = 0
        while at < len(words) and words[at] != "--":
            taken = self.width_of(words, at)
            if not taken:
                yield at
            at += taken or 1

    def width_of(self, words: Sequence[str], at: int) -> int:
        """Return how many words an option of this command takes, with its value; 0: it is none."""
        word, flags = words[at], self._flags()
        if not word.startswith("-") or len(word) == 1:
            return 0
        name = word.partition("=")[0]
        if not name.startswith("--"):
            name = name[:2]
        near = (
            [flags[name]]
            if name in flags
            else [option[0] for option in self._get_option_tuples(name) if name.startswith("--")]
        )
        if not near:
            return 0
        takes = near[0].nargs != 0 and word == name and at + 1 < len(words)
        return 2 if takes else 1

    def _suggested(self, unknown: str) -> str:
        """Return a suggestion for an unknown option: one of its meaning, else of its letters."""
        flags = self._flags(shown=True)
        same = _meant(unknown, flags)
        return f" (did you mean {same}?)" if same else suggestion(unknown, flags)

    def _line(self, unknown: str) -> str:
        """Return the command line of ``feedline run`` with an unknown option behind the script."""
        line = _with_script_first(self, self._words)
        return line or f"feedline run train.py {unknown} ..."

    def _value_missing(self, flag: str) -> str:
        """Say what to type for an option without its value."""
        action = self._flags().get(flag)
        value = str(action.metavar or "VALUE") if action is not None else "VALUE"
        prints = ", or --json - to print it" if flag == "--json" else ""
        return f"{flag} needs a value: {flag} {value}{prints}"

    def refuse_other(self, word: str, commands: Iterable[str]) -> None:
        """Exit with code 2 if a word is not one of these commands."""
        known = list(commands)
        if not word.startswith("-") and word not in known:
            script = (
                f", or run a script with `feedline run {word}`"
                if Path(word).suffix == ".py"
                else ""
            )
            self.error(
                f"unknown command {word!r}{suggestion(word, known)}; commands: "
                f"{', '.join(known)}{script}"
            )


@dataclass(frozen=True)
class _HelpText:
    """The docstring of a command, in parts.

    Attributes:
        summary: the first line.
        text: what follows it.
        examples: command lines, with comments.
    """

    summary: str
    text: str
    examples: list[str]

    @classmethod
    def of(cls, kind: type) -> "_HelpText":
        words, _, examples = inspect.cleandoc(kind.__doc__ or "").partition("\n\nExamples:\n")
        summary, _, text = words.partition("\n\n")
        return cls(summary, text, textwrap.dedent(examples).splitlines())


class _HelpFormatter(argparse.HelpFormatter):
    """Fills each paragraph to the terminal's width; one with indented lines stays unchanged."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{"max_help_position": 28, **settings})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if "\n  " in part else textwrap.fill(" ".join(part.split()), width)
            for part in paragraphs
        )


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a suggestion as Python 3.14's argparse makes it."""
    import difflib

    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _meant(option: str, known: Iterable[str]) -> str:
    """Return what an unknown option means here, with its value if that is fixed; "": not known.

    Args:
        option: as it was typed, e.g. "--num-workers".
        known: the options of the command.
    """
    flags = set(known)
    return next(
        (
            meaning
            for names, meanings in _MEANINGS.items()
            if option in names
            for meaning in meanings
            if meaning.split()[0] in flags
        ),
        "",
    )


def overview(jobs: Mapping[str, Mapping[str, type[Command]]]) -> str:
    """List commands by job, each with its summary and first example."""
    parts = []
    for job, commands in jobs.items():
        lines = [job]
        for name, kind in commands.items():
            about = _HelpText.of(kind)
            lines.append(f"  {name:{_NAME_WIDTH}}{about.summary}".rstrip())
            # python -OO: no docstrings
            lines += [
                f"  {'':{_NAME_WIDTH}}$ {example.partition('  ')[0]}"
                for example in about.examples[:1]
            ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


class _Options(Protocol):
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


def training_at(parser: _Options, words: Sequence[str]) -> int | None:
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


class _Split(NamedTuple):
    """Words in two groups, each in order."""

    known: list[str]
    others: list[str]


def split_options(parser: _Options, words: Sequence[str]) -> _Split:
    """Divide words into the options of a command with their values, and all others."""
    known: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(words):
        taken = parser.width_of(words, at)
        (known if taken else others).extend(words[at : at + (taken or 1)])
        at += taken or 1
    return _Split(known, others)


def _with_script_first(parser: _Options, words: Sequence[str]) -> str:
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


def with_options_first(parser: _Options, words: Sequence[str], at: int) -> str:
    """Return a command with its own options first, then ``--`` and the training.

    Args:
        parser: of the command.
        words: after its name.
        at: where the training begins.
    """
    known, others = split_options(parser, words[at:])
    return shlex.join([*parser.prog.split(), *words[:at], *known, "--", *others])
