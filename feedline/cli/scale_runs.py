"""Runs a training once for each number of ranks, under torchrun and ``feedline run``."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from feedline.profiler.errors import PlaceTaken, ScriptError
from feedline.profiler.files import results
from feedline.profiler.printable import printable, say

LAST_LINES = 12  # of a training that failed
PATIENCE_S = 30.0  # for torchrun to end its ranks


def record(folder: Path, ranks: list[int] | None, program: list[str], force: bool) -> tuple[list[Path], int]:
    """Record the training with each number of ranks, the smallest first. What it prints goes to a file beside its run.

    Args:
        ranks: None: 1, 2, 4, ... up to one for each GPU, or for each CPU where there is no GPU.
        program: script or ``-m module``, and its arguments.

    Returns:
        The run folders, and the exit code of the first training that failed; those with more ranks are not tried then.

    Raises:
        ScriptError: the training failed with the fewest ranks already; with its exit code. OutputError: there are older runs, or no room.
    """
    done: list[Path] = []
    for number in ranks or up_to(devices()):
        run, log = folder / f"ranks{number}", folder / f"ranks{number}.log"
        if run.exists() and not force:
            raise PlaceTaken(f"{run} exists already: name another folder with -o, or overwrite it with -f")
        say(f"running {number} rank{'s' * (number > 1)}: {' '.join(program)}")
        code = run_ranks(number, run, log, program)
        if code:
            said = f"with {number} rank{'s' * (number > 1)} the training ended with exit code {code}; {log} ends with"
            say(f"{printable(said)}:\n{tail(log)}", lines=True)
            if not done:
                failed = ScriptError("the training failed with the fewest ranks already: there is nothing to compare")
                failed.exit_code = code
                raise failed
            return done, code
        done.append(run)
    return done, 0


def up_to(most: int) -> list[int]:
    """1, 2, 4, ... and two in any case: one number of ranks cannot be compared."""
    return [1, 2, *(2**power for power in range(2, 20) if 2**power <= most)]


def devices() -> int:
    """GPUs, or CPUs where there is no GPU."""
    from feedline.profiler.samplers.cgroup import effective_cpus

    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        if found := pynvml.nvmlDeviceGetCount():
            return int(found)
    return int(effective_cpus())


def run_ranks(number: int, run: Path, log: Path, program: list[str]) -> int:
    """One recording. Returns the training's exit code; 128 + the signal's number if one ended it.

    Raises:
        OutputError: the log cannot be written.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number)]
    command = [*launcher, "-m", "feedline", "run", "-q", "-f", "--strict", "-o", str(run), *program]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with os.fdopen(results.log(log.parent, log.name), "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait()
        finally:
            end(process)
    return code if code >= 0 else 128 - code


def end(process: "subprocess.Popen[bytes]") -> None:
    """Let torchrun end its ranks, if it is still there."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path) -> str:
    """The last lines."""
    return "\n".join(f"  {line}" for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
