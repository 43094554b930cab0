"""What `feedline run -q` adds to programs that hardly do anything: the whole command, from its first import to its end, in pairs.

    python benchmarks/start_cost.py --pairs 15 --json out.json

Each program is run plain and under feedline in turns. CPU seconds are those of the command and of every process that it waited for, the one
that makes the report included; byte code is in place. Prints Markdown.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from twins import Ended, Estimate, in_turns, machine, run, table, write_json

TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(640, 32), torch.randint(0, 2, (640,))), batch_size=32, shuffle=True)
for epoch in range(3):
    for images, labels in data:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
"""
WORKER = """
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    for batch in DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=8, num_workers=1, multiprocessing_context="spawn"):
        pass
"""
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', '{}'], check=True)\n"
PROGRAMS = {
    "import torch; print()": "import torch; print()\n",
    "print()": "print()\n",
    "a child that imports torch": CHILD.format("import torch"),
    "a child without torch": CHILD.format("print()"),
    "60 steps of a small training": TRAINING,
    "a loader's worker by spawn": WORKER,
}
GOAL_S = {"import torch; print()": 0.3}


def measure(how: str, script: Path) -> Ended:
    """Run a script to its end, plain or recorded, or report on its recording."""
    folder = script.parent
    made = folder / "run"
    command = {
        "plain": [str(script)],
        "feedline": ["-m", "feedline", "run", "-q", "-o", str(made), str(script)],
        "report": ["-m", "feedline", "report", "-q", str(folder / "kept")],
    }[how]
    ended = run([sys.executable, *command], folder)
    if ended.exit_code != 0:
        raise SystemExit(f"{script.read_text()!r}: exit code {ended.exit_code} ({how})")
    if made.exists():
        shutil.rmtree(folder / "kept", ignore_errors=True)
        made.rename(folder / "kept")
    return ended


def costs(text: str, pairs: int) -> list[dict[str, Ended]]:
    """Pairs of one program, after one of each that warms the caches; and a report on the last
    recording with each pair.
    """
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "script.py"
        script.write_text(text)
        for how in ("plain", "feedline"):
            measure(how, script)
        return list(
            in_turns(("plain", "feedline", "report"), lambda how: measure(how, script), pairs)
        )


def row(name: str, pairs: list[dict[str, Ended]]) -> list[str]:
    """One line of the table."""
    added = [pair["feedline"].cpu_s - pair["plain"].cpu_s for pair in pairs]
    longer = [pair["feedline"].wall_s - pair["plain"].wall_s for pair in pairs]
    figures = (
        [pair["plain"].cpu_s for pair in pairs],
        added,
        longer,
        [pair["report"].cpu_s for pair in pairs],
    )
    return [name, *(Estimate.of(values).text() for values in figures), str(GOAL_S.get(name, ""))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument(
        "--only", choices=list(PROGRAMS), action="append", help="these programs; may be given again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    found = {name: costs(PROGRAMS[name], args.pairs) for name in args.only or PROGRAMS}
    head = [
        "program",
        "plain: CPU s",
        "added: CPU s",
        "added: wall s",
        "`feedline report -q` alone: CPU s",
        "goal: CPU s",
    ]
    print(
        ", ".join(f"{key} {value}" for key, value in machine().items()),
        f"{args.pairs} pairs each.\n",
        sep="; ",
    )
    print(table([head, *(row(name, pairs) for name, pairs in found.items())]))
    write_json(
        args.json,
        runs={
            name: [{how: asdict(one) for how, one in pair.items()} for pair in pairs]
            for name, pairs in found.items()
        },
    )


if __name__ == "__main__":
    main()
