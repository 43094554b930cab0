"""Damages run folders and reads them with every command: a report or one line of refusal may come of it, in bounded time and memory.

    python benchmarks/fuzz_runs.py --mutants 10000 --jobs 2
    python benchmarks/fuzz_runs.py --only 4711                one mutant again, by its seed

Run folders of four kinds are recorded first, by real trainings: loaders with workers, convergence and a window of torch.profiler; two
ranks with DDP; one that was killed, in raw segments; ingested traces of two ranks. Each mutant is a copy with one to three changes (see
benchmarks/programs/damage.py), made and read in a forked process of its own, whose peak memory and time are the kernel's.
"""

import argparse
import contextlib
import faulthandler
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# Forks have one thread: no library may have started others before.
os.environ |= {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}

from programs.damage import damage

from feedline.analysis.ranks.many import rank_pool

MOST_S = 10  # of CPU: the machine may be busy
MOST_WAIT_S = 60
MOST_MB = 1024
PROGRAMS = Path(__file__).parent / "programs"
REFUSED = (
    2,
    64,
    65,
    66,
    76,
)  # exit codes of what is wrong with a folder, or with what is asked of it
NOT_JUDGED = (
    75  # of a folder that was read: its ranks share no work, so `scale` gives no efficiency
)
NET = "please report"  # what the last resort of the command line says
#: Names and arguments of the events in a trace.
NEXT_BATCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
COPY = "Memcpy HtoD (Pageable -> Device)"
OPERANDS: dict[str, object] = {
    "Input Dims": [[64, 64], [64, 64]],
    "Input type": ["float", "float"],
}
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
WEIGHTS = (8, 4, 2, 4, 3, 3, 2, 3)  # of the commands
Start = Callable[
    [list[str], dict[str, str], Path], None
]  # arguments of Python, environment, working directory


@dataclass(frozen=True)
class Outcome:
    """What came of one mutant.

    Attributes:
        kind: "read" by all commands, "refused" by one or more, "traceback", "net" (the last resort
            was needed), "hang", "killed" or "refusal" (refused in other than one line).
        said: what was done to it, and the traceback or the refusals.
    """

    seed: int
    kind: str
    seconds: float
    megabytes: float
    said: str


def record(folder: Path, start: Start) -> list[Path]:
    """Make the run folders that are damaged.

    Args:
        start: runs Python to its end; that a program ends with an exit code of its own is no error.
    """
    program, feedline = str(PROGRAMS / "small_training.py"), ["-m", "feedline"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start(
        [*feedline, "run", "-q", "-o", "loader", "--torch-profiler", "2:2", program, "finish"],
        environment,
        folder,
    )
    start([*feedline, "run", "-q", "-o", "killed", program, "kill"], environment, folder)
    start(["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint",
           "localhost:0", *feedline, "run", "-q", "-o", "ranks", program, "ddp"], environment, folder)  # fmt: skip
    traces = [str(folder / f"rank{rank}.json") for rank in range(2)]
    for rank, trace in enumerate(traces):
        write_trace(Path(trace), rank)
    start([*feedline, "ingest", "-q", *traces, "-o", "traces"], environment, folder)
    write_ceilings(folder / "loader" / "ceilings.json")
    return [folder / name for name in ("loader", "killed", "ranks", "traces")]


def write_ceilings(path: Path) -> None:
    """What `feedline probe` might find."""
    from feedline.profiler.ceilings import Ceiling, Ceilings

    parts = {
        "decode/simplejpeg": "decode",
        "read/random cold": "read",
        "compute/model": "compute",
        "sweep": "sweep",
    }
    found = [
        Ceiling(name, part, 100.0 * number, 90.0, 500.0, per="core", source="measured")
        for number, (name, part) in enumerate(parts.items(), 1)
    ]
    Ceilings(
        found, {"cpus": 2}, flop_per_sample=1e9, peak_flops=1e12, sample_bytes=1e5, cores=2.0
    ).write(path)


def write_trace(path: Path, rank: int) -> None:
    """A trace of four steps as torch.profiler writes them, on a GPU and with a collective of two
    ranks.
    """
    events = [event for step in range(4) for event in step_events(step, rank)]
    about = {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "deviceProperties": [{"id": rank, "name": "GPU"}],
    }
    path.write_text(json.dumps({"schemaVersion": 1, **about, "traceEvents": events}))


def step_events(step: int, rank: int) -> list[dict[str, object]]:
    """A step of 10 ms: it waits for a batch, copies it, multiplies, and reduces over the ranks."""
    at, number = 1_700_000_000_000_000 + step * 10_000, step * 10

    def host(cat: str, name: str, start: int, length: int, **args: object) -> dict[str, object]:
        return event(cat, name, (10, 10), at + start, length, args)

    def device(
        cat: str, name: str, stream: int, start: int, length: int, **args: object
    ) -> dict[str, object]:
        place = {"device": rank, "stream": stream, **args}
        return event(cat, name, (rank, stream), at + start, length, place)

    return [
        host("user_annotation", f"ProfilerStep#{step}", 0, 10_000),
        host("user_annotation", NEXT_BATCH, 0, 2000),
        host("cuda_runtime", "cudaMemcpyAsync", 2000, 20, correlation=number + 1),
        device("gpu_memcpy", COPY, 7, 2020, 300, bytes=1_000_000, correlation=number + 1),
        host("cpu_op", "aten::mm", 2300, 60, **OPERANDS),
        host("cuda_runtime", "cudaLaunchKernel", 2310, 20, correlation=number + 2),
        device("kernel", "gemm_kernel", 7, 2400 + 100 * rank, 4000, correlation=number + 2),
        device("kernel", REDUCE, 9, 6500 + 100 * rank, 2900 - 100 * rank, **all_reduce(step)),
    ]


def event(
    cat: str, name: str, thread: tuple[int, int], at: int, length: int, args: dict[str, object]
) -> dict[str, object]:
    """A complete event of a (process, thread), in microseconds."""
    process, number = thread
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": process,
        "tid": number,
        "ts": at,
        "dur": length,
        "args": args,
    }


def all_reduce(number: int) -> dict[str, object]:
    """What a trace says of the all-reduce with this number between two ranks."""
    return {
        "Collective name": "allreduce",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
        "Group size": 2,
        "Seq": number,
        "In msg nelems": 250_000,
        "Out msg nelems": 250_000,
        "dtype": "Float",
    }


def commands(run: Path, other: Path) -> list[list[str]]:
    """All that read a run. What two of them need beside it is a good run."""
    beside = run.parent
    return [
        ["report", str(run), "-q", "-f", "-o", str(beside / "out.json")],
        ["report", str(run), "--json", str(beside / "out.json")],
        ["report", str(run), "-q", "-f", "-o", str(beside / "out.html")],
        ["report", str(run), "-q", "-f", "-o", str(beside / "out.trace.json.gz")],
        ["report", "--by-rank", str(run), "--processes", "1", "--json", str(beside / "ranks.json")],
        ["converge", "advise", str(run), str(other), "--json", str(beside / "advice.json")],
        [
            "converge",
            "advise",
            str(other),
            str(run),
            "--target",
            "train loss=0.3",
            "--ranks",
            "1,2,4",
        ],
        ["scale", str(run), str(other), "--predict", "4,8", "-o", str(beside / "scale")],
    ]


def one(seed: int, bases: list[Path], folder: Path, every: bool) -> tuple[str, str]:
    """Damage a run and read it. Returns the kind of the outcome and what is said of it.

    Args:
        every: with all commands; else with one of them.
    """
    from feedline.__main__ import main

    draw = random.Random(seed)
    base, other = draw.choice(bases), draw.choice(bases)
    run = folder / "run"
    shutil.copytree(base, run, symlinks=True)
    said = [base.name + ": " + "; ".join(damage(draw, run, other))]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    asked = commands(run, bases[0])
    kind = "read"
    for command in asked if every else draw.choices(asked, WEIGHTS):
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
                code = main(command)
        except SystemExit as ended:  # argparse: the folder is gone
            code = ended.code if told.getvalue().startswith("usage: ") else 1
            told = io.StringIO(told.getvalue().splitlines()[-1] + "\n")
        except BaseException:
            return "traceback", "\n".join([*said, " ".join(command), traceback.format_exc()])
        text = told.getvalue()
        said.append(f"{command[0]}: {code} {text}")
        if NET in text:
            return "net", "\n".join(said)
        if code == NOT_JUDGED and not text:
            continue
        if code and (code not in (*REFUSED, NOT_JUDGED) or text.count("\n") != 1):
            return "refusal", "\n".join(said)
        if code:
            kind = "refused"
    return kind, "\n".join(said)


def child(seed: int, bases: list[Path], folder: Path, answer: Path, every: bool) -> None:
    """Be the process of one mutant; never returns."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(MOST_WAIT_S)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S + 1))
    faulthandler.register(signal.SIGXCPU, all_threads=False, chain=True)
    os.environ["FEEDLINE_TRACEBACK"] = "1"
    try:
        kind, said = one(seed, bases, folder, every)
        answer.write_text(json.dumps([kind, said]), encoding="utf-8")
    except BaseException:
        answer.write_text(json.dumps(["harness", traceback.format_exc()]))
    os._exit(0)


def judged(
    seed: int, bases: list[Path], every: bool, most_s: float = MOST_S, most_mb: float = MOST_MB
) -> Outcome:
    """One mutant in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="mutant"))
    answer = folder / "answer"
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        child(seed, bases, folder, answer, every)
    _, status, usage = os.wait4(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # processes of a pool
    took, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    kind, said = (
        "killed",
        f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status}",
    )
    if answer.exists():
        kind, said = json.loads(answer.read_text())
    if kind in ("read", "refused") and peak > most_mb:
        kind = "memory"
    if took >= most_s or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM):
        kind = "hang"
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(seed, kind, took, peak, said)


def warm(bases: list[Path]) -> None:
    """Read good runs once, so that forks find everything imported and compiled."""
    from feedline.__main__ import main

    rank_pool.local = lambda processes=None: rank_pool.here()  # type: ignore[assignment]  # a pool takes a second to start
    with tempfile.TemporaryDirectory(prefix="warm") as temporary:
        for base in bases:
            run = Path(temporary) / base.name / "run"
            shutil.copytree(base, run)
            for command in commands(run, bases[0]):
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    main(command)
    gc.collect()
    gc.freeze()  # or the garbage collector of each fork would look at, and so copy, all of it
    threads = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    assert len(set(threads) - {"jemalloc_bg_thd"}) == 1, f"{threads}: a fork would have one of them"


def outcomes(seeds: list[int], bases: list[Path], every: bool, jobs: int = 1) -> Iterator[Outcome]:
    """Of all seeds, from ``jobs`` processes, as they come."""
    if jobs == 1:
        for seed in seeds:
            yield judged(seed, bases, every)
        return
    reading, writing = os.pipe()
    for job in range(jobs):
        if os.fork() == 0:
            for seed in seeds[job::jobs]:
                line = json.dumps(vars(judged(seed, bases, every)))
                os.write(
                    writing,
                    line[:4000].encode() + b"\n"
                    if len(line) < 4000
                    else cut(line).encode() + b"\n",
                )
            os._exit(0)
    os.close(writing)
    with open(reading) as lines:
        for line in lines:
            yield Outcome(**json.loads(line))


def cut(line: str) -> str:
    """Short enough to be written at once: the end of a traceback is what counts."""
    found = json.loads(line)
    return json.dumps({**found, "said": found["said"][:300] + " ... " + found["said"][-800:]})


def start(arguments: list[str], environment: dict[str, str], folder: Path) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        check=False,
        stdout=subprocess.DEVNULL,
    )


def main() -> int:
    """Returns 1 when anything but reports and refusals came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first mutant; the others' follow"
    )
    parser.add_argument("--only", type=int, help="this seed, with all that is said of it")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--every", action="store_true", help="each mutant with every command, not with one of them"
    )
    parser.add_argument(
        "--bases",
        type=Path,
        help="where run folders are, or are to be recorded; default: a new folder that is removed",
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        place = options.bases or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="bases"))
        )
        place.mkdir(exist_ok=True)
        bases = [place / name for name in ("loader", "killed", "ranks", "traces")]
        bases = bases if all(base.is_dir() for base in bases) else record(place, start)
        warm(bases)
        seeds = (
            [options.only]
            if options.only is not None
            else list(range(options.seed, options.seed + options.mutants))
        )
        counts: Counter[str] = Counter()
        slowest = largest = Outcome(0, "", 0.0, 0.0, "")
        for number, outcome in enumerate(outcomes(seeds, bases, options.every, options.jobs), 1):
            counts[outcome.kind] += 1
            slowest, largest = (
                max(slowest, outcome, key=lambda o: o.seconds),
                max(largest, outcome, key=lambda o: o.megabytes),
            )
            if outcome.kind not in ("read", "refused") or options.only is not None:
                print(f"--- seed {outcome.seed}: {outcome.kind}\n{outcome.said}", flush=True)
            if number % 500 == 0:
                print(number, dict(counts), flush=True)
        print(f"seeds {seeds[0]} to {seeds[-1]}: {dict(counts)}")
        print(
            f"slowest {slowest.seconds:.1f} s (seed {slowest.seed}), largest "
            f"{largest.megabytes:.0f} MB (seed {largest.seed})"
        )
    return int(set(counts) - {"read", "refused"} != set())


if __name__ == "__main__":
    sys.exit(main())
