"""What a sample waits for, of real waiting: a sleep, locks, a server, a pipe; and real files, which
stay storage.
"""

import fcntl
import http.server
import mmap
import multiprocessing
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import feedline
from feedline.analysis.explain.model import Report
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.events import Stage
from feedline.profiler.samplers import blocked_threads
from feedline.profiler.samplers.blocked_threads import BlockedThreads
from feedline.profiler.store.trainings import open_run

SAMPLES, BATCH, WAIT_S = 96, 8, 0.01
FORK = multiprocessing.get_context("fork")
pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/syscall"),
    reason="this kernel does not tell what a thread waits for",
)


class Samples(Dataset):
    def __init__(self, make: Callable[[int], object]) -> None:
        self.make = make

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        self.make(index)
        return torch.zeros(16)


def recorded(folder: Path, make: Callable[[int], object], workers: int) -> Report:
    """The report of a training whose samples are made so."""
    return trained(
        folder,
        DataLoader(
            Samples(make),
            BATCH,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        ),
    )


def trained(folder: Path, loader: DataLoader) -> Report:
    model = torch.nn.Linear(16, 2)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with feedline.record(folder / "run"):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    return recorded_report(open_run(folder / "run"))


def causes(report: Report) -> list[str]:
    return [finding.rule_id for finding in report.findings]


def holds(lock: object, ended: object) -> None:
    while not ended.is_set():
        with lock:
            time.sleep(2 * WAIT_S)
        time.sleep(WAIT_S / 10)


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(WAIT_S)
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(bytes(1000))

    def log_message(self, *_: object) -> None:
        pass


def serves(ports: object) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    ports.send(server.server_port)
    server.serve_forever()


def feeds(pipe: object, asked: object, ended: object) -> None:
    asked.wait()  # what it had sent by then, nobody would wait for
    while not ended.is_set():
        time.sleep(WAIT_S)
        pipe.send(bytes(100))


class Places:
    """Gives what samples wait for; what it has started ends with the test."""

    def __init__(self) -> None:
        self.ended = FORK.Event()
        self.started: list[multiprocessing.Process] = []

    def begin(self, target: Callable[..., None], *args: object) -> None:
        self.started.append(FORK.Process(target=target, args=args, daemon=True))
        self.started[-1].start()

    def sleep(self) -> Callable[[int], object]:
        return lambda _: time.sleep(WAIT_S)

    def lock_of_a_process(self) -> Callable[[int], object]:
        lock = FORK.Lock()
        self.begin(holds, lock, self.ended)
        return lambda _: lock.acquire() and lock.release()

    def lock_of_a_thread(self) -> Callable[[int], object]:
        lock = threading.Lock()
        threading.Thread(target=holds, args=(lock, self.ended)).start()
        return lambda _: lock.acquire() and lock.release()

    def server(self) -> Callable[[int], object]:
        here, there = FORK.Pipe(duplex=False)
        self.begin(serves, there)
        url = f"http://127.0.0.1:{here.recv()}/"

        def fetch(index: int) -> object:
            with urllib.request.urlopen(
                f"{url}{index}", timeout=60 if index % 2 else None
            ) as answer:  # waits in poll, or in recv
                return answer.read()

        return fetch

    def pipe(self) -> Callable[[int], object]:
        here, there = FORK.Pipe(duplex=False)
        asked = FORK.Event()
        self.begin(feeds, there, asked, self.ended)
        return lambda _: asked.set() or here.recv()


@pytest.fixture
def places() -> Iterator[Places]:
    found = Places()
    yield found
    found.ended.set()
    for process in found.started:
        process.kill()
        process.join()


WAITS = {
    "sleep": blocked_threads.ON_SLEEP,
    "lock_of_a_process": blocked_threads.ON_LOCK,
    "lock_of_a_thread": blocked_threads.ON_LOCK,
    "server": blocked_threads.ON_NETWORK,
    "pipe": blocked_threads.ON_PROCESS,
}
#: With workers, which are forks, a thread's lock is never freed, and two of them take turns at a
#: lock or a pipe.
CASES = [
    (what, workers)
    for what in WAITS
    for workers in (0, 2)
    if not (workers and what in ("lock_of_a_thread", "pipe"))
]


@pytest.mark.parametrize(("what", "workers"), CASES)
def test_waiting_without_files_is_named_and_is_not_reading(what, workers, places, tmp_path):
    report = recorded(tmp_path, getattr(places, what)(), workers)

    assert not {"small_files", "cold_storage"} & set(causes(report))
    by = report.workers.blocked_by
    assert max(by, key=by.get) == WAITS[what] and by[WAITS[what]] > 0.8, by
    if what in ("sleep", "server"):  # how long one waits for a lock is chance
        blocked = next(finding for finding in report.findings if finding.rule_id == "blocked")
        assert any(
            (evidence.id, evidence.of) == ("blocked_by_share", WAITS[what])
            for evidence in blocked.evidence
        )


def lock_of_a_file(file: Path) -> None:
    with open(file, "w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)


@pytest.mark.parametrize("whose", ["a thread", "processes", "a file"])
def test_a_lock_of_processes_is_told_from_one_of_threads(whose, tmp_path):
    lock = threading.Lock() if whose == "a thread" else FORK.Lock()
    wait = (lock_of_a_file, tmp_path / "x") if whose == "a file" else (lock.acquire,)
    with open(tmp_path / "x", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        lock.acquire()
        process = FORK.Process(target=wait[0], args=wait[1:])
        process.start()
        time.sleep(0.5)
        line = Path(f"/proc/{process.pid}/task/{process.pid}/syscall").read_bytes()
        process.kill()
        process.join()

    expected = "lock" if whose == "a thread" else "shared lock"
    assert blocked_threads.blocked_by(process.pid, line) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_reads_nothing_has_no_reads(workers, places, tmp_path):
    recorded(tmp_path, places.sleep(), workers)

    traffic = [
        process.of(Stage.TRAFFIC) for process in open_run(tmp_path / "run").ranks[0].processes
    ]
    assert sum(len(rows) for rows in traffic) == SAMPLES // BATCH
    assert sum(int(rows["extra"].sum() + rows["nbytes"].sum()) for rows in traffic) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_small_files_are_still_found(workers, tmp_path):
    for number in range(100):
        np.save(tmp_path / f"{number}.npy", np.zeros(500))

    report = recorded(
        tmp_path,
        lambda index: [np.load(tmp_path / f"{(index + at) % 100}.npy") for at in range(20)],
        workers,
    )

    assert "small_files" in causes(report) and "blocked" not in causes(report), causes(report)


def test_an_iterable_data_set_in_memory_reads_no_files(tmp_path):
    class Memory(IterableDataset):
        def __iter__(self) -> Iterator[torch.Tensor]:
            for _ in range(SAMPLES):
                time.sleep(WAIT_S / 5)
                yield torch.zeros(16)

    report = trained(tmp_path, DataLoader(Memory(), BATCH))

    assert not {"small_files", "cold_storage"} & set(causes(report))


def test_workers_of_earlier_epochs_keep_no_descriptors():
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    looks, before = BlockedThreads(), opened()
    for _ in range(5):
        workers = [FORK.Process(target=time.sleep, args=(60,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        looks.watch([(worker.pid, worker.pid) for worker in workers])
        for worker in workers:
            worker.kill()
            worker.join()
            worker.close()
    looks.watch([])

    assert opened() == before


class Pages:
    """Three hundred pages of a memory map for each sample, none of them in memory."""

    def __init__(self, path: Path) -> None:
        with open(path, "wb") as file:
            for _ in range(16):
                file.write(os.urandom(1 << 23))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.path, self.bytes = path, None

    def __call__(self, index: int) -> int:
        if self.bytes is None:
            self.bytes = np.memmap(self.path, np.uint8, "r")
            self.bytes._mmap.madvise(mmap.MADV_RANDOM)
        return int(self.bytes[np.random.default_rng(index).integers(0, len(self.bytes), 300)].sum())


@pytest.mark.quiet
def test_cold_pages_come_before_the_workers_that_wait_for_them(tmp_path):
    report = recorded(tmp_path, Pages(tmp_path / "map"), 2)

    assert report.workers.blocked_by["page fault"] > 0.7, report.workers.blocked_by
    # beside the function that reads, and other programs on a busy machine
    waits = [one for one in report.findings if one.rule_id not in ("user_code", "busy_neighbors")]
    assert waits[0].rule_id == "cold_storage", [finding.message for finding in report.findings]
    assert waits[0].settings["num_workers"] > 2
