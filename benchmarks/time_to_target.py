"""Is time to target predicted from one run at batch 32 and its noise scale? Batches of 64 to 1,024 against what they measure.

    python benchmarks/time_to_target.py [--seeds 5] [--target 70] [--keep FOLDER] [--json time_to_target.json]

The model of acceptance_table.py without norms (with batch norm a sample's gradient depends on its batch, which the theory does not
cover), SGD with momentum at a constant rate. Batch 32 is trained as two micro-batches of 16, whose gradient norms give the noise scale on
the way. Rates of all batches, 32 included, are tuned for the fewest updates on other seeds; no prediction sees anything but its one run at
batch 32. With --keep, trainings that are there already are not repeated.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from acceptance import data as table_data
from acceptance import model as models
from acceptance.data import Data
from torch import nn
from twins import table, write_json

from feedline.analysis.convergence.read_training import _noise_over_training
from feedline.analysis.convergence.target import Reached, StepTime, steps_to_target, time_to_target
from feedline.analysis.convergence.training_record import (
    Curve,
    GradientNorms,
    NoiseOverTraining,
    TimeToTarget,
    TrainingRecord,
)

BASE, LARGER = 32, (64, 128, 256, 512, 1024)
#: Of each batch the best is inside, or the next larger one does not come to the target with every
#: seed.
RATES = {
    BASE: (0.02, 0.04, 0.08, 0.16),
    64: (0.04, 0.08, 0.16, 0.32),
    128: (0.04, 0.08, 0.16, 0.32),
    256: (0.08, 0.16, 0.32),
    512: (0.08, 0.16, 0.32),
    1024: (0.08, 0.16, 0.32),
}
TUNED_ON = (100, 101, 102)
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
EVERY = 256  # samples between evaluations, or an update where that is more
WIDTH = 5  # evaluations that the curve is smoothed over
BEYOND = 3.0  # points above the target where a training ends, so that the curve is seen to pass it
LIMIT = {
    BASE: 2000,
    64: 1200,
    128: 800,
}  # updates until a training is given up; of larger batches 500
GOAL = 4  # of the five batches

_data: Data | None = None


@dataclass(frozen=True)
class Job:
    """One training to the target, percent."""

    batch: int
    rate: float
    seed: int
    target: float

    @property
    def name(self) -> str:
        return f"{self.batch}-{self.rate:g}-{self.seed}-{self.target:g}.json"


@dataclass(frozen=True)
class Trained:
    """What was seen.

    Attributes:
        accuracy: (updates, test percent) of each evaluation.
        norms: (|g_16|^2, |g_32|^2) of each update, of batch 32 alone.
        step_s: CPU seconds of an update.
    """

    accuracy: list[tuple[int, float]]
    norms: list[tuple[float, float]]
    step_s: float

    def reached(self, target: float, batch: int) -> Reached:
        """When the smoothed curve came to the target."""
        at = np.array([at for at, _ in self.accuracy])
        values = np.array([value for _, value in self.accuracy])
        curve = Curve(at, at * float(batch), at * self.step_s, values)
        return steps_to_target(curve, target, rising=True, smoothing=min(1.0, WIDTH / len(at)))


def begin(arrays: dict[str, np.ndarray]) -> None:
    """In a process of the pool."""
    global _data
    torch.set_num_threads(1)
    _data = Data.of(arrays)


def train(job: Job) -> Trained:
    """Train until the target is passed, the loss is not finite, or the limit is reached."""
    assert _data is not None
    torch.manual_seed(job.seed)
    net = models.make("none")
    optimizer = torch.optim.SGD(
        net.parameters(), lr=job.rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    accuracy: list[tuple[int, float]] = []
    norms: list[tuple[float, float]] = []
    spent = 0.0
    for number, chosen in enumerate(batches(len(_data.x), job.batch, job.seed), 1):
        began = time.process_time()
        norms += update(
            net, optimizer, _data.x[chosen], _data.y[chosen], in_halves=job.batch == BASE
        )
        spent += time.process_time() - began
        if number % max(1, EVERY // job.batch) == 0:
            found, loss = models.score(net, _data.x_test, _data.y_test)
            accuracy.append((number, 100 * found))
            passed = (
                len(accuracy) >= WIDTH
                and statistics.fmean(one for _, one in accuracy[-WIDTH:]) >= job.target + BEYOND
            )
            if passed or not math.isfinite(loss) or number >= LIMIT.get(job.batch, 500):
                return Trained(accuracy, norms, spent / number)
    raise AssertionError("batches have no end")


def batches(samples: int, batch: int, seed: int) -> Iterator[torch.Tensor]:
    """Shuffled anew in every epoch, without end."""
    order = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(samples, generator=order)[: samples // batch * batch].split(batch)


def update(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    y: torch.Tensor,
    in_halves: bool,
) -> list[tuple[float, float]]:
    """One optimizer step; in two micro-batches, whose norms are told, where that is asked for."""
    optimizer.zero_grad()
    if not in_halves:
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        return []
    half = len(x) // 2
    (0.5 * nn.functional.cross_entropy(net(x[:half]), y[:half])).backward()
    first = 4 * norm_sq(net)  # the mean over the half is twice what has come back so far
    (0.5 * nn.functional.cross_entropy(net(x[half:]), y[half:])).backward()
    whole = norm_sq(net)
    optimizer.step()
    return [(first, whole)]


def norm_sq(net: nn.Module) -> float:
    """Squared norm of the gradient."""
    return sum(float(one.grad.square().sum()) for one in net.parameters() if one.grad is not None)


def all_of(
    jobs: Sequence[Job], data: Data, keep: Path | None, processes: int
) -> dict[Job, Trained]:
    """Train what is not kept yet."""
    found = {}
    for job in jobs:
        if keep is not None and (keep / job.name).exists():
            found[job] = Trained(**json.loads((keep / job.name).read_text()))
    todo = [job for job in jobs if job not in found]
    with ProcessPoolExecutor(processes, get_context("forkserver"), begin, (data.arrays(),)) as pool:
        for job, trained in zip(todo, pool.map(train, todo)):
            found[job] = trained
            if keep is not None:
                (keep / job.name).write_text(json.dumps(asdict(trained)))
    return found


def tuned(found: dict[Job, Trained], batch: int, target: float) -> float:
    """The rate with the fewest updates to the target, mean over the seeds of tuning; a training
    that never comes there loses.
    """

    def mean(rate: float) -> float:
        jobs = [Job(batch, rate, seed, target) for seed in TUNED_ON]
        return statistics.fmean(
            found[job].reached(target, batch).updates or math.inf for job in jobs
        )

    return min(RATES[batch], key=mean)


def noise_of(trained: Trained, reached: Reached, samples: int) -> NoiseOverTraining:
    """Of the updates up to the target."""
    norms = np.array(trained.norms)[: int(reached.updates or 0)]
    updates = np.arange(len(norms))
    seen = updates * float(BASE)
    sizes = np.full(len(norms), float(BASE))
    column = GradientNorms(
        updates,
        seen,
        updates * trained.step_s,
        norms[:, 0],
        norms[:, 1],
        sizes / 2,
        sizes,
        "accumulation",
        2,
    )
    run = TrainingRecord(
        "base",
        {},
        column,
        "",
        {},
        1,
        float(BASE),
        seen[-1],
        float(samples),
        len(norms),
        trained.step_s,
        True,
    )
    return _noise_over_training(run)


@dataclass(frozen=True)
class Held:
    """A prediction from the run of a seed against the mean over seeds of what was measured,
    updates.
    """

    seed: int
    batch: int
    predicted: TimeToTarget
    measured: float
    step_s: float

    @property
    def high(self) -> float:
        """Upper end; infinity: the curve may not come to the target."""
        high = self.predicted.updates_high
        return math.inf if high is None else high

    @property
    def inside(self) -> bool:
        return (self.predicted.updates_low or math.inf) <= self.measured <= self.high


def fitted(measured: dict[int, float]) -> tuple[float, float]:
    """Fewest updates, and updates times samples: least squares of S = a + c / B, relative to S."""
    batches, updates = np.array(list(measured), float), np.array(list(measured.values()))
    columns = np.stack([np.ones(len(batches)), 1 / batches], 1) / updates[:, None]
    fewest, slope = np.linalg.lstsq(columns, np.ones(len(batches)), rcond=None)[0]
    return float(fewest), float(slope)


def show(
    held: Sequence[Held], noises: dict[int, NoiseOverTraining], base: dict[int, Reached]
) -> bool:
    """Print what came out; returns whether the goal is reached by most runs."""
    rows = [["run", "updates at 32", "noise scale", *(str(batch) for batch in LARGER), "inside"]]
    for seed, noise in noises.items():
        ours = [one for one in held if one.seed == seed]
        cells = [
            f"{one.predicted.updates:.0f} ({one.predicted.updates_low:.0f}-{one.high:.0f})"
            for one in ours
        ]
        inside = sum(one.inside for one in ours)
        rows.append(
            [
                str(seed),
                f"{base[seed].updates:.0f}",
                f"{noise.value:.0f} ({noise.low:.0f}-{noise.high:.0f})",
                *cells,
                f"{inside} of 5",
            ]
        )
    first = [one for one in held if one.seed == min(noises)]
    rows.append(["measured", "", "", *(f"{one.measured:.0f}" for one in first), ""])
    print(table(rows))
    fewest, slope = fitted(
        {
            BASE: statistics.fmean(one.updates or math.nan for one in base.values()),
            **{one.batch: one.measured for one in first},
        }
    )
    print(f"\nwhat was measured follows {fewest:.0f} (1 + {slope / fewest:.0f} / B)")
    errors = [abs(math.log((one.predicted.updates or 1) / one.measured)) for one in held]
    widths = [one.high / (one.predicted.updates_low or 1) for one in held]
    inside = sum(one.inside for one in held) / len(held)
    print(
        f"inside {100 * inside:.0f} %; off by a factor of "
        f"{math.exp(statistics.median(errors)):.2f} in the median, ",
        end="",
    )
    print(
        f"{math.exp(max(errors)):.2f} at most; a band's upper end is "
        f"{statistics.median(widths):.1f} times its lower"
    )
    reached = sum(sum(one.inside for one in held if one.seed == seed) >= GOAL for seed in noises)
    print(f"{reached} of {len(noises)} runs have {GOAL} of 5 batches or more inside")
    return reached > len(noises) / 2


@dataclass(frozen=True)
class Measured:
    """Trainings of every batch and seed, at the rate that was tuned for the batch."""

    trained: dict[tuple[int, int], Trained]
    reached: dict[tuple[int, int], Reached]
    seeds: range

    def updates(self, batch: int) -> float:
        """Mean updates to the target, over the seeds that came there."""
        came = (self.reached[batch, seed].updates for seed in self.seeds)
        return statistics.fmean(updates for updates in came if updates is not None)

    def step_s(self, batch: int) -> float:
        return statistics.median(self.trained[batch, seed].step_s for seed in self.seeds)


def tuned_rates(args: argparse.Namespace, data: Data) -> dict[int, float]:
    """The best rate of each batch, on seeds of their own."""
    jobs = [
        Job(batch, rate, seed, args.target)
        for batch, rates in RATES.items()
        for rate in rates
        for seed in TUNED_ON
    ]
    found = all_of(jobs, data, args.keep, args.processes)
    rates = {batch: tuned(found, batch, args.target) for batch in RATES}
    print("rates:", ", ".join(f"{batch}: {rate:g}" for batch, rate in rates.items()))
    return rates


def measure(args: argparse.Namespace, data: Data, rates: dict[int, float]) -> Measured:
    """Train every batch with every seed, and name those that never came to the target."""
    seeds = range(args.seeds)
    jobs = {
        (batch, seed): Job(batch, rate, seed, args.target)
        for batch, rate in rates.items()
        for seed in seeds
    }
    found = all_of(list(jobs.values()), data, args.keep, args.processes)
    reached = {key: found[job].reached(args.target, key[0]) for key, job in jobs.items()}
    never = [
        f"batch {batch}, seed {seed}: {one.why}"
        for (batch, seed), one in reached.items()
        if one.updates is None
    ]
    print("\n".join(never))
    return Measured({key: found[job] for key, job in jobs.items()}, reached, seeds)


def predictions(measured: Measured, noises: dict[int, NoiseOverTraining]) -> list[Held]:
    """What each run at batch 32 predicts of the larger batches, beside what they measured."""
    held = []
    for seed, noise in noises.items():
        for batch in LARGER:
            step_s = measured.step_s(batch)
            step = StepTime(batch // BASE, step_s, None, None, "measured")
            predicted = time_to_target(measured.reached[BASE, seed], BASE, batch, noise, step)
            held.append(Held(seed, batch, predicted, measured.updates(batch), step_s))
    return held


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--target", type=float, default=70.0, help="percent")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    data = table_data.make()
    rates = tuned_rates(args, data)
    measured = measure(args, data, rates)
    base = {seed: measured.reached[BASE, seed] for seed in measured.seeds}
    noises = {
        seed: noise_of(measured.trained[BASE, seed], base[seed], len(data.x))
        for seed in measured.seeds
    }
    held = predictions(measured, noises)
    good = show(held, noises, base)
    write_json(
        args.json,
        rates=rates,
        target=args.target,
        reached={f"{batch}-{seed}": asdict(one) for (batch, seed), one in measured.reached.items()},
        noise={seed: asdict(one) for seed, one in noises.items()},
        held=[asdict(one) for one in held],
    )
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
