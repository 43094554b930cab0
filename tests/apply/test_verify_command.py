"""``feedline verify --fix`` on a real training: branches, the ledger, and what is refused."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from feedline.__main__ import main
from feedline.analysis.convergence.read_training import read
from feedline.analysis.convergence.training_record import TrainingRecord
from feedline.analysis.explain.speed_trial import CODES
from feedline.cli.verify.seeds import _arms_of, _check_seeds_differ
from feedline.profiler.errors import FixError

PROGRAM = """
import os
import sys
import torch
import torch.nn.functional as F

seed, start = int(sys.argv[1]), torch.load(sys.argv[2])
torch.manual_seed(seed)
net = torch.nn.Linear(4, 1)
net.load_state_dict(start)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
open(sys.argv[3], "x").write(os.environ["FEEDLINE_ARM"])
out = os.environ["FEEDLINE_OUT"]
assert os.listdir(out) == [] and sys.argv[4:] in ([], [out])
open(os.path.join(out, "last.pt"), "x")
print("out:", out)
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


@pytest.mark.parametrize("seeds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_branches_from_one_checkpoint_decide_and_are_written_down(training, capfd, seeds):
    options = [
        "--fix",
        "lr_rule=linear:5",
        "--checkpoint",
        "start.pt",
        "--seeds",
        str(seeds),
        "--json",
        "trial.json",
    ]

    program = ["train.py", "{seed}", "{checkpoint}", "{arm}{seed}.pt", "{out}"]

    code = main(["verify", *options, "--", *program])

    trial = json.loads((training / "trial.json").read_text())
    assert code == CODES[trial["verdict"]]
    assert trial["metric"] == "train loss" and trial["lower_is_better"]
    written = {f"{arm}{seed}.pt": arm for arm in ("baseline", "fix") for seed in range(seeds)}
    assert {name: (training / name).read_text() for name in written} == written
    values = {(branch["arm"], branch["seed"]): branch["value"] for branch in trial["branches"]}
    assert sorted(values) == [(arm, seed) for arm in ("baseline", "fix") for seed in range(seeds)]
    assert all(values["fix", seed] < values["baseline", seed] / 2 for seed in range(seeds))
    assert {branch["samples"] for branch in trial["branches"]} == {160.0}
    assert trial["verdict"] in ("accept", "inconclusive")  # few seeds have a wide interval
    (line,) = (training / "runs" / "verify" / "ledger.jsonl").read_text().splitlines()
    assert json.loads(line)["fix"] == "lr_rule=linear:5"
    manifest = json.loads(
        next((training / "runs" / "verify" / "fix-seed0").glob("*/manifest.json")).read_text()
    )
    assert (manifest["training"]["fixes"], manifest["training"]["fixes_failed"]) == (
        "lr_rule=linear:5",
        {},
    )
    rates = read(training / "runs" / "verify" / "fix-seed0").curves["lr"].values
    assert rates.tolist() == pytest.approx([0.05]), "the rate of the updates, not the program's"
    assert trial["verdict"].upper() in capfd.readouterr().out
    logs = (training / "runs" / "verify").glob("*.log")
    folders = {line[5:] for log in logs for line in log.read_text().splitlines() if "out: " in line}
    assert len(folders) == 2 * seeds and not any(map(os.path.exists, folders))
    assert not (training / "{out}").exists()


@pytest.mark.parametrize("fix", ["lars=0.1", pytest.param("lamb=0.1", marks=pytest.mark.long)])
def test_a_checkpoint_that_undoes_the_fix_is_an_error_and_no_verdict(training, capfd, fix):
    """With the old rate LARS is another fix than the one asked for; LAMB fails on SGD's state."""
    import torch

    weights = torch.nn.Parameter(torch.ones(1, 4))
    optimizer = torch.optim.SGD([weights, torch.nn.Parameter(torch.ones(1))], 0.01, momentum=0.9)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()
    torch.save(optimizer.state_dict(), "optimizer.pt")
    made = "optimizer = torch.optim.SGD(net.parameters(), lr=0.01)\n"
    assert made in PROGRAM
    loads = 'optimizer.load_state_dict(torch.load("optimizer.pt"))\n'
    (training / "train.py").write_text(PROGRAM.replace(made, made + loads))
    options = ["--fix", fix, "--control", "none", "--checkpoint", "start.pt", "--seeds", "1"]

    code = main(["verify", *options, "--", "train.py", "{seed}", "{checkpoint}", "{arm}{seed}.pt"])

    assert code == FixError.exit_code
    assert "the learning rate 0.01 in place of" in " ".join(capfd.readouterr().err.split())


def test_seeds_that_change_nothing_are_refused():
    one, other = (SimpleNamespace(values=np.array(values)) for values in ([1.0, 0.5], [1.0, 0.6]))
    run = TrainingRecord("run", {"train loss": one}, None, "", {}, 1, 8.0, 16.0, None, 2, 0.1, True)

    with pytest.raises(FixError, match="two seeds gave identical losses: pass {seed}"):
        _check_seeds_differ({("baseline", 0): run, ("baseline", 1): run})
    _check_seeds_differ(
        {
            ("baseline", 0): run,
            ("baseline", 1): replace(run, curves={"train loss": other}),
            ("fix", 0): run,
        }
    )
    _check_seeds_differ({("baseline", 0): run, ("baseline", 1): "exit code 1"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fix", "lr_rule=linear:5"], "no training given"),
        (
            [
                "--fix",
                "lr_rule=linear:5",
                "--checkpoint",
                "gone.pt",
                "--",
                "train.py",
                "{checkpoint}",
            ],
            "checkpoint gone.pt does not exist",
        ),
        (
            ["--fix", "lr_rule=linear:5", "--checkpoint", "start.pt", "--", "train.py", "1"],
            "add {checkpoint} to its arguments",
        ),
        (
            ["--fix", "lr_rule=linear:5", "--control", "nope=1", "--", "train.py"],
            "control nope=1: unknown fix 'nope'",
        ),
        (
            ["--fix", "lars=3", "--", "train.py"],
            "control lr_rule=linear,warmup=5ep: lr_rule=linear: with one rank",
        ),
        (["--fix", "lr_rule=linear", "--", "train.py"], "lr_rule=linear:batch_factor=8"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(training, capfd, arguments, message):
    assert main(["verify", *arguments]) == 64

    assert message in capfd.readouterr().err
    assert not (training / "runs").exists()


def test_the_control_has_the_fixes_beside_the_one_that_it_is_for():
    arms = _arms_of("lamb=0.04,warmup=5ep", None, 8)

    assert arms["control"] == "adamw=0.04,warmup=5ep"
    assert _arms_of("lars=3,warmup=2ep", None, 8)["control"] == "lr_rule=linear,warmup=5ep"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "score"], "add --better higher or --better lower"),
        (["--better", "lower"], "--better needs --metric NAME"),
        (["--steps", "100"], "--steps and --writable are for DataLoader settings"),
        (["--writable", "."], "--steps and --writable are for DataLoader settings"),
    ],
)
def test_an_option_that_would_be_guessed_or_ignored_is_refused(training, capfd, options, message):
    fix = ["--fix", "lr_rule=linear:5", *options]

    assert main(["verify", *fix, "--", "train.py", "{seed}"]) == 2
    assert message in capfd.readouterr().err
    assert not (training / "runs").exists()


def test_a_metric_that_is_misspelled_is_told_after_the_first_training(training, capfd):
    fix = ["--fix", "lr_rule=linear:5", "--checkpoint", "start.pt", "--seeds", "2"]
    program = ["--", "train.py", "{seed}", "{checkpoint}", "{arm}{seed}.pt"]

    assert main(["verify", *fix, "--metric", "training loss", *program]) == FixError.exit_code

    assert "no branch has a metric 'training loss'; the metrics are train loss" in " ".join(
        capfd.readouterr().err.split()
    )
    runs = training / "runs" / "verify"
    assert [path.name for path in runs.glob("*-seed*/")] == ["baseline-seed0"]


def test_a_run_alone_gets_the_command_that_tests_the_fix_of_its_report(
    tmp_path, monkeypatch, capfd
):
    recorded = Path(__file__).parents[2] / "docs" / "recorded"
    for name in ("demo", "healthy"):
        shutil.copytree(recorded / name, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)

    assert main(["verify", "runs/demo"]) == 2
    assert (
        "to test the fix of this report: feedline verify runs/demo --fix too_few_workers -- "
        "examples/train_imagefolder.py data/photos --size 32 --workers 1"
    ) in capfd.readouterr().err
    manifest = tmp_path / "runs" / "demo" / "rank0" / "manifest.json"
    recorded_as = json.loads(manifest.read_text())
    for command, said in (
        (["train.py", "***", "--workers", "1"], "-- train.py '***' --workers 1 (replace each *** "),
        (["train.py"], "-- train.py (add the arguments of the script"),
        ([], "-- SCRIPT ..."),
    ):
        manifest.write_text(json.dumps({**recorded_as, "command": command}))
        assert main(["verify", "runs/demo"]) == 2
        assert said in " ".join(capfd.readouterr().err.split())
    assert main(["verify", "runs/healthy"]) == 2
    assert "runs/healthy has no fix that can be tested from outside" in capfd.readouterr().err
