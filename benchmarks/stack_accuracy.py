"""Shares of planted functions by sampled stacks, beside the same by clocks in the program.

    python benchmarks/stack_accuracy.py [SECONDS] [CASE ...]

Each case is a training of its own, recorded in full, in which six functions take turns: Python,
NumPy (releases the GIL), a regular expression (holds it), sleep, reading a pipe that another
process writes to, and a lock that another thread holds. They run in the loop of the main process,
in the dataset in workers of each start method, in collate, in a thread that the dataset starts, and in
workers beside other programs that use all CPUs (crowded).
A case passes if each share is within three points of the clocks, or the clocks lie in its 95 %
interval.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

FUNCTIONS = ("python", "library", "holds", "sleeps", "reads", "locks")
CASES = ("main", "fork", "spawn", "forkserver", "persistent", "collate", "thread", "crowded")
POINTS = 3.0
RATE = "100"  # samples per second, so that 20 s are enough


def python():
    total = 0
    for i in range(15000):
        total += i * i
    return total


def library():
    return np.linalg.svd(_MATRIX)


def holds():
    return re.findall(r"(?:a|b)*c", _TEXT)


def sleeps():
    time.sleep(0.0012)


def reads():
    return os.read(_pipe(), 1)


def locks():
    _holder().turn()


_MATRIX = np.random.default_rng(0).random((50, 50))
_TEXT = "ab" * 200
_STATE = {}


def _pipe():
    """A pipe that a process writes a byte to every 0.8 ms, in this process."""
    if _STATE.get("pid") != os.getpid():
        _STATE.clear()
        _STATE["pid"] = os.getpid()
    if "pipe" not in _STATE:
        program = "import time,sys\nwhile 1: time.sleep(.0008); sys.stdout.buffer.raw.write(b'x')"
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        _STATE["child"], _STATE["pipe"] = child, child.stdout.fileno()
    return _STATE["pipe"]


class _Holder:
    """A thread that takes a lock, and gives it back after 1 ms."""

    def __init__(self):
        self.lock, self.taken, self.wanted = threading.Lock(), threading.Event(), threading.Event()
        threading.Thread(target=self.hold, daemon=True).start()

    def hold(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            with self.lock:
                self.taken.set()
                time.sleep(0.001)

    def turn(self):
        self.wanted.set()
        self.taken.wait()
        self.taken.clear()
        with self.lock:
            pass


def _holder():
    _pipe()
    if "holder" not in _STATE:
        _STATE["holder"] = _Holder()
    return _STATE["holder"]


def round_of_all():
    """Seconds of each function."""
    took, functions = [], (python, library, holds, sleeps, reads, locks)
    for function in functions:
        begin = time.perf_counter()
        function()
        took.append(time.perf_counter() - begin)
    return took


def in_thread():
    took = []
    thread = threading.Thread(target=lambda: took.extend(round_of_all()))
    thread.start()
    thread.join()
    return took


class Rounds:
    def __init__(self, case, samples):
        self.case, self.samples = case, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if self.case == "thread":
            return in_thread_pool()
        return round_of_all() if self.case not in ("main", "collate") else [0.0] * len(FUNCTIONS)


def in_thread_pool():
    from concurrent.futures import ThreadPoolExecutor

    if _STATE.get("pool_pid") != os.getpid():
        _pipe()
        _STATE["pool"], _STATE["pool_pid"] = ThreadPoolExecutor(1), os.getpid()
    return _STATE["pool"].submit(round_of_all).result()


def collate(items):
    import torch

    took = np.array(items)
    for row in took:
        row[:] = round_of_all()
    return torch.tensor(took)


def train(case, seconds):
    """The recorded program: prints the seconds of each function."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    model = torch.nn.Linear(len(FUNCTIONS), 1).double()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    method = case if case in ("spawn", "forkserver") else "fork"
    workers = {} if case == "main" else {"num_workers": 1, "multiprocessing_context": method}
    if case == "persistent":
        workers["persistent_workers"] = True
    if case == "collate":
        workers["collate_fn"] = collate
    took, end = np.zeros(len(FUNCTIONS)), time.perf_counter() + seconds
    loader = DataLoader(Rounds(case, 320), 8, **workers)
    while time.perf_counter() < end:
        for batch in loader:
            batch = batch if isinstance(batch, torch.Tensor) else torch.stack(batch, 1)
            took += batch.sum(0).numpy()
            if case == "main":
                took += np.sum([round_of_all() for _ in range(8)], 0)
            model(batch.double()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    print(json.dumps(took.tolist()))
    if "child" in _STATE:
        _STATE["child"].kill()


def shares(folder, case):
    """Samples of each function, where the case runs them."""
    from feedline.profiler.store.run_folder import Run
    from feedline.profiler.store.stacks_reader import read_stacks

    seconds, samples = Counter(), Counter()
    (rank,) = Run.of_folder(folder).ranks.values()
    for process in read_stacks(rank):
        for stack in process.stacks:
            names = [frame.function for frame in stack.frames]
            hits = [name for name in names if name in FUNCTIONS]
            if "round_of_all" in names and hits and stack.phase == "loop":
                seconds[hits[0]] += stack.seconds
                samples[hits[0]] += stack.samples
    return seconds, samples


def measure(case, seconds):
    """Print a case; return whether it passed."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "feedline", "run", "-q", "-o", str(run), __file__]
        hogs = [
            subprocess.Popen([sys.executable, "-c", "while 1: pass"])
            for _ in range(os.cpu_count() if case == "crowded" else 0)
        ]
        done = subprocess.run(
            [*command, "--train", case, str(seconds)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "FEEDLINE_STACKS": RATE},
        )
        for hog in hogs:
            hog.kill()
        clocks = np.array(json.loads(done.stdout.splitlines()[-1]))
        by_stacks, samples = shares(run, case)
    clocks = clocks / clocks.sum()
    number, total = sum(samples.values()), sum(by_stacks.values())
    passed, texts = True, []
    for name, true in zip(FUNCTIONS, clocks, strict=True):
        share = by_stacks[name] / max(total, 1e-9)
        half = 1.96 * (share * (1 - share) * 13 / 12 / max(number, 1)) ** 0.5
        fits = abs(share - true) * 100 <= POINTS or abs(share - true) <= half
        passed &= fits
        texts.append(f"{name} {100 * share:.1f} ± {100 * half:.1f} of {100 * true:.1f}")
    print(
        f"{case:11} {'ok  ' if passed else 'MISS'} {number:5} samples  " + "  ".join(texts),
        flush=True,
    )
    return passed


def main(arguments):
    seconds = float(arguments[0]) if arguments else 20.0
    passed = [measure(case, seconds) for case in arguments[1:] or CASES]
    print(f"{sum(passed)} of {len(passed)} cases within {POINTS:.0f} points or their interval")
    return not all(passed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], float(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
