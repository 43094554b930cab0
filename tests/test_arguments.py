"""What is typed wrongly is refused with what, where and the way out, by the exit code of the table,
before anything is done.
"""

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from traces.kineto_made import kineto

import feedline
from feedline.__main__ import main
from feedline.cli.commands import COMMANDS, _parsed
from feedline.cli.converge import CONVERGE_COMMANDS as CONVERGE
from feedline.profiler.errors import OutputError
from feedline.profiler.store.manifest import Manifest

THROUGHPUT = ["--throughput", "1=100,2=190"]
BAD_NUMBERS = ["0", "-3", "nan", "x", "", "1.5", "9" * 5000]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script and two traces in it."""
    (tmp_path / "train.py").write_text("open('trained', 'w')")
    for rank, name in enumerate("ab"):
        kineto(tmp_path / f"{name}.json", rank=rank)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code, and the last line on standard error."""
    try:
        code = main([*words])
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        code = ended.code
    return code, capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["rnu", "train.py"],
            "feedline: error: unknown command 'rnu' (did you mean run?); commands: run, "
            "attach, env, ",
        ),
        (["train.py"], "or run a script with `feedline run train.py`"),
        (
            ["converge", "advsie"],
            "feedline converge: error: unknown command 'advsie' (did you mean advise?); commands: "
            "advise",
        ),
        (["verfy"], "feedline: error: unknown command 'verfy' (did you mean verify?); commands: "),
        ([], "feedline: error: no command given; see feedline --help"),
        (["converge"], "feedline converge: error: no command given; see feedline converge --help"),
        (
            ["run"],
            "feedline run: error: no script given: add the path of the training script, followed "
            "by its arguments",
        ),
        (["run", "-q"], "feedline run: error: no script given: "),
        (
            ["run", "--json", "-", "train.py"],
            "argument --json: '-' (standard output) is not supported here: name a file",
        ),
        (["report", "run", "--json"], "--json needs a value: --json FILE, or --json - to print it"),
        (
            ["ingest", "a.json", "-o", "-"],
            "argument -o/--output: '-' (standard output) is not supported here: ",
        ),
        (
            ["run", "--epochs", "3", "train.py"],
            "unknown option --epochs; put the script's own options after the script: feedline run "
            "train.py --epochs",
        ),
        (["run", "--quite", "train.py"], "unknown option --quite (did you mean --quiet?)"),
        (
            ["run", "--sample-interval", "0", "train.py"],
            "argument --sample-interval: expected a whole number from 1 to 1,000,000,000, got '0'",
        ),
        (
            ["run", "--sample-interval", "-3", "train.py"],
            "argument --sample-interval: expected a whole number from 1 to 1,000,000,000, got '-3'",
        ),
        (["env", "--jsn"], "unknown option --jsn (did you mean --json?)"),
        (["env", "here"], "feedline env: error: unrecognized arguments: here"),
        (["--hlep"], "feedline: error: unknown option --hlep (did you mean --help?)"),
        (["report", "--by-rank", "-json", "run"], "unknown option -json (did you mean --json?)"),
        (
            ["whatif", "run"],
            "nothing to change: add --workers N, --set NAME=VALUE or --fix ID",
        ),
        (
            ["whatif", "run", "--set", "num_worker=2"],
            "argument --set: unknown setting 'num_worker' (did you mean num_workers?); settings: ",
        ),
        (
            ["tune", "run", "--memory", "8"],
            "argument --memory: expected a size with its unit, such as 8GB or 512MB, got '8'",
        ),
        (["scale", "--rank", "x"], "argument --ranks: expected numbers of ranks"),
        (["report", "run", "--dask", "tcp://host:1"], "--dask needs --by-rank"),
        (
            ["report", "a", "b"],
            "several run folders can only be compared by rank: add --by-rank, or give one run "
            "folder",
        ),
        (["report", "--by-rank", "run", "--full"], "--full cannot be combined with --by-rank"),
        (
            ["report", "--by-rank", "run", "-o", "ranks.html"],
            "write it as JSON with --json FILE, and leave out -o",
        ),
        (["scale", *THROUGHPUT, "--min-steps", "3000"], "--min-steps needs --noise-scale"),
        (["scale", "--predict", "-1", "-x", "2"], "unknown option -x"),
        (["verify", "--fix", "warmup=1ep", "--sedes", "3"], "unknown option --sedes"),
        (
            ["ingest", "a.json", "--rank", "x=1"],
            "--rank x=1: x is not one of the given traces (a.json)",
        ),
        (
            ["ingest", "a.json", "--rank", "a.json=1", "--rank", "a.json=2"],
            "--rank a.json=2: a.json already has rank 1",
        ),
        (["ingest", "a.json", "--rank", "a.json=1000000"], "where N is a rank below 1,000,000"),
        (["ingest", "a.json", "b.json", "a.json"], "a.json is given twice: name each trace once"),
        (
            ["ingest", "a.json", "./a.json"],
            "./a.json is given twice (also as a.json): name each trace once",
        ),
        (["report", "--by-rank", "run", "run"], "run is given twice: name each run folder once"),
        (
            ["converge", "advise", "run", "../{here}/run"],
            "run is given twice (also as run): name each run folder once",
        ),
        (
            ["probe", "--batch-size", "0"],
            "argument --batch-size: expected a whole number from 1 to",
        ),
        (
            ["scale", *THROUGHPUT, "--batch-size", "nan"],
            "argument --batch-size: expected a number, got 'nan'",
        ),
        (
            ["report", "run", "--link-bandwidth", "25"],
            "argument --link-bandwidth: expected a bandwidth with its unit, such as 25GB/s or",
        ),
        (
            ["report", "run", "--link-bandwidth", "0GB/s"],
            "argument --link-bandwidth: expected a number above 0, got '0'",
        ),
        (
            ["verify", "--fix", "warmup=1ep", "--margin", "inf"],
            "argument --margin: expected a number, got 'inf'",
        ),
        (
            ["verify", "--set", "num_workers=x", "--", "train.py"],
            "argument --set: num_workers: expected a whole number from 0 to 4,096, got 'x'",
        ),
        (["run", "--set", "cores=8", "train.py"], "argument --set: unknown setting 'cores'"),
        (
            ["run", "--stop-after", "0", "train.py"],
            "expected a number of updates, or of seconds such as 20s, got '0'",
        ),
        (
            ["compare", "--data", ".", "--loaders", ""],
            "argument --loaders: expected names separated by commas, got ''",
        ),
    ],
)
def test_it_is_said_with_exit_code_2(words, message, folder, capsys):
    before = sorted(os.listdir(folder))

    code, line = said(capsys, *(word.replace("{here}", folder.name) for word in words))

    assert code == 2
    assert message in line
    assert sorted(os.listdir(folder)) == before


def test_a_copy_of_a_trace_under_another_name_is_named(folder, capsys):
    shutil.copy("a.json", "rank5.json")

    code, line = said(
        capsys, "ingest", "a.json", "rank5.json", "--rank", "rank5.json=5", "-q", "-o", "run"
    )

    assert code == 65
    assert "a.json and rank5.json are the same trace" in line
    assert not (folder / "run").exists()


def options() -> list[tuple[str, str]]:
    """Each long option of each command, with the command."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    named = {**COMMANDS, **{f"converge {name}": kind for name, kind in CONVERGE.items()}}
    for name, kind in named.items():
        if name != "converge":
            kind().prepare_parser(commands.add_parser(name))
    return [
        (name, flag)
        for name, command in commands.choices.items()
        for action in command._actions
        for flag in action.option_strings
        if flag.startswith("--") and action.help != argparse.SUPPRESS
    ]


@pytest.mark.parametrize(("command", "flag"), options())
@pytest.mark.parametrize("value", ["3", "train.py"])
def test_a_misspelled_option_is_what_the_error_is_about(command, flag, value, capsys):
    typed = flag[:2] + flag[3] + flag[2] + flag[4:]

    code, line = said(capsys, *command.split(), typed, value)

    assert code == 2
    assert f"feedline {command}: error: unknown option {typed} (did you mean {flag}?)" in line


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["run"], "--sample-interval"),
        (["compare"], "--batch-size"),
        (["compare"], "--max-images"),
        (["probe"], "--batch-size"),
        (["report"], "--processes"),
        (["ingest"], "--processes"),
        (["ingest"], "--max-events"),
        (["verify"], "--seeds"),
        (["verify"], "--ranks"),
    ],
)
def test_a_number_that_counts_nothing_is_refused(command, flag, value, capsys):
    with pytest.raises(SystemExit) as ended:
        _parsed([*command, flag, value])

    assert ended.value.code == 2
    assert f"argument {flag}: expected a whole number from 1 to" in capsys.readouterr().err


def test_the_api_names_its_arguments_and_no_flags(folder, capfd):
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("mine")
    with feedline.record("run"):
        pass

    for path, message in {
        "run": "run already holds a run: pass another path, or overwrite=True to replace it",
        "mine": "mine holds files that feedline did not make (notes.txt): pass another path",
        "train.py": "train.py is a file: pass another path",
    }.items():
        with pytest.raises(OutputError) as raised, feedline.record(path, strict=True):
            pass
        assert str(raised.value) == message
    with pytest.raises(
        OutputError,
        match="notes.txt, which feedline did not make: move it away, or pass another path",
    ):
        (folder / "run" / "rank0" / "notes.txt").write_text("mine")
        with feedline.record("run", overwrite=True, strict=True):
            pass
    with feedline.record("/proc/nowhere/run"):
        pass
    assert "not recording: cannot write the run folder /proc/nowhere/run" in (
        err := capfd.readouterr().err
    )
    assert "(No such file or directory): pass another path\n" in err and " -o" not in err


def test_what_a_recording_by_the_api_lacks_is_told_without_flags_that_a_call_cannot_take(folder):
    with feedline.record("run"):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            model(torch.ones(3, 2)).sum().backward()
            optimizer.step()

    whys = [str(hook["why"]) for hook in Manifest.read(folder / "run" / "rank0").hooks]
    assert any(why.startswith("no GPU was used") for why in whys) or torch.cuda.is_available()
    for why in whys:
        assert not re.search(r"(?<![\w-])--?[a-z]", re.sub(r"`feedline [^`]*`", "", why)), why


@pytest.mark.parametrize("training", [["train.py"], ["--", sys.executable, "train.py"]])
def test_a_taken_or_unwritable_run_folder_is_one_sentence_for_a_script_and_for_a_command(
    training, folder, capfd
):
    with feedline.record("run"):
        pass
    (folder / "file").write_text("mine")

    assert said(capfd, "run", "-q", "--strict", "-o", "run", *training) == (
        73,
        f"feedline: {folder}/run already holds a run: name another folder with -o, or overwrite "
        f"it with -f",
    )
    assert said(capfd, "run", "-q", "--strict", "-o", "/proc/nowhere/run", *training) == (
        73,
        "feedline: cannot write the run folder /proc/nowhere/run (No such file or directory): "
        "name another folder with -o",
    )
    assert said(capfd, "run", "-q", "--strict", "-o", "file", *training) == (
        73,
        f"feedline: {folder}/file is a file: name another folder with -o",
    )
    assert not (folder / "trained").exists()


def test_a_command_names_its_flags_for_the_same_errors(folder, capsys):
    with feedline.record("run"):
        pass
    script = folder / "train.py"

    code, line = said(capsys, "run", "-q", "--strict", "-o", "run", str(script))

    assert code == 73
    assert line.endswith(
        "run already holds a run: name another folder with -o, or overwrite it with -f"
    )
    assert not (folder / "trained").exists() and "train" not in sys.modules
