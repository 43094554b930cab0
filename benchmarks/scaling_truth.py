"""Are predictions of 3 and 4 ranks from 1 and 2 true? Hosts in network namespaces at 100, 200 and 300 Mbit/s; needs root.

    python benchmarks/scaling_truth.py [--rates 100,200,300] [--models A,B,C] [--keep FOLDER] [--json scaling_truth.json]

Each training is recorded with ``feedline run`` on 1, 2, 3 and 4 hosts. What ``feedline scale`` predicts from the first two is held against
the others, for the law that it trusts most and for the other. Layers sleep instead of computing, as if each host had an accelerator: four
ranks that compute would share this machine's cores. With --keep, recordings that are there already are used again.
"""

import argparse
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from netlab import Lab, lab
from twins import table, write_json

from feedline.analysis.scaling import launch_points
from feedline.analysis.scaling.launch_points import basis_of
from feedline.analysis.scaling.study import study
from feedline.profiler.store.trainings import open_run

PROGRAM = Path(__file__).resolve().parent / "programs" / "paced_ddp.py"
MODELS = {
    "A, 2 MB, 96 ms": ["--layers", "8", "--kb", "256", "--ms", "4"],
    "B, 4 MB, 144 ms": ["--layers", "8", "--kb", "512", "--ms", "6", "--bucket-mb", "1"],
    "C, 1 MB, 48 ms, uneven": [
        "--layers",
        "4",
        "--kb",
        "256",
        "--ms",
        "4",
        "--uneven",
        "0.15",
        "--bucket-mb",
        "0.25",
    ],
}
HOSTS, KNOWN, ASKED = 4, (1, 2), (3, 4)
GOAL_ERROR, GOAL_INSIDE = 0.05, 0.80
LIMIT_S = 240.0


@dataclass(frozen=True)
class Held:
    """A prediction against its measurement, samples/s. ``laws``: name -> samples/s."""

    model: str
    mbit: int
    ranks: int
    measured: float
    predicted: float | None
    low: float | None
    high: float | None
    trusted: str
    laws: dict[str, float]
    why: str
    notes: list[str]


def record(net: Lab, folder: Path, model: str, mbit: int, ranks: int) -> Path:
    """One recording, if it is not there yet. One rank needs no network."""
    where = folder / f"{model[0]}-{mbit if ranks > 1 else 'any'}-{ranks}"
    if not (where / "done").exists():
        where.mkdir(parents=True, exist_ok=True)
        options = [
            "-m",
            "feedline",
            "run",
            "-q",
            "-f",
            "--torch-profiler",
            "off",
            "-o",
            str(where / "run"),
        ]
        net.together(
            ranks, [sys.executable, *options, str(PROGRAM), *MODELS[model]], where, LIMIT_S
        )
        (where / "done").touch()
    return where / "run"


def hold(net: Lab, folder: Path, model: str, mbit: int) -> list[Held]:
    """Predict from the smaller numbers of ranks, and compare."""
    net.set_rate(mbit)
    runs = {ranks: record(net, folder, model, mbit, ranks) for ranks in (*KNOWN, *ASKED)}
    launches = [[open_run(runs[ranks])] for ranks in KNOWN]
    found = study(launch_points.points_of(launches), ASKED, basis_of(launches))
    held = []
    for one in found.predictions:
        true = launch_points._point_of([open_run(runs[one.ranks])]).samples_per_s
        laws = {
            law.name: law.samples_per_s[one.ranks]
            for law in found.laws
            if one.ranks in law.samples_per_s
        }
        why = one.why or "; ".join(found.left_out)
        notes = [
            note
            for ranks in runs
            for note in launch_points._point_of([open_run(runs[ranks])]).notes
        ]
        held.append(
            Held(
                model,
                mbit,
                one.ranks,
                true,
                one.samples_per_s,
                one.low,
                one.high,
                one.model,
                laws,
                why,
                notes,
            )
        )
    return held


def error(predicted: float, true: float) -> float:
    """Of the step's time: samples/s are its inverse."""
    return true / predicted - 1


def show(held: list[Held]) -> bool:
    """Print both tables; returns whether the goals are reached."""
    rows = [["model", "Mbit/s", "ranks", "measured", "predicted", "interval", "inside", "error"]]
    for one in held:
        if one.predicted is None or one.low is None or one.high is None:
            rows.append(
                [
                    one.model,
                    str(one.mbit),
                    str(one.ranks),
                    f"{one.measured:.1f}",
                    "refused",
                    one.why,
                    "",
                    "",
                ]
            )
            continue
        inside = "yes" if one.low <= one.measured <= one.high else "NO"
        cells = [
            f"{one.measured:.1f}",
            f"{one.predicted:.1f} ({one.trusted})",
            f"{one.low:.1f} to {one.high:.1f}",
            inside,
        ]
        rows.append(
            [
                one.model,
                str(one.mbit),
                str(one.ranks),
                *cells,
                f"{100 * error(one.predicted, one.measured):+.1f} %",
            ]
        )
    print(table(rows))
    for note in sorted({note for one in held for note in one.notes}):
        print(f"- {note}")
    made = [one for one in held if one.predicted is not None]
    names = list(dict.fromkeys(name for one in made for name in one.laws))
    laws = [["law", "mean error", "worst", "predictions"]]
    for name in names:
        errors = [abs(error(one.laws[name], one.measured)) for one in made if name in one.laws]
        laws.append(
            [
                name,
                f"{100 * statistics.mean(errors):.1f} %",
                f"{100 * max(errors):.1f} %",
                str(len(errors)),
            ]
        )
    print(f"\n{table(laws)}")
    if not made:
        return False
    mean = statistics.mean(abs(error(one.predicted or 1, one.measured)) for one in made)
    inside = sum((one.low or 0) <= one.measured <= (one.high or 0) for one in made) / len(made)
    reached = mean <= GOAL_ERROR and inside >= GOAL_INSIDE and len(made) == len(held)
    print(
        f"\nprinted predictions: mean error {100 * mean:.1f} %, inside their interval "
        f"{100 * inside:.0f} % (goals 5 % and 80 %: ",
        end="",
    )
    print("reached)" if reached else "MISSED)")
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="100,200,300", help="Mbit/s")
    parser.add_argument("--models", default="A,B,C")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = [model for model in MODELS if model[0] in args.models.split(",")]
    with tempfile.TemporaryDirectory() as temporary, lab(HOSTS) as net:
        folder = (args.keep or Path(temporary)).resolve()
        held = [
            one
            for model in chosen
            for mbit in map(int, args.rates.split(","))
            for one in hold(net, folder, model, mbit)
        ]
    show(held)
    write_json(args.json, held=[asdict(one) for one in held])


if __name__ == "__main__":
    main()
