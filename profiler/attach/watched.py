"""What was seen of a training from outside: numbers and stacks, of each of its processes."""

from dataclasses import dataclass

from feedline.profiler.stacks.thread_stacks import Place

STOPPED, ZOMBIE = "T", "Z"


@dataclass(frozen=True)
class SeenStack:
    """One stack, however often it was seen.

    Attributes:
        frames: outermost first.
        samples: how often it was seen.
        seconds: wall time that these samples stand for.
    """

    frames: tuple[Place, ...]
    samples: int
    seconds: float


@dataclass(frozen=True)
class WatchedThread:
    """A thread that runs Python code.

    Attributes:
        number: its native id; 0: unknown.
        is_main: whether it is the process's main thread.
        stacks: those that were seen.
        last: the last one, outermost frame first.
        switches: how often it gave up its CPU.
        waits_on: what it waited for at the end: lock, shared lock, sleep, network, another process,
            file; empty: nothing, or the kernel does not say.
        waited_s: for how long a main thread has not run at the end; None: the kernel does not say.
    """

    number: int
    is_main: bool
    stacks: tuple[SeenStack, ...]
    last: tuple[Place, ...]
    switches: int = 0
    waits_on: str = ""
    waited_s: float | None = None


@dataclass(frozen=True)
class Usage:
    """What the kernel counts of a process.

    Attributes:
        cpu_s: CPU time of all its threads.
        runqueue_s: that its main thread waited for a CPU.
        read_bytes, written_bytes: from and to storage; 0: it must not be read.
        faults: page faults that needed storage.
        rss_bytes: resident memory, at the end.
    """

    cpu_s: float = 0.0
    runqueue_s: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    faults: int = 0
    rss_bytes: int = 0


@dataclass(frozen=True)
class WatchedProcess:
    """A process.

    Attributes:
        pid: its number.
        parent: that of the process that started it.
        rank: as its environment says; None: it does not.
        name: as the kernel has it; of torch's workers pt_data_worker.
        command: its program and arguments.
        folder: in which it works.
        begun_s: when it started, seconds since 1970.
        state: letter by which the kernel tells whether it runs, sleeps, is stopped or has ended; at
            the end.
        ended: whether it ended meanwhile.
        seconds: for how long it was watched.
        usage: of CPUs, storage and memory in that time.
        threads: those that run Python code.
        refused: why its stacks are unknown; empty: they are not.
        launcher: who numbered the ranks (RankPlace).
    """

    pid: int
    parent: int
    rank: int | None
    name: str
    command: tuple[str, ...]
    folder: str
    begun_s: float
    state: str
    ended: bool
    seconds: float
    usage: Usage
    threads: tuple[WatchedThread, ...]
    refused: str = ""
    launcher: str = "none"

    @property
    def main_thread(self) -> WatchedThread | None:
        """Its main thread; None: it runs no Python code."""
        return next((thread for thread in self.threads if thread.is_main), None)


@dataclass(frozen=True)
class WatchedCpus:
    """The CPUs that a training may use.

    Attributes:
        allowed: those of its mask, and no more than its quota, where that is known. CPUs.
        free: those of its mask on which nothing ran while it was watched, on average. CPUs.
        busy: those on which anything of this machine ran. The rest is another machine's, which a
            hypervisor gave it to. CPUs.
    """

    allowed: float
    free: float
    busy: float


@dataclass(frozen=True)
class Watched:
    """A training.

    Attributes:
        pid: the process that was named.
        seconds: for how long it was watched.
        reader: who read the stacks: feedline or py-spy.
        cost_s: CPU time that watching took.
        processes: it and those below it, parents first.
        cpus: that it may use; None: the kernel does not say.
    """

    pid: int
    seconds: float
    reader: str
    cost_s: float
    processes: tuple[WatchedProcess, ...]
    cpus: WatchedCpus | None = None
