"""Random numbers for translations, independent of the program's and different in every worker."""

import os
import random

from torch.utils.data import get_worker_info


class TransformRng:
    """A random generator that never touches the global ones of torch, numpy and ``random``.

    In a DataLoader's worker the numbers follow from ``seed`` and from the worker's own seed, which the DataLoader draws again for every
    epoch. In another process than the one that made it, they follow from that process's id, so that no two workers draw the same.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.made_in = os.getpid()
        self._of: int | None = None
        self._dice = random.Random(seed)

    def here(self) -> random.Random:
        """The generator of this process."""
        worker = get_worker_info()
        of = worker.seed if worker is not None else None if os.getpid() == self.made_in else os.getpid()
        if of != self._of:
            self._of = of
            self._dice = random.Random(f"{self.seed} {of}")
        return self._dice
