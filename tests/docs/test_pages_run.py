"""The commands of the first page, the gallery and each job, typed one after the other as a reader
would, in a folder as a reader has it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT, page
from traces.kineto_made import kineto
from traces.nsight.made_up import export, kernel

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAGES = [
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "gallery.md",
    *sorted((ROOT / "docs" / "jobs").glob("*.md")),
]
DEMO = "feedline run -o runs/demo examples/train_imagefolder.py data/photos --size 32 --workers 1"
#: A reader has more time, and more cores.
SHORTER = {
    "feedline compare ": "feedline compare --loaders pillow-v1,simplejpeg-v2 ",
    "feedline probe ": "feedline probe --quick ",
    "--nproc-per-node 8": "--nproc-per-node 2",
    "--seeds 3": "--seeds 2",
    "--count 300": "--count 70",
    "--count 600": "--count 70",
    "--count 1200": "--count 70",
    "train_digits.py": "train_digits.py --epochs 2",
}
NOT_FEEDLINES = ("pip ", "nsys ", "jq ")
JUDGES = {
    "python gate.py ": (1,),
    "feedline check ": (75, 77),
    "feedline verify ": (75, 77),
}  # codes with which they end where they find something

TRAIN = """
import argparse, os, torch
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args, _ = parser.parse_known_args()
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
if "WORLD_SIZE" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.MSELoss()
data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
for epoch in range(2):
    for x, y in DataLoader(data, args.batch_size, shuffle=True):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
del model
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""
MY_TRAIN = """
import torch
from torchvision import transforms
transform = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])
def make_model():
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 10))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone's examples, photographs, a training of one's own, and traces."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    photos = [
        sys.executable,
        "examples/photos.py",
        "data/photos",
        "--count",
        "70",
        "--size",
        "400",
        "300",
    ]
    subprocess.run(photos, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "mytrain.py").write_text(MY_TRAIN)
    (tmp_path / "nccl.node0.12345.log").touch()
    for name in ("traces", "data/traces"):
        (tmp_path / name).mkdir()
    for name in (
        "trace",
        "data/traces/resnet50_workers0",
        "data/traces/resnet50_workers4",
        "traces/rank0",
    ):
        kineto(tmp_path / f"{name}.json.gz", rank=0)
    kineto(tmp_path / "traces" / "rank1.json.gz", rank=1)
    export(
        tmp_path / "report.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 250)]}, {1: "gemm"}
    )
    for name, beginning in (("gate.py", '"""gate.py'), ("budget.toml", "# budget.toml")):
        text = next(
            block.text
            for block in page(ROOT / "docs" / "jobs" / "ci.md").blocks()
            if block.text.startswith(beginning)
        )
        (tmp_path / name).write_text(text)
    return tmp_path


def typed(path: Path) -> list[str]:
    """What a reader of a page types."""
    lines = [
        line for line in page(path).shell_lines() if line and not line.startswith(NOT_FEEDLINES)
    ]
    if any("runs/demo" in line for line in lines) and DEMO not in lines:
        lines = [DEMO, *lines]
    for long, short in SHORTER.items():
        lines = [line.replace(long, short) for line in lines]
    return lines


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_command_of_the_page_does_what_it_is_there_for(path: Path, folder: Path) -> None:
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    lines = typed(path)
    assert lines
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True
        )

        judged = next((codes for judge, codes in JUDGES.items() if line.startswith(judge)), ())
        assert done.returncode in (0, *judged), (
            f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
        assert "Traceback" not in done.stderr, line
