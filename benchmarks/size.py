"""How large the run folder of 1.28 million samples is, and what its report takes: after a run that ended and after one that was killed.

    python benchmarks/size.py --json out.json

Prints Markdown.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from twins import machine, run, table, write_json

PROGRAM = Path(__file__).parent / "programs" / "many_samples.py"
LIMITS = {"size_bytes": 50e6, "report_s": 10.0, "report_peak_bytes": 500e6}


@dataclass(frozen=True)
class Measured:
    """One run folder.

    Attributes:
        size_bytes: blocks on the disk of all its files, before its report was asked for.
        apparent_bytes: the lengths of its files.
        report_s, report_cpu_s, report_peak_bytes: of `feedline report RUN -o report.html`.
    """

    name: str
    batches: int
    size_bytes: int
    apparent_bytes: int
    report_s: float
    report_cpu_s: float
    report_peak_bytes: int
    html_bytes: int


def record(folder: Path, samples: int, batch: int, workers: int, kill: bool) -> None:
    """Run the training under feedline in a process group of its own; with ``kill`` SIGKILL the
    group when 99 % is through.
    """
    nearly = folder / "nearly-done"
    program = [
        str(PROGRAM),
        "--samples",
        str(samples),
        "--batch",
        str(batch),
        "--workers",
        str(workers),
        "--nearly-done",
        str(nearly),
    ]
    command = [sys.executable, "-m", "feedline", "run", "-q", "-o", str(folder / "run"), *program]
    process = subprocess.Popen(command, cwd=folder, start_new_session=True)
    while kill and process.poll() is None:
        if nearly.exists():
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    code = process.wait()
    if code != (-signal.SIGKILL if kill else 0):
        raise SystemExit(f"the training ended with exit code {code}")


def measure(name: str, samples: int, batch: int, workers: int, kill: bool) -> Measured:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        record(folder, samples, batch, workers, kill)
        files = [path.stat() for path in (folder / "run").rglob("*") if path.is_file()]
        size, apparent = (
            sum(one.st_blocks * 512 for one in files),
            sum(one.st_size for one in files),
        )
        html = folder / "report.html"
        ended = run(
            [sys.executable, "-m", "feedline", "report", str(folder / "run"), "-o", str(html)],
            folder,
        )
        if ended.exit_code != 0:
            raise SystemExit(f"feedline report ended with exit code {ended.exit_code}")
        return Measured(
            name,
            samples // batch,
            size,
            apparent,
            ended.wall_s,
            ended.cpu_s,
            ended.peak_bytes,
            html.stat().st_size,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1_280_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for batch, workers, kill in ((256, 4, False), (32, 4, False), (32, 4, True), (32, 0, False)):
        name = f"batches of {batch}, {workers} workers" + (", killed after 99 %" if kill else "")
        found.append(measure(name, args.samples, batch, workers, kill))
        print(found[-1], file=sys.stderr, flush=True)
    head = [
        "run",
        "batches",
        "run folder, MB on disk",
        "MB as files",
        "report, wall s",
        "report, CPU s",
        "report, peak MB",
        "HTML, MB",
    ]
    rows = [head]
    for one in found:
        sizes = [f"{one.size_bytes / 1e6:.1f}", f"{one.apparent_bytes / 1e6:.1f}"]
        times = [
            f"{one.report_s:.1f}",
            f"{one.report_cpu_s:.1f}",
            f"{one.report_peak_bytes / 1e6:.0f}",
            f"{one.html_bytes / 1e6:.2f}",
        ]
        rows.append([one.name, f"{one.batches:,}", *sizes, *times])
    rows.append(
        [
            "limit",
            "",
            f"{LIMITS['size_bytes'] / 1e6:.0f}",
            "",
            f"{LIMITS['report_s']:.0f}",
            "",
            f"{LIMITS['report_peak_bytes'] / 1e6:.0f}",
            "",
        ]
    )
    print(f"{machine()}, {args.samples:,} samples\n\n{table(rows)}")
    write_json(args.json, limits=LIMITS, runs=[vars(one) for one in found])


if __name__ == "__main__":
    main()
