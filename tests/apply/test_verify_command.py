"""``feedline converge verify`` on a real training: branches, the ledger, and what is refused."""

import json

import pytest

from feedline.cli import main

PROGRAM = """
import sys
import torch
import torch.nn.functional as F

seed, start = int(sys.argv[1]), torch.load(sys.argv[2])
torch.manual_seed(seed)
net = torch.nn.Linear(4, 1)
net.load_state_dict(start)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(20):
    inputs = torch.randn(8, 4)
    F.mse_loss(net(inputs), inputs.sum(1, keepdim=True)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def training(tmp_path, monkeypatch):
    """A folder with a program and a checkpoint, which is the working folder."""
    import torch

    (tmp_path / "train.py").write_text(PROGRAM)
    torch.save({"weight": torch.zeros(1, 4), "bias": torch.zeros(1)}, tmp_path / "start.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_branches_from_one_checkpoint_decide_and_are_written_down(training, capfd):
    command = ["converge", "verify", "--fix", "lr_rule=linear:5", "--from", "start.pt", "--seeds", "2", "--json", "trial.json"]

    assert main([*command, "--", "train.py", "{seed}", "{checkpoint}"]) == 0

    trial = json.loads((training / "trial.json").read_text())
    assert trial["metric"] == "train loss" and trial["lower_is_better"]
    values = {(branch["arm"], branch["seed"]): branch["value"] for branch in trial["branches"]}
    assert sorted(values) == [("baseline", 0), ("baseline", 1), ("fix", 0), ("fix", 1)]
    assert all(values["fix", seed] < values["baseline", seed] / 2 for seed in (0, 1))
    assert {branch["samples"] for branch in trial["branches"]} == {160.0}
    assert trial["verdict"] in ("accept", "inconclusive")  # two seeds have a wide interval
    (line,) = (training / "runs" / "verify" / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["fix"] == "lr_rule=linear:5"
    manifest = json.loads(next((training / "runs" / "verify" / "fix-seed0").glob("*/manifest.json")).read_text())
    assert (manifest["training"]["fixes"], manifest["training"]["fixes_failed"]) == ("lr_rule=linear:5", {})
    assert trial["verdict"].upper() in capfd.readouterr().out


def test_seeds_that_change_nothing_are_refused(training, capfd):
    assert main(["converge", "verify", "--fix", "lr_rule=linear:5", "--seeds", "2", "--", "train.py", "7", "start.pt"]) == 64

    assert "the seeds change nothing: put {seed}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fix", "lr_rule=linear:5"], "nothing to run"),
        (["--fix", "lr_rule=linear:5", "--from", "gone.pt", "--", "train.py", "{checkpoint}"], "there is no checkpoint gone.pt"),
        (["--fix", "lr_rule=linear:5", "--from", "start.pt", "--", "train.py", "1"], "put {checkpoint} among its arguments"),
        (["--fix", "lr_rule=linear:5", "--control", "nope=1", "--", "train.py"], "the control nope=1: there is no fix 'nope'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(training, capfd, arguments, says):
    assert main(["converge", "verify", *arguments]) == 64

    assert says in capfd.readouterr().err
    assert not (training / "runs").exists()
