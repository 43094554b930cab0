"""Traces of eight ranks, and one of 500 MB: how long and how much memory, beside Holistic Trace Analysis and traceinsight.

    python benchmarks/ingest_speed.py TRACE.json.gz --peer hta=/tmp/hta/bin/python --peer traceinsight=/tmp/ti/bin/python --json out.json

TRACE, which must hold communication, is repeated end to end (``--repeat``) for each of eight ranks. A peer is the Python of an environment
of its own that has it (``pip install HolisticTraceAnalysis 'pandas<3'``, ``pip install traceinsight``); it loads all ranks and works out
temporal breakdown, overlap and idle time (programs/trace_peer.py), as programs/trace_figures.py does with feedline; ``feedline ingest``
also keeps the traces in a run folder and writes its reports. All take turns.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from twins import Ended, Estimate, in_turns, machine, table, wait_for_quiet, write_json

RANKS = 8
PROGRAMS = Path(__file__).resolve().parent / "programs"
PEER, FIGURES = PROGRAMS / "trace_peer.py", PROGRAMS / "trace_figures.py"
SAME, WHOLE = "feedline, the same figures", "feedline ingest, with reports"
READ = (
    "import sys; from feedline.analysis.traces.kineto.kineto_reader import read_kineto; "
    "print(len(read_kineto(sys.argv[1]).events))"
)


def repeated(trace: dict[str, Any], times: int, rank: int) -> dict[str, Any]:
    """A trace so many times one after the other, as one rank."""
    timed = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") != "Trace"
    ]
    others = [event for event in trace["traceEvents"] if event.get("ph") == "M"]
    begin = min(event["ts"] for event in timed)
    length = max(event["ts"] + event.get("dur", 0) for event in timed) - begin + 1000
    most = (
        max((event["args"].get("correlation", 0) for event in timed if "args" in event), default=0)
        + 1
    )
    events = list(others)
    for number in range(times):
        for event in timed:
            args = dict(event.get("args", {}))
            if "correlation" in args:
                args["correlation"] += number * most
            name = event["name"]
            if name.startswith("ProfilerStep#"):
                name = f"ProfilerStep#{int(name.split('#')[1]) + number * 1000}"
            events.append(
                {**event, "name": name, "ts": event["ts"] + number * length, "args": args}
            )
    info = {
        **trace.get("distributedInfo", {}),
        "backend": "nccl",
        "rank": rank,
        "world_size": RANKS,
    }
    return {**trace, "distributedInfo": info, "traceEvents": events}


def measure(how: str, peers: dict[str, str], folder: Path) -> Ended:
    """One command to its end."""
    if how == SAME:
        command = [sys.executable, str(FIGURES), str(folder / "ranks")]
    elif how == WHOLE:
        files = sorted(str(path) for path in (folder / "ranks").glob("*.json.gz"))
        command = [
            sys.executable,
            "-m",
            "feedline",
            "ingest",
            *files,
            "-o",
            str(folder / "run"),
            "-f",
            "-q",
            "--json",
            str(folder / "r.json"),
        ]
    elif how == "feedline, one large":
        command = [sys.executable, "-c", READ, str(folder / "large" / "rank0.json")]
    else:
        command = [peers[how], str(PEER), str(folder / "ranks")]
    ended = watched(command, folder)
    if ended.exit_code:
        sys.exit(f"{' '.join(command)}: exit code {ended.exit_code}")
    return ended


def watched(command: list[str], folder: Path) -> Ended:
    """Run a command;

    CPU seconds and resident memory are those of all processes that it starts, looked at every 20
    ms.
    """
    start = time.perf_counter()
    process = psutil.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    cpu: dict[int, float] = {}
    peak = 0
    while process.poll() is None:
        resident = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                times = one.cpu_times()
                cpu[one.pid] = times.user + times.system
                resident += one.memory_info().rss
            except psutil.Error:
                continue
        peak = max(peak, resident)
        time.sleep(0.02)
    return Ended(process.returncode, time.perf_counter() - start, sum(cpu.values()), peak)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--large-mb", type=int, default=500)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    peers = dict(peer.split("=", 1) for peer in args.peer)
    trace = json.loads(gzip.open(args.trace).read(), strict=False)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "ranks").mkdir()
        for rank in range(RANKS):
            text = json.dumps(repeated(trace, args.repeat, rank)).encode()
            (folder / "ranks" / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, 5))
        mb = len(text) / 1e6
        (folder / "large").mkdir()
        large = json.dumps(repeated(trace, max(1, round(args.large_mb / mb * args.repeat)), 0))
        (folder / "large" / "rank0.json").write_text(large)
        load = wait_for_quiet(0.7, 120.0)
        names = [SAME, WHOLE, *peers, "feedline, one large"]
        rounds = list(in_turns(names, lambda how: measure(how, peers, folder), args.rounds))
    rows = [
        [
            "",
            "wall s",
            "CPU s",
            "peak MB of all processes",
            "wall of feedline",
            "CPU of feedline",
            "memory of feedline",
        ]
    ]
    for name in names:
        mine = [one[name] for one in rounds]
        medians = [
            statistics.median(values)
            for values in zip(*((e.wall_s, e.cpu_s, e.peak_bytes / 1e6) for e in mine), strict=True)
        ]
        pairs = [(one[name], one[SAME]) for one in rounds]
        times = [
            Estimate.of([a / b for a, b in found]).text() + " x"
            for found in ([(x.wall_s, y.wall_s) for x, y in pairs], [(x.cpu_s, y.cpu_s) for x, y in pairs],
                          [(x.peak_bytes, y.peak_bytes) for x, y in pairs])
        ]  # fmt: skip
        label = f"{name} ({len(large) / 1e6:.0f} MB)" if name.endswith("large") else name
        rows.append(
            [
                label,
                *(f"{value:.3g}" for value in medians),
                *(times if name in peers else ("", "", "")),
            ]
        )
    print(
        f"{RANKS} ranks of {mb:.0f} MB each, {args.rounds} rounds, load {load:.1f}\n{table(rows)}"
    )
    write_json(
        args.json,
        machine=machine(),
        mb=mb,
        load=load,
        rounds=[{name: vars(e) for name, e in one.items()} for one in rounds],
    )


if __name__ == "__main__":
    main()
