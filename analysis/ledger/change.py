"""What a fix changes in a training.

Rules say so of their fix, ``feedline whatif`` of its arguments, and the replay is given it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from feedline.analysis.ledger.finding import (
    PredictedRate as PredictedRate,  # a report's findings hold it, which know nothing of the replay
)


@dataclass(frozen=True)
class Factor:
    """Factors by which a stage's time is multiplied: 0 removes it, 1 leaves it as it was.

    Attributes:
        cpu: of its CPU seconds.
        off_cpu: of the seconds in which it waits for something that is not a CPU: a disk, a lock,
            the network.
    """

    cpu: float = 1.0
    off_cpu: float = 1.0


@dataclass(frozen=True)
class Change:
    """Any number of changes at once.

    Attributes:
        settings: arguments of the DataLoader -> their new values: num_workers, prefetch_factor,
            in_order, persistent_workers, ...
        stages: stage of a sample, batch or step (``read``, ``decode``, ``augment``, ``collate``,
            ``transport``, ...) -> its factor.
        helper_threads: whether the threads that workers' libraries start still use CPUs.
        cpus: that the training may use then; None: as many as it had.
        others: whether other programs still use CPUs.
        into_shared: whether arrays that were pickled are made in shared memory instead, which takes
            CPU time, as giving it back does.
        one_loader: whether one loader is made for all passes, whose workers stay.
        endless: whether the loader is gone through only once, and that pass does not end.
        lifts: kinds of limits that what it changes besides settings raises, as the rule of a fix
            knows them; empty: see next_limit.py.
    """

    settings: Mapping[str, int | bool] = field(default_factory=dict)
    stages: Mapping[str, Factor] = field(default_factory=dict)
    helper_threads: bool = True
    cpus: float | None = None
    others: bool = True
    into_shared: bool = False
    one_loader: bool = False
    endless: bool = False
    lifts: frozenset[str] = frozenset()


#: Reason of ``Refused``: the change was tried and rejected, so it is not recommended again.
REJECTED = "rejected"


@dataclass(frozen=True)
class Refused:
    """No prediction: what is missing, as an identifier and in a sentence that says how to get it."""

    reason: str
    message: str


NOTHING_TO_CHANGE = Refused("nothing_to_change", "No change to the input is advised.")
