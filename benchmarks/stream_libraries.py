"""Small trainings on streams of ten libraries: are feedline's counts and verdicts right?

    python benchmarks/stream_libraries.py > docs/measured/streams.md

Each library has a training that is healthy, one that is split wrongly (each worker or rank delivers
the same), and one that is starved (fewer shards than workers, or too slow a source). The program
counts its own samples (programs/stream_training.py); feedline has to count as many, to say how
often each sample comes, and to name the cause first. Prints Markdown. Libraries that are not
installed stand as missing.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
sys.path.insert(0, str(PROGRAMS))

from faults.bench import Failed, variables  # noqa: E402
from stream_sources import CASES, HEALTHY, SAME, SOURCES, STARVED  # noqa: E402
from twins import machine, table, write_json  # noqa: E402

PROGRAM = PROGRAMS / "stream_training.py"
LIMIT_S = 120.0
#: Their parts go to ranks, so wrongly split means that two ranks train on the same.
OF_RANKS = ("datasets_rows", "nodes", "torchrl", "ray", "grain")
#: A library -> its name, the package whose version is told, and what starves it.
NAMES = {
    "torch": ("torch's IterableDataset", "torch", "1 file for 2 workers"),
    "webdataset": ("webdataset", "webdataset", "1 tar for 2 workers"),
    "datasets": ("Hugging Face, streams", "datasets", "1 shard for 2 workers"),
    "datasets_rows": ("Hugging Face, by index", "datasets", "1 worker, slow samples"),
    "litdata": ("LitData", "litdata", "1 worker, slow samples"),
    "streaming": ("MosaicML Streaming", "mosaicml-streaming", "1 worker, slow samples"),
    "stateful": ("torchdata, StatefulDataLoader", "torchdata", "1 file for 2 workers"),
    "nodes": ("torchdata, nodes", "torchdata", "1 thread, slow samples"),
    "torchrl": ("torchrl, ReplayBuffer", "torchrl", "no prefetch, slow samples"),
    "ray": ("Ray Data", "ray", "1 actor, slow samples"),
    "grain": ("Grain", "grain", "1 worker, slow samples"),
}
#: What the first finding of a starved training may be.
_PARTS = ("workers_without_data",)
_SLOW = ("too_few_workers", "blocked", "user_code")
_ELSEWHERE = ("input_bound_unexplained",)
STARVED_BY = {
    **dict.fromkeys(("torch", "webdataset", "datasets", "stateful"), _PARTS),
    **dict.fromkeys(("datasets_rows", "litdata", "streaming"), _SLOW),
    **dict.fromkeys(("nodes", "torchrl", "ray", "grain"), _ELSEWHERE),
}
SAME_DATA = ("same_samples", "same_data", "whole_data_on_every_rank")
#: Of what else runs on this machine, which is true and not looked at.
OF_MACHINE = ("busy_neighbors",)
#: What is said of a training whose input is no cause.
NO_CAUSE = ("compute_bound", "gpu_bound", "borderline_input", "too_short", "own_code")


@dataclass(frozen=True)
class Counts:
    """Samples that a training has seen.

    Attributes:
        samples: of rank 0.
        different: of all ranks.
    """

    samples: int
    different: int


@dataclass(frozen=True)
class Told:
    """What feedline says of a training.

    Attributes:
        causes: of its findings and of its checks of set-up, most important first.
        fixes: a cause -> what is advised first.
    """

    counts: Counts
    causes: list[str]
    fixes: dict[str, str]


@dataclass(frozen=True)
class Outcome:
    library: str
    case: str
    true: Counts
    told: Told

    @property
    def counted(self) -> bool:
        """Whether both counts are exact."""
        return self.true == self.told.counts

    @property
    def right(self) -> bool:
        """Whether the cause is named first, or among the first, where there is more than one."""
        if self.case == HEALTHY:
            return {*self.told.causes[:1]} <= {*NO_CAUSE}
        return self.cause in (self.told.causes if self.told_late else self.told.causes[:1])

    @property
    def cause(self) -> str:
        """The cause that was told, if it is the planted one; else empty."""
        wanted = SAME_DATA if self.case == SAME else STARVED_BY[self.library]
        return next((cause for cause in self.told.causes if cause in wanted), "none")

    @property
    def told_late(self) -> bool:
        """Whether slow samples, which are as true, may be named before the cause."""
        return self.case == STARVED and STARVED_BY[self.library] == _PARTS


def outcome(library: str, case: str, folder: Path, again: bool) -> Outcome:
    """Run a training under feedline, with two ranks where its data is split between ranks.

    Args:
        again: only read what an earlier run left.

    Raises:
        Failed: it did not end well.
    """
    ranks = 2 if case == SAME and library in OF_RANKS else 1
    counts, report = folder / "counts.json", folder / "report.json"
    if not again:
        run(library, case, folder, ranks, report)
    if not report.exists():
        raise Failed(f"{library}, {case}: no report")
    told = told_of(json.loads(report.read_text()), ranks)
    return Outcome(library, case, Counts(**json.loads(counts.read_text())), told)


def run(library: str, case: str, folder: Path, ranks: int, report: Path) -> None:
    """Run it to its end.

    Raises:
        Failed: it did not end well.
    """
    how = ["run", "-q", "-f", "-o", str(folder / "run"), "--json", str(report)]
    command = [sys.executable, "-m", "feedline", *how, str(PROGRAM), library, case]
    started, logs = [], [folder / f"{rank}.log" for rank in range(ranks)]
    for rank, log in enumerate(logs):
        own = variables(rank, ranks) if ranks > 1 else {}
        own |= {"STREAM_COUNTS": str(folder / f"counts{rank or ''}.json"), "OMP_NUM_THREADS": "1"}
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(
                    [*command, str(folder.parent / library)],
                    cwd=folder,
                    env={**os.environ, "HF_HUB_OFFLINE": "1", **own},
                    stdout=out,
                    stderr=out,
                )
            )
    try:
        codes = [process.wait(LIMIT_S) for process in started]
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{library}, {case}: it took more than {LIMIT_S:g} s") from error
    finally:
        for process in started:
            process.kill()
    if any(codes):
        raise Failed(logs[0].read_text(errors="replace")[-2000:])


def told_of(report: dict[str, Any], ranks: int) -> Told:
    """Read what a report says of the samples, and of the cause."""
    samples = sum(
        loader["samples"] or 0 for loader in report["loaders"] if loader["role"] == "training"
    )
    checks = (report["convergence"] or {}).get("checks", [])
    findings = [*(one for one in checks if one["cause"] in SAME_DATA), *report["findings"]]
    findings = [one for one in findings if one["cause"] not in OF_MACHINE]
    causes = [finding["cause"] for finding in findings]
    times = 1
    if causes[:1] == ["same_samples"]:
        times = next(one["value"] for one in findings[0]["evidence"] if one["id"] == "times")
    different = samples // times if {*causes} & {*SAME_DATA} else samples * ranks
    fixes = {one["cause"]: one["fix"] for one in findings}
    return Told(Counts(samples, different), causes, fixes)


def write(library: str, folder: Path) -> None:
    """Write the files of a library.

    Raises:
        Failed: it could not.
    """
    if SOURCES[library][1] is None or (folder / library).exists():
        return
    command = [sys.executable, str(PROGRAM), library, HEALTHY, str(folder / library), "--write"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Failed(ended.stderr[-2000:])


HEAD = (
    "library",
    "training",
    "samples",
    "told",
    "different",
    "told",
    "findings, in order",
    "right",
)


def row(outcome: Outcome) -> list[str]:
    """Return the row of the table."""
    name, _, starved = NAMES[outcome.library]
    what = {HEALTHY: "healthy", STARVED: starved, SAME: "split wrongly"}[outcome.case]
    if outcome.case == SAME:
        what += ": ranks" if outcome.library in OF_RANKS else ": workers"
    true, counted = outcome.true, outcome.told.counts
    return [
        name,
        what,
        str(true.samples),
        str(counted.samples),
        str(true.different),
        str(counted.different),
        ", ".join(f"`{cause}`" for cause in dict.fromkeys(outcome.told.causes)) or "nothing",
        "yes" if outcome.right and outcome.counted else "**no**",
    ]


def page(outcomes: list[Outcome], missing: list[str], failed: list[str]) -> str:
    right = sum(outcome.right and outcome.counted for outcome in outcomes)
    exact = sum(outcome.counted for outcome in outcomes)
    versions = {
        package: importlib.metadata.version(package)
        for library, (_, package, _) in NAMES.items()
        if library not in missing
    }
    lines = [
        "# Streams of ten libraries",
        "",
        "    " + "python benchmarks/stream_libraries.py",
        "",
        "A small training on each: healthy, split wrongly (each worker or each of two ranks delivers "
        "the same), and",
        "starved. Each counts its own samples. A row is right if both counts are exact and the cause "
        "is named first. Where",
        "a part is missing, slow samples (they sleep) are as true, and may come first. Findings "
        "about other programs on the",
        "machine are left out: other work ran on it.",
        f"{right} of {len(outcomes)} are; counts are exact in {exact}. "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        + f"; {machine()['cpu']}.",
        "",
        table([HEAD, *map(row, outcomes)]),
    ]
    if missing:
        names = ", ".join(NAMES[library][0] for library in missing)
        lines += ["", f"Not installed, so not measured: {names}."]
    lines += [f"\nNot measured: {reason}" for reason in failed]
    fixes = {
        f"- {NAMES[outcome.library][0]}, {outcome.case}: {outcome.told.fixes[outcome.cause]}"
        for outcome in outcomes
        if outcome.case != HEALTHY and outcome.cause in outcome.told.fixes
    }
    return "\n".join([*lines, "", "What is advised against the cause:", "", *sorted(fixes)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="libraries whose name matches, such as 'ray|grain'"
    )
    parser.add_argument("--cases", default="", help="cases whose name matches")
    parser.add_argument("--kept", type=Path, help="folder where the run folders stay")
    parser.add_argument("--read-again", action="store_true", help="only read what is in --kept")
    parser.add_argument("--json", type=Path, help="every figure")
    given = parser.parse_args()
    outcomes, missing, failed = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        root = given.kept or Path(scratch)
        for library in [name for name in SOURCES if re.search(given.only, name)]:
            if importlib.util.find_spec(SOURCES[library][0]) is None:
                missing.append(library)
                continue
            try:
                if not given.read_again:
                    write(library, root)
                for case in [name for name in CASES if re.search(given.cases, name)]:
                    folder = root / f"{library}-{case}"
                    folder.mkdir(parents=True, exist_ok=True)
                    one = outcome(library, case, folder, given.read_again)
                    outcomes.append(one)
                    said = (library, case, one.right, one.true, one.told)
                    print(*said, sep="\n  ", file=sys.stderr, flush=True)
            except Failed as error:
                failed.append(f"{NAMES[library][0]}: {str(error).splitlines()[-1]}")
                print(library, error, sep="\n", file=sys.stderr, flush=True)
    write_json(given.json, outcomes=[asdict(outcome) for outcome in outcomes])
    print(page(outcomes, missing, failed))


if __name__ == "__main__":
    main()
