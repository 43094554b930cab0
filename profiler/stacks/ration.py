"""How often stacks are sampled: as often as the CPU time that it takes allows.

It also asks the kernel to run the sampler soon after it wakes, for a short time each.
"""

import ctypes
import os
import platform

from feedline.profiler import proc

_EARLY_S, _EARLY_SHARE, _SHARE = 15.0, 0.02, 0.005
_LONG_S = 600.0  # from then on, half as often each time that the run has become twice as long
_SHORTEST_S, _EARLY_SHORTEST_S, _LONGEST_S = 0.02, 0.01, 5.0
_FEWEST_CPUS = 0.1  # a process that only waits is sampled as if it used as much of a CPU
_FIRST_COST_S = 0.0003
#: What was spent beyond the share is given back in this time, with half of the later share at most.
_REPAID_S, _LEAST = 20.0, 0.5
_SMOOTHING = 0.3
_TICKS = os.sysconf("SC_CLK_TCK")
_SLICE_NS = 100_000  # the shortest that there is; since Linux 6.12, ignored before
_PR_SET_TIMERSLACK = 29
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class Ration:
    """The time between two samples of a thread.

    Samples may take 2 % of the CPU time of the sampled processes in the first 15 s, and 0.5 % after
    that, less what was spent beyond it; after ten minutes, less and less.

    Args:
        rate: samples per second of each thread, whatever they cost; 0: as above.
        early_share, share: of the CPU time, in the first 15 s and after that.
        spent_s: CPU time that was spent before the first sample.
    """

    def __init__(
        self,
        rate: float = 0.0,
        early_share: float = _EARLY_SHARE,
        share: float = _SHARE,
        spent_s: float = 0.0,
    ) -> None:
        self._rate, self._early_share, self._share = rate, early_share, share
        self._cost_s, self._owed_s = _FIRST_COST_S, spent_s
        self._allowed = 0.0  # CPUs, since the last call of interval_s
        self._cpu_s: dict[int, float] = {}

    def measured(self, cpu_s: float, samples: int) -> None:
        """Learn what samples cost, in CPU time."""
        self._owed_s += cpu_s
        if samples:
            self._cost_s += _SMOOTHING * (cpu_s / samples - self._cost_s)

    def interval_s(
        self, elapsed_s: float, since_s: float, pids: list[int], threads: float
    ) -> float:
        """Return the mean time between two samples of one thread.

        Args:
            elapsed_s: since the training began.
            since_s: since the last call.
            pids: of the sampled processes.
            threads: of all of them; one that is sampled less often counts less.
        """
        if self._rate:
            return 1 / self._rate
        early = elapsed_s < _EARLY_S
        share = self._early_share if early else self._share
        share *= min(1.0, _LONG_S / max(elapsed_s, 1.0))
        cpus = sum(self._cpus(pid, since_s) for pid in pids)
        self._owed_s = max(0.0, self._owed_s - self._allowed * since_s)
        self._allowed = share * cpus
        spends = self._allowed
        if not early:
            spends = max(_LEAST * spends, spends - self._owed_s / _REPAID_S)
        per_second = spends / self._cost_s
        shortest = _EARLY_SHORTEST_S if early else _SHORTEST_S
        return min(max(threads / max(per_second, 1e-9), shortest), _LONGEST_S)

    def _cpus(self, pid: int, since_s: float) -> float:
        """Return how many CPUs a process used, of which one is counted at most."""
        now = _cpu_s(pid)
        before = self._cpu_s.get(pid)
        self._cpu_s[pid] = now
        if before is None or since_s <= 0:
            return 1.0
        return min(max((now - before) / since_s, _FEWEST_CPUS), 1.0)


def _cpu_s(pid: int) -> float:
    fields = proc.stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0


class _SchedulerAttributes(ctypes.Structure):
    """struct sched_attr of the first version: 48 bytes."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    ]


def run_soon_after_waking(nice: int) -> None:
    """Ask for it; nothing happens where the kernel does not know it.

    Args:
        nice: of this process, which stays.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # 1 ns: the kernel may be late by 50 us else
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None:
        size = ctypes.sizeof(_SchedulerAttributes)
        attributes = _SchedulerAttributes(size, 0, 0, nice, 0, _SLICE_NS, 0, 0)
        libc.syscall(number, 0, ctypes.byref(attributes), 0)
