"""Every command line in the documentation is one that feedline takes today."""

import configparser
import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache

import pytest
from docs.pages import PATHS, ROOT, Page, page

from feedline.cli.commands import COMMANDS, _parsed
from feedline.cli.converge import CONVERGE_COMMANDS as CONVERGE

OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
#: Options in the text that are those of other programs: of launchers, of trainings, of Python.
OTHERS = {"--multiprocessing-distributed", "--nproc-per-node"}
#: Shows what used to be wrong, mistyped commands too.
OF_MISTAKES = "every-sentence.md"
#: A parser that looks for run folders found none: those of a page are nowhere.
NO_RUN = "is not a run folder"


def complaints(found: Page, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Command lines that would be refused, and why."""
    wrong = []
    for line in found.command_lines():
        try:
            check(line)
        except (SystemExit, AssertionError) as error:
            if not isinstance(error, SystemExit) or error.code:
                why = (capsys.readouterr().err.strip().splitlines() or [str(error)])[-1]
                if NO_RUN not in why:
                    wrong.append(f"{' '.join(line)}: {why}")
    return wrong


def check(line: list[str]) -> None:
    """Refuse a line as feedline itself would, or because what it starts is not in the repository."""
    mine = next(
        (
            number
            for number, word in enumerate(line)
            if word == "feedline" and line[number + 1 : number + 2]
        ),
        None,
    )
    starts = (
        mine == 0 or mine and (line[mine - 1] in ("-m", "--no-python") or "=" in line[mine - 1])
    )
    if mine is not None and starts and line[mine - 1] != "import":
        _parsed(line[mine + 1 :])
    for number, word in enumerate(line):
        if word.startswith("scripts/") or re.fullmatch(
            r"(examples|benchmarks|tests)/[\w/]+\.py", word
        ):
            assert (ROOT / word).exists(), f"there is no {word}"
            if word.endswith(".py") and "pytest" not in line:
                check_options(word, line[number + 1 :])
        if extras := re.fullmatch(r"(?:\.|feedline)\[([\w,-]+)\]", word):
            assert set(extras[1].split(",")) <= known_extras(), (
                f"setup.cfg has no such extra: {word}"
            )


def check_options(script: str, words: list[str]) -> None:
    """Of a program of the repository: its own source says which it takes."""
    source = (ROOT / script).read_text()
    unknown = [
        word
        for word in words
        if word.startswith("--") and len(word) > 2 and f'"{word.partition("=")[0]}"' not in source
    ]
    assert not unknown, f"{script} has no {' '.join(unknown)}"


@cache
def known_extras() -> set[str]:
    config = configparser.RawConfigParser()
    config.read(ROOT / "setup.cfg")
    return set(config["options.extras_require"])


@cache
def help_of(*command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        _parsed([*command, "--help"])
    return printed.getvalue()


@cache
def of_benchmarks() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "benchmarks").rglob("*.py"))
    return {option for source in sources for option in re.findall(r'"(--[a-z][\w-]*)"', source)}


def named(span: str) -> tuple[str, ...]:
    """The command that a piece of code in a sentence names; empty where it is none of feedline's."""
    words = span.split()
    if len(words) < 2 or words[0] != "feedline" or words[1] not in COMMANDS:
        return ()
    return (
        tuple(words[1:3])
        if words[1] == "converge" and len(words) > 2 and words[2] in CONVERGE
        else (words[1],)
    )


def unknown_options(found: Page) -> Iterator[str]:
    """Options beside the name of a command in a sentence that this command does not have, and those
    alone that no command has.
    """
    of_any = (
        {option for command in every_command() for option in OPTION.findall(help_of(*command))}
        | of_benchmarks()
        | OTHERS
    )
    for span in found.spans():
        command = named(span)
        own = re.split(r" -- |\S+\.py\b|script args|<!--", span)[0]  # what follows is the script's
        if command:
            yield from (
                f"{span}: {option}"
                for option in OPTION.findall(own)
                if option not in OPTION.findall(help_of(*command))
            )
        elif span.startswith("--") and len(span) > 2:
            yield from (span for option in OPTION.findall(span)[:1] if option not in of_any)


def every_command() -> list[tuple[str, ...]]:
    return [(name,) for name in COMMANDS if name != "converge"] + [
        ("converge", name) for name in CONVERGE
    ]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_feedline_takes_every_command_line(path, capsys):
    assert complaints(page(path), capsys) == []


@pytest.mark.parametrize(
    "path",
    [path for path in PATHS if path.name != OF_MISTAKES],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_options_that_a_sentence_names_exist(path):
    assert list(unknown_options(page(path))) == []


def test_a_command_line_that_would_be_refused_is_found(tmp_path, capsys):
    lines = [
        "$ feedline run train.py --its own",
        "$ feedline run --no-such train.py",
        "torchrun --nproc-per-node 2 -m feedline run --detail none train.py    remark",
        "FEEDLINE=1 feedline reprot runs/x",
        "python examples/train_ddp.py --slow-rank 2 --fast-rank 1",
        "scripts/no-such",
        "pip install '.[no-such]'",
        "feedline report runs/x > report.txt",
    ]
    text = "\n".join(
        [
            "```console",
            *lines,
            "```",
            "",
            "so `feedline report --no-such RUN`, `feedline report --full RUN`, `--nowhere`",
        ]
    )
    found = Page(tmp_path / "page.md", text)

    assert [line.partition(": ")[0].split()[0] for line in complaints(found, capsys)] == [
        "feedline",
        "torchrun",
        "FEEDLINE=1",
        "python",
        "scripts/no-such",
        "pip",
    ]
    assert list(unknown_options(found)) == ["feedline report --no-such RUN: --no-such", "--nowhere"]


def test_the_page_of_commands_has_all_of_them():
    shown = re.findall(
        r"^```\{help\} (.+)$", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE
    )

    assert sorted(tuple(words.split()) for words in shown) == sorted(every_command())


def test_the_pages_have_command_lines_that_are_looked_at():
    lines = [
        line for path in PATHS for line in page(path).command_lines() if line[:1] == ["feedline"]
    ]

    assert len(lines) > 40
