"""FLOP and bytes of every operator call of a trace."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.traces.columns import Kind, Trace
from feedline.analysis.traces.kinds_of_work import BoolArray
from feedline.analysis.traces.operands import Convolutions, Cost, cost, known

FloatArray = npt.NDArray[np.float64]


class Costs:
    """Cost of each operator call, worked out once for each name and shape."""

    def __init__(self, trace: Trace, has_device: bool) -> None:
        self.has_device = has_device
        self._trace = trace
        self._known = np.array([known(name) for name in trace.names] or [False])
        pairs = self._pairs(trace.events)
        self._convolutions = Convolutions.of((trace.names[name], trace.shapes[shape]) for name, shape in pairs)
        self._costs: dict[tuple[int, int], Cost | None] = {}

    def of(self, mine: npt.NDArray[np.void]) -> tuple[FloatArray, FloatArray]:
        """FLOP and bytes, float64 [n]; -1: unknown."""
        flop, nbytes = np.full(len(mine), -1.0), np.full(len(mine), -1.0)
        rows = np.flatnonzero(self._countable(mine))
        key = mine["name"][rows].astype(np.int64) << 32 | mine["shape"][rows]
        each, place = np.unique(key, return_inverse=True)
        made = [self._cost(int(one) >> 32, int(one) & 0xFFFFFFFF) for one in each.tolist()]
        flop[rows] = np.array([-1.0 if one is None else one.flop for one in made] or [0.0])[place]
        nbytes[rows] = np.array([-1.0 if one is None else one.nbytes for one in made] or [0.0])[place]
        return flop, nbytes

    def _cost(self, name: int, shape: int) -> Cost | None:
        if (name, shape) not in self._costs:
            self._costs[name, shape] = cost(self._trace.names[name], self._trace.shapes[shape], self._convolutions)
        return self._costs[name, shape]

    def _countable(self, mine: npt.NDArray[np.void]) -> BoolArray:
        return np.asarray((mine["kind"] == Kind.OPERATOR) & (mine["shape"] >= 0) & self._known[mine["name"]], bool)

    def _pairs(self, events: npt.NDArray[np.void]) -> list[tuple[int, int]]:
        rows = np.flatnonzero(self._countable(events))
        key = np.unique(events["name"][rows].astype(np.int64) << 32 | events["shape"][rows])
        return [(one >> 32, one & 0xFFFFFFFF) for one in key.tolist()]
