"""One training: an arm with a seed."""

import math
import time
from dataclasses import dataclass

import torch
from torch import nn

from acceptance import model as models
from acceptance.arms import Arm
from acceptance.data import Data
from acceptance.optimizers import OPTIMIZERS
from acceptance.schedule import Schedule
from feedline.convergence.fixes.gradient_noise import GradientNoise


@dataclass(frozen=True)
class Run:
    """The result of a training.

    Attributes:
        letter, seed: of the arm, and of weights and order of samples.
        test: accuracy on the test samples, percent.
        train_loss: mean cross-entropy over the training samples in inference mode; not finite where
            the training diverged.
        updates: optimizer steps made.
        cpu_s: seconds of this process's CPU.
    """

    letter: str
    seed: int
    test: float
    train_loss: float
    updates: int
    cpu_s: float


def train(arm: Arm, seed: int, data: Data) -> Run:
    """Train from scratch; the same arm, seed and data give the same figures on the same machine
    with the same number of threads.

    torch's global random state is as before afterwards. A training whose loss is no longer finite
    ends at once.
    """
    began = time.process_time()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = models.make(arm.norm)
        updates = _fit(net, arm, seed, data)
    accuracy, _ = models.score(net, data.x_test, data.y_test)
    _, loss = models.score(net, data.x, data.y)
    return Run(arm.letter, seed, 100 * accuracy, loss, updates, time.process_time() - began)


def _fit(net: nn.Module, arm: Arm, seed: int, data: Data) -> int:
    order = torch.Generator().manual_seed(seed)
    optimizer = OPTIMIZERS[arm.optimizer](net, arm)
    noise = GradientNoise(arm.noise, seed)
    per_epoch = len(data.x) // arm.batch  # what does not fill a batch comes in another epoch
    schedule = Schedule.of(arm, per_epoch)
    updates = 0
    for _ in range(arm.epochs):
        shuffled = torch.randperm(len(data.x), generator=order)
        for chosen in shuffled[: per_epoch * arm.batch].split(arm.batch):
            schedule.set_rate(optimizer, updates)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(noise(net(data.x[chosen])), data.y[chosen])
            loss.backward()
            optimizer.step()
            updates += 1
            if not math.isfinite(loss.item()):
                return updates
    return updates
