"""What other commands say of the stored runs."""

import json
import shutil

import pytest
from golden.pinned import Pinned
from golden.record import RUNS

from feedline.__main__ import main

COMMANDS = {
    "ranks": ("report", "--by-rank", "ranks", "--processes", "1"),
    "advise": ("converge", "advise", "batch32", "batch256"),
    "scale": ("scale", "--throughput", "1=67758,2=142704,4=235271,8=381000", "--predict", "16"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_said(name, pinned: Pinned, tmp_path, monkeypatch, capsys):
    command = COMMANDS[name]
    for run in RUNS.iterdir():
        if run.name in command[1:]:
            shutil.copytree(run, tmp_path / run.name)
    monkeypatch.chdir(tmp_path)

    assert main([*command, "--json", "said.json"]) == 0

    pinned.numbers(f"command-{name}", json.loads((tmp_path / "said.json").read_text()))
    pinned.text(f"command-{name}.terminal", capsys.readouterr().out)
