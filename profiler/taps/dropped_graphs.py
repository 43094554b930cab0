"""Finds out whether a program drops the graph of a forward pass before any backward pass.

In a few steps, tokens are put beside the graph of each forward: at the nodes of its results, and at
the first operation that they were computed from, which is alive as long as anything inside the
model is, such as what a hook has kept. Where all of them are gone when the next backward begins,
nothing can learn from that forward.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from feedline.profiler import clock
from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.source_names import NAME_BYTES, call_site
from feedline.profiler.torch_internals import below_function_modes

_KEY = "feedline_used"
_FIRST = 3  # updates before the first look
_APART = 1.2  # times as many updates until the next
_MOST_LOOKS, _MOST_FORWARDS, _MOST_RESULTS = 50, 64, 8
_DEEPEST = 5000  # operations of a chain: of a longer one, the first is not looked for


class Token:
    """Lives as long as the node of a graph that it stands beside."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True)
class _Forward:
    """A forward of the step that is looked at.

    Attributes:
        tokens: beside its graph.
        wall: ns that it took.
        place: file and line that called it.
    """

    tokens: list["weakref.ref[Token]"]
    wall: int
    place: str

    @property
    def dropped(self) -> bool:
        return all(token() is None for token in self.tokens)


class DroppedGraphs:
    """Looks at the forwards of a few steps, up to the first backward in each.

    Attributes:
        next: updates from which on a step is looked at.
    """

    def __init__(self) -> None:
        self.next = _FIRST
        self._updates = -1  # before the step that is looked at
        self._forwards: list[_Forward] = []
        self._looks = 0

    @property
    def looks(self) -> bool:
        """Whether a step is being looked at."""
        return bool(self._forwards)

    def forwarded(self, output: Any, updates: int, began: int, frame: Any) -> None:
        """Note what a model in training has returned.

        Args:
            updates: made before.
            began: when it was called, ns.
            frame: that of the call.
        """
        took = clock.wall_ns() - began
        if updates != self._updates:
            self._updates = updates
            self._forwards.clear()
        if len(self._forwards) >= _MOST_FORWARDS:
            return
        if tokens := _tokens(output):
            place = str(call_site(frame).get("made_at", ""))
            self._forwards.append(_Forward(tokens, took, place))

    def backward(self) -> None:
        """Record which graphs are gone: a backward is about to begin."""
        forwards, self._forwards = self._forwards, []
        self._looks += 1
        self.next = max(self._updates + 1, int(self._updates * _APART))
        if self._looks >= _MOST_LOOKS:
            self.next = 1 << 62
        segment = recorder.always_on_segment()
        if segment is None:
            return
        gone = [forward for forward in forwards if forward.dropped]
        place = max(gone, key=lambda forward: forward.wall).place if gone else ""
        segment.add(
            Stage.DROPPED,
            clock.wall_ns(),
            sum(forward.wall for forward in gone),
            runqueue=sum(forward.wall for forward in forwards),
            nbytes=len(forwards),
            number=self._updates,
            extra=len(gone),
            source=segment.name_id(place) if 0 < len(place.encode()) <= NAME_BYTES else 0,
        )


@below_function_modes
def _tokens(output: Any) -> list["weakref.ref[Token]"]:
    """Put tokens beside the graph of a forward's results; none where there is none."""
    nodes = list(_nodes(output))
    first = _first_operation(nodes[0]) if nodes else None
    if first is None:
        return []
    tokens = []
    for node in (*nodes, first):
        token = node.metadata.setdefault(_KEY, Token())
        tokens.append(weakref.ref(token))
    return tokens


def _nodes(output: Any) -> list[Any]:
    """Return the autograd nodes of a forward's results."""
    results = output.values() if isinstance(output, dict) else output
    if isinstance(results, torch.Tensor):
        results = (results,)
    if not isinstance(results, list | tuple | type({}.values())):
        return []
    tensors = [one for one in results if isinstance(one, torch.Tensor)][:_MOST_RESULTS]
    return [one.grad_fn for one in tensors if one.grad_fn is not None]


def _first_operation(node: Any) -> Any:
    """Return the first operation of a chain that leads to a node; None: the chain is too long."""
    for _ in range(_DEEPEST):
        before = (one for one, _ in node.next_functions if one is not None and one.next_functions)
        earlier = next(before, None)
        if earlier is None:
            return node
        node = earlier
    return None
