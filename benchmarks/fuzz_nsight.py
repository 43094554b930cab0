"""Damages exports of Nsight Systems and reads them: nothing but a trace or TraceDamaged may come of it, in bounded time and memory.

    python benchmarks/fuzz_nsight.py --seconds 600

Under atheris, where it is installed, inputs that reach new lines of the reader are kept and changed further; without it they are drawn at
random. An input is a list of orders: which cells of which tables hold what, which bytes of the file are then overwritten, where it is cut.
"""

import argparse
import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

MOST_S = 10.0  # for a file of some ten thousand bytes
TOLD_EVERY = 1_000  # files
MOST_BYTES = 1 << 30  # that the process may grow by
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz_nsight"))
TABLES = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId streamId correlationId globalPid "
    "demangledName shortName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid "
    "bytes memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId "
    "globalPid syncType",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId streamId correlationId "
    "globalPid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType text globalTid textId domainId int64Value uint64Value "
    "jsonText jsonTextId",
    "OSRT_API": "start end globalTid nameId",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid",
    "PROFILER_OVERHEAD": "start end globalTid nameId",
    "ThreadNames": "nameId globalTid",
    "PROCESSES": "globalPid pid name",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_GPU": "id name",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
}
VALUES: list[object] = [
    *(
        0,
        1,
        -1,
        2,
        7,
        39,
        59,
        60,
        67,
        75,
        34,
        100,
        281477392629760,
        281477392629904,
        2**31,
        2**62,
        2**63 - 1,
        -(2**63),
        1.5,
        1e300,
    ),
    *(
        None,
        "",
        "x",
        "12",
        "aten::mm, seq = 4, op_id = 12, sizes = [[10], [32, 64]]",
        "nccl:all_reduce, op_id = 4",
        ", sizes = [[",
    ),
    *(
        "ncclGroupEnd",
        "NCCL",
        "ncclAllReduce",
        "ncclSend",
        "ncclCommInitRank",
        "ncclGroupStart",
        "ncclDevKernel_AllReduce",
        "MPI Rank 3",
    ),
    *(
        "feedline",
        "RANK=2;WORLD_SIZE=4",
        '{"No. of ranks": 8, "Rank": 3, "NCCL communicator ID": 5}',
        '{"Message size [bytes]": 4096}',
    ),
    *(
        "[" * 5000,
        b"\xff\xfe",
        b"\0" * 9,
        "true",
        "EXPORT_PARAM_TIME_NORMALIZE",
        "DeviceEnvironment",
        "PROCESS_0:ENVIRONMENT_VARIABLE",
    ),
]


class Bytes:
    """Numbers drawn from bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, limit: int) -> int:
        some = self._data[self._at : self._at + (1 if limit <= 256 else 3)]
        self._at += len(some)
        return int.from_bytes(some, "little") % limit

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def written(orders: Bytes, path: Path) -> None:
    """Make the file that an input stands for."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    left_out = orders.below(len(TABLES) * 2)
    for number, (table, columns) in enumerate(TABLES.items()):
        names = columns.split()
        if number == left_out:
            continue
        if orders.below(16) == 15:
            names = names[: 1 + orders.below(len(names))]
        connection.execute(f"CREATE TABLE {table} ({', '.join(names)})")
        for _ in range(orders.below(6)):
            row = [
                VALUES[orders.below(len(VALUES))] if orders.below(3) == 0 else orders.below(60)
                for _ in names
            ]
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", row)
    connection.execute("COMMIT")
    connection.close()
    content = bytearray(path.read_bytes())
    for _ in range(orders.below(8) if orders.below(2) else 0):
        at = orders.below(len(content))
        content[at : at + 1] = bytes([orders.below(256)])
    if orders.below(20) == 19:
        del content[orders.below(len(content)) :]
    path.write_bytes(content)


def one(data: bytes) -> None:
    """Read one damaged file. Whatever else it raises ends the fuzzing."""
    path = FOLDER / "fuzzed.sqlite"
    written(Bytes(data), path)
    began = time.monotonic()
    try:
        for trace in read_nsight(str(path)):
            assert (trace.events["wall"] >= 0).all()
            assert not len(trace.events) or trace.events["name"].max() < len(trace.names)
        COUNTS["read"] += 1
    except TraceDamaged:
        COUNTS["refused"] += 1
    took = time.monotonic() - began
    COUNTS["slowest_ms"] = max(COUNTS["slowest_ms"], round(took * 1e3))
    assert took < MOST_S, f"{took:.1f} s"
    if (COUNTS["read"] + COUNTS["refused"]) % TOLD_EVERY == 0:
        told()


def told() -> None:
    """libFuzzer ends the process without a word of Python's, so this is said on the way."""
    print(
        COUNTS,
        f"largest {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB",
        flush=True,
    )


def drawn(seconds: float, seed: int) -> None:
    """Without atheris: inputs at random."""
    random_state, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        data = random_state.randbytes(random_state.randrange(2_000))
        try:
            one(data)
        except BaseException:
            print(f"input: {data.hex()}")
            raise


def seeds(seed: int) -> str:
    """A folder of first inputs, long enough that every table has rows."""
    random_state, folder = random.Random(seed), FOLDER / "seeds"
    folder.mkdir()
    for number in range(64):
        (folder / str(number)).write_bytes(random_state.randbytes(1_500))
    return str(folder)


def bounded() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, held + MOST_BYTES))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    bounded()
    if atheris is None:
        drawn(args.seconds, args.seed)
    else:
        flags = [
            f"-max_total_time={args.seconds:.0f}",
            f"-seed={args.seed}",
            "-max_len=4000",
            "-timeout=20",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *flags, seeds(args.seed)], one)
        atheris.Fuzz()


COUNTS = {"read": 0, "refused": 0, "slowest_ms": 0}
if atheris is None:
    from feedline.analysis.traces.nsight.nsight_reader import read_nsight
    from feedline.profiler.errors import TraceDamaged
else:
    with atheris.instrument_imports(include=["feedline.analysis.traces"]):
        from feedline.analysis.traces.nsight.nsight_reader import read_nsight
        from feedline.profiler.errors import TraceDamaged

if __name__ == "__main__":
    main()
    told()
