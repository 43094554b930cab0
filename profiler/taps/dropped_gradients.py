"""Gradients that come after an update and are cleared before the next one: no update uses them.

Whether that is so is seen from two gradients of an optimizer: autograd adds to a gradient in place,
which raises its version, or makes a new tensor. No value is looked at, and modes and subclasses of the
program do not see the look.
"""

from typing import Any

from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.torch_internals import NoFunctionModes

_MOST_PAIRS = 64  # of optimizers whose parameters were compared
_MOST_OPTIMIZERS = 8  # with an update and uncleared gradients: each is compared with all others
_Seen = tuple[tuple[int, int] | None, ...]


class _DroppedGradients:
    """Remembers an optimizer's gradients as its update left them. It never raises."""

    def __init__(self) -> None:
        self._left: dict[int, _Seen] = {}
        self._looked: dict[int, tuple[int, ...]] = {}
        self._sharing: dict[tuple[object, ...], bool] = {}

    def updated(self, optimizer: Any) -> None:
        """Note that an optimizer has made an update.

        It has used the gradients of others that have the same parameters, too.
        """
        try:
            if len(self._left) >= _MOST_OPTIMIZERS and id(optimizer) not in self._left:
                self._left.clear()  # of a program with one for each layer, say: not known
                self._looked.clear()
            for other in [other for other in self._left if other != id(optimizer)]:
                if self._shares(optimizer, other):
                    self._left.pop(other, None)
            self._looked[id(optimizer)] = tuple(map(id, _looked_at(optimizer)))
            self._left[id(optimizer)] = _seen(optimizer)
        except Exception:  # gradients of classes of the program's own
            reraise_of_handler()
            self.forget(optimizer)

    def forget(self, optimizer: Any) -> None:
        """Note that what an optimizer did meanwhile is not known."""
        self._left.pop(id(optimizer), None)

    def _shares(self, optimizer: Any, other: int) -> bool:
        """Tell whether an optimizer has a parameter whose gradient is looked at for the other one."""
        looked, groups = self._looked.get(other, ()), optimizer.param_groups
        key = id(optimizer), len(groups), len(groups[0]["params"]), looked
        shares = self._sharing.get(key)
        if shares is None:
            if len(self._sharing) >= _MOST_PAIRS:
                self._sharing.clear()
            ids = {id(weight) for group in groups for weight in group["params"]}
            shares = self._sharing[key] = not ids.isdisjoint(looked)
        return shares

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


def _looked_at(optimizer: Any) -> tuple[Any, Any]:
    """Return the parameters whose gradients are looked at."""
    weights = optimizer.param_groups[0]["params"]
    return weights[0], weights[-1]


def _seen(optimizer: Any) -> _Seen:
    """Return which tensors the first and the last gradient are, and how often they were changed."""
    with NoFunctionModes():
        grads = tuple(weight.grad for weight in _looked_at(optimizer))
        return tuple(None if grad is None else (id(grad), grad._version) for grad in grads)


def _elements(optimizer: Any) -> int:
    with NoFunctionModes():
        return sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])


dropped_gradients = _DroppedGradients()
