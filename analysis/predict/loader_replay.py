"""Replay of one pass over a DataLoader.

When is each batch there, and how long does training wait for it, with these settings? A
discrete-event simulation of torch's dispatch (``torch/utils/data/dataloader.py``,
``_MultiProcessingDataLoaderIter``): at the start ``prefetch_factor`` batches are asked of each
worker in turn, and each batch that is handed over asks for one more. With ``in_order`` a batch
waits for all before it, and its worker gets no new work meanwhile; the main process receives those
that come too early, too. With ``pin_memory`` a thread of the main process receives them instead,
and copies one after the other to pinned memory (``_pin_memory_loop``).

Threads that compute share the CPUs evenly: while there are more of them than CPUs, all run slower.
That is processor sharing (Kleinrock, Queueing Systems II, 1976, section 4.4). Threads that wait for
something else than a CPU are not slowed.
"""

import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, cycle, islice

_MAIN, _PINS, _FIRST_SENDER = -1, -2, -3
# whether a worker still makes a batch, while another of its threads waits for Python's lock
_LOOKS = 4
_LAG = 2  # steps of a few hundred launches each, of which CUDA queues about a thousand
# of an actor's work: seconds, and threads that compute for so long on CPUs of their own (0: it
# waits)
_Part = tuple[float, float]
_Actor = Generator[_Part | None, None, None]  # None: until it is woken


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
        pieces: in which it computes and waits in turns.
    """

    cpu_s: float
    off_cpu_s: float
    threads: float = 1.0
    pieces: int = 1

    @property
    def alone_s(self) -> float:
        """Seconds, where it competes with nothing."""
        return self.off_cpu_s + self.cpu_s / self.threads


NOTHING = Task(0.0, 0.0)


@dataclass(frozen=True)
class Pass:
    """One pass over a loader.

    Attributes:
        batches: what making each takes, in the order of the sampler.
        steps: what training does with each; as many as there are batches, or fewer where training
            ends before.
        receiving: what the main process takes to receive a batch from a worker, or from the thread
            that pins.
        gpu_s: what the GPU takes for the work of a step; it lags behind the main process, but by no
            more than _LAG steps.
        pinning: what copying a batch to pinned memory takes that thread, or without workers the
            main process; NOTHING: it is not done.
        unpacking: what receiving it takes that thread.
        sending: seconds from when a worker has made a batch until it can be received.
        starting: what the main process takes to start each worker.
        births: what a worker takes from its start to its first batch.
        lock_s: how long a worker's other threads wait for Python's lock while its main thread makes
            the next batch: once to send a batch.
        locks: how often they do to hand over its memory, while the main process receives it.
    """

    batches: Sequence[Task]
    steps: Sequence[Task]
    receiving: Task = NOTHING
    pinning: Task = NOTHING
    unpacking: Task = NOTHING
    gpu_s: float = 0.0
    sending: float = 0.0
    starting: Task = NOTHING
    births: Task = NOTHING
    lock_s: float = 0.0
    locks: int = 0


@dataclass(frozen=True)
class Replayed:
    """One pass.

    Attributes:
        ends_s: when each step has ended, from the beginning of the pass.
        wait_s: seconds that the main process had no batch and nothing to receive.
        cpu_s: CPU seconds of main process and workers until the last step ended.
        made_s: how long the making of each batch took, in the order in which they were made.
        locked_s: seconds that the main process waited for Python's lock in workers while it
            received batches.
    """

    ends_s: list[float]
    wait_s: float
    cpu_s: float
    made_s: list[float]
    locked_s: float

    @property
    def total_s(self) -> float:
        return self.ends_s[-1] if self.ends_s else 0.0


@dataclass
class _Clock:
    """Moves those who compute, and those who wait, to their next event.

    Attributes:
        cpus: that those who compute share.
        others: threads of other programs that compute all the time.
        now: seconds.
        share_s: CPU seconds that a thread has got which computed all the time.
        threads: that compute now.
        used_s: CPU seconds of all.
    """

    cpus: float
    others: float = 0.0
    now: float = 0.0
    share_s: float = 0.0
    threads: float = 0.0
    used_s: float = 0.0
    _computing: list[tuple[float, int, int, float]] = field(default_factory=list)
    _waiting: list[tuple[float, int, int]] = field(default_factory=list)
    _tie: "count[int]" = field(default_factory=count)

    def begin(self, actor: int, part: _Part) -> None:
        """Let an actor compute, or wait."""
        seconds, threads = part
        if threads:
            heappush(self._computing, (self.share_s + seconds, next(self._tie), actor, threads))
            self.threads += threads
        else:
            heappush(self._waiting, (self.now + seconds, next(self._tie), actor))

    def next(self) -> int:
        """Go on to the next event: the actor that is done."""
        wanted = self.threads + self.others
        speed = 1.0 if wanted <= self.cpus else self.cpus / wanted
        done = (
            self.now + (self._computing[0][0] - self.share_s) / speed
            if self._computing
            else float("inf")
        )
        computes = not self._waiting or done <= self._waiting[0][0]
        passed = (done if computes else self._waiting[0][0]) - self.now
        self.now += passed
        self.share_s += passed * speed
        self.used_s += passed * speed * self.threads
        if not computes:
            return heappop(self._waiting)[2]
        _, _, actor, threads = heappop(self._computing)
        self.threads = self.threads - threads if self._computing else 0.0
        return actor


class _Replay:
    """The state of one pass."""

    def __init__(self, setting: Setting, work: Pass, clock: _Clock) -> None:
        self.setting, self.work, self.clock = setting, work, clock
        workers = range(setting.num_workers)
        self.asked: list[deque[int]] = [deque() for _ in workers]
        self.outstanding = [0 for _ in workers]  # asked for, and not yet handed over
        self.turn = cycle(workers)
        self.by: dict[int, int] = {}  # batch -> worker
        self.sent: deque[tuple[float, int]] = deque()  # by workers: when each batch can be received
        pins = work.pinning != NOTHING and setting.num_workers > 0
        self.receiver = _PINS if pins else _MAIN  # from workers
        # for the main process
        self.ready: deque[tuple[float, int]] = deque() if pins else self.sent
        self.early: set[int] = set()  # received, and not yet their turn
        self.drawn = 0
        self.idle: set[int] = set()
        self.waited = 0.0
        self.ends: list[float] = []
        self.on_gpu: list[float] = []  # when the GPU has done each step's work
        self.made: list[float] = []
        self.locked = 0.0
        self.making: set[int] = set()  # workers
        self.queued: list[deque[int]] = [deque() for _ in workers]  # made, and not yet sent
        self.actors = {number: self._worker(number) for number in workers}
        self.actors |= {_FIRST_SENDER - number: self._sender(number) for number in workers}
        self.actors[_PINS] = self._pins()
        self.actors[_MAIN] = self._main() if setting.num_workers else self._alone()
        self.dice = random.Random(0)

    def run(self) -> Replayed:
        """Replay it to the end of its last step."""
        for actor in (
            _PINS,
            *(_FIRST_SENDER - number for number in range(self.setting.num_workers)),
            _MAIN,
        ):
            self._go_on(actor)
        while len(self.ends) < len(self.work.steps):
            self._go_on(self.clock.next())
        return Replayed(self.ends, self.waited, self.clock.used_s, self.made, self.locked)

    def _go_on(self, actor: int) -> None:
        part = next(self.actors[actor], None)
        if part is None:
            self.idle.add(actor)
        else:
            self.clock.begin(actor, part)

    def _wake(self, actor: int) -> None:
        if actor in self.idle:
            self.idle.remove(actor)
            self.clock.begin(actor, (0.0, 0.0))

    def _does(self, task: Task) -> Generator[_Part, None, None]:
        cuts = (
            [0.0, *sorted(self.dice.random() for _ in range(task.pieces - 1)), 1.0]
            if task.off_cpu_s and task.cpu_s
            else [0.0, 1.0]
        )
        for begin, end in zip(cuts, cuts[1:]):
            if task.cpu_s:
                yield (end - begin) * task.cpu_s / task.threads, task.threads
            if task.off_cpu_s:
                yield (end - begin) * task.off_cpu_s, 0.0

    def _alone(self) -> _Actor:
        """Replay without workers: making a batch and its step take turns."""
        for batch, step in zip(self.work.batches, self.work.steps):
            begin = self.clock.now
            yield from self._does(batch)
            self.made.append(self.clock.now - begin)
            yield from self._does(self.work.pinning)
            self.waited += self.clock.now - begin
            yield from self._step(step)

    def _worker(self, number: int) -> _Actor:
        yield from self._does(self.work.births)
        while True:
            while not self.asked[number]:
                yield None
            batch, begin = self.asked[number].popleft(), self.clock.now
            self.making.add(number)
            yield from self._does(self.work.batches[batch])
            self.making.discard(number)
            self.made.append(self.clock.now - begin)
            self.queued[number].append(batch)
            self._wake(_FIRST_SENDER - number)

    def _sender(self, number: int) -> _Actor:
        """Run the worker's thread that sends its batches."""
        while True:
            while not self.queued[number]:
                yield None
            batch = self.queued[number].popleft()
            yield from self._lock(number)
            self.sent.append((self.clock.now + self.work.sending, batch))
            self._wake(self.receiver)

    def _lock(self, worker: int) -> _Actor:
        """Get Python's lock in a worker."""
        for _ in range(_LOOKS):
            if self.work.lock_s and worker in self.making:
                yield self.work.lock_s / _LOOKS, 0.0

    def _pins(self) -> _Actor:
        while True:
            batch = yield from self._first_of(self.sent)
            yield from self._does(self.work.unpacking)
            yield from self._does(self.work.pinning)
            self.ready.append((self.clock.now, batch))
            self._wake(_MAIN)

    def _main(self) -> _Actor:
        for number in range(self.setting.num_workers):
            yield from self._does(self.work.starting)
            self._go_on(number)
        for _ in range(self.setting.num_workers * self.setting.prefetch_factor):
            self._ask()
        for number, step in enumerate(self.work.steps):
            yield from self._next(number)
            yield from self._step(step)

    def _step(self, step: Task) -> _Actor:
        begin = self.clock.now
        yield from self._does(step)
        if self.work.gpu_s:
            self.on_gpu.append(
                max(
                    self.clock.now,
                    max(begin, self.on_gpu[-1] if self.on_gpu else 0.0) + self.work.gpu_s,
                )
            )
            if len(self.on_gpu) > _LAG and (late := self.on_gpu[-1 - _LAG] - self.clock.now) > 0:
                yield late, 0.0
        self.ends.append(self.clock.now)

    def _next(self, number: int) -> _Actor:
        """Receive batches until there is one to hand over, as ``_next_data`` does."""
        batch = number
        while number not in self.early:
            begin = self.clock.now
            batch = yield from self._first_of(self.ready)
            self.waited += self.clock.now - begin
            yield from self._receive(batch)
            if batch == number or not self.setting.in_order:
                break
            self.early.add(batch)
        else:
            batch = number
            self.early.remove(number)
        self.outstanding[self.by.pop(batch)] -= 1
        self._ask()

    def _receive(self, batch: int) -> _Actor:
        yield from self._does(self.work.receiving)
        begin = self.clock.now
        for _ in range(self.work.locks):
            yield from self._lock(self.by[batch])
        self.locked += self.clock.now - begin

    def _first_of(self, queue: deque[tuple[float, int]]) -> Generator[_Part | None, None, int]:
        """Wait for a batch."""
        while not queue:
            yield None
        at, batch = queue.popleft()
        if at > self.clock.now:
            yield at - self.clock.now, 0.0
        return batch

    def _ask(self) -> None:
        """Ask for a batch, as ``_try_put_index`` does.

        The next batch of the sampler goes to the next worker in turn, or to the next that has room.
        """
        if self.drawn == len(self.work.batches):
            return
        for number in islice(self.turn, self.setting.num_workers):
            if self.setting.in_order or self.outstanding[number] < self.setting.prefetch_factor:
                break
        else:
            return
        self.asked[number].append(self.drawn)
        self.outstanding[number] += 1
        self.by[self.drawn] = number
        self.drawn += 1
        self._wake(number)


def replay(setting: Setting, work: Pass, cpus: float, others: float = 0.0) -> Replayed:
    """Replay one pass; without workers, batches and steps take turns.

    Args:
        others: threads of other programs that want a CPU all the time.
    """
    return _Replay(setting, work, _Clock(cpus, others)).run()
