"""Are the ceilings true? The probes against fio and against bare loops, in turns on the same file, images and matrices.

    python benchmarks/probe_truth.py --data data/photos --folder . --json probe_truth.json

Storage against fio (Debian package fio) on the same file with the same blocks: cold, where both drop the file's pages first, and warm. fio
is told to give the kernel no advice, as the probe gives none. Decoding, copying and multiplying against a loop that anybody would write. A
ratio of 1 means that both found the same rate; its interval is a bootstrap over the pairs.
"""

import argparse
import io
import itertools
import json
import os
import random
import shutil
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
from feedline.pipelines.probes import decode, decoders, device_copy, peak, storage
from feedline.pipelines.probes.measure import Work, one_core, one_round
from feedline.pipelines.probes.reading import ADVISED, MMAP, READ

MIB = 1 << 20
SIZE = 512 * MIB
SECONDS = 0.5  # of each side in each pair, at least, where a pass can be repeated
PROBE = Path(__file__).resolve().parent / "programs" / "read_span.py"
FIO_ENGINE = {READ: "psync", MMAP: "mmap", ADVISED: "mmap"}
Rate = Callable[[], float]


class Pair(NamedTuple):
    """Two ways to measure one rate, and how near they should be."""

    name: str
    probe: Rate
    bare: Rate
    goal: float


def storage_pairs(file: Path) -> Iterator[Pair]:
    """Every way of reading that fio has as well."""
    patterns = (("sequential", MIB, (READ, MMAP)), ("random 4 KiB", 4096, (READ, ADVISED)), ("random 64 KiB", 65536, (READ,)))
    for cache, (pattern, block, hows), threads in itertools.product(("cold", "warm"), patterns, (1, 4)):
        for how in hows:
            way = storage.Way(pattern, how, cache, threads, block)
            yield Pair(way.name, partial(probe, file, way), partial(fio, file, way), 0.10)


def probe(file: Path, way: storage.Way) -> float:
    """B/s of the probe, in a new process, as fio is one."""
    seconds = 0.0 if way.cache == "cold" else SECONDS
    words = (file, SIZE, way.pattern, way.how, way.cache, way.threads, way.block, seconds)
    return float(subprocess.run([sys.executable, "-P", PROBE, *map(str, words)], check=True, capture_output=True, text=True).stdout)


def fio(file: Path, way: storage.Way) -> float:
    """B/s of fio for the same way; each of its threads reads a part of its own, as the probe's do."""
    with open(file, "rb") as opened:
        span_bytes = storage.span_of(opened.fileno(), SIZE, way).bytes
    job = {
        "name": "truth",
        "filename": file,
        "ioengine": FIO_ENGINE[way.how],
        "rw": "read" if way.pattern == "sequential" else "randread",
        "bs": way.block,
        "numjobs": way.threads,
        "size": SIZE // way.threads,
        "offset_increment": SIZE // way.threads,
        "io_size": span_bytes // way.threads,
        "fadvise_hint": "random" if way.how == ADVISED else 0,
        "invalidate": int(way.cache == "cold"),
        "loops": 1 if way.cache == "cold" else max(1, round(SECONDS * 4e9 / span_bytes)),
        "randseed": random.randrange(2**31),
        "output-format": "json",
    }
    flags = [f"--{name}={value}" for name, value in job.items()]
    done = subprocess.run(["fio", "--thread", "--group_reporting", *flags], check=True, capture_output=True, text=True)
    [found] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    read = found["read"]
    return float(read["io_bytes"]) / (read["runtime"] * 1e-3)


def decode_pairs(data: Path) -> Iterator[Pair]:
    """Three decoders against a loop over the same bytes, both on one core."""
    photos = scan(data, limit=100).photos
    blobs = [Path(photo.path).read_bytes() for photo in photos]
    for name, bare in BARE.items():
        decoder = next(one for one in decoders.DECODERS if one.name == name)
        ready = decode.prepared(decoder, photos)
        assert isinstance(ready, decode.Ready), ready
        work = decode.work(ready)
        yield Pair(f"decode/{name}", on_one_core(rate_of(work, SECONDS)), partial(looped, partial(bare, blobs), len(blobs)), 0.10)


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
    size = device_copy.MEMORY_BYTES
    one, other = torch.zeros(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    yield Pair("memory/copy", rate_of(device_copy.memory_copy(size), SECONDS), lambda: looped(lambda: one.copy_(other), size), 0.05)
    work, n = peak.matmul(torch.float32, "cpu")
    left, right = torch.randn(n, n), torch.randn(n, n)
    out = torch.empty(n, n)
    yield Pair(f"compute/matmul {n}", rate_of(work, SECONDS), lambda: looped(lambda: torch.mm(left, right, out=out), 2 * n**3), 0.05)


def rate_of(work: Work, seconds: float) -> Rate:
    """What the probe finds in one round."""

    def rate() -> float:
        found = one_round(work, seconds)
        return found.units / found.wall_s

    return rate


def on_one_core(rate: Rate) -> Rate:
    def pinned() -> float:
        with one_core():
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
    off = abs(ratio.median - 1)
    verdict = "yes" if off <= pair.goal else f"no, {100 * off:.0f} % off"
    return [pair.name, f"{probe:,.0f}", f"{bare:,.0f}", ratio.text(), f"{100 * pair.goal:.0f} %", verdict]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of images, for the decoders")
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the disk that is measured")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each (default 15)")
    parser.add_argument("--only", default="", help="only what has this in its name")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds to wait for a quiet machine, at most")
    parser.add_argument("--json", type=Path, help="keep every figure")
    args = parser.parse_args()
    if shutil.which("fio") is None:
        parser.exit(1, "probe_truth.py: fio is not installed: apt-get install fio\n")
    load = wait_for_quiet(0.5, args.wait)
    rows, kept = [["what", "probe", "bare loop or fio", "probe / bare", "goal", "within"]], {}
    with random_file(args.folder) as file:
        for pair in [*storage_pairs(file), *decode_pairs(args.data), *torch_pairs()]:
            if args.only in pair.name:
                kept[pair.name] = measure(pair, args.rounds)
                rows.append(row(pair, kept[pair.name]))
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print(table(rows))
    write_json(args.json, pairs=kept, load_before=load)


if __name__ == "__main__":
    main()
