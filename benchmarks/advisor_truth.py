"""Is what `feedline converge advise` says true? Eight trainings in each of which one thing is planted, recorded and then judged.

    python benchmarks/advisor_truth.py [--cases deficit,healthy] [--seed 0] [--keep FOLDER] [--json advisor_truth.json]

``feedline run`` records programs/batch_training.py (mnist1d, a 1-D conv net, the acceptance table's setting) once or twice a case. The
accuracies are the program's own.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twins import table, write_json

from feedline.analysis.convergence.advisor import Advised, advise
from feedline.analysis.convergence.read_training import read

PROGRAM = Path(__file__).resolve().parent / "programs" / "batch_training.py"
FAIR = "--norm"  # batch 32 with batch norm: the acceptance table's fair reference


@dataclass(frozen=True)
class Case:
    """One planted thing: the trainings' flags, smallest batch first, and what the advisor has to
    say.

    Attributes:
        right: whether it said so.
    """

    name: str
    trainings: Sequence[str]
    right: Callable[[Advised], bool]
    ranks: int = 1


def kind(wanted: str) -> Callable[[Advised], bool]:
    """The first verdict, which is not only suspected, and no mistake found."""
    return lambda found: (
        not found.stopped and found.verdicts[0].kind == wanted and not found.verdicts[0].suspected
    )


def where(wanted: str) -> Callable[[Advised], bool]:
    """The place of the batch against the critical one."""
    return lambda found: (
        not found.stopped and found.price is not None and found.price.where == wanted
    )


def mistake(rule_id: str) -> Callable[[Advised], bool]:
    """Found, and nothing else advised."""
    return lambda found: (
        found.stopped
        and rule_id in {finding.rule_id for _, finding in found.findings}
        and not found.advice
    )


def well(found: Advised) -> bool:
    """No mistake, and no difference to the reference."""
    return kind("healthy")(found) and not found.findings


CASES = [
    Case("deficit", ["--batch 32", "--batch 256"], kind("deficit")),
    Case(
        "statistics_lag",
        [FAIR, f"{FAIR} --batch 64 --rate 0.16 --momentum 0.001"],
        kind("statistics_lag"),
    ),
    Case(
        # no batch's doing: as well known, as many samples, and half as many different ones
        "generalisation_gap",
        [
            f"{FAIR} --examples 1024 --epochs 60 --decay 0",
            f"{FAIR} --batch 64 --rate 0.16 --examples 512 --epochs 120 --decay 0",
        ],
        kind("generalisation_gap"),
    ),
    Case("instability", ["--batch 32", "--batch 256 --rate 3"], kind("instability")),
    Case(
        "far above",
        [f"{FAIR} --examples 16384 --batch 8192 --micro 32 --epochs 20 --rate 0.3"],
        where("far above"),
    ),
    Case("far below", ["--batch 4 --micro 2 --epochs 4 --rate 0.001"], where("far below")),
    Case(
        "wrong sampler",
        [f"{FAIR} --batch 64 --epochs 4 --one-order"],
        mistake("same_data"),
        ranks=2,
    ),
    Case("healthy", [FAIR, f"{FAIR} --batch 48 --rate 0.1"], well),
]


@dataclass(frozen=True)
class Outcome:
    """What was said of a case."""

    name: str
    right: bool
    kinds: list[str]
    causes: list[str]
    where: str
    noise_scale: list[float | None]
    first_advice: str
    accuracies: list[str]


def record(case: Case, folder: Path, seed: int) -> tuple[list[Path], list[str]]:
    """Run the case's trainings. Returns their run folders, and the last line of each.

    Raises:
        RuntimeError: one failed.
    """
    runs, said = [], []
    for number, flags in enumerate(case.trainings):
        run = folder / f"{case.name.replace(' ', '-')}-{number}"
        launcher = (
            ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks)]
            if case.ranks > 1
            else []
        )
        command = [
            sys.executable,
            *launcher,
            "-m",
            "feedline",
            "run",
            "-q",
            "-f",
            "-o",
            str(run),
            str(PROGRAM),
            "--seed",
            str(seed),
            *flags.split(),
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"{case.name}: {' '.join(command)} ended with "
                f"{done.returncode}\n{done.stderr[-2000:]}"
            )
        runs.append(run)
        said.append(
            next(
                (
                    line
                    for line in reversed(done.stdout.splitlines())
                    if line.startswith("test accuracy")
                ),
                "",
            )
        )
    return runs, said


def judge(case: Case, folder: Path, seed: int) -> Outcome:
    """Record and advise."""
    paths, said = record(case, folder, seed)
    found = advise([read(path) for path in paths])
    return Outcome(
        case.name,
        case.right(found),
        [f"{'suspected ' if one.suspected else ''}{one.kind}" for one in found.verdicts],
        [finding.rule_id for _, finding in found.findings],
        found.price.where if found.price else "unknown",
        [found.noise.low, found.noise.value, found.noise.high],
        found.advice[0].what if found.advice else "",
        said,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=[case.name for case in CASES]
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs there")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in (case for case in CASES if case.name in args.cases):
            outcomes.append(judge(case, folder.resolve(), args.seed))
            print(outcomes[-1], file=sys.stderr, flush=True)
    rows = [["planted", "right", "said", "mistakes", "batch", "first advice"]]
    for one in outcomes:
        rows.append(
            [
                one.name,
                "yes" if one.right else "NO",
                ", ".join(one.kinds),
                ", ".join(one.causes),
                one.where,
                one.first_advice,
            ]
        )
    print(table(rows))
    right = sum(one.right for one in outcomes)
    print(f"\n{right} of {len(outcomes)} right")
    write_json(args.json, outcomes=[asdict(one) for one in outcomes])
    return 0 if right >= len(outcomes) - 1 else 1


if __name__ == "__main__":
    sys.exit(main())
