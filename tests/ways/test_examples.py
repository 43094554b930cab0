"""Programs of github.com/pytorch/examples that train in processes of their own, unmodified unless
the test says so.

PYTORCH_EXAMPLES names a checkout; there is no copy of them here.
"""

import gzip
import hashlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from planted import photos
from ways.bench import PATH, recorded

from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.store.trainings import open_run

EXAMPLES = os.environ.get("PYTORCH_EXAMPLES")
LIMIT_S = 400
IMAGENET = "--dist-backend gloo --no-accel -a mobilenet_v3_small -b 4 -j 1 --epochs 2 -p 1"
#: main.py starts one rank per GPU, and one without a GPU: two ranks on one machine are two nodes.
TWO_NODES = """\
run() { mkdir node$1; cd node$1; exec python ../main.py ../photos --multiprocessing-distributed --world-size 2 --rank $1 %s; }
run 0 & first=$!
run 1 & second=$!
wait $first && wait $second
"""
#: What makes main.py start two ranks without a GPU, give them their DistributedDataParallel, and
#: the same seed each time.
TWO_RANKS = {
    "        dist.init_process_group(": "        torch.manual_seed(1)\n        "
    "dist.init_process_group(",
    "ngpus_per_node = 1": "ngpus_per_node = 2",
    "print('using CPU, this will be slow')": "model = torch.nn.parallel.DistributedDataParallel(model)",
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * LIMIT_S),
    pytest.mark.skipif(
        EXAMPLES is None, reason="PYTORCH_EXAMPLES names no checkout of github.com/pytorch/examples"
    ),
]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": PATH}
    done = subprocess.run(
        words, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture
def imagenet(tmp_path):
    """A folder with main.py and photographs: 40 to train on, 8 to evaluate."""
    shutil.copy(Path(EXAMPLES) / "imagenet" / "main.py", tmp_path)
    for part, count in (("train", 20), ("val", 4)):
        for name in ("cats", "rockets"):
            photos.write(tmp_path / "photos" / part / name, 1200, 900, count)
    return tmp_path


def parameters(checkpoint: Path) -> str:
    import torch

    state = torch.load(checkpoint)["state_dict"]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def losses(out: str) -> list[str]:
    """What both ranks said of their steps, without times."""
    return sorted(re.findall(r"(?:Epoch: |Test: )\S*\[.*?\]|Loss \S+|Acc@\d +\S+", out))


def check_two_ranks(path: Path) -> None:
    """Both ranks are there, with all of their steps, what they waited for and what they told each
    other.
    """
    (found,) = recorded(path)
    assert [(rank.rank, rank.steps, rank.samples) for rank in found[0]] == [
        (0, 10, 40),
        (1, 10, 40),
    ]
    assert found[1] == {"finished"}
    report = recorded_report(open_run(path))
    assert set(report.ranks) == {"0", "1"}
    for rank in report.ranks.values():
        assert rank.stages["wait"] > 0 and rank.stages["backward"] > 0
        assert sum(rank.stages.values()) == pytest.approx(rank.mean_s, rel=0.01)
    assert report.comm is not None


def test_imagenet_as_two_nodes_of_one_spawned_rank(imagenet):
    settings = f"--dist-url tcp://localhost:{free_port()} {IMAGENET}"
    (imagenet / "nodes.sh").write_text(TWO_NODES % settings)

    ours = run(imagenet, "feedline", "run", "-o", "run", "--", "bash", "nodes.sh")

    assert len(re.findall(r"^Epoch: \[[01]\]\[[1-5]/5\]", ours.stdout, re.MULTILINE)) == 20
    assert all((imagenet / f"node{node}" / "checkpoint.pth.tar").exists() for node in (0, 1))
    check_two_ranks(imagenet / "run")


def test_imagenet_with_two_spawned_ranks(imagenet):
    """Three lines of main.py are changed, for a machine without GPUs and for a second run to give
    the same numbers.
    """
    text = (imagenet / "main.py").read_text()
    for old, new in TWO_RANKS.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (imagenet / "main.py").write_text(text)
    words = "main.py photos --multiprocessing-distributed --world-size 1 --rank 0".split()
    url = f"--dist-url tcp://localhost:{free_port()}"
    plain = run(imagenet, sys.executable, *words, *url.split(), *IMAGENET.split())
    weights = parameters(imagenet / "checkpoint.pth.tar")

    ours = run(imagenet, "feedline", "run", "-o", "run", *words, *url.split(), *IMAGENET.split())

    assert losses(ours.stdout) == losses(plain.stdout)
    assert parameters(imagenet / "checkpoint.pth.tar") == weights
    check_two_ranks(imagenet / "run")


def test_mnist_hogwild(tmp_path):
    """Its two processes train one model in shared memory: two trainings.

    The parent evaluates it.
    """
    work = tmp_path / "mnist_hogwild"
    shutil.copytree(Path(EXAMPLES) / "mnist_hogwild", work)
    write_mnist(tmp_path / "data" / "MNIST" / "raw", {"train": 320, "t10k": 64})

    run(work, "feedline", "run", "-o", "run", "main.py", "--epochs", "2", "--batch-size", "16")

    found = recorded(work / "run")
    assert [[(rank.rank, rank.steps, rank.samples) for rank in ranks] for ranks, _ in found] == [
        [(0, 40, 640)]
    ] * 2
    assert all(states == {"finished"} for _, states in found)


def write_mnist(folder: Path, counts: dict[str, int]) -> None:
    """Files as those of MNIST, of noise."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for name, count in counts.items():
        images = (
            struct.pack(">4i", 0x803, count, 28, 28)
            + noise.integers(0, 255, count * 784, np.uint8).tobytes()
        )
        labels = struct.pack(">2i", 0x801, count) + noise.integers(0, 10, count, np.uint8).tobytes()
        for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"{name}-{kind}-ubyte").write_bytes(data)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))
