"""docs/exit-codes.md has every error with its code, and nothing else."""

import re
from pathlib import Path

from feedline.analysis.explain.speed_trial import ACCEPT, CODES, INCONCLUSIVE, REJECT
from feedline.cli.commands import JOBS, _parser_of_all
from feedline.profiler import errors

PAGE = Path(__file__).parent.parent / "docs" / "exit-codes.md"
BY_PYTHON = {"0", "2", "128 + N"}


def rows() -> dict[str, list[str]]:
    """Code -> names of errors."""
    table = re.findall(r"^\| (\d[^|]*) \|[^|]*\|([^|]*)\|$", PAGE.read_text(), re.MULTILINE)
    return {code: re.findall(r"`(\w+)`", names) for code, names in table}


def kinds(
    base: type[errors.FeedlineError] = errors.FeedlineError,
) -> list[type[errors.FeedlineError]]:
    here = [base] if base.__module__ == errors.__name__ else []
    return [*here, *(kind for below in base.__subclasses__() for kind in kinds(below))]


def test_the_page_has_every_error_at_its_code():
    listed = {name: int(code) for code, names in rows().items() for name in names}

    assert listed == {kind.__name__: kind.exit_code for kind in kinds()}


def test_a_code_without_an_error_is_pythons_or_a_signal():
    assert {code for code, names in rows().items() if not names} <= BY_PYTHON


def test_the_tree_at_the_top_of_the_errors_has_every_error_at_its_code():
    tree = dict(re.findall(r"^[|+\- ]*(\w+) +(\d+)(?: |$)", errors.__doc__ or "", re.MULTILINE))

    assert {name: int(code) for name, code in tree.items()} == {
        kind.__name__: kind.exit_code for kind in kinds()
    }


def test_the_page_has_every_verdict_of_verify_at_its_code():
    page = dict(re.findall(r"^\| (\d+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE))
    said = {
        ACCEPT: "the change was accepted",
        REJECT: "the change was rejected",
        INCONCLUSIVE: "the trial was inconclusive",
    }

    assert CODES.keys() == said.keys()
    for verdict, code in CODES.items():
        assert [at for at, text in page.items() if f"`verify`: {said[verdict]}" in text] == [
            str(code)
        ]


def test_the_help_names_the_page_and_codes_that_are_on_it():
    text = _parser_of_all().format_help()

    assert "docs/exit-codes.md" in text
    said = re.search(r"\nexit codes:\n(.*?)\n\n", text, re.DOTALL)
    codes = re.findall(r"^  (\d+(?: to \d+)?)  ", said[1], re.MULTILINE)
    single = {code for code in codes if code.isdecimal()}
    assert {"0", "2", "75", "77", "130"} <= single <= set(rows())
    ((first, last),) = [map(int, code.split(" to ")) for code in codes if " to " in code]
    for code in {kind.exit_code for kind in kinds()} - {1, 2, 130}:
        assert first <= code <= last


def test_the_page_says_of_every_command_what_ctrl_c_leaves():
    table = PAGE.read_text().partition("| after Ctrl-C |")[2]
    named = {
        name.split(" --")[0]
        for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }

    assert named == {name for commands in JOBS.values() for name in commands} - {"run"}
