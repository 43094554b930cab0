"""What NVTX ranges cost per range: with a tool that does nothing, and without a tool (one ``is None`` check).

    python benchmarks/nvtx_ranges.py

Prints the minimum and the median of 20 repeats, in nanoseconds, less the empty loop. Needs gcc for the tool with a tool.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import timeit

from feedline.profiler import nvtx_ranges

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tests" / "nvtx" / "tool.c"
CALLS, REPEATS = 100_000, 20


def measure(name: str, statement: str, **names: object) -> None:
    empty = min(timeit.repeat("pass", number=CALLS, repeat=REPEATS))
    times = [
        (t - empty) / CALLS * 1e9
        for t in timeit.repeat(statement, globals=names, number=CALLS, repeat=REPEATS)
    ]
    print(f"{name:44s} min {min(times):7.1f} ns   median {statistics.median(times):7.1f} ns")


def with_tool() -> None:
    ranges = nvtx_ranges.ranges()
    assert ranges is not None, nvtx_ranges._why_not_listening()
    measure("push + pop, a tool that does nothing", "r.push('read'); r.pop()", r=ranges)
    measure("push with payload + pop, the same tool", "r.push('read', 4096); r.pop()", r=ranges)


def main() -> None:
    measure(
        "no tool: `if ranges is not None`",
        "if r is not None: r.push('read')",
        r=nvtx_ranges.ranges(),
    )
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "tool.so"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, TOOL], check=True)
        environment = {**os.environ, nvtx_ranges._INJECTION: str(library)}
        environment.pop("NVTX_TOOL_LOG", None)
        subprocess.run([sys.executable, __file__, "--with-tool"], check=True, env=environment)


if __name__ == "__main__":
    with_tool() if sys.argv[1:] == ["--with-tool"] else main()
