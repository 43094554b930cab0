"""A recorded training as the replay sees it, and its rate."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from feedline.analysis.predict.loader_replay import NOTHING, Pass, Replayed, Setting, Task, replay
from feedline.analysis.predict.starts import Starts

# neighboring batches or steps that are drawn together: what slows one often slows the next
_BLOCK = 8
_LEAST_CPUS = 0.01  # that other programs leave to the training


@dataclass(frozen=True)
class Shares:
    """Of the work of a batch, that one stage is (0 to 1)."""

    cpu: float
    off_cpu: float


@dataclass(frozen=True, eq=False)
class RecordedInput:
    """One rank's training loader and steps.

    Attributes:
        setting: as it was recorded.
        persistent: whether workers stay between passes.
        others_set: the loader's other arguments, as far as they are known.
        batches: the cost of making each one without competition for CPUs, in the order requested;
            handing it over is not included.
        steps: what the main process does with each batch after receiving it.
        receiving: the cost of receiving a batch from a worker: measured with workers, otherwise the
            middle of the estimate.
        pinning: the cost of copying a batch to pinned memory, in the thread that receives it;
            NOTHING without such a thread.
        unpacking: the cost of receiving a batch from a worker in that thread; NOTHING: the main
            process receives it.
        staying: CPU seconds that a batch takes more (negative: less) in workers that stay between
            passes, if these did not.
        receiving_bounds: lower and upper end of that estimate; empty with workers.
        handing_over: the cost, in a worker, of moving a batch into shared memory and pickling it;
            without workers, the least it can be.
        sharing_s: additional CPU seconds to make a batch in shared memory instead of pickling its
            arrays.
        freeing_s: CPU seconds of the main process to give back such a batch's memory.
        freed_s: the same of a batch as it was received; 0.0 without workers.
        sending: seconds between a batch being made and being ready to be received.
        starts: the cost of beginning a pass.
        making: stage -> its shares of the work of a batch.
        own: stage -> its share (0 to 1) of a step's own work.
        helpers: threads that compute for a worker while its own does; 1: only its own.
        cpus: that the training may use.
        others: threads of other programs that want a CPU, and share them evenly with the training.
        kept: CPUs that other programs have before the training, whatever it wants.
        disk: bytes per second from the disk while it was recorded; None: unknown or next to none.
        samples_per_batch: mean.
        samples_per_s: as the report has it.
        gpu_s: seconds that the GPU works for a batch; 0.0: not known.
        lock_s: how long a worker's other threads wait for Python's lock while it makes a batch.
        locks: how often they do to hand over a batch's memory.
        locked: share (0 to 1) of the time in which batches were made that they waited for a lock.
        drawing_s: seconds per batch in which the sampler draws; where there are workers, within what
            receiving takes.
        woken_s: seconds per batch that the main process's own work may take longer because it has
            workers: it sleeps before each, and another thread of it asks them.
    """

    setting: Setting
    persistent: bool
    others_set: Mapping[str, object]
    batches: Sequence[Task]
    steps: Sequence[Task]
    receiving: Task
    handing_over: Task
    sharing_s: float
    freeing_s: float
    freed_s: float
    sending: float
    starts: Starts
    making: Mapping[str, Shares]
    own: Mapping[str, float]
    helpers: float
    cpus: float
    others: float
    disk: float | None
    samples_per_batch: float
    samples_per_s: float
    locked: float = 0.0
    woken_s: float = 0.0
    lock_s: float = 0.0
    locks: int = 0
    staying: float = 0.0
    gpu_s: float = 0.0
    pinning: Task = NOTHING
    unpacking: Task = NOTHING
    receiving_bounds: tuple[Task, ...] = ()
    drawing_s: float = 0.0
    kept: float = 0.0

    def drawn(self, dice: random.Random, number: int) -> "RecordedInput":
        """Draw a training with other batches and steps of the same kind.

        It is a bootstrap of blocks (Kuensch, The jackknife and the bootstrap for general stationary
        observations, Annals of Statistics 17(3), 1989).

        Args:
            number: of both.
        """
        return replace(
            self,
            batches=_blocks(self.batches, dice, number),
            steps=_blocks(self.steps, dice, number),
        )

    def batches_per_s(self, batches: int) -> float:
        """Return the rate of the steps that count, as the report counts them.

        Args:
            batches: that are replayed at least. A longer pass is continued at the rate of its
                middle.
        """
        begins, long = self.starts, min(self.starts.per_pass, batches)
        passes = [self._times(number * long, long) for number in range(math.ceil(batches / long))]
        whole, first = (fmean(times) for times in zip(*passes))
        workers = self.setting.num_workers
        between = (
            begins.reset_s
            if self.persistent
            else begins.ending_s * max(1.0, workers / self.cpus) + begins.main_s
        )
        rate = ((begins.counted + 1) * begins.per_pass - 1) / (
            begins.counted * (whole + (between if workers else 0.0)) + whole - first
        )
        # each pass began with a GPU that had nothing to do
        return min(rate, 1 / self.gpu_s) if self.gpu_s else rate

    def work_s(self) -> float:
        """Return the seconds of all that is done for a batch, one thing after the other."""
        work_s = (
            fmean(map(_whole_s, self.batches))
            + fmean(map(_whole_s, self.steps))
            + _whole_s(self.pinning)
        )
        return (
            work_s + sum(map(_whole_s, (self.handing_over, self.unpacking, self.receiving)))
            if self.setting.num_workers
            else work_s
        )

    def restart_s(self) -> float:
        """Return a batch's share of the seconds that starting and ending workers takes per pass.

        One worker is started after the other.
        """
        begins, workers = self.starts, self.setting.num_workers
        if not workers or self.persistent or not begins.counted:
            return 0.0
        return (
            begins.main_s
            + _whole_s(begins.births)
            + workers * (_whole_s(begins.each) + begins.ending_s)
        ) / begins.per_pass

    def making_s(self, batches: int) -> float:
        """Return the mean seconds that a batch takes to be made, beside all that competes for CPUs."""
        return fmean(self._pass(0, min(self.starts.per_pass, batches)).made_s)

    def locked_s(self, batches: int) -> float:
        """Return the mean seconds that receiving a batch waits for Python's lock in its worker."""
        long = min(self.starts.per_pass, batches)
        return self._pass(0, long).locked_s / long

    def _times(self, begin: int, long: int) -> tuple[float, float]:
        """Return the seconds from the begin of a pass to its last step's end, and its first's.

        Arguments as of ``_pass``.
        """
        ends, early = self._pass(begin, long).ends_s, min(self._ahead(long), long // 4)
        each = (ends[-1] - ends[early]) / (long - 1 - early) if long > 1 else ends[-1]
        return ends[-1] + each * (self.starts.per_pass - long), ends[0]

    def _ahead(self, long: int) -> int:
        """Return the batches that are made beyond a part of a pass.

        None: its end was the end of the pass.
        """
        whole = self.starts.to_its_end and long == self.starts.per_pass
        return 0 if whole else self.setting.num_workers * self.setting.prefetch_factor

    def _pass(self, begin: int, long: int) -> Replayed:
        """Replay a part of a pass.

        Args:
            begin: index of its first batch among those recorded, which are gone through again and
                again.
            long: batches of it.
        """
        begins, setting = self.starts, self.setting
        started = setting.num_workers > 0 and not self.persistent and begins.counted > 0
        work = Pass(
            batches=[
                self._made(task) for task in _round(self.batches, begin, long + self._ahead(long))
            ],
            steps=_round(self.steps, begin, long),
            receiving=self.receiving,
            lock_s=self.lock_s,
            locks=self.locks,
            pinning=self.pinning,
            unpacking=self.unpacking,
            gpu_s=self.gpu_s,
            sending=self.sending,
            starting=begins.each if started else NOTHING,
            births=begins.births if started else NOTHING,
        )
        return replay(setting, work, max(self.cpus - self.kept, _LEAST_CPUS), self.others)

    def _made(self, task: Task) -> Task:
        """Return what a worker makes, and hands over; the main process hands over nothing."""
        return (
            replace(task, cpu_s=task.cpu_s + self.handing_over.cpu_s * task.threads)
            if self.setting.num_workers
            else task
        )


def _whole_s(task: Task) -> float:
    """Return how long one thread takes for all of it, s."""
    return task.cpu_s + task.off_cpu_s


def _round(tasks: Sequence[Task], begin: int, number: int) -> list[Task]:
    return [tasks[(begin + index) % len(tasks)] for index in range(number)]


def _blocks(tasks: Sequence[Task], dice: random.Random, number: int) -> list[Task]:
    drawn: list[Task] = []
    while len(drawn) < number:
        begin = dice.randrange(len(tasks))
        drawn += [tasks[(begin + index) % len(tasks)] for index in range(min(_BLOCK, len(tasks)))]
    return drawn
