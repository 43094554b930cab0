"""docs/ways-to-start.md: each way to start a training, and what feedline saw of it.

python tests/ways/page.py > docs/ways-to-start.md
"""

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ways.bench import Both, Rank, differences  # noqa: E402
from ways.table import WAYS  # noqa: E402
from ways.way import Way  # noqa: E402

TEXT = """\
# Ways to start a training

Each command below starts small training runs that count their own steps (`tests/ways/programs`). Each is run once as shown and once without
feedline. For each process, feedline's record of training runs, ranks, steps and samples is compared with what the program counted itself.
Exit code, standard output and the trained parameters must be the same both times. `scripts/test` runs the quick ones, `scripts/test-long`
the others, and `python tests/ways/page.py > docs/ways-to-start.md` writes this page.

Cells contain `counted by the program / recorded by feedline`; semicolons separate training runs, and commas separate ranks. Ways whose
packages are not installed are not tested;
`pip install joblib hydra-core nbclient nbconvert ipykernel ray distributed deepspeed accelerate pytorch-lightning` installs all of them.

"""
END = """
## Special cases

In each of these cases the training is unchanged (`tests/ways/test_bad_input.py`).

| case | result |
|---|---|
| a child clears its environment, or is started as `python -S` | not recorded; named with pid and command |
| a child replaces PYTHONPATH, or is started as `python -I` or `-E` | recorded if feedline is installed with pip, through its feedline.pth |
| the program has a `sitecustomize` of its own | it runs in every process, once, as without feedline |
| 64 processes, two of which train | two training runs |
| a script under feedline starts `feedline run` itself | each is recorded once, in its own run folder |
| `FEEDLINE=1 feedline run ...` | recorded once |
| the program ends a worker (`multiprocessing.Pool`, Ray) | recorded up to that point; its state is `ended`, not `cut` |
| a child outlives its parent | recorded to its end; `feedline report RUN` then shows it |
| a child may not write into the run folder | not recorded; a line on standard error names its pid |
| the parent is killed while children train | the children are recorded to their end; `feedline report RUN` shows them |

## Programs of pytorch/examples

`PYTORCH_EXAMPLES=CHECKOUT scripts/test-long tests/ways/test_examples.py`

- imagenet/main.py `--multiprocessing-distributed`, unmodified: without GPUs it spawns one rank per node, so two nodes are started on one
  machine, under one `feedline run -- bash nodes.sh`. feedline records one training of two ranks, 10 steps and 40 samples each, with their
  waits for data and the all-reduces of the evaluation.
- With three lines changed, one command spawns two ranks with DistributedDataParallel on the CPU: feedline records one
  training of two ranks, 10 steps and 40 samples each, and its communication. The weights are the same as without feedline.
- mnist_hogwild, unmodified: feedline records two training runs of 40 steps and 640 samples each, one for each of the two processes that
  share the model.
"""
HEAD = (
    "| way | command | training runs | ranks | steps | samples | unchanged "
    "|\n|---|---|---|---|---|---|---|"
)


def row(way: Way, both: Both) -> str:
    """A line of the table."""
    pairs = [
        (str(len(both.true)), str(len(both.seen))),
        (
            each(both.true, lambda ranks: str(len(ranks))),
            each(both.seen, lambda ranks: str(len(ranks))),
        ),
        (each(both.true, steps), each(both.seen, steps)),
        (each(both.true, samples), each(both.seen, samples)),
    ]
    unchanged = not [
        text for text in differences(way, both) if not text.startswith(("seen", "all ended"))
    ]
    cells = [
        way.name,
        f"`{way.recorded}`",
        *(f"{true} / {seen}" for true, seen in pairs),
        "yes" if unchanged else "**no**",
    ]
    return f"| {' | '.join(cells)} |"


def each(trainings, text) -> str:
    """In an order that no process number decides."""
    return (
        "; ".join(
            text(ranks)
            for ranks in sorted(
                trainings, key=lambda ranks: [(rank.steps, rank.samples) for rank in ranks]
            )
        )
        or "none"
    )


def steps(ranks: list[Rank]) -> str:
    return ", ".join(str(rank.steps) for rank in ranks)


def samples(ranks: list[Rank]) -> str:
    return ", ".join(str(rank.samples) for rank in ranks)


def main(rows: Path) -> None:
    """Print the page from the rows that tests left."""
    import torch

    print(
        TEXT + f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{platform.system()}.\n\n{HEAD}"
    )
    for way in WAYS:
        if (path := rows / slug(way)).exists():
            print(path.read_text())
    not_tried = [f"{way.name} ({', '.join(way.missing)})" for way in WAYS if way.missing]
    if not_tried:
        print(
            f"\nNot tested here, because the packages in parentheses are not installed: "
            f"{'; '.join(not_tried)}."
        )
    print(END, end="")


def slug(way: Way) -> str:
    return way.name.replace("/", " ")


def try_all(rows: Path) -> None:
    """Run every way, two at a time."""
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "-m",
        "long or not long",
        str(Path(__file__).with_name("test_ways.py")),
    ]
    subprocess.run(
        tests, env={**os.environ, "WAYS_ROWS": str(rows)}, stdout=sys.stderr, check=False
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 1:
            try_all(Path(folder))
        main(Path(*sys.argv[1:] or [folder]))
