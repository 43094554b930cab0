"""Random generators that leave the program's own as they were."""

import os
import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info


class OwnRandomState:
    """A context with global random states of its own.

    torch (CPU), numpy and ``random``, which the user's own transform draws from, continue from
    their state at the end of the previous use.
    """

    def __init__(self, seed: int) -> None:
        """Seed the first use."""
        self._own: Any = None
        self._others: Any = None
        self._seed = seed

    def __enter__(self) -> None:
        """Set these states aside, and continue with the own ones."""
        self._others = _states()
        if self._own is not None:
            _restore(self._own)
            return
        random.seed(self._seed)
        np.random.seed(self._seed % 2**32)
        torch.default_generator.manual_seed(self._seed)

    def __exit__(self, *error: object) -> None:
        """Put the program's states back."""
        self._own = _states()
        _restore(self._others)


def _states() -> Any:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()


def _restore(states: Any) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.default_generator.set_state(states[2])


class TransformRng:
    """A random generator that never touches the global ones of torch, numpy and ``random``.

    In a DataLoader's worker the numbers follow from ``seed`` and from the worker's own seed, which
    the DataLoader draws again for every epoch. In another process than the one that made it, they
    follow from that process's id, so that no two workers draw the same.
    """

    def __init__(self, seed: int) -> None:
        """Note the process; every other one gets numbers of its own."""
        self.seed = seed
        self.made_in = os.getpid()
        self._of: int | None = None
        self._dice = random.Random(seed)

    def here(self) -> random.Random:
        """Return the generator of this process."""
        worker = get_worker_info()
        of = (
            worker.seed
            if worker is not None
            else None
            if os.getpid() == self.made_in
            else os.getpid()
        )
        if of != self._of:
            self._of = of
            self._dice = random.Random(f"{self.seed} {of}")
        return self._dice
