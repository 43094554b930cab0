"""What a step takes at least where ranks share the CPUs of their machines."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

_STEP_ROUNDS = 50  # until the length of a step is found, which they halve in the worst case


@dataclass(frozen=True)
class RankCpu:
    """What one rank's mean step takes of its machine.

    Attributes:
        machine: ranks of one share its CPUs.
        cpus: of the machine that they may use.
        cpu_s: CPU seconds of all of its processes.
        making_s: of them, of its workers.
        batch_s: seconds in which a worker with a CPU of its own makes a batch.
        busy_s: of the step, in which its main thread computes or waits for a CPU.
        workers: that make its batches; 0: its main process does.
    """

    machine: Hashable
    cpus: float
    cpu_s: float
    making_s: float
    batch_s: float
    busy_s: float
    workers: int = 0


@dataclass(frozen=True)
class LeastStep:
    """What a step takes at least, in seconds.

    A replay of buckets moves them as fast as they were seen to move, while the late rank slept or
    waited and left its CPUs to the others. Once none is late, all compute at the same time: what
    the ranks of a machine compute per step fits into the time in which their main threads do not
    wait for a device, a disk or a timer, apart from what workers do meanwhile.

    Attributes:
        computing_s: for the CPU time of all ranks.
        batches_s: until the workers of each rank have made its batch.
    """

    computing_s: float
    batches_s: float


def needed_s(ranks: Sequence[RankCpu], asleep_s: float) -> float:
    """Return the seconds that a step takes at least in which all ranks compute at the same time.

    Args:
        ranks: of all machines.
        asleep_s: of the step, in which no main thread computes.
    """
    machines = {rank.machine for rank in ranks}
    return max(
        (
            _of_machine([rank for rank in ranks if rank.machine == machine], asleep_s)
            for machine in machines
        ),
        default=0.0,
    )


def batches_s(ranks: Sequence[RankCpu]) -> float:
    """Return the seconds in which the workers of each rank make the batch of a step.

    They worked ahead while another rank was late.
    """
    return max((rank.batch_s / rank.workers for rank in ranks if rank.workers), default=0.0)


def _of_machine(ranks: Sequence[RankCpu], asleep_s: float) -> float:
    cpus, step_s = min(rank.cpus for rank in ranks), asleep_s + sum(rank.cpu_s for rank in ranks)
    for _ in range(_STEP_ROUNDS):
        awake_s = step_s - asleep_s
        step_s = (
            asleep_s
            + sum(rank.cpu_s - rank.making_s * _elsewhere(rank, awake_s, step_s) for rank in ranks)
            / cpus
        )
    return step_s


def _elsewhere(rank: RankCpu, awake_s: float, step_s: float) -> float:
    """Return the share (0 to 1) of the workers' CPU time that falls into the rest of the step.

    It is halfway between what has to, of a batch that takes longer than the others are awake, and
    all that fits.
    """
    making_s = min(rank.batch_s, step_s)
    if making_s <= 0:
        return 0.0
    least, most = max(0.0, 1 - awake_s / making_s), min(1.0, (step_s - awake_s) / making_s)
    return (least + most) / 2
