"""What recording adds to a sample, to a batch and to an epoch of a DataLoader, in microseconds of CPU time of all its processes.

    python benchmarks/loader_cost.py data/photos --json out.json

A difference of 10 us drowns in the noise of a training (overhead.py), so here the samples are next to nothing: 64 bytes that lie ready, and
in some rows eight operations of PIL on 2 x 2 pixels, which have taps. Epochs with and without a recording take turns. The last row is
about real samples, decoded JPEG files with torchvision's transforms, which push our code out of the caches: each batch is made twice in
turns, from the same files and the same random numbers, in this thread.
"""

import argparse
import gc
import itertools
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from twins import Estimate, in_turns, machine, table, tree_cpu_s, wait_for_quiet, write_json

from feedline.profiler.record.recorder import recorder
from feedline.profiler.session.session import Session

NEVER = 1 << 30  # one sample in so many is looked at
OPERATIONS = 8
LIMIT_US = 10.0


class Tiny:
    """Samples of 64 bytes, with so many operations on the way."""

    def __init__(self, samples: int, operations: int = 0) -> None:
        self._samples, self._operations = samples, operations
        self._value, self._image = torch.zeros(16), Image.new("L", (2, 2))

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        for _ in range(self._operations):
            self._image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self._value


class Bench:
    """Recordings and epochs in one folder.

    Args:
        rounds: pairs of epochs a row.
    """

    def __init__(self, folder: Path, rounds: int) -> None:
        self._folder, self._rounds = folder, rounds

    def added_us(
        self,
        samples: int,
        batch: int,
        operations: int = 0,
        workers: int = 0,
        every: int | None = NEVER,
    ) -> list[float]:
        """Microseconds that recording adds to an epoch, pair by pair."""

        def epoch(how: str) -> float:
            loader: DataLoader[Any] = DataLoader(
                Tiny(samples, operations), batch, num_workers=workers
            )  # type: ignore[arg-type]
            session = (
                Session(self._folder / "run", ["loader_cost"], overwrite=True, every=every)
                if how == "feedline"
                else None
            )
            gc.collect()
            start = tree_cpu_s()
            for _ in loader:
                pass
            used = tree_cpu_s() - start
            if session:
                session.stop()
            return used * 1e6

        return [
            found["feedline"] - found["without"]
            for found in in_turns(["without", "feedline"], epoch, self._rounds)
        ]

    def parts(self) -> Iterator[tuple[str, list[float]]]:
        """What the parts cost: name, microseconds in each pair."""
        samples = 20480
        plain = [us / samples for us in self.added_us(samples, 512)]
        yield "a sample", plain
        busy = [us / samples for us in self.added_us(samples, 512, OPERATIONS)]
        yield (
            "an operation with a tap, nobody looking",
            [(b - p) / OPERATIONS for b, p in zip(busy, plain, strict=True)],
        )
        samples = 5120
        looked = [us / samples for us in self.added_us(samples, 512, every=1)]
        yield "a sample that is looked at", looked
        spans = [us / samples for us in self.added_us(samples, 512, OPERATIONS, every=1)]
        yield (
            "an operation in it",
            [(s - one) / OPERATIONS for s, one in zip(spans, looked, strict=True)],
        )
        samples, batch = 16000, 4
        inline = self.added_us(samples, batch)
        yield (
            "a batch, no workers",
            [us / (samples / batch) - p * batch for us, p in zip(inline, plain, strict=True)],
        )
        with_worker = self.added_us(samples, batch, workers=1)
        both = [
            us / (samples / batch) - p * batch for us, p in zip(with_worker, plain, strict=True)
        ]
        yield "a batch, in a worker and the main process", both
        for workers in (0, 2):
            yield f"an epoch, {workers} workers", self.added_us(2, 2, workers=workers)

    def whole(self) -> Iterator[tuple[str, list[float]]]:
        """What the average sample pays as feedline runs, batch and samples in detail included:
        name, microseconds in each pair.
        """
        samples, batch = 25600, 64
        for workers, operations in itertools.product((0, 2), (0, OPERATIONS)):
            name = f"64 bytes, batches of {batch}, {workers} workers, {operations} operations"
            yield (
                name,
                [
                    us / samples
                    for us in self.added_us(samples, batch, operations, workers, every=None)
                ],
            )

    def jpeg_us(self, data: str, batches: int, batch: int = 32) -> list[float]:
        """Microseconds a sample that recording adds to real samples, batch by batch."""
        chain = [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
        folder = ImageFolder(
            data,
            transforms.Compose(
                [*chain, transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
            ),
        )
        order = [
            [(number * batch + i) % len(folder) for i in range(batch)]
            for number in range(batches)
            for _ in range(2)
        ]
        loader: DataLoader[Any] = DataLoader(folder, batch_sampler=order)  # type: ignore[arg-type]
        session = Session(self._folder / "run", ["loader_cost"], overwrite=True)
        segment, iterator, seed = recorder.main, iter(loader), itertools.count()

        def make(how: str) -> float:
            recorder.main = recorder.segment = segment if how == "feedline" else None
            torch.manual_seed(next(seed) // 2)
            start = time.thread_time_ns()
            next(iterator)
            return (time.thread_time_ns() - start) / 1e3 / batch

        found = [
            pair["feedline"] - pair["without"]
            for pair in in_turns(["without", "feedline"], make, batches)
        ]
        recorder.main = recorder.segment = segment
        session.stop()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder of photographs, as examples/photos.py makes it")
    parser.add_argument("--pairs", type=int, default=20, help="of epochs, for each row")
    parser.add_argument("--batches", type=int, default=500, help="pairs of batches of real samples")
    parser.add_argument(
        "--quiet",
        type=float,
        default=0.0,
        metavar="S",
        help="wait at most so long for a load below 1",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    load = [wait_for_quiet(1.0, args.quiet)]
    rows, estimates = [["microseconds of CPU", "median [95 %]", "pairs"]], {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.pairs)
        bench.added_us(2, 2)  # what the first one imports
        real = [
            (
                "JPEG, batches of 32, no workers, 4 transforms",
                bench.jpeg_us(args.data, args.batches),
            )
        ]
        for name, values in itertools.chain(bench.parts(), bench.whole(), real):
            estimates[name] = Estimate.of(values)
            rows.append([name, estimates[name].text(), str(len(values))])
            load.append(wait_for_quiet(1.0, 0))
            print(f"{name}: {rows[-1][1]}", flush=True)
    print(f"\n{machine()}\nload {load[0]:.1f} to {max(load):.1f}\n\n{table(rows)}")
    write_json(
        args.json,
        load=load,
        limit_us=LIMIT_US,
        rows={name: asdict(estimate) for name, estimate in estimates.items()},
    )


if __name__ == "__main__":
    main()
