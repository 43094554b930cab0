"""Are predictions of other loader settings true? One recorded run each of three trainings, then all settings, really run.

    python benchmarks/whatif_truth.py [--only jpeg,served] [--rounds 2] [--seconds 5] [--keep FOLDER] [--json whatif.json]

The trainings (programs/whatif_training.py) read JPEG photographs from files, small ones from a server that answers late
(programs/late_server.py), or both with a larger model. Each is recorded once by ``feedline run`` with two workers that prefetch two
batches. Its plain runs go through all settings in one process, in another order each round. Predicted and measured samples/s are
absolute: what recording costs, and how the machine drifts between the runs, is part of the error. Prints Markdown.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from twins import machine, table, wait_for_quiet, write_json

from feedline.analysis.explain.reports_of_run import training_input
from feedline.analysis.ledger.finding import Change, PredictedRate, Refused
from feedline.analysis.predict.replay_of import RecordedInput, predict, recorded_input
from feedline.profiler.store.run_folder import Run

HERE = Path(__file__).resolve().parent
PROGRAM, SERVER, PHOTOS = (
    HERE / "programs" / "whatif_training.py",
    HERE / "programs" / "late_server.py",
    HERE.parent / "examples" / "photos.py",
)
TRAININGS = {"jpeg": "large", "served": "small", "mixed": "large"}  # and its photographs
SIZES = {"large": ("500", "400"), "small": ("160", "128")}
RECORDED = {"num_workers": 2, "prefetch_factor": 2}
STAYING, UNORDERED = {"persistent_workers": True}, {"in_order": False}
Settings = dict[str, int | bool]


def workers(number: int, ahead: int = 2, **more: bool) -> Settings:
    return {"num_workers": number, "prefetch_factor": ahead, **more}


SETTINGS: list[Settings] = [
    {"num_workers": 0},
    workers(1),
    workers(1, 8),
    workers(2, 1),
    workers(2),
    workers(2, 4),
    workers(2, **UNORDERED),
    workers(2, **STAYING),
    workers(3),
    workers(3, 1, **STAYING, **UNORDERED),
    workers(4, 1),
    workers(4),
    workers(4, 4, **UNORDERED),
    workers(4, **STAYING),
    workers(6),
    workers(6, 1, **STAYING),
    workers(6, 8, **STAYING, **UNORDERED),
]


@dataclass(frozen=True)
class Compared:
    """One setting of one training, in samples/s."""

    training: str
    settings: Settings
    measured: list[float]
    predicted: PredictedRate | Refused

    @property
    def as_recorded(self) -> bool:
        """Whether nothing was to be predicted."""
        return self.settings == RECORDED

    @property
    def error(self) -> float | None:
        """Relative, of the prediction."""
        return (
            self.predicted.after / median(self.measured) - 1
            if isinstance(self.predicted, PredictedRate)
            else None
        )

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds what was measured."""
        found = self.predicted
        return (
            found.low <= median(self.measured) <= found.high
            if isinstance(found, PredictedRate)
            else None
        )


@contextmanager
def late_server() -> Iterator[str]:
    """Its port."""
    process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def program(
    training: str, photos: Path, port: str, seconds: float, settings: list[Settings]
) -> list[str]:
    given = [
        str(PROGRAM),
        str(photos / TRAININGS[training]),
        training,
        "--port",
        port,
        "--seconds",
        str(seconds),
    ]
    return [*given, *map(json.dumps, settings)]


def recorded(
    training: str, photos: Path, port: str, seconds: float, folder: Path
) -> RecordedInput | Refused:
    command = program(training, photos, port, seconds, [RECORDED])
    subprocess.run(
        [sys.executable, "-m", "feedline", "run", "-q", "-f", "-o", str(folder), *command],
        check=True,
        capture_output=True,
    )
    return read(folder)


def read(folder: Path) -> RecordedInput | Refused:
    found = training_input(Run.of_folder(folder))
    assert found is not None
    return recorded_input(found.shown, found.facts)


def measured(
    training: str, photos: Path, port: str, seconds: float, rounds: int
) -> dict[str, list[float]]:
    """Settings as JSON -> samples/s of each round."""
    found: dict[str, list[float]] = {json.dumps(settings): [] for settings in SETTINGS}
    for number in range(rounds):
        order = random.Random(number).sample(SETTINGS, len(SETTINGS))
        command = program(
            training, photos, port, seconds, [RECORDED, *order]
        )  # the first one warms up
        ended = subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, text=True
        )
        for settings, line in zip(order, ended.stdout.splitlines()[1:], strict=True):
            run = json.loads(line)
            found[json.dumps(settings)].append(run["samples"] / run["seconds"])
    return found


def compared(
    training: str, recording: RecordedInput | Refused, runs: dict[str, list[float]]
) -> list[Compared]:
    found = []
    for settings in SETTINGS:
        said = (
            recording
            if isinstance(recording, Refused)
            else predict(
                recording, Change({"in_order": True, "persistent_workers": False, **settings})
            )
        )
        found.append(Compared(training, settings, runs[json.dumps(settings)], said))
    return found


def row(one: Compared) -> list[str]:
    given = " ".join(f"{name}={value}" for name, value in one.settings.items())
    rates = f"{median(one.measured):.1f}"
    if isinstance(one.predicted, Refused):
        return [one.training, given, rates, f"refused: {one.predicted.reason}", "", ""]
    error, said = f"{100 * (one.error or 0.0):+.1f} %", f"{one.predicted.after:.1f}"
    if one.as_recorded:
        return [one.training, given, rates, f"{said}, as recorded", error, ""]
    interval = f" [{one.predicted.low:.1f}, {one.predicted.high:.1f}]"
    return [one.training, given, rates, said + interval, error, "yes" if one.inside else "no"]


def summary(of: str, found: list[Compared]) -> str:
    """Of the settings that were not recorded."""
    found = [one for one in found if not one.as_recorded]
    errors = [abs(one.error) for one in found if one.error is not None]
    held = [one.inside for one in found if one.inside is not None]
    if not errors:
        return f"{of}: all {len(found)} refused."
    return (
        f"{of}: {len(errors)} of {len(found)} predicted; "
        f"error {100 * median(errors):.1f} % in the median, {100 * max(errors):.1f} % at most; "
        f"{100 * sum(held) / len(held):.0f} % inside the interval."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default=",".join(TRAININGS), help="trainings, separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="of each run, at least")
    parser.add_argument(
        "--quiet",
        type=float,
        default=1.0,
        help="wait up to 10 minutes for a load average below this",
    )
    parser.add_argument("--keep", type=Path, help="keep photographs and recordings in this folder")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    wait_for_quiet(given.quiet, 600)
    found: list[Compared] = []
    with tempfile.TemporaryDirectory() as scratch, late_server() as port:
        folder = given.keep or Path(scratch)
        for name, size in SIZES.items():
            subprocess.run(
                [
                    sys.executable,
                    str(PHOTOS),
                    str(folder / name),
                    "--count",
                    "200",
                    "--size",
                    *size,
                ],
                check=True,
                capture_output=True,
            )
        for training in given.only.split(","):
            recording = recorded(
                training, folder, port, 2 * given.seconds, folder / f"run-{training}"
            )
            runs = measured(training, folder, port, given.seconds, given.rounds)
            found += compared(training, recording, runs)
            print(summary(training, found[-len(SETTINGS) :]), file=sys.stderr, flush=True)
    print(f"{machine()}\n")
    print(
        table(
            [["training", "settings", "measured", "predicted", "error", "inside"], *map(row, found)]
        )
    )
    for training in given.only.split(","):
        print(f"\n{summary(training, [one for one in found if one.training == training])}")
    print(f"\n{summary('All', found)}")
    write_json(
        given.json,
        compared=[{**asdict(one), "error": one.error, "inside": one.inside} for one in found],
    )


if __name__ == "__main__":
    main()
