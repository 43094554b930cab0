"""What `feedline diff` and `feedline check` say of runs whose truth is known: identical ones, and ones that decode 10 % more.

    python benchmarks/diff_truth.py --pairs 10 -o results/diff

Records, in turns, three runs per pair of a small real training (programs/jpeg_training.py): one as the base, one the same, and one that
also decodes a crop of each photograph with 10 % of its pixels. Then compares the base with the others, one run of each, and checks both
against a budget with the base in it. Last it compares all runs of a kind with each other. Prints Markdown; --json has all numbers.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image
from twins import write_json

HERE = Path(__file__).parent
TRAINING = HERE / "programs" / "jpeg_training.py"
PHOTOS = HERE.parent / "examples" / "photos.py"
FEEDLINE = [sys.executable, "-m", "feedline"]
KINDS = ("base", "same", "slower")
COUNT, SIZE = 480, ("1000", "750")
BUDGET = 'base = "{base}"\n\n[than_base]\nsample_cpu = 0.05\n'


def make_photos(folder: Path, share: float) -> tuple[Path, Path]:
    """The photographs, and beside them crops with this share of the pixels."""
    whole, crops = folder / "photos", folder / f"crops-{share:g}"
    subprocess.run(
        [sys.executable, str(PHOTOS), str(whole), "--count", str(COUNT), "--size", *SIZE],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for path in sorted(whole.glob("*/*.jpg")):
        crop = crops / path.relative_to(whole)
        if not crop.exists():
            crop.parent.mkdir(parents=True, exist_ok=True)
            image, dice = Image.open(path), random.Random(path.name)
            width, height = (round(side * math.sqrt(share)) for side in image.size)
            left, top = dice.randrange(image.width - width), dice.randrange(image.height - height)
            image.crop((left, top, left + width, top + height)).save(crop, quality=95)
    return whole, crops


def record(run: Path, kind: str, photos: Path, crops: Path, args: argparse.Namespace) -> None:
    """One training; kept if it was recorded before."""
    if run.exists():
        return
    more = ["--beside", str(crops)] if kind == "slower" else []
    size = ["--batches", str(args.batches), "--epochs", str(args.epochs)]
    command = [
        *FEEDLINE,
        "run",
        "-q",
        "--strict",
        "-o",
        str(run),
        str(TRAINING),
        str(photos),
        *size,
        *more,
    ]
    subprocess.run(
        [*command, "--report", f"{run}.out.json"],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def compared(before: list[Path], after: list[Path]) -> dict[str, Any]:
    """What ``feedline diff`` says."""
    runs = [*map(str, before), "--", *map(str, after)]
    done = subprocess.run(
        [*FEEDLINE, "diff", "-q", "--json", "/dev/stdout", *runs],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def passes(run: Path, base: Path) -> bool:
    """What ``feedline check`` says."""
    budget = run.with_suffix(".toml")
    budget.write_text(BUDGET.format(base=base.resolve()))
    return (
        subprocess.run([*FEEDLINE, "check", "-q", str(run), "--budget", str(budget)]).returncode
        == 0
    )


def row(number: int, kind: str, diff: dict[str, Any], passed: bool) -> list[str]:
    """One line of the table."""
    decode = next(one for one in diff["quantities"] if one["id"] == "sample/decode")
    step = next(one for one in diff["quantities"] if one["id"] == "step/mean")
    changed = [
        one["id"]
        for one in diff["quantities"]
        if one["outcome"] == "changed" and one["group"] not in ("gauge", "work")
    ]
    ratio, low, high = (
        f"{decode[name]:.3f}" if decode[name] else "-" for name in ("ratio", "low", "high")
    )
    raw = decode["after"] / decode["before"]
    cells = [
        str(number),
        kind,
        f"{step['after'] / step['before']:.2f}",
        f"{raw:.2f}",
        f"{ratio} [{low}, {high}]",
    ]
    return [
        *cells,
        ", ".join(changed) or "none",
        diff["cause"] or "none",
        "passes" if passed else "fails",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument(
        "--share",
        type=float,
        default=0.10,
        help="pixels that the slower training decodes more (default: 0.10)",
    )
    parser.add_argument("--batches", type=int, default=15, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="photographs and runs; what is there is kept",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    photos, crops = make_photos(args.output, args.share)
    runs = {
        (number, kind): args.output / f"{kind}-{number}"
        for number in range(args.pairs)
        for kind in KINDS
    }
    for number in range(args.pairs):
        for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
            record(runs[number, kind], kind, photos, crops, args)
    diffs, counts = [], Counter[str]()
    print(
        "| pair | runs | step, B/A | decode CPU, B/A | decode at equal speed | changed | cause | "
        "check |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (number, kind), run in runs.items():
        if kind != "base":
            base = runs[number, "base"]
            diff, passed = compared([base], [run]), passes(run, base)
            cells = row(number, kind, diff, passed)
            print(f"| {' | '.join(cells)} |", flush=True)
            right = diff["cause"] == "sample/decode" if kind == "slower" else "none" in cells[5]
            counts.update(
                {
                    f"{kind}: diff right": int(right),
                    f"{kind}: check right": int(passed == (kind == "same")),
                }
            )
            diffs.append({"pair": number, "kind": kind, "passed": passed, "diff": diff})
    for kind in KINDS[1:]:
        several = compared(
            [runs[number, "base"] for number in range(args.pairs)],
            [runs[number, kind] for number in range(args.pairs)],
        )
        print(f"\nAll {args.pairs} of each, {kind}: {several['conclusion']}")
        diffs.append({"pair": None, "kind": kind, "diff": several})
    print(
        "\n"
        + " · ".join(f"{name} {count} of {args.pairs}" for name, count in sorted(counts.items()))
    )
    write_json(args.json, counts=counts, diffs=diffs)


if __name__ == "__main__":
    main()
