"""How often does feedline name the fault? Small real trainings with planted faults, their twins without, and healthy trainings.

    python benchmarks/fault_suite.py [--only NAME,...] [--repeat 3] [--rounds 3] [--json faults.json] > docs/measured/faults.md

Each is recorded with ``feedline run`` and run plainly, with its fault and without, in turns. What is in the JSON file already is kept: an
interrupted suite continues. Quotas, slow disks and links need root. Prints Markdown.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from faults import bench, tables
from faults.bench import Recorded
from faults.cases import FAULTS, WELL, Fault, Healthy, Side
from faults.conditions import Unavailable
from faults.judge import Judged
from faults.results import OfFault, Results

MEASURES = ("faults", "twins", "gains", "healthy")


def fill(of: OfFault, fault: Fault, cache: Path, given: argparse.Namespace) -> None:
    """Measure what is missing."""
    for what, side, runs in (("faults", fault.fault, of.recorded), ("twins", fault.twin, of.twins)):
        if what in given.measure:
            repeat(fault, side, runs, cache, given, f"{fault.name}-{what}")
    for one in of.recorded if "gains" in given.measure else ():
        judged = Judged(fault.name, fault.expected, fault.names, one)
        if judged.finding and of.gain(judged.settings) is None:
            of.gains.append(bench.gain(fault, cache, judged.settings, given.rounds))


def repeat(
    case: Fault | Healthy,
    side: Side,
    runs: list[Recorded],
    cache: Path,
    given: argparse.Namespace,
    name: str,
) -> None:
    """Record it as often as asked for; read again what was kept, if that is asked for."""
    for number in range(max(given.repeat, len(runs))):
        kept = given.runs / f"{name}-{number}" if given.runs else None
        if number >= len(runs):
            runs.append(bench.record(case, side, cache, kept))
        elif given.read_again and kept and kept.exists():
            runs[number] = bench.read_again(kept, runs[number].timed)


def tell(fault: Fault, results: Results) -> None:
    """One line on the way."""
    for one in results.judged([fault]):
        ratio = f"{one.ratio.median:.2f}x" if one.ratio else ""
        print(
            "right" if one.first else "among" if one.among else "WRONG",
            fault.name,
            one.told,
            ratio,
            file=sys.stderr,
            flush=True,
        )


def measure(
    faults: Sequence[Fault], healthy: Sequence[Healthy], cache: Path, given: argparse.Namespace
) -> Results:
    results = Results.read(given.json)
    for fault in faults:
        try:
            fill(results.faults.setdefault(fault.name, OfFault()), fault, cache, given)
            tell(fault, results)
        except (bench.Failed, Unavailable) as error:
            results.problems[fault.name] = str(error)
            print("failed", fault.name, error, file=sys.stderr, flush=True)
        results.write(given.json)
    for well in healthy if "healthy" in given.measure else ():
        runs = results.healthy.setdefault(well.name, [])
        repeat(well, well.side, runs, cache, given, well.name)
        print(
            "healthy",
            well.name,
            [(one.rule_id, one.severity) for one in runs[-1].findings],
            file=sys.stderr,
            flush=True,
        )
        results.write(given.json)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="names of faults and healthy trainings, separated by commas"
    )
    parser.add_argument("--repeat", type=int, default=3, help="recordings of each")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of plain runs of each fault")
    parser.add_argument(
        "--measure", default=",".join(MEASURES), help=f"any of {', '.join(MEASURES)}"
    )
    parser.add_argument("--cache", type=Path, help="keep the files of the trainings here")
    parser.add_argument("--runs", type=Path, help="keep the run folders here")
    parser.add_argument(
        "--read-again",
        action="store_true",
        help="judge what feedline says now of the run folders that were kept",
    )
    parser.add_argument("--json", type=Path, help="keep what was measured here")
    given = parser.parse_args()
    wanted = [name for name in given.only.split(",") if name]
    faults = [fault for fault in FAULTS if not wanted or fault.name in wanted]
    healthy = [well for well in WELL if not wanted or well.name in wanted]
    with tempfile.TemporaryDirectory() as name:
        cache, given.runs = (
            (given.cache or Path(name)).resolve(),
            given.runs and given.runs.resolve(),
        )
        cache.mkdir(parents=True, exist_ok=True)
        results = measure(faults, healthy, cache, given)
    print(tables.page(results, faults, healthy), end="")


if __name__ == "__main__":
    main()
