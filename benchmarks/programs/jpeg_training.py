"""A small ResNet on JPEG photographs, always the same work, that says what it used. Started by
overhead.py; also runs by itself.

python benchmarks/programs/jpeg_training.py data/photos --report out.json
"""

import os
import time

FIRST_LINE_NS = time.perf_counter_ns()

import argparse  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torchvision import models, transforms  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.datasets.folder import default_loader  # noqa: E402

WARM_UP = 50  # pairs that are not counted: the first samples are all looked at
SIZE, BATCH, WORKERS = (
    32,
    32,
    1,
)  # one worker and one thread of torch: both cores of a small machine have their own work


def cpu_s() -> float:
    """CPU seconds of this process and of the workers that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class DecodesMore:
    """Loads a photograph as ImageFolder does, and decodes the one of the same name in another
    folder too, which it keeps in memory: the same training with a slower decoder."""

    def __init__(self, data: Path, beside: Path) -> None:
        self._data = data
        self._files = {
            path.relative_to(beside): path.read_bytes() for path in beside.glob("*/*.jpg")
        }

    def __call__(self, path: str) -> Any:
        Image.open(io.BytesIO(self._files[Path(path).relative_to(self._data)])).convert("RGB")
        return default_loader(path)


class Training:
    """Model, data and optimizer; ``epoch()`` is what is measured."""

    def __init__(
        self,
        data: str,
        batches: int,
        light: bool = False,
        batch: int = BATCH,
        beside: Path | None = None,
    ) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )
        folder = ImageFolder(
            data,
            transform,
            loader=default_loader if beside is None else DecodesMore(Path(data), beside),
        )
        self.samples, self.batch = batches * batch, batch
        folder.samples = [
            folder.samples[number * len(folder) // self.samples] for number in range(self.samples)
        ]  # of all classes
        self.loader = DataLoader(folder, batch_size=batch, shuffle=True, num_workers=WORKERS)
        classes = len(folder.classes)
        self.model = (
            nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE**2, classes))
            if light
            else models.resnet18(num_classes=classes)
        )
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def epoch(self, profiler: Any = None) -> float:
        """Train on all samples; returns the last loss."""
        for images, labels in self.loader:
            loss = self.step(images, labels)
            if profiler is not None:
                profiler.step()
        return float(loss)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = self.criterion(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@contextmanager
def torch_profiler(kind: str | None) -> Iterator[Any]:
    """torch's profiler as its tutorial uses it;

    ``whole`` records all steps, ``schedule`` 3 of 10.
    """
    if kind is None:
        yield None
        return
    from torch.profiler import ProfilerActivity, profile, schedule

    when = schedule(wait=6, warmup=1, active=3, repeat=0) if kind == "schedule" else None
    with profile(activities=[ProfilerActivity.CPU], schedule=when) as profiler:
        yield profiler if kind == "schedule" else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--batches", type=int, default=18, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--torch-profiler", choices=["whole", "schedule"])
    parser.add_argument(
        "--turns", type=int, help="make this many steps twice, recorded and not, in turns"
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument(
        "--light",
        action="store_true",
        help="with a linear model, so that the samples are nearly all there is",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="DIR",
        help="also decode the photograph of the same name in this folder",
    )
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    training = Training(args.data, args.batches, args.light, args.batch, args.beside)
    if args.turns:
        args.report.write_text(
            json.dumps(
                {"samples": args.batch, "pairs": turns(training, args.turns, args.report.parent)}
            )
        )
        return
    start_wall, start_cpu = time.perf_counter_ns(), cpu_s()
    with torch_profiler(args.torch_profiler) as profiler:
        for _ in range(args.epochs):
            loss = training.epoch(profiler)
        wall, cpu = (time.perf_counter_ns() - start_wall) / 1e9, cpu_s() - start_cpu
    born = int(os.environ.get("FEEDLINE_BENCHMARK_T0", FIRST_LINE_NS))
    found = {
        "first_line_s": (FIRST_LINE_NS - born) / 1e9,
        "ready_s": (start_wall - born) / 1e9,
        "ready_cpu_s": start_cpu,
        "wall_s": wall,
        "cpu_s": cpu,
        "samples": training.samples * args.epochs,
        "loss": loss,
    }
    args.report.write_text(json.dumps(found))


def turns(training: Training, pairs: int, folder: Path) -> list[dict[str, dict[str, float]]]:
    """Make each step twice, recorded and not, in turns within this process: the same files and
    random numbers, no workers.

    A shared machine changes its speed within seconds, by more than feedline costs; two steps that
    follow each other see the same machine.
    """
    import feedline
    from feedline.profiler.record.recorder import recorder

    dice = torch.Generator().manual_seed(0)
    drawn = [
        torch.randint(training.samples, (training.batch,), generator=dice).tolist()
        for _ in range(pairs + WARM_UP)
    ]
    loader: DataLoader[Any] = DataLoader(
        training.loader.dataset, batch_sampler=[order for order in drawn for _ in range(2)]
    )
    found = []
    with feedline.record(folder / "turns"):
        segment, iterator = recorder.main, iter(loader)

        def measure(how: str, seed: int) -> dict[str, float]:
            recorder.main = recorder.segment = segment if how == "feedline" else None
            torch.manual_seed(seed)
            start, cpu = time.perf_counter_ns(), time.process_time_ns()
            training.step(*next(iterator))
            return {
                "wall_s": (time.perf_counter_ns() - start) / 1e9,
                "cpu_s": (time.process_time_ns() - cpu) / 1e9,
            }

        for number in range(pairs + WARM_UP):
            order = ["without", "feedline"] if number % 2 == 0 else ["feedline", "without"]
            found.append({how: measure(how, number) for how in order})
        recorder.main = recorder.segment = segment
    return found[WARM_UP:]


if __name__ == "__main__":
    main()
