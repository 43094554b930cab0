"""Does a recording grow with its length: resident memory, threads and descriptors of a training of
200,000 tiny steps, plain and recorded.

python benchmarks/long_run.py [--steps 200000] [--json long_run.json]

The slope of resident memory is fitted to the steps after the first quarter; its limit is 20 bytes
per step over the plain twin.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from twins import table, write_json

LIMIT_BYTES = 20.0  # per step, over plain
SAMPLES = 200  # readings in a run
TRAINING = """
import json, os, sys, torch
torch.set_num_threads(1)
steps, every, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
x, page, rows = torch.ones(2, 4), os.sysconf("SC_PAGE_SIZE"), []
for step in range(steps):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    if step % every == 0:
        resident, shared = map(int, open("/proc/self/statm").read().split()[1:3])
        rows.append((step, resident * page, shared * page, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))))
json.dump(rows, open(out, "w"))
"""


def measure(how: str, steps: int, folder: Path) -> dict[str, float]:
    """Run once.

    Bytes per step of resident memory after the first quarter; threads and descriptors, then and at
    the end.
    """
    script, out = folder / "train.py", folder / f"{how}.json"
    script.write_text(TRAINING)
    recorded = (
        ["-m", "feedline", "run", "-q", "-f", "-o", str(folder / "run")]
        if how == "recorded"
        else []
    )
    arguments = [str(steps), str(max(1, steps // SAMPLES)), str(out)]
    subprocess.run(
        [sys.executable, *recorded, str(script), *arguments],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    rows = np.array(json.loads(out.read_text()))
    late = rows[rows[:, 0] >= steps // 4]
    slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    names = ("threads", "descriptors")
    ends = {
        f"{name} {when}": int(late[at, 3 + column])
        for column, name in enumerate(names)
        for when, at in (("before", 0), ("after", -1))
    }
    return {"bytes per step": slope, "resident, MB": late[-1, 1] / 1e6, **ends}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [
            (how, measure(how, args.steps, Path(folder)))
            for _ in range(args.pairs)
            for how in ("plain", "recorded")
        ]
    print(
        table(
            [
                ["run", *found[0][1]],
                *([how, *(f"{value:.1f}" for value in figures.values())] for how, figures in found),
            ]
        )
    )
    slopes = {
        how: np.mean([figures["bytes per step"] for one, figures in found if one == how])
        for how in ("plain", "recorded")
    }
    over = slopes["recorded"] - slopes["plain"]
    print(f"over plain: {over:.2f} bytes per step (limit {LIMIT_BYTES:g})")
    write_json(args.json, steps=args.steps, runs=found, over_plain_bytes_per_step=over)
    sys.exit(over > LIMIT_BYTES)


if __name__ == "__main__":
    main()
