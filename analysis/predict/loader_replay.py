"""Replay of one epoch of a DataLoader: when is each batch ready, and how long does training wait for it, with these settings?

A discrete-event simulation of torch's dispatch (``torch/utils/data/dataloader.py``, ``_MultiProcessingDataLoaderIter``): at the start
``prefetch_factor`` batches are asked of each worker in turn, and each batch that is handed over asks for one more. With ``in_order`` a
batch waits for all before it, and its worker gets no new work meanwhile.

Everybody who wants a CPU gets the same speed. While more threads run than there are CPUs, all of them run slower: processor sharing
(Kleinrock, Queueing Systems II, 1976, section 4.4), between the events of the simulation.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

DONE = 1e-9  # of a task's remaining part
SPEED_STEPS = 40  # of the bisection for the speed of a CPU


@dataclass(frozen=True)
class Setting:
    """Arguments of the DataLoader."""

    num_workers: int
    prefetch_factor: int = 2
    in_order: bool = True


@dataclass(frozen=True)
class Task:
    """What one batch, or one step, takes on CPUs of its own.

    Attributes:
        cpu_s: CPU seconds, of all its threads.
        off_cpu_s: seconds in which it waits for something that is not a CPU: a disk, a lock, a GPU.
        threads: that share its CPU seconds evenly.
    """

    cpu_s: float
    off_cpu_s: float
    threads: float = 1.0

    def takes_s(self, speed: float) -> float:
        """Seconds, where each of its threads has this share (0 to 1) of a CPU."""
        return self.off_cpu_s + self.cpu_s / self.threads / speed

    def uses(self, speed: float) -> float:
        """CPUs that it keeps busy meanwhile."""
        whole = self.takes_s(speed)
        return self.cpu_s / whole if whole > 0 else 0.0


@dataclass
class Running:
    """A task under way."""

    task: Task
    left: float = 1.0  # part of it


@dataclass(frozen=True)
class Replayed:
    """One epoch.

    Attributes:
        total_s: from asking for the first batch to the end of the last step.
        wait_s: of it, without a batch.
    """

    total_s: float
    wait_s: float


@dataclass
class Worker:
    """A worker process: the batches that it was asked for, in this order."""

    asked: deque[int] = field(default_factory=deque)
    outstanding: int = 0  # asked for, and not yet handed over
    ready_at: float = 0.0


class Epoch:
    """The state of one replay.

    Args:
        batches: what making each batch takes, in the order of the sampler.
        steps: what the training does with each, the taking over of the batch included.
        cpus: that all of them share.
        begins_s: seconds after which each worker takes its first batch.
    """

    def __init__(self, setting: Setting, batches: Sequence[Task], steps: Sequence[Task], cpus: float, begins_s: Sequence[float] = ()):
        self.setting, self.batches, self.steps, self.cpus = setting, batches, steps, cpus
        begins = [*begins_s, *[begins_s[-1] if begins_s else 0.0] * setting.num_workers]
        self.workers = [Worker(ready_at=begins[number]) for number in range(setting.num_workers)]
        self.turn = cycle(range(setting.num_workers))
        self.running: dict[int, Running] = {}  # worker, or MAIN
        self.by: dict[int, int] = {}  # batch -> worker
        self.made: list[int] = []  # in the order of arrival
        self.sent = self.taken = 0
        self.now = self.waited = 0.0

    def replay(self) -> Replayed:
        """Run it to its end."""
        for _ in range(self.setting.num_workers * self.setting.prefetch_factor):
            self._ask()
        while self.taken < len(self.batches) or MAIN in self.running:
            self._start()
            self._advance()
        return Replayed(self.now, self.waited)

    def _ask(self) -> None:
        """``_try_put_index``: the next batch of the sampler goes to the next worker in turn, or to the next that has room."""
        if self.sent == len(self.batches):
            return
        for number in islice(self.turn, len(self.workers)):
            if self.setting.in_order or self.workers[number].outstanding < self.setting.prefetch_factor:
                break
        else:
            return
        worker = self.workers[number]
        worker.asked.append(self.sent)
        worker.outstanding += 1
        self.by[self.sent] = number
        self.sent += 1

    def _start(self) -> None:
        """Whoever can begin something does."""
        for number, worker in enumerate(self.workers):
            if number not in self.running and worker.asked and worker.ready_at <= self.now:
                self.running[number] = Running(self.batches[worker.asked[0]])
        if MAIN not in self.running and self.made and self.taken < len(self.batches):
            if not self.setting.in_order:
                self._take(self.made[0])
            elif self.taken in self.made:
                self._take(self.taken)

    def _take(self, batch: int) -> None:
        """Hand a batch over: its step begins, and one more is asked for."""
        self.made.remove(batch)
        self.workers[self.by.pop(batch)].outstanding -= 1
        self.running[MAIN] = Running(self.steps[self.taken])
        self.taken += 1
        self._ask()
        self._start()

    def _advance(self) -> None:
        """Go on to the next event: somebody is done, or a worker is there."""
        speed = self._speed()
        rest = {who: run.left * run.task.takes_s(speed) for who, run in self.running.items()}
        begins = [worker.ready_at - self.now for number, worker in enumerate(self.workers) if worker.ready_at > self.now]
        passed = min([*rest.values(), *begins])
        self.now += passed
        if MAIN not in self.running:
            self.waited += passed
        for who, whole in rest.items():
            run = self.running[who]
            run.left = run.left * (1 - passed / whole) if whole > passed else 0.0
            if run.left <= DONE:
                del self.running[who]
                if who != MAIN:
                    self.made.append(self.workers[who].asked.popleft())

    def _speed(self) -> float:
        """Share of a CPU that each thread gets that wants one."""
        tasks = [run.task for run in self.running.values()]
        if sum(task.uses(1.0) for task in tasks) <= self.cpus:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(SPEED_STEPS):
            speed = (low + high) / 2
            low, high = (speed, high) if sum(task.uses(speed) for task in tasks) <= self.cpus else (low, speed)
        return high


MAIN = -1


def replay(setting: Setting, batches: Sequence[Task], steps: Sequence[Task], cpus: float, begins_s: Sequence[float] = ()) -> Replayed:
    """One epoch; without workers, batches and steps take turns."""
    if setting.num_workers:
        return Epoch(setting, batches, steps, cpus, begins_s).replay()
    spent = [batch.takes_s(1.0) for batch in batches]
    return Replayed(sum(spent) + sum(step.takes_s(min(1.0, cpus / step.threads)) for step in steps), sum(spent))
