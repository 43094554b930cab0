"""Feed the reader of Kineto traces broken files: it may refuse them, never crash, hang or fill the memory.

With atheris (libFuzzer, guided by the branches that an input takes) where it is installed, else with a plain random mutator:

    python benchmarks/fuzz_kineto.py --seconds 600 TRACE...

Seeds are the beginnings and ends of the traces named, and a written one.
"""

import argparse
import gzip
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

if atheris:
    with atheris.instrument_imports(include=["feedline.analysis.traces"]):
        from feedline.analysis.traces.kineto.kineto_reader import read_kineto
        from feedline.analysis.traces.trace_columns import TraceLimits
else:
    from feedline.analysis.traces.kineto.kineto_reader import read_kineto
    from feedline.analysis.traces.trace_columns import TraceLimits
from feedline.profiler.errors import TraceDamaged

HANG_S = 10
MOST_MB = 512
LIMITS = TraceLimits(events=1_000_000, inflated_bytes=1 << 26, text_bytes=1 << 26)
SPLICES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"},{",
    b'{"ph":"X"',
    b"\xff",
    b"\n",
    b"1e999",
    b"-",
    b"NaN",
    b"null",
    b"9" * 40,
    b"." * 3,
]
SMALL = b"""{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000, "distributedInfo": {"rank": 1, "world_size": 2, "pg_config":
[{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]}, "deviceProperties": [{"id": 0, "name": "A"}], "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.125, "dur": 1, "args": {"Input Dims": [[2, 3], []],
"Input type": ["float", ""]}}, {"ph": "X", "cat": "Kernel", "name": "nccl", "pid": 0, "tid": "stream 7", "ts": 1712195495519689.047,
"dur": 4, "args": {"stream": 7, "device": 0, "correlation": 9, "Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Seq": 3}},
{"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 6}, {"ph": "E", "pid": 1, "tid": 1, "ts": 9},
{"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}, {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 6}]}"""


def seeds(traces: list[str]) -> list[bytes]:
    """The beginning and the end of each trace with a whole object around them."""
    found = [SMALL]
    for trace in traces:
        text = gzip.decompress(Path(trace).read_bytes())
        begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
        found += [
            b'{"traceEvents": [' + part
            for part in (
                text[begin : begin + 1500],
                text[text.rfind(b"},", 0, len(text) - 1500) + 2 :],
            )
        ]
    return found


class Check:
    """Read one input from a file, packed or not, in pieces of any size."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "trace.json"
        self.runs = self.refused = self.events = 0
        self.slowest = 0.0

    def __call__(self, data: bytes) -> None:
        how, content = (data[0], data[1:]) if data else (0, b"")
        self.path.write_bytes(
            gzip.compress(content, 1)[: -(how >> 4) or None] if how & 1 else content
        )
        begun = time.perf_counter()
        try:
            self.events += len(
                read_kineto(
                    str(self.path), LIMITS, piece=[1 << 19, 16, 100, 700][how >> 1 & 3]
                ).events
            )
        except TraceDamaged:
            self.refused += 1
        self.runs += 1
        self.slowest = max(self.slowest, time.perf_counter() - begun)
        assert self.slowest < HANG_S, f"{self.slowest:.1f} s"
        if self.runs % 1000 == 0:  # libFuzzer leaves the process without a word to Python
            self.say()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        assert peak < MOST_MB, f"{peak} MB"

    def say(self) -> None:
        """One line of what happened."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        read = f"{self.runs:,} files, {self.refused:,} refused, {self.events:,} events"
        print(f"{read}; slowest {self.slowest:.2f} s, peak {peak} MB", flush=True)


def mutated(random_: random.Random, corpus: list[bytes]) -> bytes:
    """A seed with some bytes changed, pieces cut out, repeated, or joined with those of another."""
    data = bytearray(random_.choice(corpus))
    for _ in range(random_.randint(1, 8)):
        at, width = random_.randrange(len(data) + 1), random_.choice((1, 2, 8, 64, 512))
        other = random_.choice(corpus)
        cut = random_.randrange(len(other))
        data[at : at + random_.choice((0, width))] = random_.choice(
            (
                b"",
                random_.choice(SPLICES),
                random_.randbytes(width),
                bytes(data[at : at + width]) * 2,
                other[cut : cut + width],
            )
        )
    return bytes([random_.randrange(256)]) + bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", help="packed traces to begin with")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random", action="store_true", help="do not use atheris")
    options = parser.parse_args()
    corpus = seeds(options.traces)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        check = Check(folder)
        if atheris and not options.random:
            (folder / "corpus").mkdir()
            for number, seed in enumerate(corpus):
                for how in range(8):
                    (folder / "corpus" / f"{number}-{how}").write_bytes(bytes([how]) + seed)
            flags = [
                f"-max_total_time={options.seconds}",
                "-max_len=8192",
                f"-rss_limit_mb={2 * MOST_MB}",
                f"-seed={options.seed + 1}",
            ]
            atheris.Setup(
                [
                    sys.argv[0],
                    str(folder / "corpus"),
                    *flags,
                    f"-timeout={HANG_S}",
                    f"-artifact_prefix={Path.cwd()}/",
                ],
                check,
            )
            atheris.Fuzz()
        random_, until = random.Random(options.seed), time.monotonic() + options.seconds
        while time.monotonic() < until:
            data = mutated(random_, corpus)
            try:
                check(data)
            except BaseException:
                Path("crash-kineto").write_bytes(data)
                print("the input is in crash-kineto", file=sys.stderr)
                raise
        check.say()


if __name__ == "__main__":
    main()
