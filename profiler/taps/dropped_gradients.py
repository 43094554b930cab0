"""Gradients that come after an update and are cleared before the next one: no update uses them.

Whether that is so is seen from two gradients of an optimizer: autograd adds to a gradient in place,
which raises its version, or makes a new tensor. No value is looked at, and modes and subclasses of the
program do not see the look.
"""

from typing import Any

from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.torch_internals import NoFunctionModes

_Seen = tuple[tuple[int, int] | None, ...]


class DroppedGradients:
    """Remembers an optimizer's gradients as its update left them. It never raises."""

    def __init__(self) -> None:
        self._left: dict[int, _Seen] = {}

    def updated(self, optimizer: Any) -> None:
        """Note that an optimizer has made an update."""
        try:
            self._left[id(optimizer)] = _seen(optimizer)
        except Exception:  # gradients of classes of the program's own
            reraise_of_handler()
            self.forget(optimizer)

    def forget(self, optimizer: Any) -> None:
        """Note that what an optimizer did meanwhile is not known."""
        self._left.pop(id(optimizer), None)

    def cleared(self, optimizer: Any) -> int:
        """Return the parameters (elements) whose gradients came since the update, as all are cleared.

        0: none came, or that is not known.
        """
        left = self._left.pop(id(optimizer), None)
        if left is None:
            return 0
        try:
            came = all(
                now is not None and before is not None and now != before
                for now, before in zip(_seen(optimizer), left)
            )
            return _elements(optimizer) if came else 0
        except Exception:
            reraise_of_handler()
            return 0


def _seen(optimizer: Any) -> _Seen:
    """Return which tensors the first and the last gradient are, and how often they were changed."""
    weights = optimizer.param_groups[0]["params"]
    with NoFunctionModes():
        grads = (weights[0].grad, weights[-1].grad)
        return tuple(None if grad is None else (id(grad), grad._version) for grad in grads)


def _elements(optimizer: Any) -> int:
    with NoFunctionModes():
        return sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])


dropped_gradients = DroppedGradients()
