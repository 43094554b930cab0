"""Are the ceilings true? The probes against fio and against bare loops, in turns on the same file, images and matrices.

    python benchmarks/probe_truth.py --data data/photos --folder . --json probe_truth.json

Storage against fio (Debian package fio) on the same file with the same blocks: cold, where the file's pages are dropped before either, and
warm. Both read by processes, into a buffer that begins with a page, and keep a mapping as long as they read; fio gives the kernel no advice
where the probe gives none. Decoding, copying and multiplying against a loop that anybody would write.

A ratio of 1 means that both found the same rate; its interval is a bootstrap over the pairs. "Drift" is by how much fio, or the bare loop,
differs from its own previous run (median): no comparison can be finer than this without many pairs.
"""

import argparse
import io
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from twins import Estimate, in_turns, table, wait_for_quiet, write_json

from feedline.pipelines.photos import scan
from feedline.pipelines.probes import compute, decoders, device_copy, read_speed
from feedline.pipelines.probes.probe_rounds import ProbePlan, Workload, on_one_core, run_round
from feedline.pipelines.probes.read_speed import ADVISED, MMAP, READ, _Readers, _start_readers

MIB = 1 << 20
SIZE = 512 * MIB
SECONDS = 0.5  # of each side in each pair, at least, where a pass can be repeated
READERS = (1, 4)
REST = (
    1 / 256e6
)  # seconds a byte, before a cold pass: a rented disk lends a burst and then a third of it until it has rested
FIO_ENGINE = {READ: "psync", MMAP: "mmap", ADVISED: "mmap"}
Rate = Callable[[], float]


class Pair(NamedTuple):
    """Two ways to measure one rate, and how near they should be."""

    name: str
    probe: Rate
    bare: Rate
    goal: float


def storage_pairs(file: Path, pool: _Readers) -> Iterator[Pair]:
    """Every way of reading that fio has as well."""
    patterns = (
        ("sequential", MIB, (READ, MMAP)),
        ("random 4 KiB", 4096, (READ, ADVISED)),
        ("random 64 KiB", 65536, (READ,)),
    )
    for cache, (pattern, block, hows), number in itertools.product(
        ("cold", "warm"), patterns, READERS
    ):
        for how in hows:
            way = read_speed._ReadMode(pattern, how, cache, number, block)
            yield Pair(way.name, partial(probe, file, way, pool), partial(fio, file, way), 0.10)


def probe(file: Path, way: read_speed._ReadMode, pool: _Readers) -> float:
    """B/s of the probe."""
    rest(file, way)
    with open(file, "rb") as opened:
        work = read_speed._pattern_workload(
            opened.fileno(),
            SIZE,
            way,
            ProbePlan(seconds=10.0 if way.cache == "cold" else SECONDS),
            pool,
        )
        return rate_of(work, 0.0)()


def fio(file: Path, way: read_speed._ReadMode) -> float:
    """B/s of fio for the same way, by as many processes.

    Each reads from a stretch of its own, as the probe's readers do. With an offset, fio's mmap
    engine (3.33) reads the start of the file in every process: there it gets its stretch as a file,
    or for random places the whole file, where two seldom take the same 4 KiB.
    """
    span_bytes = rest(file, way)
    in_order = way.pattern == "sequential"
    apart = in_order and way.how == MMAP and way.readers > 1
    parts = way.readers if in_order or way.how == READ else 1
    for one in stretches(file, way.readers) if apart else [file]:
        if way.cache == "cold":
            with open(one, "rb") as opened:
                read_speed.evict(opened.fileno())
    where = {"filename_format": f"{file}.{way.readers}.$jobnum"} if apart else {"filename": file}
    job = {
        "name": "truth",
        **where,
        "ioengine": FIO_ENGINE[way.how],
        "rw": "read" if in_order else "randread",
        "bs": way.block,
        "iomem_align": 4096,
        "numjobs": way.readers,
        "size": SIZE // parts,
        "offset_increment": 0 if apart or parts == 1 else SIZE // parts,
        "io_size": span_bytes // way.readers,
        "fadvise_hint": "random" if way.how == ADVISED else 0,
        "invalidate": 0,
        "randseed": random.randrange(2**31),
        "output-format": "json",
    }
    if way.cache == "warm":
        job |= {"time_based": 1, "runtime": f"{round(SECONDS * 1e3)}ms"}
    flags = [f"--{name}={value}" for name, value in job.items()]
    done = subprocess.run(
        ["fio", "--group_reporting", *flags], check=True, capture_output=True, text=True
    )
    [found] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    read = found["read"]
    return float(read["io_bytes"]) / (read["runtime"] * 1e-3)


def rest(file: Path, way: read_speed._ReadMode) -> int:
    """Wait until the disk can be fast again. Returns the bytes of the pass that follows."""
    with open(file, "rb") as opened:
        span_bytes = read_speed._read_pattern(opened.fileno(), SIZE, way).bytes
    if way.cache == "cold":
        time.sleep(span_bytes * REST)
    return span_bytes


def stretches(file: Path, number: int) -> list[Path]:
    """The parts of a file as files, written once: ``file.4.0`` is the first of four."""
    paths = [Path(f"{file}.{number}.{one}") for one in range(number)]
    with open(file, "rb") as opened:
        for path in paths:
            if not path.exists():
                path.write_bytes(opened.read(SIZE // number))
    return paths


def decode_pairs(data: Path) -> Iterator[Pair]:
    """Three decoders against a loop over the same bytes, both on one core."""
    photos = scan(data, limit=100).photos
    blobs = [Path(photo.path).read_bytes() for photo in photos]
    for name, bare in BARE.items():
        decoder = next(one for one in decoders._IMAGE_DECODERS if one.name == name)
        ready = decoders._prepare_decoder(decoder, photos)
        assert isinstance(ready, decoders._CheckedDecoder), ready
        work = decoders._decode_workload(ready)
        yield Pair(
            f"decode/{name}",
            pinned_rate(rate_of(work, SECONDS)),
            partial(looped, partial(bare, blobs), len(blobs)),
            0.10,
        )


def with_pillow(blobs: list[bytes]) -> None:
    from PIL import Image

    for blob in blobs:
        Image.open(io.BytesIO(blob)).convert("RGB")


def with_simplejpeg(blobs: list[bytes]) -> None:
    import simplejpeg

    for blob in blobs:
        simplejpeg.decode_jpeg(blob)


def with_opencv(blobs: list[bytes]) -> None:
    import cv2
    import numpy as np

    for blob in blobs:
        cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR_RGB)


BARE = {"Pillow": with_pillow, "simplejpeg": with_simplejpeg, "OpenCV": with_opencv}


def torch_pairs() -> Iterator[Pair]:
    """A copy and a matrix product."""
    size = device_copy._MEMORY_BYTES
    one, other = torch.zeros(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    yield Pair(
        "memory/copy",
        rate_of(device_copy._memory_copy(size), SECONDS),
        lambda: looped(lambda: one.copy_(other), size),
        0.05,
    )
    work, n = compute._matmul_workload(torch.float32, "cpu")
    left, right = torch.randn(n, n), torch.randn(n, n)
    out = torch.empty(n, n)
    yield Pair(
        f"compute/matmul {n}",
        rate_of(work, SECONDS),
        lambda: looped(lambda: torch.mm(left, right, out=out), 2 * n**3),
        0.05,
    )


def rate_of(work: Workload, seconds: float) -> Rate:
    """What the probe finds in one round."""

    def rate() -> float:
        found = run_round(work, seconds)
        return found.units / found.wall_s

    return rate


def pinned_rate(rate: Rate) -> Rate:
    def pinned() -> float:
        with on_one_core():
            return rate()

    return pinned


def looped(run: Callable[[], object], units: int) -> float:
    """The loop that anybody would write."""
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        run()
        done += units
    return done / (time.perf_counter() - start)


@contextmanager
def random_file(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place, "random")
        dice = random.Random(0)
        with open(file, "wb") as opened:
            for _ in range(SIZE // MIB):
                opened.write(dice.randbytes(MIB))
            opened.flush()
            os.fsync(opened.fileno())
        yield file


def measure(pair: Pair, rounds: int) -> list[dict[str, float]]:
    sides = {"probe": pair.probe, "bare": pair.bare}
    for side in sides.values():  # the first one fills caches
        side()
    return list(in_turns(list(sides), lambda name: sides[name](), rounds))


def row(pair: Pair, found: list[dict[str, float]]) -> list[str]:
    ratio = Estimate.of([one["probe"] / one["bare"] for one in found])
    probe, bare = (Estimate.of([one[side] for one in found]).median for side in ("probe", "bare"))
    drift = statistics.median(
        abs(after["bare"] / before["bare"] - 1) for before, after in itertools.pairwise(found)
    )
    return [
        pair.name,
        f"{probe:,.0f}",
        f"{bare:,.0f}",
        ratio.text(),
        f"{100 * drift:.0f} %",
        f"{100 * pair.goal:.0f} %",
        verdict(ratio, pair.goal),
    ]


def verdict(ratio: Estimate, goal: float) -> str:
    """Claims nothing that the interval does not hold."""
    off = abs(ratio.median - 1)
    if abs(ratio.low - 1) <= goal and abs(ratio.high - 1) <= goal:
        return "yes"
    if ratio.low > 1 + goal or ratio.high < 1 - goal:
        return f"no, {100 * off:.0f} % off"
    return (
        "noise: the median is, the interval is not"
        if off <= goal
        else "noise: the median is not, the interval partly is"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="a folder of images, for the decoders"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("."), help="on the disk that is measured"
    )
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each (default 15)")
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument(
        "--wait", type=float, default=60.0, help="seconds to wait for a quiet machine, at most"
    )
    parser.add_argument("--json", type=Path, help="keep every figure")
    args = parser.parse_args()
    if shutil.which("fio") is None:
        parser.exit(1, "probe_truth.py: fio is not installed: apt-get install fio\n")
    load = wait_for_quiet(0.5, args.wait)
    rows, kept = (
        [["what", "probe", "bare loop or fio", "probe / bare", "drift", "goal", "within"]],
        {},
    )
    with random_file(args.folder) as file, _start_readers(max(READERS)) as pool:
        for pair in [*storage_pairs(file, pool), *decode_pairs(args.data), *torch_pairs()]:
            if args.only in pair.name:
                kept[pair.name] = measure(pair, args.rounds)
                rows.append(row(pair, kept[pair.name]))
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(table(rows))
    write_json(args.json, pairs=kept, load_before=load)


if __name__ == "__main__":
    main()
