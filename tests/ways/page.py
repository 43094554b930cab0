"""docs/ways-to-start.md: each way to start a training, and what feedline saw of it.

python tests/ways/page.py > docs/ways-to-start.md
"""

import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from warm_python import MODULES, WarmPython  # noqa: E402
from ways.bench import Bench, Both, Rank, differences  # noqa: E402
from ways.table import WAYS  # noqa: E402
from ways.way import Way  # noqa: E402

TEXT = """\
# Ways to start a training

Each command below starts small trainings that count themselves (`tests/ways/programs`), once with feedline and once without. What was there
and what feedline recorded of it are compared process by process: trainings, the ranks of each, their steps and their samples. Exit code,
standard output and the trained parameters must be the same both times. `scripts/test` runs the quick ones, `scripts/test-long` all of them,
and `python tests/ways/page.py > docs/ways-to-start.md` writes this page.

Cells hold `true / seen`; trainings are divided by a semicolon, ranks by a comma.

"""
HEAD = "| way | command | trainings | ranks | steps | samples | unchanged |\n|---|---|---|---|---|---|---|"


def row(way: Way, both: Both) -> str:
    """A line of the table."""
    pairs = [
        (str(len(both.true)), str(len(both.seen))),
        (each(both.true, lambda ranks: str(len(ranks))), each(both.seen, lambda ranks: str(len(ranks)))),
        (each(both.true, steps), each(both.seen, steps)),
        (each(both.true, samples), each(both.seen, samples)),
    ]
    unchanged = not [text for text in differences(way, both) if not text.startswith("seen")]
    cells = [way.name, f"`{way.recorded}`", *(f"{true} / {seen}" for true, seen in pairs), "yes" if unchanged else "**no**"]
    return f"| {' | '.join(cells)} |"


def each(trainings, text) -> str:
    """In an order that no process number decides."""
    return "; ".join(text(ranks) for ranks in sorted(trainings, key=lambda ranks: [(rank.steps, rank.samples) for rank in ranks])) or "none"


def steps(ranks: list[Rank]) -> str:
    return ", ".join(str(rank.steps) for rank in ranks)


def samples(ranks: list[Rank]) -> str:
    return ", ".join(str(rank.samples) for rank in ranks)


def main() -> None:
    import torch

    warm = WarmPython(*MODULES)
    missing = {way.name: way.missing for way in WAYS if way.missing}
    print(TEXT + f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}.\n\n{HEAD}")
    for way in WAYS:
        if way.name not in missing:
            with tempfile.TemporaryDirectory() as folder:
                both = Bench(Path(folder), warm).run(way)
            print(row(way, both), flush=True)
            print(way.name, *differences(way, both), sep="\n    ", file=sys.stderr)
    warm.close()
    if missing:
        print(
            "\nNot tried, for something is not installed: "
            + "; ".join(f"{name} ({', '.join(what)})" for name, what in missing.items())
            + "."
        )


if __name__ == "__main__":
    main()
