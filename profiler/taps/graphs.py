"""Finds out whether a program keeps the graphs of past steps, as ``total += loss`` does, or drops some.

In a few steps, a token is put beside the autograd node that made the model's result. It lives as
long as the node, and the node as long as anything that was computed from the result with its
gradient: if it is alive many updates later, the program keeps that graph. If it is gone before the
next backward pass begins, nobody learns from that forward (dropped_graphs.py). Nothing is asked of
tensors, and no hook is called in the backward pass.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.dropped_graphs import DroppedGraphs, Token
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.source_names import NAME_BYTES, call_site
from feedline.profiler.torch_internals import below_function_modes

NAME = "graphs"
GIVES = "whether graphs of past steps are kept, and whether some are never used"

_KEY = "feedline"
_FIRST = 4  # updates after which the first token is put
_APART = 1.1  # times as many updates until the next
_OLD = 5  # updates after which a graph should be gone, whatever is accumulated
_MOST = 100


class GraphTap:
    """Puts tokens beside graphs and counts those that are still there."""

    def __init__(self) -> None:
        self._tokens: list[tuple[int, weakref.ref[Token]]] = []  # updates before, and the token
        self._next = _FIRST
        self._dropped = DroppedGraphs()

    def attach(self, _: Patches) -> Callable[[], None]:
        """Attach; returns a function that ends it."""
        recorder.graphs = self
        return self.stop

    def stop(self) -> None:
        if recorder.graphs is self:
            recorder.graphs = None

    def forwarded(self, output: Any, began: int) -> None:
        """Note what a model in training has returned. Never raises.

        Args:
            began: when it was called, ns.
        """
        try:
            updates = recorder.convergence.updates if recorder.convergence is not None else -1
            if updates >= self._dropped.next:
                self._dropped.forwarded(output, updates, began, sys._getframe(2))
            if updates < self._next or len(self._tokens) >= _MOST:
                return
            node = _node(output)
            if node is None:
                return
            self._next = max(updates + 1, int(updates * _APART))
            self._count(updates, sys._getframe(2))
            token = Token()
            node.metadata[_KEY] = token
            self._tokens.append((updates, weakref.ref(token)))
        except Exception:
            reraise_of_handler()
            recorder.graphs = None

    def backward(self) -> None:
        """Note that a backward pass is about to begin. Never raises."""
        try:
            if self._dropped.looks:
                self._dropped.backward()
        except Exception:
            reraise_of_handler()
            recorder.graphs = None

    def _count(self, updates: int, frame: Any) -> None:
        old = [token() is not None for then, token in self._tokens if then + _OLD <= updates]
        segment = recorder.always_on_segment()
        if not old or segment is None:
            return
        place = str(call_site(frame).get("made_at", ""))
        source = segment.name_id(place) if 0 < len(place.encode()) <= NAME_BYTES else 0
        segment.add(
            Stage.KEPT,
            clock.wall_ns(),
            0,
            nbytes=len(old),
            number=updates,
            extra=sum(old),
            source=source,
        )


@below_function_modes
def _node(output: Any) -> Any:
    """Return the autograd node of the first result that has one; None: there is none."""
    results = output.values() if isinstance(output, dict) else output
    if isinstance(results, torch.Tensor):
        return results.grad_fn
    if not isinstance(results, list | tuple | type({}.values())):
        return None
    tensors = (one for one in results if isinstance(one, torch.Tensor))
    return next((one.grad_fn for one in tensors if one.grad_fn is not None), None)
