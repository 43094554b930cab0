"""A small training whose loader is set from the command line, so that advice can be applied to it: once, or as twins that take turns.

    advised_training.py --data jpeg --batch 32 --step-ms 4 --workers 0
    advised_training.py --data jpeg --batch 32 --step-ms 4 --workers 0 --twin "--workers 2" --rounds 7

With twins it prints a JSON list of rounds, each with both twins' seconds per step, by the clock and of the main thread's CPU time. The
loaders keep their workers; the first epoch of each is not counted.
"""

import argparse
import io
import json
import random
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

MATMUL = 192  # a product of two such matrices takes 0.2 to 0.3 ms on one core
CLASSES = 10


def jpeg(width: int, height: int) -> bytes:
    """A picture that compresses like a photograph: smooth, with some noise."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (height // 16, width // 16, 3), np.uint8))
    picture = np.asarray(small.resize((width, height)), np.int16) + rng.integers(
        -9, 10, (height, width, 3)
    )
    file = io.BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Memory(Dataset[Any]):
    """Rows of a tensor."""

    shape: tuple[int, ...] = (32,)

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows = torch.randn(512, *self.shape)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):  # a whole batch
            numbers = torch.tensor(index)
            return self.rows[numbers % 512], numbers % CLASSES
        return self.rows[index % 512], index % CLASSES


class Images(Memory):
    """uint8 images in memory, normalised one by one."""

    shape = (3, 32, 32)

    def __getitem__(self, index: Any) -> Any:
        rows, label = super().__getitem__(index)
        return rows.sub(0.5).div(0.25), label


class Jpeg(Memory):
    """Small pictures, decoded."""

    shape, size = (1,), (96, 80)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.file = jpeg(*self.size)

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(io.BytesIO(self.file)).convert("RGB").resize((32, 32))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div(
            255
        ), index % CLASSES


class Heavy(Jpeg):
    """Larger ones."""

    size = (640, 480)


class Numpy(Memory):
    """Transforms that are written in Python and numpy."""

    shape = (48, 48, 3)

    def __getitem__(self, index: int) -> Any:
        image = self.rows[index % 512].numpy()
        for shift in range(4):
            image = np.roll(image, random.randrange(8) + shift, axis=shift % 2)[:, ::-1]
        image = np.clip((image - image.mean((0, 1))) / (image.std((0, 1)) + 1e-6), -3, 3)
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), index % CLASSES


class Tokens(Memory):
    """Tokenised texts as a dataset of Hugging Face gives them; the collate pads."""

    def __getitem__(self, index: int) -> Any:
        length = 8 + index % 24
        return {
            "input_ids": list(range(length)),
            "attention_mask": [1] * length,
            "labels": index % CLASSES,
            "text": "removed",
        }


class Arrays(Memory):
    """Decoded pictures as arrays of 0.3 MB."""

    shape = (1,)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.images = np.random.default_rng(0).integers(0, 256, (16, 320, 320, 3), np.uint8)

    def __getitem__(self, index: int) -> Any:
        return self.images[index % 16]


class Far(Memory):
    """Rows that come from a place 2 ms away."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)


DATA = {
    kind.__name__.lower(): kind
    for kind in (Memory, Images, Jpeg, Heavy, Numpy, Tokens, Arrays, Far)
}


def padded(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(sample["input_ids"]) for sample in samples)

    def pad(name: str) -> torch.Tensor:
        return torch.tensor(
            [sample[name] + [0] * (longest - len(sample[name])) for sample in samples]
        )

    return {
        "input_ids": pad("input_ids"),
        "attention_mask": pad("attention_mask"),
        "labels": torch.tensor([s["labels"] for s in samples]),
    }


def stacked(samples: list[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack(samples))


def as_arrays(samples: list[Any]) -> Any:
    return np.stack(samples)


COLLATES: dict[str, Callable[[Any], Any] | None] = {
    "default": None,
    "padded": padded,
    "stacked": stacked,
    "arrays": as_arrays,
}


def inputs(batch: Any) -> torch.Tensor:
    """One row of 32 numbers per sample, whatever the batch is made of."""
    if isinstance(batch, dict):
        return batch["input_ids"][:, :1].float().expand(-1, 32)
    first = torch.as_tensor(batch[0] if isinstance(batch, (list, tuple)) else batch)
    rows = (
        first.flatten(1).float() if first.numel() < 1e6 else first[:, ::64, ::64].flatten(1).float()
    )
    return nn.functional.pad(rows[:, :32], (0, 32 - min(32, rows.shape[1])))


class Training:
    """One training: its loader, its model, and what stands for the rest of the model."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        torch.set_num_threads(given.threads)
        data = DATA[given.data](given.batch * given.steps)
        workers: dict[str, Any] = {
            "num_workers": given.workers,
            "persistent_workers": given.workers > 0,
        }
        how: dict[str, Any] = {
            "batch_size": given.batch,
            "shuffle": True,
            "collate_fn": COLLATES[given.collate],
        }
        if given.whole:
            how = {
                "batch_size": None,
                "sampler": BatchSampler(RandomSampler(data), given.batch, drop_last=False),
            }
        self.loader: DataLoader[Any] = DataLoader(data, **how, **workers)
        self.model = nn.Linear(32, CLASSES)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6)
        self.matrix = torch.randn(MATMUL, MATMUL)

    def epoch(self) -> tuple[float, float]:
        """Seconds per step, by the clock and of the main thread's CPU time."""
        steps, begin, cpu = 0, time.perf_counter(), time.thread_time()
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(inputs(batch)).square().mean().backward()
            self.optimizer.step()
            for _ in range(self.given.products):
                self.matrix @ self.matrix
            if self.given.sleep_ms:
                time.sleep(self.given.sleep_ms / 1e3)  # an accelerator computes
            steps += 1
        return (time.perf_counter() - begin) / steps, (time.thread_time() - cpu) / steps


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=DATA, default="memory")
    parser.add_argument("--collate", choices=COLLATES, default="default")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--whole", action="store_true", help="make each batch in one call; for memory and images"
    )
    parser.add_argument("--steps", type=int, default=100, help="per epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--products",
        type=int,
        default=0,
        help=f"of {MATMUL} x {MATMUL} matrices per step: work of the CPU",
    )
    parser.add_argument(
        "--sleep-ms", type=float, default=0, help="per step: work of an accelerator"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--twin", help="options that differ in a second training, which takes turns with the first"
    )
    parser.add_argument("--rounds", type=int, default=7)
    return parser


def in_turns(
    first: Training, second: Training, rounds: int
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    for training in (first, second):
        training.epoch()
    for number in range(rounds):
        if number % 2:
            after = second.epoch()
            yield first.epoch(), after
        else:
            yield first.epoch(), second.epoch()


def main() -> None:
    parser = options()
    given = parser.parse_args()
    first = Training(given)
    if given.twin is None:
        for _ in range(given.epochs):
            first.epoch()
        return
    second = Training(parser.parse_args(shlex.split(given.twin), argparse.Namespace(**vars(given))))
    print(json.dumps(list(in_turns(first, second, given.rounds))))


if __name__ == "__main__":
    main()
