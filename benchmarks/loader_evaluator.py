"""What DALI's LoaderEvaluator and feedline say of the same trainings, and how long each takes to say it.

    python benchmarks/loader_evaluator.py data/photos --json out.json

LoaderEvaluator needs the training changed (its loader wrapped) and run twice: in ``log`` mode, and in ``replay`` mode, which walks the
whole loader once and then repeats cached batches; its example speaks of a bottleneck if the first takes over 1.5 times the second.
feedline runs the unchanged training once. Prints Markdown.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from twins import in_turns, machine, run, table, wait_for_quiet, write_json

PROGRAM = Path(__file__).parent / "programs" / "evaluated_training.py"
BOTTLENECK = 1.5  # the example of NVIDIA DALI 2.4 for its LoaderEvaluator
#: name -> arguments; from a loader that starves its model to a model that hardly notices its
#: loader.
TRAININGS = {
    "small, 64 px": ["--model", "small"],
    "resnet18, 64 px": ["--model", "resnet18"],
    "resnet18, 160 px": ["--model", "resnet18", "--size", "160", "--samples", "160"],
    "resnet50, 160 px": ["--model", "resnet50", "--size", "160", "--samples", "96"],
}


def measure(how: str, data: str, arguments: list[str]) -> dict[str, object]:
    """Run one training in one way: what it said, and how long the command took."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        said = folder / "said.json"
        program = [str(PROGRAM), data, *arguments]
        if how == "feedline":
            command = [
                sys.executable,
                "-m",
                "feedline",
                "run",
                "-q",
                "-o",
                str(folder / "run"),
                "--json",
                str(said),
                *program,
            ]
        else:
            command = [sys.executable, *program, "--mode", how, "--report", str(said)]
        ended = run(command, folder)
        if ended.exit_code != 0:
            raise SystemExit(f"{how}: {' '.join(arguments)} ended with exit code {ended.exit_code}")
        print(f"  {how} {' '.join(arguments)}: {ended.wall_s:.1f} s", file=sys.stderr, flush=True)
        return {**json.loads(said.read_text()), "command_s": ended.wall_s}


def evaluator_says(rounds: list[dict[str, dict]]) -> tuple[float, str]:
    """The ratio of the epochs, and the word that follows from it."""
    ratio = statistics.median(one["log"]["epoch_s"] / one["replay"]["epoch_s"] for one in rounds)
    return ratio, "bottleneck" if ratio > BOTTLENECK else "no bottleneck"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder of photographs, as examples/photos.py makes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data, load = str(Path(args.data).resolve()), wait_for_quiet(0.5, 60)
    rows = [
        [
            "training",
            "LoaderEvaluator: log / replay",
            "it says",
            "its commands, s",
            "feedline: wait share",
            "it says",
            "its command, s",
            "plain epoch, s",
        ]
    ]
    found = {}
    for name, arguments in TRAININGS.items():
        rounds = list(
            in_turns(
                ["plain", "log", "replay", "feedline"],
                lambda how, a=arguments: measure(how, data, a),
                args.rounds,
            )
        )
        found[name] = rounds
        ratio, word = evaluator_says(rounds)
        reports = [one["feedline"] for one in rounds]
        waits = [
            report["step"]["stages"].get("wait", 0.0) / report["step"]["mean_s"]
            for report in reports
        ]
        verdict = "; ".join(
            sorted({", ".join(one["cause"] for one in report["findings"]) for report in reports})
        )
        both = statistics.median(
            one["log"]["command_s"] + one["replay"]["command_s"] for one in rounds
        )
        ours = statistics.median(one["feedline"]["command_s"] for one in rounds)
        plain = statistics.median(one["plain"]["epoch_s"] for one in rounds)
        rows.append(
            [
                name,
                f"{ratio:.2f}",
                word,
                f"{both:.1f}",
                f"{statistics.median(waits):.0%}",
                verdict,
                f"{ours:.1f}",
                f"{plain:.1f}",
            ]
        )
        print(rows[-1], file=sys.stderr, flush=True)
    print(f"{machine()}, load {load:.1f} before, {args.rounds} rounds\n\n{table(rows)}")
    kept = ("epoch_s", "caching_s", "command_s", "verdict")
    write_json(
        args.json,
        trainings={
            n: [
                {how: {k: v for k, v in one.items() if k in kept} for how, one in r.items()}
                for r in rs
            ]
            for n, rs in found.items()
        },
    )


if __name__ == "__main__":
    main()
