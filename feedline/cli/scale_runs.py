"""Runs a training once for each number of ranks, under torchrun and ``feedline run``."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from feedline.cli import child
from feedline.cli.unfinished import Unfinished
from feedline.profiler.errors import ScriptError
from feedline.profiler.printable import printable, say


def name_of(ranks: int) -> str:
    """Name of the run with this number of ranks."""
    return f"ranks{ranks}"


def record(folder: Path, ranks: list[int], program: list[str], unfinished: Unfinished, quiet: bool = False) -> tuple[list[Path], int]:
    """Record the training with each number of ranks, the smallest first. Its output goes to a file beside each run.

    Args:
        program: script or ``-m module``, and its arguments.

    Returns:
        The run folders, and the exit code of the first training that failed; those with more ranks are not tried then.

    Raises:
        ScriptError: the training failed with the fewest ranks already; with its exit code. OutputError: there is no room.
    """
    done: list[Path] = []
    for number in ranks:
        run, log = folder / name_of(number), folder / f"{name_of(number)}.log"
        if run.name in unfinished:
            done.append(run)
            continue
        if not quiet:
            say(f"running {number} rank{'s' * (number > 1)}: {' '.join(program)}")
        code = _run_ranks(number, run, log, program)
        if code:
            said = f"with {number} rank{'s' * (number > 1)} the training ended with exit code {code}; end of {log}"
            say(f"{printable(said)}:\n{child.tail(log)}", lines=True)
            if not done:
                failed = ScriptError("the training failed with the smallest number of ranks, so there is nothing to compare")
                failed.exit_code = code
                raise failed
            return done, code
        unfinished.add(run.name)
        done.append(run)
    return done, 0


def up_to(most: int) -> list[int]:
    """1, 2, 4, ... up to a limit, but at least two numbers: one alone cannot be compared."""
    return [1, 2, *(2**power for power in range(2, 20) if 2**power <= most)]


def devices() -> int:
    """Number of GPUs, or of CPUs without a GPU."""
    from feedline.profiler.samplers.cgroup import effective_cpus

    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        if found := pynvml.nvmlDeviceGetCount():
            return int(found)
    return int(effective_cpus())


def _run_ranks(number: int, run: Path, log: Path, program: list[str]) -> int:
    """Record one run. Returns and raises as ``child.run``."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    command = [*launcher, "-m", "feedline", "run", "-q", "-f", "--strict", "-o", str(run), *program]
    return child.run(command, log, {"OMP_NUM_THREADS": "1", **os.environ})
