"""Temporarily replaces the global random generators, which the user's own transform draws from."""

import random
from typing import Any

import numpy as np
import torch


class OwnRandomState:
    """A context in which torch (CPU), numpy and ``random`` continue from their state at the end of the previous use."""

    def __init__(self, seed: int) -> None:
        self._own: Any = None
        self._others: Any = None
        self._seed = seed

    def __enter__(self) -> None:
        self._others = _states()
        if self._own is not None:
            _restore(self._own)
            return
        random.seed(self._seed)
        np.random.seed(self._seed % 2**32)
        torch.default_generator.manual_seed(self._seed)

    def __exit__(self, *error: object) -> None:
        self._own = _states()
        _restore(self._others)


def _states() -> Any:
    return random.getstate(), np.random.get_state(), torch.default_generator.get_state()


def _restore(states: Any) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.default_generator.set_state(states[2])
