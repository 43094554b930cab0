"""``feedline verify RUN --fix ID``: a finding of a training that decodes JPEG files, applied,
measured, and shown again later.
"""

import hashlib
import json
import subprocess
import sys
from statistics import fmean, geometric_mean

import numpy as np
import pytest
from needs import LANDLOCK
from PIL import Image

from feedline.__main__ import main
from feedline.analysis.explain.speed_trial import CODES

pytestmark = LANDLOCK

PROGRAM = """\
import glob
import sys

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
\tdef __init__(self):
\t\tself.files = sorted(glob.glob("photos/*.jpg"))

\tdef __len__(self):
\t\treturn len(self.files)

\tdef __getitem__(self, index):
\t\twith Image.open(self.files[index]) as photo:
\t\t\treturn torch.from_numpy(np.asarray(photo)).float().mean((0, 1)), index % 2


if __name__ == "__main__":
\tnet = torch.nn.Linear(3, 2)
\toptimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
\tloader = DataLoader(
\t\tPhotos(),
\t\tbatch_size=8,
\t\tshuffle=True,
\t\tnum_workers=2,
\t)
\tfor epoch in range(int(sys.argv[1])):
\t\tfor inputs, labels in loader:
\t\t\ttorch.nn.functional.cross_entropy(net(inputs), labels).backward()
\t\t\toptimizer.step()
\t\ttorch.save(net.state_dict(), f"{sys.argv[2]}/last.pt")
""".replace("\n", "\r\n")
LINE = PROGRAM[: PROGRAM.index("DataLoader(\r")].count("\n") + 1


def sums(folder):
    """Checksums of all files but those below runs/."""
    files = [path for path in folder.rglob("*") if path.is_file() and "runs" not in path.parts]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def feedline(folder, *words, codes=(0,)):
    done = subprocess.run(
        [sys.executable, "-m", "feedline", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode in codes, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def verified(tmp_path_factory):
    """A project, the trial of its first finding's fix, and what was printed."""
    folder = tmp_path_factory.mktemp("verified")
    (folder / "train.py").write_bytes(PROGRAM.encode())
    (folder / "photos").mkdir()
    for number, pixels in enumerate(
        np.random.default_rng(0).integers(0, 255, (48, 96, 96, 3), np.uint8)
    ):
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.jpg")
    (folder / "out").mkdir()
    (folder / "out" / "last.pt").write_text("weeks of work")
    feedline(
        folder, "run", "-q", "-o", "runs/one", "--stop-after", "60", "train.py", "1000", "runs"
    )
    before = sums(folder)
    trial = [
        "verify",
        "runs/one",
        "--fix",
        "epoch_restart",
        "--pairs",
        "2",
        "--steps",
        "36",
        "--json",
        "runs/trial.json",
    ]
    out = feedline(folder, *trial, "--", "train.py", "1000", "{out}", codes=CODES.values())
    assert sums(folder) == before
    return folder, json.loads((folder / "runs" / "trial.json").read_text()), out


@pytest.mark.long
def test_the_fix_of_a_finding_is_applied_and_measured_beside_its_prediction(verified):
    _, trial, out = verified

    assert (trial["finding"], trial["change"], trial["made_at"]) == (
        "epoch_restart",
        "persistent_workers=True",
        f"train.py:{LINE}",
    )
    assert [run["failed"] for run in trial["runs"]] == [""] * 4
    assert trial["predicted"] or trial["refused"]
    assert "Predicted  " in out and "Measured   " in out
    rates = {
        arm: [run["rate"] for run in trial["runs"] if run["arm"] == arm]
        for arm in ("unchanged", "changed")
    }
    assert trial["measured"]["from"] == pytest.approx(fmean(rates["unchanged"]))
    ratio = geometric_mean(rates["changed"]) / geometric_mean(
        rates["unchanged"]
    )  # how much faster is test_verify_speed.py's matter
    assert trial["measured"]["to"] / trial["measured"]["from"] == pytest.approx(ratio)


def test_the_patch_applies_to_a_file_with_dos_line_ends_and_tabs(verified, tmp_path):
    folder, trial, out = verified
    (tmp_path / "train.py").write_bytes(PROGRAM.encode())
    patch = tmp_path / "tried.patch"
    patch.write_bytes(trial["patch"].encode())

    for tool in (
        ["patch", "-p0", "-s", "-i"],
        ["patch", "-R", "-p0", "-s", "-i"],
        ["git", "apply", "-p0"],
    ):
        subprocess.run([*tool, patch], cwd=tmp_path, check=True, capture_output=True)

    changed = PROGRAM.replace(
        "num_workers=2,\r\n", "num_workers=2,\r\n\t\tpersistent_workers=True,\r\n"
    )
    assert (tmp_path / "train.py").read_bytes() == changed.encode()
    kept = folder / "runs" / "verify" / "fix.patch"
    if trial["verdict"] == "reject":  # as on a machine that is too busy
        assert not kept.exists()
    else:
        assert kept.read_bytes().decode() == trial["patch"]
        assert "persistent_workers=True,\n" in out


def test_what_was_tried_is_listed_and_stands_in_the_report_of_the_run(
    verified, tmp_path, monkeypatch, capfd
):
    folder, trial, _ = verified
    monkeypatch.chdir(folder)

    assert main(["verify", "--json", str(tmp_path / "ledger.json")]) == 0
    listed = capfd.readouterr().out
    assert main(["report", "runs/one", "--full"]) == 0
    shown = " ".join(capfd.readouterr().out.split())

    assert "persistent_workers=True" in listed and trial["verdict"] in listed
    (line,) = json.loads((tmp_path / "ledger.json").read_text())
    assert line["runs"] == trial["runs"] and "patch" not in line
    said = (
        "measured " if trial.get("gain") else "no gain was measured"
    )  # where the machine changed meanwhile
    assert f"by feedline verify: persistent_workers=True: {said}" in shown
    assert any(
        "by feedline verify" in note
        for note in json.loads((folder / "runs" / "one" / "report.json").read_text())["notes"]
    )


def test_no_ledger_is_a_trial_not_given(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    assert main(["verify"]) == 2

    assert "nothing to verify" in capfd.readouterr().err
