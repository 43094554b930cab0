"""The rank and launch of this process, from the environment variables of the launcher.

torchrun is asked first, then Slurm, then MPI. Two traps in between: a batch script has SLURM_NTASKS
although only one process runs, so Slurm counts inside a step (srun) only; and the processes of an
mpirun inside an allocation inherit the SLURM_* of the daemon that started them, so Open MPI's own
variables go before Slurm's.

Ask in the training's main process and hand the answers to workers: without a launcher, a worker is
a launch of its own.
"""

import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from feedline.profiler import proc

#: What tells one rank's processes apart from the process that launched them, by launcher.
_LAUNCHER_MARKS = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"),
    "slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"),
    "mpi": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
}
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class RankPlace:
    """Position of this process in its launch."""

    rank: int = 0
    local_rank: int = 0  # on this host; the rank itself where the launcher does not tell
    world_size: int = 1
    # number of this host, or torchrun agent; None where the launcher does not tell
    group_rank: int | None = 0
    restart: int = 0  # how often the launcher has started this launch again
    # torchrun, slurm, mpi, env (RANK and WORLD_SIZE, set by anything else) or none
    launcher: str = "none"


def place(environ: Mapping[str, str] = os.environ) -> RankPlace:
    """Return the place of this process, or of the one whose variables are given.

    A value that is not a number, or a rank outside its world, counts as not set.
    """
    named = _by_rank_variables(environ)
    if named is not None and named.launcher == "torchrun":
        return named
    for other in (_slurm(environ), _mpi(environ)):
        # Where RANK says something else, a launcher of its own was started once per Slurm task or
        # MPI process.
        if other is not None and (
            named is None or (named.rank, named.world_size) == (other.rank, other.world_size)
        ):
            return other
    return named or RankPlace()


def environment_of(pid: int) -> dict[str, str]:
    """Return the variables with which a process was started; empty: they must not be read."""
    pairs = (entry.partition(b"=") for entry in proc.read(pid, "environ").split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def launch_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return a name that the ranks of one launch on one host share, usable as a file name.

    No other launch has it. For Slurm it is the same on all hosts. For RANK and WORLD_SIZE set by
    hand it is the process group's: one for a script that starts the ranks, but several where they
    were typed one by one.
    """
    launcher = place(environ).launcher
    if launcher == "slurm":
        parts = [
            environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        ]
    else:
        root = _root(launcher, environ)
        # by the user: anything
        named = environ.get("TORCHELASTIC_RUN_ID", "") if launcher == "torchrun" else ""
        run = hashlib.sha256(os.fsencode(named)).hexdigest()[:8] if named else ""
        parts = [run, str(root), str(_start_ticks(root))]
    return re.sub(r"[^\w.-]", "_", "-".join([launcher, *(part for part in parts if part)]))


def started_at(environ: Mapping[str, str] = os.environ) -> str:
    """Return the local time, MMDD-HHMMSS, at which the launch started on this host.

    It is the same for all its ranks here.
    """
    ticks = _start_ticks(_root(place(environ).launcher, environ)) or _start_ticks(os.getpid())
    boot = _boot_time()
    began = boot + ticks // _TICKS_PER_SECOND if ticks and boot is not None else time.time()
    return time.strftime("%m%d-%H%M%S", time.localtime(began))


def _by_rank_variables(environ: Mapping[str, str]) -> RankPlace | None:
    elastic = "TORCHELASTIC_RUN_ID" in environ
    return _made(
        "torchrun" if elastic else "env",
        rank=_number(environ, "RANK"),
        size=_number(environ, "WORLD_SIZE"),
        local=_number(environ, "LOCAL_RANK"),
        group=_number(environ, "GROUP_RANK"),
        restart=_number(environ, "TORCHELASTIC_RESTART_COUNT") if elastic else None,
    )


def _slurm(environ: Mapping[str, str]) -> RankPlace | None:
    in_step = _number(environ, "SLURM_STEP_ID") is not None
    if not in_step or "OMPI_COMM_WORLD_RANK" in environ:
        return None
    return _made(
        "slurm",
        rank=_number(environ, "SLURM_PROCID"),
        size=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local=_number(environ, "SLURM_LOCALID"),
        group=_number(environ, "SLURM_NODEID"),
        restart=_number(environ, "SLURM_RESTART_COUNT"),
    )


def _mpi(environ: Mapping[str, str]) -> RankPlace | None:
    return _made(
        "mpi",
        rank=_number(environ, "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        size=_number(environ, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
        local=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        group=None,
        restart=None,
    )


def _made(
    launcher: str,
    rank: int | None,
    size: int | None,
    local: int | None,
    group: int | None,
    restart: int | None,
) -> RankPlace | None:
    if rank is None or size is None or rank >= size:
        return None
    return RankPlace(rank, rank if local is None else local, size, group, restart or 0, launcher)


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the first of these variables that is a number of at most nine ASCII digits."""
    for name in names:
        if re.fullmatch(r"[0-9]{1,9}", environ.get(name, "").strip()):
            return int(environ[name])
    return None


def _root(launcher: str, environ: Mapping[str, str]) -> int:
    """Return the process that stands for the launch on this host.

    It is the nearest ancestor that is not part of this rank. That is the parent, unless a wrapper
    script stands between; a wrapper has the rank's own variables. One whose environment may not be
    read belongs to another user (slurmstepd), so it is the launcher.
    """
    if launcher == "env":
        return os.getpgrp()
    marks = {name: environ[name] for name in _LAUNCHER_MARKS.get(launcher, ()) if name in environ}
    if not marks:
        return os.getpid()
    pid = os.getppid()
    while pid > 1:
        theirs = environment_of(pid)
        if any(theirs.get(name) != value for name, value in marks.items()):
            break
        pid = _parent_of(pid)
    return pid


def _parent_of(pid: int) -> int:
    fields = proc.stat(pid)
    return int(fields[1]) if fields else 0


def _start_ticks(pid: int) -> int:
    """Return the clock ticks from boot to the start of a process.

    It works for a zombie too, which may have led the launch. 0: there is none.
    """
    fields = proc.stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def _boot_time() -> int | None:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, ValueError, StopIteration):
        return None
