"""Programs by others, unmodified, on small made data: does feedline count as they do, and is its verdict true.

    python benchmarks/programs_of_others/run.py --repositories FOLDER --try > docs/measured/programs-of-others.md
    python benchmarks/programs_of_others/run.py --repositories FOLDER --only nanoGPT minGPT --work KEPT --json out.json

FOLDER holds checkouts as OWNER/NAME. Programs that installed packages ship come from there. A program whose checkout or package is missing
stands in the table as missing. Prints Markdown.
"""

import argparse
import dataclasses
import json
import pickle
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from programs_of_others.bench import Bench, Measured  # noqa: E402
from programs_of_others.manifest import PROGRAMS  # noqa: E402
from programs_of_others.program import Program  # noqa: E402
from programs_of_others.table import page  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repositories", type=Path, metavar="FOLDER", help="checkouts, as OWNER/NAME"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="programs whose names contain one of these",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure")
    parser.add_argument(
        "--kept",
        type=Path,
        metavar="FOLDER",
        help="what each program gave is kept there, and the page is of all that is there",
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="run there, and keep the runs")
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="also run with the settings that the first finding advises",
    )
    args = parser.parse_args()
    chosen = [
        one for one in PROGRAMS if not args.only or any(name in one.name for name in args.only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            args.work or Path(folder),
            args.repositories,
            kept=args.work is not None,
            tries=args.tries,
        )
        kept = args.kept or Path(folder) / "kept"
        kept.mkdir(exist_ok=True)
        for program in chosen:
            measured = bench.run(program)
            print(line(measured), file=sys.stderr, flush=True)
            place(kept, program).write_bytes(
                pickle.dumps(
                    dataclasses.replace(measured, program=dataclasses.replace(program, makes=()))
                )
            )
        found = [
            pickle.loads(path.read_bytes())
            for one in PROGRAMS
            if (path := place(kept, one)).exists()
        ]
    if args.json is not None:
        args.json.write_text(
            json.dumps([dataclasses.asdict(one) for one in found], indent=1, default=repr)
        )
    print(page(found))


def place(kept: Path, program: Program) -> Path:
    """The file for what a program gave."""
    return kept / f"{program.name.replace('/', ' ')}.pickle"


def line(one: Measured) -> str:
    """What to tell while the others run."""
    if one.problem:
        return f"{one.program.name}: {one.problem}"
    counts = "; ".join(f"{said.steps} steps, {said.samples} samples" for said in one.said)
    exact = "exact" if one.exact else f"WRONG, in truth {one.true}"
    shares = (
        f"{one.timed.input_share:.1%} of {one.timed.step_s * 1e3:.3g} ms by hand, "
        f"{one.main.share:.1%} of {one.main.step_s * 1e3:.3g} ms"
    )
    return (
        f"{one.program.name}: {counts} ({exact}); {one.verdict}: {one.why}; {shares}\n    "
        f"{one.main.causes} {one.main.verdict}"
    )


if __name__ == "__main__":
    main()
