"""``feedline verify --set`` on a real training: runs in pairs, files that stay as they are, the
diff, and what is refused.
"""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from needs import LANDLOCK

import feedline
from feedline.__main__ import main
from feedline.analysis.explain.speed_trial import CODES
from feedline.cli.unfinished import Unfinished
from feedline.cli.verify import write_guard
from feedline.profiler.errors import FixError, PlaceTaken
from feedline.profiler.files import results

pytestmark = LANDLOCK

PROGRAM = """\
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Sleepy(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.03)
        return torch.ones(4), index % 2


def main():
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(
        Sleepy(),
        batch_size=4,
        shuffle=True,
        num_workers=0,
    )
    checkpoint = os.path.join(sys.argv[1], "last.pt")
    for epoch in range(1000):
        torch.save(net.state_dict(), checkpoint)
        for inputs, labels in loader:
            time.sleep(0.02)
            torch.nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
    open("finished", "w")


if __name__ == "__main__":
    try:
        main()
    finally:
        open("ended.txt", "w").write("at the end of a training, which a trial is not")
"""


def measured(test):
    """One of those that compare speeds; scripts/test has those of test_verify_fix.py."""
    return pytest.mark.long(pytest.mark.quiet(test))


SET = ["--set", "num_workers=2,persistent_workers=true"]


def sums(folder):
    """Checksums of all files but those below runs/."""
    files = [path for path in folder.rglob("*") if path.is_file() and "runs" not in path.parts]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def project(folder):
    (folder / "train.py").write_text(PROGRAM)
    (folder / "best").mkdir()
    (folder / "best" / "last.pt").write_text("weeks of work")


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    """A project, what its trial says, what was printed, and the checksums before."""
    folder = tmp_path_factory.mktemp("verified")
    project(folder)
    before = sums(folder)
    words = [
        "verify",
        *SET,
        "--pairs",
        "2",
        "--steps",
        "24",
        "--json",
        "runs/trial.json",
        "--",
        "train.py",
        "{out}",
    ]
    (folder / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "feedline", *words], cwd=folder, capture_output=True, text=True
    )
    trial = json.loads((folder / "runs" / "trial.json").read_text())
    assert done.returncode == CODES[trial["verdict"]], done.stderr
    return folder, trial, done.stdout, before


@measured
def test_the_change_acts_and_predicted_stands_beside_measured(verified):
    folder, trial, out, _ = verified

    assert trial["change"] == "num_workers=2, persistent_workers=True"
    assert trial["made_at"] == "train.py:21"
    assert [(run["arm"], run["pair"], run["failed"]) for run in trial["runs"]] == [
        ("unchanged", 1, ""),
        ("changed", 1, ""),
        ("changed", 2, ""),
        ("unchanged", 2, ""),
    ]
    rates = {(run["arm"], run["pair"]): run["rate"] for run in trial["runs"]}
    assert all(rates["changed", pair] > 1.3 * rates["unchanged", pair] for pair in (1, 2))
    assert trial["predicted"]["to"] > 1.3 * trial["predicted"]["from"]
    assert trial["residual"] == pytest.approx(
        (trial["measured"]["to"] / trial["measured"]["from"])
        / (trial["predicted"]["to"] / trial["predicted"]["from"])
    )
    assert "Predicted  " in out and "Measured   " in out and trial["verdict"].upper() in out


@pytest.mark.long
@pytest.mark.quiet
def test_the_runs_stop_between_steps_and_leave_every_file_as_it_was(verified):
    folder, trial, _, before = verified

    assert sums(folder) == before
    assert {run["steps"] for run in trial["runs"]} <= {22, 23, 24}
    assert "ended.txt" not in before


@measured
def test_the_ledger_has_a_line_with_the_residual(verified):
    folder, trial, _, _ = verified

    (line,) = (folder / "runs" / "verify" / "ledger.jsonl").read_text().splitlines()
    without_source = {name: value for name, value in trial.items() if name != "patch"}
    assert {**json.loads(line), "at": ""} == {**without_source, "at": ""}
    assert trial["kind"] == "speed"


@measured
def test_the_diff_gives_the_same_settings(verified, tmp_path):
    folder, trial, out, before = verified
    (tmp_path / "train.py").write_text(PROGRAM)

    subprocess.run(
        ["patch", "-p0", "-s", "-i", folder / "runs" / "verify" / "fix.patch"],
        cwd=tmp_path,
        check=True,
    )

    changed = (tmp_path / "train.py").read_text()
    assert changed == PROGRAM.replace(
        "num_workers=0,\n", "num_workers=2,\n        persistent_workers=True,\n"
    )
    assert trial["patch"] in out


RANKS = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(4096, 4), torch.arange(4096) % 2)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for inputs, labels in DataLoader(data, 4, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    raise SystemExit("a trial does not come here")
"""


@pytest.mark.long
def test_ranks_stop_after_the_same_update(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(RANKS)
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)

    words = [
        "verify",
        "--set",
        "num_workers=1",
        "--ranks",
        "2",
        "--pairs",
        "2",
        "--steps",
        "40",
        "--json",
        "runs/trial.json",
    ]
    code = main([*words, "--", "train.py"])

    trial = json.loads((tmp_path / "runs" / "trial.json").read_text())
    assert code == CODES[trial["verdict"]] and [run["failed"] for run in trial["runs"]] == [""] * 4
    manifests = [
        json.loads(path.read_text())
        for path in (tmp_path / "runs" / "verify").rglob("manifest.json")
    ]
    assert len(manifests) == 10 and all(manifest["ended"] for manifest in manifests)
    assert {run["steps"] for run in trial["runs"]} <= {38, 39, 40}


def test_a_training_that_would_overwrite_a_file_ends_and_the_file_stays(
    tmp_path, monkeypatch, capfd
):
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sums(tmp_path)

    assert main(["verify", *SET, "--", "train.py", "best"]) == 2

    said = capfd.readouterr().err
    assert (
        "trial runs must not overwrite files" in said and "let the training write to {out}" in said
    )
    assert sums(tmp_path) == before


@pytest.mark.long
def test_a_failed_attempt_leaves_nothing_that_blocks_the_corrected_one_and_no_file_of_the_users_goes(
    tmp_path, monkeypatch, capfd
):
    """Of the first attempt a log remains, to be read; the next one, with other arguments, replaces
    it.
    """
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "verify"
    assert main(["verify", *SET, "--steps", "8", "--", "train.py", "best"]) == 2
    (folder / "notes.txt").write_text("mine")
    before = (folder / "recorded.log").read_text()
    capfd.readouterr()

    assert main(["verify", *SET, "--steps", "8", "--", "train.py", "nowhere/to/be"]) == 2
    said = capfd.readouterr().err
    assert "already exists" not in said and "the unchanged training failed" in said
    assert "recording the unchanged training for 8 steps" in said
    assert (
        "nowhere" in (folder / "recorded.log").read_text() != before
        and (folder / "notes.txt").read_text() == "mine"
    )

    (folder / "changed-1").mkdir()  # what feedline did not make stops it, as ever
    (folder / "changed-1" / "last.pt").write_text("weeks of work")
    assert main(["verify", *SET, "--steps", "8", "--", "train.py", "best"]) == 73
    assert (folder / "changed-1" / "last.pt").read_text() == "weeks of work"


@pytest.mark.parametrize("replaces", [True, False])
def test_whole_runs_of_an_interrupted_command_are_replaced_where_its_result_is_kept(
    tmp_path, replaces
):
    names = ["unchanged-1", "changed-1"]
    results.prepare(tmp_path, [], False)
    interrupted = Unfinished(tmp_path, ["num_workers=2"], names, False)
    with feedline.record(tmp_path / "unchanged-1"):
        pass
    os.close(results.log(tmp_path, "unchanged-1.log"))
    interrupted.add("unchanged-1")

    if not replaces:
        with pytest.raises(PlaceTaken):
            Unfinished(tmp_path, ["num_workers=3"], names, False)
        return
    same = Unfinished(tmp_path, ["num_workers=2"], names, False, replaces=True)
    assert "unchanged-1" in same
    corrected = Unfinished(tmp_path, ["num_workers=3"], names, False, replaces=True)
    assert "unchanged-1" not in corrected and not (tmp_path / "unchanged-1").exists()
    assert not (tmp_path / "unchanged-1.log").exists()


@pytest.mark.parametrize(
    ("whole", "error"), [(1, OSError), (2, OSError), (2, FixError)], ids=["amid", "written", "runs"]
)
def test_only_a_result_that_cannot_be_written_leaves_all_runs(tmp_path, whole, error):
    kept = whole == 2 and error is OSError
    names = ["unchanged-1", "changed-1"]
    results.prepare(tmp_path, [], False)
    failed = Unfinished(tmp_path, ["num_workers=2"], names, False)
    with pytest.raises(error, match="disk full"), failed.resumable(new=False, named=True):
        for name in names[:whole]:
            with feedline.record(tmp_path / name):
                pass
            failed.add(name)
        raise error("disk full")

    again = Unfinished(tmp_path, ["num_workers=2"], names, False)
    assert [name in again for name in names] == [kept] * 2
    assert [(tmp_path / name).exists() for name in names] == [kept] * 2


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_second_trial_replaces_the_runs_and_the_patch_of_the_first(tmp_path, monkeypatch):
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["--pairs", "2", "--steps", "12", "--", "train.py", "{out}"]

    codes = [main(["verify", "--set", f"num_workers={count}", *words]) for count in (2, 1)]

    lines = (tmp_path / "runs" / "verify" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["change"] for line in lines] == ["num_workers=2", "num_workers=1"]
    assert [CODES[json.loads(line)["verdict"]] for line in lines] == codes


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["--", "train.py"],
            2,
            "nothing to verify: say what to change, as in feedline verify --set",
        ),
        ([*SET, "--fix", "warmup=5ep", "--", "train.py"], 2, "--fix cannot be combined with --set"),
        (SET, 64, "no training given"),
        (
            [*SET, "--metric", "x", "--", "train.py"],
            2,
            "--metric and --better need --fix NAME=VALUE",
        ),
        ([*SET, "--writable", "gone", "--", "train.py"], 64, "--writable gone: no such folder"),
        (["best", "--fix", "warmup=5ep", "--", "train.py"], 2, "--fix warmup=5ep takes no RUN"),
        (["best", *SET, "--", "train.py"], 66, "best"),
        ([*SET, "--ranks", "2", "--", "train.py"], 2, "give a recorded run, or --steps"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_runs(
    tmp_path, monkeypatch, capfd, words, code, message
):
    project(tmp_path)
    monkeypatch.chdir(tmp_path)

    assert main(["verify", *words]) == code

    assert message in capfd.readouterr().err
    assert not list((tmp_path / "runs").rglob("rank0"))


PARSER = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs")
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("option", "is_verifys"), [("--pairs=2", True), ("--margin", True), ("--rate", False)]
)
def test_an_option_of_verify_behind_the_training_is_told(
    tmp_path, monkeypatch, capfd, option, is_verifys
):
    (tmp_path / "train.py").write_text(PARSER)
    monkeypatch.chdir(tmp_path)

    assert main(["verify", *SET, "--", "train.py", "--epochs", "3", option]) == 2

    name = option.partition("=")[0]
    hint = f"{name} is an option of feedline verify: put it before --"
    assert (hint in " ".join(capfd.readouterr().err.split())) is is_verifys


STREAM = """\
import sys
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Rows(IterableDataset):
    def __iter__(self):
        for _ in range(4000):
            time.sleep(0.001)
            yield torch.ones(4)


class Batch:
    def __init__(self, rows):
        self.rows = torch.stack(rows)


def collate(rows):
    told = sys.argv[1] == "told" and get_worker_info() is None
    return torch.stack(rows) if told else Batch(rows)


if __name__ == "__main__":
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for batch in DataLoader(Rows(), batch_size=4, num_workers=0, collate_fn=collate):
        net(getattr(batch, "rows", batch)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("change", "samples", "message", "runs"),
    [
        ("batch_size=8", "untold", "batches of different sizes cannot be compared", 0),
        ("num_workers=1", "told", "samples were seen in some runs and not in others", 2),
    ],
)
def test_steps_are_not_compared_with_samples_nor_with_steps_of_another_size(
    tmp_path, monkeypatch, capfd, change, samples, message, runs
):
    (tmp_path / "train.py").write_text(STREAM)
    monkeypatch.chdir(tmp_path)
    words = ["--set", change, "--steps", "12", "--", "train.py", samples]

    assert main(["verify", *words]) == FixError.exit_code

    assert message in " ".join(capfd.readouterr().err.split())
    made = list((tmp_path / "runs" / "verify").glob("*changed-*/"))
    assert len(made) == runs


def test_without_protection_by_the_kernel_a_trial_needs_leave_to_write(
    tmp_path, monkeypatch, capfd
):
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write_guard, "version", lambda: 0)

    assert main(["verify", *SET, "--", "train.py", "best"]) == 64

    assert "this kernel cannot keep a trial from overwriting files" in capfd.readouterr().err
