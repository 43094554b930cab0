"""What the usual advice for slow input gives on this machine, each advice against what it replaces, in turns.

    python benchmarks/recommendations.py data/photos --json out.json

Stores against single files with a cold page cache (photographs, and thumbnails of a few kB), mmap against read, libjpeg-turbo against
Pillow, uint8 against float32 from worker to main process, augmentation of whole batches against that of single samples. A factor above 1
means that the advice helps. Prints Markdown.
"""

import argparse
import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2
from twins import Estimate, in_turns, machine, table, tree_cpu_s, wait_for_quiet, write_json

from feedline.pipelines.loaders.image_samples import decode_libjpeg, decode_pillow
from feedline.pipelines.probes.read_speed import evict
from feedline.pipelines.stores import STORE_KINDS, open_store, pack

SIZE, BATCH = 224, 32
Turn = dict[str, float]


class Ready(Dataset[torch.Tensor]):
    """uint8 images that lie decoded in memory, handed over as uint8 or as the float32 that ToTensor
    makes.
    """

    def __init__(self, number: int, as_float: bool) -> None:
        self._image, self._number, self._as_float = (
            torch.randint(0, 256, (3, SIZE, SIZE), dtype=torch.uint8),
            number,
            as_float,
        )

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._image.float().div_(255) if self._as_float else self._image.clone()


def timed(work: Callable[[], int]) -> Turn:
    """Seconds per unit of work, by the clock and of CPU."""
    cpu, wall = tree_cpu_s(), time.perf_counter()
    units = work()
    return {"wall_s": (time.perf_counter() - wall) / units, "cpu_s": (tree_cpu_s() - cpu) / units}


def make_cold(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                evict(file.fileno())


def stores(folder: Path, data: Path, shuffled: bool, rounds: int) -> list[dict[str, Turn]]:
    """Read every sample once with a cold cache, from each kind of store."""
    places = {"files": data, **{kind: folder / f"{data.name}-{kind}" for kind in STORE_KINDS}}
    for kind in STORE_KINDS:
        if not places[kind].exists():
            pack(data, places[kind], kind)
    opened = {kind: open_store(place) for kind, place in places.items()}
    order = list(range(len(opened["files"])))
    if shuffled:
        random.Random(0).shuffle(order)

    def read(kind: str) -> Turn:
        make_cold(places[kind])
        store = opened[kind]

        def all_of_it() -> int:
            for number in order:
                store[number]
            return len(order)

        found = timed(all_of_it)
        store.close()
        return found

    return list(in_turns(list(places), read, rounds))


def thumbnails(data: Path, folder: Path, copies: int) -> Path:
    """Each photograph as ``copies`` JPEGs of a few kB."""
    small = folder / "thumbnails"
    for path in data.rglob("*.jpg"):
        with Image.open(path) as image:
            shrunk = image.convert("RGB").resize((96, 96))
        for copy in range(copies):
            target = small / path.parent.name / f"{path.stem}-{copy}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            shrunk.save(target, quality=85)
    return small


def mapped(
    folder: Path, shuffled: bool, rounds: int, megabytes: int = 128, piece: int = 64 << 10
) -> list[dict[str, Turn]]:
    """One file in pieces with a cold cache, by read and by mmap."""
    file = folder / "large.bin"
    file.write_bytes(os.urandom(megabytes << 20))
    places = list(range(0, megabytes << 20, piece))
    if shuffled:
        random.Random(0).shuffle(places)

    def read(how: str) -> Turn:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            evict(descriptor)
            if how == "read":
                return timed(
                    lambda: sum(len(os.pread(descriptor, piece, place)) > 0 for place in places)
                )
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapping:
                return timed(
                    lambda: sum(len(mapping[place : place + piece]) > 0 for place in places)
                )
        finally:
            os.close(descriptor)

    return list(in_turns(["read", "mmap"], read, rounds))


def decoders(files: Sequence[bytes], rounds: int) -> list[dict[str, Turn]]:
    ways: dict[str, Callable[[bytes], object]] = {
        "Pillow": lambda data: decode_pillow(data).load(),
        "libjpeg-turbo": decode_libjpeg,
    }

    def decode(how: str) -> Turn:
        def all_of_it() -> int:
            for data in files:
                ways[how](data)
            return len(files)

        return timed(all_of_it)

    return list(in_turns(list(ways), decode, rounds))


def transport(rounds: int, batches: int = 40) -> list[dict[str, Turn]]:
    """An epoch from one worker; the main process gets float32 in both."""

    def epoch(how: str) -> Turn:
        loader: DataLoader[torch.Tensor] = DataLoader(
            Ready(batches * BATCH, how == "float32"), BATCH, num_workers=1
        )

        def all_of_it() -> int:
            for batch in loader:
                if how == "uint8":
                    batch.float().div_(255)
            return batches * BATCH

        return timed(all_of_it)

    return list(in_turns(["float32", "uint8"], epoch, rounds))


def augmentation(rounds: int) -> list[dict[str, Turn]]:
    """Crop, flip and colours on single samples, and on the batch.

    On a GPU the second is what "augment on the device" means.
    """
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2, 0.2),
        ]
    )
    batch = torch.randint(0, 256, (BATCH, 3, 400, 500), dtype=torch.uint8)

    def change(how: str) -> Turn:
        if how == "batch":
            return timed(lambda: len(chain(batch)))
        return timed(lambda: len([chain(image) for image in batch]))

    return list(in_turns(["samples", "batch"], change, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, help="a folder of photographs, as examples/photos.py makes it"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    load = wait_for_quiet(0.5, 60)
    data, rounds = args.data.resolve(), args.rounds
    found: dict[str, list[dict[str, Turn]]] = {}
    with tempfile.TemporaryDirectory(dir=data.parent) as scratch:
        folder = Path(scratch)
        small = thumbnails(data, folder, 5)
        for shuffled in (True, False):
            order = "shuffled" if shuffled else "in order"
            found[f"photographs, cold, {order}"] = stores(folder, data, shuffled, rounds)
            found[f"thumbnails, cold, {order}"] = stores(folder, small, shuffled, rounds)
            found[f"one file in 64 KiB pieces, cold, {order}"] = mapped(folder, shuffled, rounds)
    found["decode a photograph"] = decoders(
        [path.read_bytes() for path in sorted(data.rglob("*.jpg"))[::6]], rounds
    )
    found["a worker's batches to the main process"] = transport(rounds)
    found["crop, flip, colours"] = augmentation(rounds)
    rows, factors = (
        [
            [
                "what",
                "advice",
                "instead of",
                "times as fast (wall)",
                "times less CPU",
                "before: us",
                "after: us",
            ]
        ],
        {},
    )
    for what, turns in found.items():
        before, *advised = turns[0]
        for after in advised:
            wall = Estimate.of([turn[before]["wall_s"] / turn[after]["wall_s"] for turn in turns])
            cpu = Estimate.of([turn[before]["cpu_s"] / turn[after]["cpu_s"] for turn in turns])
            each = [
                f"{Estimate.of([turn[how]['wall_s'] for turn in turns]).median * 1e6:,.0f}"
                for how in (before, after)
            ]
            rows.append([what, after, before, wall.text(), cpu.text(), *each])
            factors[f"{what}: {after}"] = {"wall": asdict(wall), "cpu": asdict(cpu)}
    print(f"{machine()}, load {load:.1f} before, {rounds} rounds\n\n{table(rows)}")
    write_json(args.json, turns=found, factors=factors)


if __name__ == "__main__":
    main()
