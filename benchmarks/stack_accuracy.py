"""Shares of planted functions by sampled stacks, beside the same by clocks in the program.

    python benchmarks/stack_accuracy.py 30 --rounds 2 [--load 3] [CASE ...]

Each case is a training of its own, recorded in full, in which six functions take turns: Python,
NumPy (releases the GIL), a regular expression (holds it), sleep, reading a pipe that another
process writes to, and a lock that another thread holds. They run in the loop of the main process,
in the dataset in workers of each start method, in collate, in a thread that the dataset starts, and in
workers beside other programs that use all CPUs (crowded).
Prints how many shares are within three points of the clocks, and how many of the report's 95 %
intervals hold theirs; ``--load`` runs programs that only count beside all of it.
"""

import argparse
import contextlib
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


def printed(folder):
    """Low and high of each function's share of all six, as the report prints them.

    It prints none of a thread that a dataset starts, and none of very short runs.
    """
    from feedline.analysis.explain.measured import measure as measured
    from feedline.profiler.store.trainings import open_run

    shares = {}
    code = measured(open_run(folder)).run.user_code
    for one in code.functions if code else ():
        if one.function in FUNCTIONS:
            before = shares.get(one.function, (0.0, 0.0, 0.0))
            shares[one.function] = tuple(np.add(before, (one.share, one.low, one.high)))
    whole = sum(share for share, _, _ in shares.values())
    return {name: (low / whole, high / whole) for name, (_, low, high) in shares.items()}


def measure(case, seconds):
    """Print a case; return of each function whether its share and its interval are right."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        command = [sys.executable, "-m", "feedline", "run", "-q", "-o", str(run), __file__]
        with busy(os.cpu_count() if case == "crowded" else 0):
            done = subprocess.run(
                [*command, "--train", case, str(seconds)],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "FEEDLINE_STACKS": RATE},
            )
        clocks = np.array(json.loads(done.stdout.splitlines()[-1]))
        by_stacks, samples = shares(run, case)
        intervals = printed(run)
    clocks = clocks / clocks.sum()
    total = sum(by_stacks.values())
    near, held, texts = [], [], []
    for name, true in zip(FUNCTIONS, clocks, strict=True):
        share = by_stacks[name] / max(total, 1e-9)
        near.append(abs(share - true) * 100 <= POINTS)
        text = f"{name} {100 * share:.1f}"
        if name in intervals:
            low, high = intervals[name]
            held.append(low <= true <= high)
            text += f" [{100 * low:.1f}, {100 * high:.1f}]"
        texts.append(f"{text} of {100 * true:.1f}")
    number = sum(samples.values())
    print(
        f"{case:11} {sum(near)}, {sum(held)} of {len(held)} {number:5} samples  "
        + "  ".join(texts),
        flush=True,
    )
    return near, held


@contextlib.contextmanager
def busy(programs):
    """Run so many programs that only count."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seconds", type=float, nargs="?", default=20.0)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--load", type=int, default=0, help="programs beside all cases")
    given = parser.parse_args()
    near, held = [], []
    with busy(given.load):
        for case in [*given.cases] * given.rounds:
            for all_of, ofs in zip((near, held), measure(case, given.seconds), strict=True):
                all_of += ofs
    print(f"{sum(near)} of {len(near)} shares within {POINTS:.0f} points of the clocks")
    print(f"{sum(held)} of {len(held)} printed 95 % intervals hold the clocks' share")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], float(sys.argv[3]))
    else:
        main()
