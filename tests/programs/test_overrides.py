"""``feedline run --set`` in programs whose loader a library makes, in spawned ranks and under
torchrun.
"""

import json
import subprocess
import sys

import pytest
from programs.conftest import ENVIRONMENT, SOURCES
from programs.test_frameworks import needs

SPAWNS = """\
import sys

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(rank=0):
    data = TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(data, 4, sampler=DistributedSampler(data, 2, rank), num_workers=0)
    for inputs, labels in loader:
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    print(f"rank {rank}: {loader.num_workers} workers", flush=True)


if __name__ == "__main__":
    if "spawn" in sys.argv:
        torch.multiprocessing.spawn(train, nprocs=2)
    else:
        train()
"""


def changed(warm_python, folder, program, *settings, args=()):
    """Settings of the training's loader and of the others, and the notes, of a program run with
    ``--set``.
    """
    words = [
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        folder / "run",
        "--json",
        folder / "out.json",
        *settings,
        SOURCES / program,
        *args,
    ]
    done = warm_python.run(*map(str, words), folder=folder, environment=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "out.json").read_text())
    (hook,) = [hook for hook in report["hooks"] if hook["name"] == "DataLoader arguments"]
    assert hook["attached"], hook
    assert any("the training is changed" in note for note in report["notes"])
    return {loader["role"]: loader["settings"]["num_workers"] for loader in report["loaders"]}


@pytest.mark.long
def test_a_lightning_trainer_rebuilds_the_changed_loader(warm_python, tmp_path):
    needs("pytorch_lightning", "pytorch-lightning")

    found = changed(warm_python, tmp_path, "lightning_trainer.py", "--set", "num_workers=1")

    assert found == {"training": 1, "evaluation": 0}


@pytest.mark.long
def test_a_transformers_trainer_gets_it_through_accelerate(warm_python, tmp_path):
    needs("transformers", "transformers")
    needs("accelerate", "accelerate")

    found = changed(
        warm_python, tmp_path, "transformers_trainer.py", "--set", "num_workers=1,prefetch_factor=3"
    )

    assert found == {"training": 1, "evaluation": 2}


@pytest.mark.long
def test_timms_loader_is_changed_at_the_call_of_the_program(warm_python, tmp_path, photographs):
    needs("timm", "timm")

    found = changed(
        warm_python, tmp_path, "timm_loader.py", "--set", "num_workers=1", args=[photographs]
    )

    assert found == {"training": 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "args"),
    [
        ([], ["spawn"]),
        (
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                "2",
            ],
            [],
        ),
    ],
    ids=["spawn", "torchrun"],
)
def test_processes_below_are_changed_as_well(tmp_path, launcher, args):
    (tmp_path / "train.py").write_text(SPAWNS)
    words = ["--", *launcher, "train.py"] if launcher else ["train.py"]

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "feedline",
            "run",
            "-q",
            "-o",
            "run",
            "--set",
            "num_workers=1",
            *words,
            *args,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1 workers") == 2
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "run").rglob("manifest.json")]
    told = [
        hook
        for manifest in manifests
        for hook in manifest["hooks"]
        if hook["name"] == "DataLoader arguments" and hook["attached"]
    ]
    assert len(told) == 2
