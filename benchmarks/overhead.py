"""What feedline costs a JPEG training, beside torch.profiler, VizTracer and Scalene on the same training.

    python benchmarks/overhead.py data/photos --json out.json

Three times, because each way sees what the others cannot. *Within one process* each step is made twice, recorded and not, from the same
files and random numbers: epochs or processes differ by more than feedline costs. With a ResNet a shared machine's own noise, a few per
cent, is many times what feedline costs; *with a linear model* the same samples are nearly all there is, so the cost of a sample is seen.
*As whole commands* each profiler starts its own process, as a user would, in turns with the bare training; only so is the cost at the
start seen. Prints Markdown.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from twins import Estimate, in_turns, machine, run, table, wait_for_quiet, write_json

TRAINING = Path(__file__).parent / "programs" / "jpeg_training.py"
LIMITS = {"cpu_us": 10.0, "cpu_share": 0.005, "wall_share": 0.01, "start_s": 0.3}
PEERS = ("torch.profiler, 3 steps of 10", "torch.profiler, all steps", "VizTracer", "Scalene")
LIMIT_S = 240.0  # the bare training takes about 15 s
Report = dict[str, float]


def command(how: str, folder: Path, training: Sequence[str]) -> list[str]:
    """The command line of the training under one profiler, with the options of that profiler's own
    tutorial.
    """
    python = sys.executable
    if how == "feedline":
        return [python, "-m", "feedline", "run", "-q", "-f", "-o", str(folder / "run"), *training]
    if how == "VizTracer":
        return [
            python,
            "-m",
            "viztracer",
            "--quiet",
            "--output_file",
            str(folder / "viz.json"),
            *training,
        ]
    if how == "Scalene":
        return [
            python,
            "-m",
            "scalene",
            "run",
            "--cpu-only",
            "--outfile",
            str(folder / "scalene.json"),
            training[0],
            "---",
            *training[1:],
        ]
    given = {PEERS[0]: ["--torch-profiler", "schedule"], PEERS[1]: ["--torch-profiler", "whole"]}
    return [python, *training, *given.get(how, [])]


def as_commands(
    names: Sequence[str], data: str, rounds: int, epochs: int, *more: str
) -> list[dict[str, Report | None]]:
    """Whole commands in turns: what each run said of itself, and what the operating system said of
    it; None: it did not end well.
    """

    def measure(how: str) -> Report | None:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            training = [
                str(TRAINING),
                data,
                "--epochs",
                str(epochs),
                *more,
                "--report",
                str(folder / "said.json"),
            ]
            ended = run(command(how, folder, training), folder, limit_s=LIMIT_S)
            if ended.exit_code != 0 and how in PEERS:
                print(
                    f"  {how}: exit code {ended.exit_code} after {ended.wall_s:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
                return None
            if ended.exit_code != 0:
                raise SystemExit(f"the training under {how} ended with exit code {ended.exit_code}")
            said: Report = json.loads((folder / "said.json").read_text())
        print(
            f"  {how}: {ended.wall_s:.1f} s, {ended.cpu_s:.1f} s of CPU",
            file=sys.stderr,
            flush=True,
        )
        return {
            **said,
            "command_wall_s": ended.wall_s,
            "command_cpu_s": ended.cpu_s,
            "peak_bytes": float(ended.peak_bytes),
        }

    return list(in_turns(names, measure, rounds))


def in_one_process(data: str, pairs: int, *more: str) -> tuple[int, list[dict[str, Report]]]:
    """Steps in turns: samples in a step, and the pairs."""
    with tempfile.TemporaryDirectory() as scratch:
        said = Path(scratch) / "said.json"
        training = [str(TRAINING), data, "--turns", str(pairs), "--report", str(said), *more]
        ended = run([sys.executable, *training], Path(scratch), quiet=False)
        if ended.exit_code != 0:
            raise SystemExit(f"the training ended with exit code {ended.exit_code}")
        found = json.loads(said.read_text())
    return found["samples"], found["pairs"]


def compared(
    pairs: Sequence[dict[str, Report]], how: str, value: Callable[[Report, Report], float]
) -> Estimate:
    """Two neighboring pairs, of both orders, are one value: what the first of two gains or loses is
    not feedline's.
    """
    values = [value(pair[how], pair["without"]) for pair in pairs]
    return Estimate.of(
        [(one + other) / 2 for one, other in zip(values[::2], values[1::2], strict=False)] or values
    )


def costs(pairs: Sequence[dict[str, Report]], how: str, samples: int) -> dict[str, Estimate]:
    """What one profiler adds to the training loop."""
    return {
        "cpu_us": compared(
            pairs, how, lambda with_, without: (with_["cpu_s"] - without["cpu_s"]) / samples * 1e6
        ),
        "cpu_share": compared(
            pairs, how, lambda with_, without: with_["cpu_s"] / without["cpu_s"] - 1
        ),
        "wall_share": compared(
            pairs, how, lambda with_, without: with_["wall_s"] / without["wall_s"] - 1
        ),
    }


def command_costs(pairs: Sequence[dict[str, Report]], how: str) -> dict[str, Estimate]:
    """What one profiler adds to the training loop and to the whole command."""
    return {
        **costs(pairs, how, int(pairs[0][how]["samples"])),
        "start_s": compared(
            pairs, how, lambda with_, without: with_["ready_cpu_s"] - without["ready_cpu_s"]
        ),
        "start_wall_s": compared(
            pairs, how, lambda with_, without: with_["ready_s"] - without["ready_s"]
        ),
        "command_share": compared(
            pairs,
            how,
            lambda with_, without: with_["command_wall_s"] / without["command_wall_s"] - 1,
        ),
        "peak_bytes": compared(
            pairs, how, lambda with_, without: with_["peak_bytes"] - without["peak_bytes"]
        ),
    }


def inside_table(found: dict[str, dict[str, Estimate]]) -> str:
    head = [
        "steps in turns, one process",
        "CPU us a sample",
        "CPU %",
        "wall %",
        "pairs of both orders",
    ]
    rows = [[name, one["cpu_us"].text(), one["cpu_share"].text(100), one["wall_share"].text(100), str(one["cpu_us"].pairs)]
            for name, one in found.items()]  # fmt: skip
    limits = [
        "limit",
        *(
            f"{LIMITS[name] * scale:g}"
            for name, scale in (("cpu_us", 1), ("cpu_share", 100), ("wall_share", 100))
        ),
        "",
    ]
    return table([head, *rows, limits])


def commands_table(found: dict[str, dict[str, Estimate]]) -> str:
    head = [
        "whole commands in turns",
        "CPU us a sample",
        "CPU %",
        "wall %",
        "start: CPU s",
        "start: wall s",
        "whole command: wall %",
        "MB",
        "pairs",
    ]
    rows = [head]
    for how, one in found.items():
        numbers = [
            one["cpu_us"].text(1, 0),
            one["cpu_share"].text(100, 1),
            one["wall_share"].text(100, 1),
        ]
        numbers += [
            one["start_s"].text(),
            one["start_wall_s"].text(),
            one["command_share"].text(100, 1),
            one["peak_bytes"].text(1e-6, 0),
        ]
        rows.append([how, *numbers, str(one["cpu_us"].pairs)])
    return table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder of photographs, as examples/photos.py makes it")
    parser.add_argument(
        "--pairs",
        type=int,
        default=300,
        help="of steps in one process; three times as many with the linear model",
    )
    parser.add_argument(
        "--starts", type=int, default=12, help="pairs of commands that end after two steps"
    )
    parser.add_argument(
        "--commands", type=int, default=10, help="pairs of whole commands, feedline and without"
    )
    parser.add_argument("--peers", type=int, default=4, help="rounds with all the other profilers")
    parser.add_argument("--epochs", type=int, default=2, help="in a command")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = str(Path(args.data).resolve())
    load = wait_for_quiet(0.5, 120)
    inside, kept = {}, {}
    for name, number, more in (
        ("linear model", 3 * args.pairs, ["--light"]),
        ("ResNet-18", args.pairs, []),
    ):
        samples, kept[name] = in_one_process(data, number, *more)
        inside[name] = costs(kept[name], "feedline", samples)
    print(f"{machine()}, load {load:.1f} before\n\n{inside_table(inside)}\n", flush=True)

    starts = as_commands(["without", "feedline"], data, args.starts, 1, "--light", "--batches", "2")
    if starts:
        begun = command_costs(starts, "feedline")
        print(
            f"start alone: {begun['start_s'].text()} s of CPU, {begun['start_wall_s'].text()} s "
            f"of wall\n",
            flush=True,
        )
    alone = as_commands(["without", "feedline"], data, args.commands, args.epochs)
    commands = {"feedline": command_costs(alone, "feedline")} if alone else {}
    print(f"{commands_table(commands)}\n", flush=True)
    together = as_commands(["without", *PEERS], data, args.peers, args.epochs)
    commands |= {
        how: command_costs(ended, how)
        for how in PEERS
        if (ended := [pair for pair in together if pair[how]])
    }
    losses = {said["loss"] for pair in [*alone, *together] for said in pair.values() if said}
    print(f"{commands_table(commands)}\n\nlast loss of every run: {', '.join(map(str, losses))}")
    for how in (how for how in PEERS if any(pair[how] is None for pair in together)):
        print(
            f"{how}: did not end well in {sum(pair[how] is None for pair in together)} of "
            f"{len(together)} (limit {LIMIT_S:.0f} s)"
        )
    write_json(
        args.json,
        limits=LIMITS,
        in_one_process={
            "pairs": kept,
            "costs": {how: {n: asdict(e) for n, e in one.items()} for how, one in inside.items()},
        },
        commands={
            "starts": starts,
            "alone": alone,
            "together": together,
            "costs": {how: {n: asdict(e) for n, e in one.items()} for how, one in commands.items()},
        },
    )


if __name__ == "__main__":
    main()
