"""Does ``feedline verify`` measure what its diff then gives? The demo's training, and two programs by others.

    python benchmarks/verify_truth.py --repositories FOLDER [--only demo] [--rounds 3] [--work KEPT] [--json verify.json]

FOLDER holds checkouts as OWNER/NAME. Each program runs in a copy of its folder, with pictures made for it. There, `feedline run` records
it, and `feedline verify` tries the first finding whose fix it can apply, or, without one, two persistent workers; checksums tell whether a
file has changed. Then `patch` applies the diff, or the variables are set that the finding names, and the program runs with and without
that, in turns, under `feedline run`. Prints Markdown.
"""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from programs_of_others.data import mnist, photos
from twins import Estimate, in_turns, machine, table, write_json

from feedline.analysis.explain.speed_trial import CODES

HERE = Path(__file__).resolve().parent
FEEDLINE = [sys.executable, "-m", "feedline"]
ENVIRONMENT = "page_faults"  # the finding whose fix is not a setting of the loader
OTHERWISE = "num_workers=2,persistent_workers=true"
FEW = (
    "--trainer.max_epochs=2 --trainer.limit_train_batches=100 --trainer.limit_val_batches=1 "
    "--trainer.limit_test_batches=1"
)


@dataclass(frozen=True)
class Program:
    """A training whose input holds it back.

    Attributes:
        source: folder of the checkouts; "": of this repository.
        path: of the folder that is copied and run, in it.
        words: script and arguments.
        makes: its data, in the copy.
        only: of the folder, copy this.
    """

    source: str
    path: str
    words: str
    makes: tuple[Callable[[Path], None], ...]
    only: tuple[str, ...] = ()


PROGRAMS = {
    "demo": Program(
        "",
        "examples",
        "train_imagefolder.py photos --size 32 --workers 1 --epochs 6",
        (photos("photos", 100, 1600, 1200),),
    ),
    "timm": Program(
        "huggingface/pytorch-image-models",
        "",
        "train.py photos --model resnet10t --num-classes 2 --img-size 64 -b 8 -j 1 --epochs 3 "
        "--device cpu --warmup-epochs 0 "
        "--output {out}",
        (photos("photos/train", 120, 1600, 1200), photos("photos/validation", 4)),
        ("train.py", "timm"),
    ),
    "Lightning": Program(
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/basics",
        f"backbone_image_classifier.py {FEW} --trainer.default_root_dir={{out}}",
        (mnist("../../Datasets", 60000), mnist("data", 64)),
    ),
}


@dataclass
class Result:
    """What became of one program."""

    name: str
    finding: str = ""
    change: str = ""
    trial: dict[str, Any] = field(default_factory=dict)
    changed_files: list[str] = field(default_factory=list)
    patched: str = ""
    ratio: Estimate | None = None
    problem: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [measured(name, given.work or Path(folder), given) for name in given.only]
    print(f"{machine()}\n")
    head = [
        "program",
        "finding",
        "change",
        "predicted",
        "measured by verify",
        "inside",
        "verdict",
        "files changed",
        "patch",
        "with it",
    ]
    print(table([head, *map(row, found)]))
    for one in found:
        if one.problem:
            print(f"\n{one.name}: {one.problem}")
    write_json(given.json, verified=[asdict(one) for one in found])


def measured(name: str, folder: Path, given: argparse.Namespace) -> Result:
    program, work = PROGRAMS[name], folder / name / "checkout" / "folder" / "program"
    shutil.rmtree(folder / name, ignore_errors=True)
    source = (given.repositories / program.source if program.source else HERE.parent) / program.path
    for part in program.only or [""]:
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy2
        (work / part).parent.mkdir(parents=True, exist_ok=True)
        copy(source / part, work / part)
    for make in program.makes:
        make(work)
    try:
        return tried(Result(name), program, work, folder / f"{name}-out", given.rounds)
    except subprocess.CalledProcessError as error:
        return Result(
            name,
            problem=f"{shlex.join(error.cmd)} ended with {error.returncode}: "
            f"{error.stderr[-1500:]}",
        )


def tried(result: Result, program: Program, work: Path, out: Path, rounds: int) -> Result:
    """Record, verify, patch, and run again."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    report = recorded(program, work, out / "recorded")
    result.finding = next(
        (
            one["cause"]
            for one in report["findings"]
            if one["settings"] or one["cause"] == ENVIRONMENT
        ),
        "",
    )
    change = ["--fix", result.finding] if result.finding else ["--set", OTHERWISE]
    before = checksums(work)
    to = [
        "-o",
        str(out / "verify"),
        "--json",
        str(out / "trial.json"),
        *change,
        str(out / "recorded"),
    ]
    call(
        [*FEEDLINE, "verify", "-q", "-f", *to, "--", *shlex.split(program.words)],
        work,
        codes=CODES.values(),
    )
    result.changed_files = sorted(
        path for path, found in checksums(work).items() if before.get(path) != found
    )
    result.trial = json.loads((out / "trial.json").read_text())
    result.change = result.trial["change"]
    patch, patched, variables = out / "verify" / "fix.patch", work, dict[str, str]()
    if result.finding == ENVIRONMENT:
        result.patched, variables = (
            "variables",
            dict(one.split("=") for one in result.change.split()),
        )
    elif patch.exists():
        patched = work.with_name("patched")
        shutil.rmtree(patched, ignore_errors=True)
        shutil.copytree(work, patched)
        done = subprocess.run(["patch", "-p0", "-i", str(patch)], cwd=patched, capture_output=True)
        result.patched = "FAILS" if done.returncode else "applies"
    else:
        result.patched = "no diff"
        return result
    sides = {"without": (work, {}), "with": (patched, variables)}
    pairs = list(
        in_turns(list(sides), lambda side: rate(program, *sides[side], out / side), rounds)
    )
    result.ratio = Estimate.of([pair["with"] / pair["without"] for pair in pairs])
    return result


def rate(program: Program, work: Path, variables: dict[str, str], run: Path) -> float:
    return float(recorded(program, work, run, variables)["throughput"]["samples_per_s"])


def recorded(
    program: Program, work: Path, run: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    words = shlex.split(program.words.replace("{out}", str(run.with_name("written"))))
    call(
        [
            *FEEDLINE,
            "run",
            "-q",
            "-f",
            "-o",
            str(run),
            "--json",
            str(run.with_suffix(".json")),
            *words,
        ],
        work,
        variables,
    )
    found: dict[str, Any] = json.loads(run.with_suffix(".json").read_text())
    return found


def call(
    words: list[str],
    work: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    codes: Collection[int] = (0,),
) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        **variables,
    }
    done = subprocess.run(
        words, cwd=work, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode not in codes:
        done.check_returncode()


def checksums(folder: Path) -> dict[str, str]:
    """Of every file, by its path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def row(one: Result) -> list[str]:
    trial = one.trial
    if not trial:
        return [one.name, one.finding, *[""] * 8]
    predicted, gain = trial["predicted"], trial["gain"]
    told = "refused"
    if predicted:
        told = "{:.2f} [{:.2f}, {:.2f}]".format(
            *(predicted[end] / predicted["from"] for end in ("to", "low", "high"))
        )
    by = (
        "{:.2f} [{:.2f}, {:.2f}]".format(*(1 + gain[end] for end in ("mean", "low", "high")))
        if gain
        else "-"
    )
    inside = {True: "yes", False: "no", None: "-"}[trial["inside"]]
    files = "none" if not one.changed_files else ", ".join(one.changed_files)
    return [
        one.name,
        one.finding or "none",
        one.change,
        told,
        by,
        inside,
        trial["verdict"],
        files,
        one.patched,
        one.ratio.text() if one.ratio else "-",
    ]


if __name__ == "__main__":
    main()
