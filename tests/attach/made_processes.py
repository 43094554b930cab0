"""Made-up processes of a training that is looked at: what their stacks show, and what they use."""

from feedline.profiler.attach.watched import (
    SeenStack,
    Usage,
    Watched,
    WatchedProcess,
    WatchedThread,
)
from feedline.profiler.stacks.thread_stacks import Place

TORCH = "/venv/lib/python3.11/site-packages/torch/"
PYTHON = "/usr/lib/python3.11/"
SECONDS, SAMPLES = 30.0, 300

#: Frames, outermost first.
FORKED = [("/p/train.py", "main", 9), (PYTHON + "multiprocessing/process.py", "_bootstrap", 314)]
SPAWNED = [(PYTHON + "multiprocessing/spawn.py", "_main", 135), FORKED[1]]
JOIN = [("/p/train.py", "main", 12), (PYTHON + "multiprocessing/process.py", "join", 149)]
COMMAND = [("/p/launch.py", "main", 7), (PYTHON + "subprocess.py", "wait", 1264)]
FOR_BATCH = [("/p/train.py", "main", 20), (TORCH + "utils/data/dataloader.py", "__next__", 701)]
FEEDS = [(PYTHON + "multiprocessing/queues.py", "_feed", 231)]

Frames = list[tuple[str, str, int]]


def thread(*stacks: Frames, is_main: bool = True, waits_on: str = "", number: int = 0):
    """A thread that was seen in these stacks equally often."""
    seen = [tuple(Place(*frame) for frame in frames) for frames in stacks]
    share = SAMPLES // len(seen)
    return WatchedThread(
        number,
        is_main,
        tuple(SeenStack(frames, share, SECONDS / len(seen)) for frames in seen),
        seen[-1],
        waits_on=waits_on,
    )


def process(
    pid: int,
    *threads: WatchedThread,
    parent: int = 1,
    cpus: float = 0.0,
    state: str = "S",
    rank: int | None = None,
    launcher: str = "none",
) -> WatchedProcess:
    """A process that was watched for 30 s."""
    return WatchedProcess(
        pid,
        parent,
        rank,
        "python",
        ("python", "train.py"),
        "/p",
        float(pid),
        state,
        state == "Z",
        SECONDS,
        Usage(cpu_s=cpus * SECONDS),
        threads,
        launcher=launcher,
    )


def watched(*processes: WatchedProcess) -> Watched:
    """A training of these processes, the one that was named first."""
    return Watched(processes[0].pid, SECONDS, "feedline", 0.1, processes)
