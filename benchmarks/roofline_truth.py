"""Is the lowest roof the throughput? Six trainings of different compute per sample, one DataLoader configuration.

    OMP_NUM_THREADS=1 python benchmarks/roofline_truth.py data/photos [--rounds 12] [-o roofline_truth.json]

For each training the ceilings are measured apart: the loader alone (one worker, nobody computes), the model alone (on batches that it has
got already). The prediction is the lowest of three roofs:

    loader   samples/s of the loader alone
    step     1 / (seconds of a sample in the model alone + seconds of the main process for getting it)
    CPUs     CPUs / (CPU seconds of a sample in the loader + in the main process)

It is compared with the training as it runs, of which no figure goes into the prediction, round by round: on a machine that gets slower and
faster, what was measured one after the other belongs together. What another program disturbed (a process of ours waited for a CPU for
more than DISTURBED of the time) is measured again, up to TRIES times; the least disturbed counts.

A training is input-limited when its main process waits for 5 % of its time or more (rules/input/input_wait.py), and predicted to be when
the loader's roof is lower than the step's by as much. CPUs are counted by what as many processes as there are decode at once, over what one
does: a shared machine may give less than it shows.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models.resnet import BasicBlock, ResNet
from twins import Estimate, table, write_json

BATCH, AHEAD, FEWEST = (
    16,
    4,
    4,
)  # samples; batches before the first that is timed: what was fetched ahead is used up by then; batches timed
INPUT_LIMITED = 0.05  # share of its time that the main process waits
DISTURBED, TRIES = 0.04, 4
TICK = os.sysconf("SC_CLK_TCK")


def wide(width: int) -> ResNet:
    """ResNet-18 with ``width`` channels where it has 64."""
    model = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
    if width != 64:
        scale = width / 64
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Conv2d):
                    channels = [
                        count if count == 3 else round(count * scale)
                        for count in (child.in_channels, child.out_channels)
                    ]
                    setattr(
                        module,
                        name,
                        nn.Conv2d(
                            *channels, child.kernel_size, child.stride, child.padding, bias=False
                        ),
                    )
                elif isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, nn.BatchNorm2d(round(child.num_features * scale)))
        model.fc = nn.Linear(round(512 * scale), 10)
    return model


def tiny() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
    )


TRAININGS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "tiny, 32 px": (tiny, 32),
    "ResNet-18 / 4, 32 px": (lambda: wide(16), 32),
    "ResNet-18 / 2, 48 px": (lambda: wide(32), 48),
    "ResNet-18, 64 px": (lambda: wide(64), 64),
    "ResNet-18, 96 px": (lambda: wide(64), 96),
    "ResNet-18 x 1.5, 64 px": (lambda: wide(96), 64),
}


@dataclass
class Round:
    """Seconds a sample; shares of the time."""

    loader: float = 0.0
    loader_cpu: float = 0.0
    get: float = 0.0
    model: float = 0.0
    model_cpu: float = 0.0
    whole: float = 0.0
    waited: float = 0.0
    disturbed: dict[str, float] = field(default_factory=dict)

    def roofs(self, cpus: float) -> dict[str, float]:
        """samples/s by roof."""
        shared = cpus / (self.loader_cpu + self.model_cpu + self.get)
        return {"loader": 1 / self.loader, "step": 1 / (self.model + self.get), "CPUs": shared}


class Training:
    """A model, its loader, and what was measured of both."""

    def __init__(self, folder: Path, model: nn.Module, size: int) -> None:
        transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )
        data = ImageFolder(str(folder), transform)
        endless = RandomSampler(data, replacement=True, num_samples=10**9)
        self.model, self.round = model, Round()
        self.rounds: list[Round] = []
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        self.batches = iter(DataLoader(data, BATCH, sampler=endless, num_workers=1))
        self.worker = self.batches._workers[0].pid  # type: ignore[attr-defined]
        self.cached = [next(self.batches) for _ in range(4)]

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        loss = nn.functional.cross_entropy(self.model(images), labels % 10)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def loader_alone(self, batches: int) -> dict[str, float]:
        for _ in islice(self.batches, AHEAD):
            pass
        begin, mine, theirs = time.perf_counter(), time.thread_time(), cpu_s(self.worker)
        for _ in islice(self.batches, batches):
            pass
        times = {
            "loader": time.perf_counter() - begin,
            "get": time.thread_time() - mine,
            "loader_cpu": cpu_s(self.worker) - theirs,
        }
        return {name: taken / batches / BATCH for name, taken in times.items()}

    def model_alone(self, batches: int) -> dict[str, float]:
        self.step(*self.cached[0])
        begin, cpu = time.perf_counter(), time.thread_time()
        for number in range(batches):
            self.step(*self.cached[number % len(self.cached)])
        times = {"model": time.perf_counter() - begin, "model_cpu": time.thread_time() - cpu}
        return {name: taken / batches / BATCH for name, taken in times.items()}

    def as_it_runs(self, batches: int) -> dict[str, float]:
        for images, labels in islice(self.batches, AHEAD):
            self.step(images, labels)
        begin, waited = time.perf_counter(), 0.0
        for _ in range(batches):
            asked, computing = time.perf_counter(), time.thread_time()
            images, labels = next(self.batches)
            waited += time.perf_counter() - asked - (time.thread_time() - computing)
            self.step(images, labels)
        wall = time.perf_counter() - begin
        return {"whole": wall / batches / BATCH, "waited": waited / wall}

    def measure(self, what: str, seconds: float) -> None:
        """One of the three, again where somebody disturbed it."""
        usual = {"loader_alone": self.usual("loader"), "model_alone": self.usual("model")}
        each = usual.get(what) or max(usual.values())
        batches = max(round(seconds / each / BATCH), FEWEST)
        tries = []
        for _ in range(TRIES):
            self.rest()
            before, begin = self.runqueue_s(), time.perf_counter()
            found = getattr(self, what)(batches)
            tries.append(((self.runqueue_s() - before) / (time.perf_counter() - begin), found))
            if tries[-1][0] <= DISTURBED:
                break
        share, found = min(tries, key=lambda one: one[0])
        self.round.disturbed[what] = share
        for name, value in found.items():
            setattr(self.round, name, value)

    def usual(self, name: str) -> float:
        """Seconds a sample in the round before."""
        return getattr(self.rounds[-1], name) if self.rounds else 0.02

    def runqueue_s(self) -> float:
        """Time without a CPU of the main thread and of the worker."""
        return (
            sum(
                int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
                for pid in (os.getpid(), self.worker)
            )
            / 1e9
        )

    def rest(self) -> None:
        """Until the worker has fetched all that it may ahead."""
        before = -1.0
        while (now := cpu_s(self.worker)) != before:
            before = now
            time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """CPU seconds of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def decode(folder: str, seconds: float) -> float:
    """Photographs a second of one process."""
    from PIL import Image

    paths = sorted(Path(folder).rglob("*.jpg"))[:64]
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        Image.open(paths[done % len(paths)]).convert("RGB")
        done += 1
    return done / (time.perf_counter() - begin)


def usable_cpus(folder: Path, rounds: int) -> Estimate:
    """What as many processes as there are CPUs do at once, over what one does."""
    count = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("fork").Pool(count) as pool:

        def together(processes: int) -> float:
            return sum(pool.starmap(decode, [(str(folder), 1.0)] * processes, chunksize=1))

        together(count)
        return Estimate.of([together(count) / together(1) for _ in range(rounds)])


def measure_all(training: Training, number: int, seconds: float) -> None:
    """One round: forwards and backwards in turns."""
    training.round = Round()
    order = ["loader_alone", "as_it_runs", "model_alone"]
    for what in order if number % 2 == 0 else reversed(order):
        training.measure(what, seconds)
    training.rounds.append(training.round)


def row(name: str, rounds: list[Round], cpus: float) -> tuple[list[str], dict[str, object]]:
    """A row of the table, and the same as figures."""
    roofs = {
        roof: statistics.median(one.roofs(cpus)[roof] for one in rounds)
        for roof in ("loader", "step", "CPUs")
    }
    lowest = min(roofs, key=roofs.__getitem__)
    predicted = [min(one.roofs(cpus).values()) for one in rounds]
    error = Estimate.of([rate * one.whole - 1 for rate, one in zip(predicted, rounds, strict=True)])
    whole = Estimate.of([1 / one.whole for one in rounds])
    waited = statistics.median(one.waited for one in rounds)
    expected = "input" if roofs["loader"] < (1 - INPUT_LIMITED) * roofs["step"] else "device"
    observed = "input" if waited >= INPUT_LIMITED else "device"
    cells = [
        f"{roofs['loader']:.0f}",
        f"{roofs['step']:.0f}",
        f"{roofs['CPUs']:.0f}",
        f"{statistics.median(predicted):.1f} ({lowest})",
    ]
    cells += [
        whole.text(digits=1),
        f"{error.text(100, 1)} %",
        f"{100 * waited:.0f} %",
        expected,
        observed,
    ]
    figures = {
        "roofs": roofs,
        "measured": whole.median,
        "error": error.median,
        "waited_share": waited,
    }
    return [name, *cells], {
        **figures,
        "predicted_verdict": expected,
        "observed_verdict": observed,
        "rounds": [vars(one) for one in rounds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="of each measurement; short, so that what is compared is close together",
    )
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    looks = min(args.rounds, 5)
    before = usable_cpus(args.data, looks)
    trainings = {
        name: Training(args.data, make(), size) for name, (make, size) in TRAININGS.items()
    }
    for number in range(-1, args.rounds):
        for training in trainings.values():
            measure_all(training, number, args.seconds)
        print(f"round {number + 1} of {args.rounds}", flush=True)
    for training in trainings.values():
        del training.rounds[0]  # it found out how long the others have to be
    after = usable_cpus(args.data, looks)
    cpus = (before.median + after.median) / 2
    made = {name: row(name, training.rounds, cpus) for name, training in trainings.items()}
    head = [
        "training",
        "loader",
        "step",
        "CPUs",
        "predicted (roof)",
        "measured",
        "error",
        "waits",
        "verdict predicted",
        "observed",
    ]
    print(table([head, *(cells for cells, _ in made.values())]))
    within = sum(abs(float(str(figures["error"]))) <= 0.10 for _, figures in made.values())
    right = sum(
        figures["predicted_verdict"] == figures["observed_verdict"] for _, figures in made.values()
    )
    print(
        f"samples/s. Within 10 %: {within} of {len(made)}; verdict right: {right} of {len(made)}."
    )
    disturbed = [
        share
        for training in trainings.values()
        for one in training.rounds
        for share in one.disturbed.values()
    ]
    print(
        f"Disturbed above {DISTURBED:.0%} even so: "
        f"{sum(share > DISTURBED for share in disturbed)} of {len(disturbed)} measurements."
    )
    print(f"CPUs that two processes get: {before.text()} before, {after.text()} after.")
    write_json(
        args.output,
        cpus=[before.median, after.median],
        found={name: figures for name, (_, figures) in made.items()},
    )


if __name__ == "__main__":
    main()
