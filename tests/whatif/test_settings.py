"""``--set NAME=VALUE,...``: what is taken, and what is refused with the way out."""

import argparse

import pytest

from feedline.cli.parser import Parser
from feedline.cli.settings import (
    LOADER,
    MACHINE,
    _settings_of,
    add_settings,
    as_code,
    as_typed,
    refuse_impossible,
)
from feedline.profiler.errors import ScriptError


def parsed(*words: str) -> dict[str, object]:
    parser = Parser(prog="feedline whatif")
    add_settings(parser, {**LOADER, **MACHINE}, "help")
    return dict(parser.parse_args([*words]).settings)


def test_values_have_the_types_of_their_arguments():
    assert parsed(
        "--set", "num_workers=4, in_order=False ,cores=1.5", "--set", "persistent_workers=TRUE"
    ) == {
        "num_workers": 4,
        "in_order": False,
        "cores": 1.5,
        "persistent_workers": True,
    }
    assert parsed() == {}
    assert parsed() == {}, "one command line must not change the next"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "num_worker=4",
            "unknown setting 'num_worker' (did you mean num_workers?); settings: num_workers, "
            "prefetch_factor",
        ),
        ("x=1", "unknown setting 'x'; settings: "),
        ("num_workers", "expected NAME=VALUE, such as num_workers=4, got 'num_workers'"),
        ("num_workers=", "expected NAME=VALUE"),
        ("", "expected NAME=VALUE"),
        (",", "expected NAME=VALUE"),
        ("num_workers=-1", "num_workers: expected a whole number from 0 to 4,096, got '-1'"),
        ("num_workers=5000", "num_workers: expected a whole number from 0 to 4,096"),
        ("num_workers=2.5", "num_workers: expected a whole number"),
        ("prefetch_factor=0", "prefetch_factor: expected a whole number from 1 to 4,096, got '0'"),
        ("in_order=1", "in_order: expected true or false, got '1'"),
        ("cores=nan", "cores: expected a number, got 'nan'"),
        ("cores=0", "cores: expected a number above 0, got '0'"),
        ("num_workers=1,num_workers=2", "num_workers is given twice"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        _settings_of({**LOADER, **MACHINE})(text)

    assert str(error.value).startswith(message)


def test_a_name_in_two_options_is_given_twice(capsys):
    with pytest.raises(SystemExit):
        parsed("--set", "num_workers=1", "--set", "num_workers=2")

    assert "argument --set: num_workers is given twice" in capsys.readouterr().err


def test_a_command_takes_only_its_own_names():
    with pytest.raises(argparse.ArgumentTypeError, match="unknown setting 'cores'"):
        _settings_of(LOADER)("cores=4")


@pytest.mark.parametrize("name", ["prefetch_factor", "persistent_workers"])
def test_settings_of_workers_are_refused_without_workers(name):
    with pytest.raises(ScriptError, match=f"num_workers=0, and {name} needs workers"):
        refuse_impossible({"num_workers": 0, name: 1}, {"num_workers": 4})
    with pytest.raises(ScriptError, match="this training has num_workers=0"):
        refuse_impossible({name: 1}, {"num_workers": 0})
    refuse_impossible({name: 1, "num_workers": 2}, {"num_workers": 0})
    refuse_impossible({name: 1}, {"num_workers": 2})
    refuse_impossible({"num_workers": 0, "persistent_workers": False}, {})


def test_settings_read_as_in_python():
    assert (
        as_code({"num_workers": 2, "in_order": False, "cores": 8.0})
        == "num_workers=2, in_order=False, cores=8"
    )


def test_settings_can_be_typed_again():
    given = {"num_workers": 2, "in_order": False, "cores": 1.5}

    assert as_typed(given) == "num_workers=2,in_order=false,cores=1.5"
    assert _settings_of({**LOADER, **MACHINE})(as_typed(given)) == given
