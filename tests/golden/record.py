"""Make the stored run folders again, each from a real training on this machine, and see that nothing in them says where.

    python tests/golden/record.py ranks killed      these
    python tests/golden/record.py                   all: about two minutes

A run that is recorded again has other numbers: `python -m pytest tests/golden --regenerate` afterwards.
"""

import getpass
import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNS = HERE / "runs"
PROGRAMS = (HERE / "programs", ROOT / "tests" / "parts" / "programs", ROOT / "examples")
PYTHON = (sys.executable, "-m")
TWO_RANKS = (*PYTHON, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
PROBE = (
    "feedline probe -q --data photos --only read,decode,transport --quick -o {run}/ceilings.json"
)
MADE_OF_RECORDS = ("report.html", "report.json", "trace.json.gz", "parts", "reserve")
CHANCE = 3  # letters: a name as short as that is in compressed data anyway, and identifies nobody
KERNEL = "Linux 6.1.0 x86_64"


@dataclass(frozen=True)
class Recipe:
    """How a run comes about.

    Attributes:
        program: and its arguments.
        start: what starts ``feedline run``.
        options: of ``feedline run``.
        probed: whether the run has the machine's ceilings beside it.
    """

    program: str
    start: tuple[str, ...] = PYTHON
    options: tuple[str, ...] = ()
    probed: bool = False


RECIPES = {
    "loader": Recipe(
        "train_imagefolder.py photos --epochs 3 --batch-size 4 --size 32 --model squeezenet1_1 "
        "--workers 1",
        probed=True,
    ),
    "rests": Recipe("rests.py"),
    "without-loader": Recipe("without_loader.py"),
    "killed": Recipe("killed.py"),
    "window": Recipe("train_small.py 0.1", options=("--window", "6:3")),
    "ranks": Recipe("ranks.py", TWO_RANKS),
    "raises": Recipe("raises.py", TWO_RANKS),
    "batch32": Recipe("convergence.py 32"),
    "batch256": Recipe("convergence.py 256"),
    "sweep": Recipe("sweep.py"),
    "processes": Recipe("starts_two.py"),
}
BY_HAND = "gpu"  # its records are written as those of a GPU would be, on a machine that has none
#: Recorded on an NVIDIA H100 and an H200 by scripts/gpu-check: its program of 40 steps,
#: tests/gpu/transformer.py, and examples/train_imagefolder.py with 14 workers. Of torch.profiler's
#: events, the work of the GPU, the calls that launched it, the steps and feedline's clock marks are
#: kept.
OF_A_GPU = ("h100-ahead", "h100-transformer", "h200-resnet50", "h200-vit")
STORED = (*RECIPES, BY_HAND, *OF_A_GPU)


def record(name: str, place: Path) -> None:
    """Record one run in a folder, and put it into ``runs/`` in place of the one before."""
    if name == BY_HAND:
        from gpu.test_gpu_stages import record as write_records

        write_records(place / name, steps=40, untimed=(7,))
    else:
        train(name, RECIPES[name], place)
    scrub(place / name)
    refuse_traces_of_here(place / name, place)
    shutil.rmtree(RUNS / name, ignore_errors=True)
    shutil.copytree(place / name, RUNS / name)


def train(name: str, recipe: Recipe, place: Path) -> None:
    """Run its program in a folder, under feedline. Two of the programs are meant to fail."""
    from planted import photos

    for program in (program for folder in PROGRAMS for program in folder.glob("*.py")):
        shutil.copy(program, place)
    for kind in ("cats", "rockets"):
        photos.write(place / "photos" / kind, 1600, 1200, 24)
    recorded = (
        *recipe.start,
        "feedline",
        "run",
        "-q",
        "-o",
        name,
        *recipe.options,
        *recipe.program.split(),
    )
    subprocess.run(recorded, cwd=place, timeout=300)
    if recipe.probed:
        subprocess.run(
            [*PYTHON, *PROBE.format(run=name).split()], cwd=place, check=True, timeout=300
        )


def scrub(run: Path) -> None:
    """Leave only what was recorded, and of this machine its size."""
    for made in [path for name in MADE_OF_RECORDS for path in run.rglob(name)]:
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    for path in run.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        manifest["machine"]["system"] = KERNEL
        path.write_text(json.dumps(manifest, indent=1))


def refuse_traces_of_here(run: Path, place: Path) -> None:
    """Fail where a file has a folder of this machine, its name or that of its user in it."""
    here = {
        str(place),
        str(ROOT),
        str(Path.home()),
        tempfile.gettempdir(),
        socket.gethostname(),
        f"/{getpass.getuser()}",
    }
    for path in run.rglob("*"):
        found = [
            word
            for word in here
            if len(word) > CHANCE and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", texts(path))
        ]
        assert not found, f"{path} holds {found}"


def texts(path: Path) -> str:
    """What can be read in a file, binary or compressed ones too; nothing for a folder."""
    if path.is_dir():
        return ""
    held = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return "\n".join(text.decode() for text in re.findall(rb"[ -~]{6,}", held))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    for wanted in sys.argv[1:] or (*RECIPES, BY_HAND):
        with tempfile.TemporaryDirectory() as folder:
            record(wanted, Path(folder))
        print(
            wanted,
            sum(path.stat().st_size for path in (RUNS / wanted).rglob("*") if path.is_file()),
            "bytes",
            flush=True,
        )
