"""What the kernel says of processes that are watched, of real ones."""

import os
import subprocess
import sys
import time

import pytest

from feedline.profiler.attach import kernel

SLEEPS = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
time.sleep(0.2)
print(time.monotonic(), flush=True)
time.sleep(60)
"""
SLURM = {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_NTASKS": "16"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "16"}


def test_when_a_process_began_does_not_depend_on_when_that_is_asked():
    assert len({kernel.begun_s(os.getpid()) for _ in range(100)}) == 1  # workers keep their order


@pytest.mark.skipif(not os.path.exists("/proc/self/sched"), reason="the kernel does not say")
def test_how_long_a_thread_has_not_run_is_by_the_clock_of_its_own_cpu():
    allowed = sorted(os.sched_getaffinity(0))
    for cpu in allowed[:2]:
        sleeper = subprocess.Popen(
            [sys.executable, "-c", SLEEPS, str(cpu)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert sleeper.stdout
            since = float(sleeper.stdout.readline())
            time.sleep(1)
            for here in allowed[:2]:
                os.sched_setaffinity(0, {here})
                told = kernel.not_run_s(sleeper.pid, sleeper.pid)
                assert told == pytest.approx(time.monotonic() - since, abs=0.25)
                assert os.sched_getaffinity(0) == {here}
        finally:
            os.sched_setaffinity(0, allowed)
            sleeper.kill()
            sleeper.communicate()


@pytest.mark.parametrize(
    ("variables", "rank", "launcher"),
    [
        ({}, None, "none"),
        ({**SLURM, "SLURM_PROCID": "9"}, 9, "slurm"),
        ({"OMPI_COMM_WORLD_RANK": "8", "OMPI_COMM_WORLD_SIZE": "16"}, 8, "mpi"),
        ({**SLURM, "SLURM_PROCID": "1", "RANK": "11", "WORLD_SIZE": "16"}, 11, "env"),
        ({**SLURM, "SLURM_PROCID": "1", **TORCHRUN}, 1, "torchrun"),
    ],
)
def test_a_rank_is_what_its_launcher_has_numbered(variables, rank, launcher):
    process = subprocess.Popen(
        ["cat"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **variables},
    )
    try:
        assert process.stdin and process.stdout
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"  # else it may not have its variables yet
        assert kernel.rank(process.pid) == (rank, launcher)
    finally:
        process.kill()
        process.communicate()
