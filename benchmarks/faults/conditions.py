"""What surrounds a training: a CPU quota, a slow disk, cold files, busy programs, a server, a slow
link, swap. All of it real.

A condition is a context manager, which begins it, gives the ``Place`` to run in and takes
everything down again.
"""

import contextlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import netlab
from faults import files

CGROUPS = Path("/sys/fs/cgroup")
GROUP = f"feedline-faults-{os.getpid()}"
#: It ends with its parent, should that be killed.
LOOP = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, [int(sys.argv[1])])
while os.getppid() == parent: sum(range(10_000))
"""


class Unavailable(Exception):
    """This machine cannot give a condition; the reason is its message."""


@dataclass
class Place:
    """Where a training runs.

    Attributes:
        words: what ``{name}`` in its arguments stands for.
        prefix: goes before its command.
        lab: hosts for its ranks; None: all on this one.
    """

    cache: Path
    words: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    lab: netlab.Lab | None = None


Condition = Callable[[Place, str], AbstractContextManager[None]]


@contextmanager
def place(conditions: tuple[str, ...], cache: Path) -> Iterator[Place]:
    """All of these conditions, each ``name`` or ``name:value``.

    Raises:
        Unavailable: this machine cannot give one of them.
    """
    found = Place(cache, {kind: str(cache / kind) for kind in files.KINDS})
    with contextlib.ExitStack() as stack:
        for condition in conditions:
            name, _, value = condition.partition(":")
            stack.enter_context(CONDITIONS[name](found, value))
        yield found


@contextmanager
def neighbors(place: Place, cpus: str) -> Iterator[None]:
    """A busy program on each of so many of the CPUs."""
    loops = [
        subprocess.Popen([sys.executable, "-c", LOOP, str(cpu)])
        for cpu in sorted(os.sched_getaffinity(0))[:2][-int(cpus) :]
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.send_signal(signal.SIGKILL)
            loop.wait()


@contextmanager
def quota(place: Place, cpus: str) -> Iterator[None]:
    """A control group that may use this many CPUs."""
    period_us = 100_000
    quota_us = str(int(float(cpus) * period_us))
    with group(
        "cpu",
        {"cpu.cfs_period_us": str(period_us), "cpu.cfs_quota_us": quota_us},
        {"cpu.max": f"{quota_us} {period_us}"},
    ) as inside:
        place.prefix += inside
        yield


@contextmanager
def disk(place: Place, mb_per_s: str) -> Iterator[None]:
    """A control group whose reads get this much of the disk, as those of a small cloud volume do."""
    number = os.stat(place.cache).st_dev
    device, rate = f"{os.major(number)}:{os.minor(number)}", int(float(mb_per_s) * 1e6)
    with group(
        "blkio",
        {"blkio.throttle.read_bps_device": f"{device} {rate}"},
        {"io.max": f"{device} rbps={rate}"},
    ) as inside:
        place.prefix += inside
        yield


@contextmanager
def group(
    controller: str, version_1: dict[str, str], version_2: dict[str, str]
) -> Iterator[list[str]]:
    """A new control group with these files; gives the prefix of a command that runs in it."""
    old = (CGROUPS / controller).is_dir()
    folder = (
        (CGROUPS / controller if old else CGROUPS) / own_group(controller if old else "") / GROUP
    )
    try:
        folder.mkdir()
        for name, value in (version_1 if old else version_2).items():
            (folder / name).write_text(value)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise Unavailable(f"no control group of {controller}: {error}") from error
    try:
        yield ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
    finally:
        remove(folder)


def own_group(controller: str) -> str:
    """The one that this process is in; an empty name stands for version 2."""
    memberships = (
        line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()
    )
    return next(
        (path.lstrip("/") for _, names, path in memberships if controller in names.split(",")), ""
    )


def remove(group: Path) -> None:
    """A group can go when its last process has."""
    for _ in range(50):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.1)


@contextmanager
def cold(place: Place, kind: str) -> Iterator[None]:
    """None of these files is in the page cache."""
    files.evict(Path(place.words[kind]))
    yield


@contextmanager
def warm(place: Place, kind: str) -> Iterator[None]:
    """All of them are."""
    for path in Path(place.words[kind]).iterdir():
        path.read_bytes()
    yield


@contextmanager
def server(place: Place, kind: str) -> Iterator[None]:
    """A web server for these files, in a process of its own, whose answers are as late as each
    request asks for.
    """
    process = subprocess.Popen([sys.executable, "-m", "faults.conditions", place.words[kind]], stdout=subprocess.PIPE, text=True,
                               cwd=Path(__file__).parents[1])  # fmt: skip
    try:
        assert process.stdout
        place.words["server"] = process.stdout.readline().strip()
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def keeping(place: Place, mb: str) -> Iterator[None]:
    """glibc's malloc keeps so much of the memory that is freed."""
    nbytes = int(mb) << 20
    place.prefix += ["env", f"MALLOC_MMAP_THRESHOLD_={nbytes}", f"MALLOC_TRIM_THRESHOLD_={nbytes}"]
    yield


class Answers(http.server.SimpleHTTPRequestHandler):
    """A file of the folder, after ``?ms=``."""

    def do_GET(self) -> None:
        asked = urllib.parse.urlparse(self.path)
        time.sleep(float(urllib.parse.parse_qs(asked.query).get("ms", ["0"])[0]) / 1e3)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


def serve(folder: str) -> None:
    """Until the parent is gone."""
    parent = os.getppid()
    os.chdir(folder)
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{served.server_port}/", flush=True)
    while os.getppid() == parent:
        time.sleep(0.5)


@contextmanager
def link(place: Place, mbit: str) -> Iterator[None]:
    """Two hosts, whose links send so many Mbit/s each way."""
    if why := netlab.refusal():
        raise Unavailable(why)
    netlab.PREFIX, netlab.SWITCH = "ff", "ffsw"  # beside another laboratory
    with netlab.lab(2, float(mbit)) as place.lab:
        yield
    place.lab = None


@contextmanager
def memory(place: Place, mb: str) -> Iterator[None]:
    """A control group that may keep this much in memory, and swap nothing of it."""
    limit = str(int(mb) << 20)
    version_1 = {"memory.limit_in_bytes": limit, "memory.swappiness": "0"}
    with group("memory", version_1, {"memory.max": limit, "memory.swap.max": "0"}) as inside:
        place.prefix += inside
        yield


@contextmanager
def swap(place: Place, mb: str) -> Iterator[None]:
    """A swap file, and a control group that may keep this much in memory."""
    if shutil.disk_usage(place.cache).free < 4 << 30:
        raise Unavailable("less than 4 GB of disk for a swap file")
    file = place.cache / "swap"
    made = f"fallocate -l 2G {file} && chmod 600 {file} && mkswap -q {file} && swapon {file}"
    if (tried := subprocess.run(["sh", "-c", made], capture_output=True, text=True)).returncode:
        file.unlink(missing_ok=True)
        raise Unavailable(f"no swap: {tried.stderr.strip()}")
    limit = str(int(mb) << 20)
    try:
        with group("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit}) as inside:
            place.prefix += inside
            yield
    finally:
        subprocess.run(["swapoff", str(file)], check=True)
        file.unlink()


CONDITIONS: dict[str, Condition] = {
    "neighbors": neighbors,
    "quota": quota,
    "disk": disk,
    "cold": cold,
    "warm": warm,
    "server": server,
    "link": link,
    "swap": swap,
    "memory": memory,
    "keeping": keeping,
}

if __name__ == "__main__":
    serve(sys.argv[1])
