"""The help pages: every command by job, every option explained, no line too long, and examples that
can be typed as they are.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from feedline.cli.commands import JOBS, _parsed, _parser_of_all
from feedline.cli.parser import Parser, _HelpText

INTERNAL = {"--finish", "--wait", "--stop-after"}  # feedline passes them to itself
WIDTH = 100
OUTPUTS = {"FILE", "FOLDER", "RUN", "STORE"}  # what a command makes


def pages() -> dict[str, Parser]:
    """The parsers of all help pages, by command; the first is that of `feedline --help`."""
    front = _parser_of_all()
    inner = {
        f"converge {name}": parser for name, parser in front.commands["converge"].commands.items()
    }
    return {"": front, **front.commands, **inner}


def kinds() -> list[tuple[str, type]]:
    return [(name, kind) for commands in JOBS.values() for name, kind in commands.items()]


@pytest.mark.parametrize("command", pages())
def test_no_line_is_too_long(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    assert [line for line in pages()[command].format_help().splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("command", pages())
def test_its_help_can_be_had(command, capsys):
    with pytest.raises(SystemExit) as ended:
        _parsed([*command.split(), "--help"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: feedline {command}".rstrip())


@pytest.mark.parametrize("command", pages())
def test_an_unknown_option_is_named(command, capsys):
    with pytest.raises(SystemExit) as ended:
        _parsed([*command.split(), "--no-such"])

    assert ended.value.code == 2
    assert "unknown option --no-such" in capsys.readouterr().err


@pytest.mark.parametrize("command", pages())
def test_every_option_has_a_help_text(command):
    for action in pages()[command]._actions:
        if action.help == argparse.SUPPRESS:
            assert (
                isinstance(action, argparse._SubParsersAction)
                or set(action.option_strings) <= INTERNAL
            ), action
        else:
            assert action.help and not action.help.endswith("."), action


def test_every_command_stands_in_one_group_with_an_example():
    text = _parser_of_all().format_help()

    shown = re.findall(r"^  (\w+(?: \w+)?) {2,}[A-Z].*\n +\$ feedline (.*)$", text, re.MULTILINE)
    assert Counter(name for name, _ in shown) == Counter(
        {name for name in pages() if name not in ("", "converge")}
    )
    for name, example in shown:
        assert example.startswith(name)


def test_the_commands_are_listed_without_docstrings():
    shown = subprocess.run(
        [sys.executable, "-OO", "-m", "feedline", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert all(f"\n  {name}" in shown for commands in JOBS.values() for name in commands)


@pytest.mark.parametrize(("command", "kind"), kinds())
def test_its_examples_can_be_typed(command, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "four-node0", "four-node1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    examples = _HelpText.of(kind).examples

    assert 1 <= len(examples) <= 3
    for example in examples:
        words = shlex.split(example, comments=True)
        _parsed(words[words.index("feedline") + 1 :])


def test_an_option_of_several_commands_takes_the_same_in_all_of_them():
    taken: dict[str, set[str]] = {}
    for parser in pages().values():
        for flag, action in parser._flags(shown=True).items():
            taken.setdefault(flag, set()).add(str(action.metavar))

    assert {flag: takes for flag, takes in taken.items() if len(takes) > 1} == {
        "-o": OUTPUTS,
        "--output": OUTPUTS,
        "--batch-size": {"IMAGES", "SAMPLES"},
        "--ranks": {"N", "N,N"},
        "--fix": {"FIX", "ID", "NAME=VALUE,..."},
    }


def test_an_abbreviation_may_not_mean_what_the_help_does_not_show(capsys):
    for short in ("--f", "--fin", "--wa"):
        with pytest.raises(SystemExit):
            _parsed(["report", "run", short])
        assert not re.search("--finish|--wait", capsys.readouterr().err)


SENTENCE = re.compile(r"(?<!\.\.)(?<=[.?!])\s+")
MAX_WORDS = 22


@pytest.mark.parametrize("command", pages())
def test_a_sentence_of_it_can_be_read_in_one_breath(command):
    parser = pages()[command]
    shown = [action.help for action in parser._actions if action.help != argparse.SUPPRESS]
    texts = [*shown, *prose(parser.description or ""), *prose(parser.epilog or "")]
    sentences = [sentence for text in texts for sentence in SENTENCE.split(text)]

    assert [said for said in sentences if len(said.split()) > MAX_WORDS or ";" in said] == []


def prose(text: str) -> list[str]:
    """Paragraphs, and the lines of tables one by one."""
    return [
        part
        for paragraph in text.split("\n\n")
        for part in (paragraph.splitlines() if "\n  " in paragraph else [paragraph])
    ]
