"""Looks at a few values in a few steps: padding that no row of a batch needs, denormal numbers.

Both make a step longer without any sign in a stack. A look takes 0.1 to 2 ms, and there are at
most eighty in a run. Nothing is changed, no random number is drawn, and only numbers of values are
recorded. Tensors on a GPU are not looked at: the program would have to wait for it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from feedline.profiler import clock
from feedline.profiler.events import DENORMAL, PADDING, Stage
from feedline.profiler.fail_open import reraise_of_handler
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps.batch_contents import leaves
from feedline.profiler.taps.patch import Patches
from feedline.profiler.torch_internals import below_user_modes, is_profiled

NAME = "contents"
GIVES = "padding of batches of integers, denormal parameters and gradients"

_FIRST = 3  # updates before the first look
#: Times as many updates until the next, and how many: numbers may be denormal for a part of a run.
_APART = {PADDING: 1.5, DENORMAL: 1.15}
_MOST_LOOKS = {PADDING: 20, DENORMAL: 60}
_MOST_LEAVES = 16  # of a batch
_MOST_VALUES = 1 << 20  # of a tensor: a longer look takes milliseconds
_SHORTEST, _FEWEST_ROWS = 16, 4  # of a batch that may be padded
_FEWEST_LENGTHS = 3  # rows of as many lengths are texts, and no fixed frame
_INSIDE = 0.01  # of the values before the padding: what fills rows does not stand among them
_PARAMETERS, _OF_EACH = 8, 1024  # values are spread over each of the largest
_INDICES = torch.int64, torch.int32


class ContentTap:
    """Receives batches and updates, and looks at some of them. No method raises."""

    def __init__(self) -> None:
        self._next = {PADDING: _FIRST, DENORMAL: _FIRST}
        self._looks = {PADDING: 0, DENORMAL: 0}

    def attach(self, _: Patches) -> Callable[[], None]:
        """Attach; returns a function that ends it."""
        recorder.contents = self
        return self.stop

    def stop(self) -> None:
        if recorder.contents is self:
            recorder.contents = None

    def handed_over(self, batch: Any) -> None:
        """Note a batch of a loader."""
        try:
            updates = _updates()
            if updates >= self._next[PADDING] and self._begins(PADDING, updates):
                self._padding(batch, updates)
        except Exception:
            reraise_of_handler()
            self.stop()

    def updating(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to step."""
        try:
            updates = _updates()
            if updates >= self._next[DENORMAL] and self._begins(DENORMAL, updates):
                self._denormal(optimizer, updates)
        except Exception:
            reraise_of_handler()
            self.stop()

    def _begins(self, kind: str, updates: int) -> bool:
        """Return whether to look now."""
        self._looks[kind] += 1
        self._next[kind] = max(updates + 1, int(updates * _APART[kind]))
        if self._looks[kind] >= _MOST_LOOKS[kind]:
            self._next[kind] = 1 << 62
        return not is_profiled()

    @below_user_modes
    def _padding(self, batch: Any, updates: int) -> None:
        model = recorder.convergence.model if recorder.convergence is not None else None
        if model is None or not _looks_up(model):
            return
        fit = _index_rows(batch)
        if fit:
            _record(PADDING, updates, fit[0].numel(), *_common_padding(fit))

    @below_user_modes
    def _denormal(self, optimizer: torch.optim.Optimizer, updates: int) -> None:
        some = _some_values(optimizer)
        if some:
            values = torch.cat(some).abs()
            denormal = (values > 0) & (values < torch.finfo(values.dtype).tiny)
            _record(DENORMAL, updates, values.numel(), int(denormal.sum().item()), 0)


def _common_padding(fit: list[torch.Tensor]) -> tuple[int, int]:
    """Return the padding that all tensors of a batch with the shape of the first have, as padding does.

    One that is not padded, such as tokens beside labels of which some do not count, is needed as
    it is. Where all values are the same, such as for kinds of tokens, it says nothing.
    """
    alike = [rows for rows in fit if rows.shape == fit[0].shape and (rows != rows[0, 0]).any()]
    found = [_padding(rows) or (0, 0) for rows in alike]
    return min(found, default=(0, 0))


def _padding(rows: torch.Tensor) -> tuple[int, int] | None:
    """Return the values of a batch in columns that no row needs, and all that only fill rows.

    None: rows do not look padded, at either end.

    Args:
        rows: [rows, length] of integers.
    """
    values = rows.numpy()
    found = (_trailing(values), _trailing(values[:, ::-1]))
    return max((one for one in found if one is not None), default=None)


def _trailing(rows: npt.NDArray[Any]) -> tuple[int, int] | None:
    number, length = rows.shape
    ((value, _),) = Counter(rows[:, -1].tolist()).most_common(1)
    others = rows != value
    lengths = np.where(others.any(1), length - others[:, ::-1].argmax(1), 0)
    kept, longest = int(lengths.sum()), int(lengths.max())
    inside = kept - int(np.count_nonzero(others))
    if not longest or inside > _INSIDE * kept or len(np.unique(lengths)) < _FEWEST_LENGTHS:
        return None
    return number * (length - longest), number * length - kept


def _index_rows(batch: Any) -> list[torch.Tensor]:
    """Return the tensors of a batch that may be rows of indices, largest first."""
    fit = [
        leaf
        for leaf in leaves(batch, [])[:_MOST_LEAVES]
        if type(leaf) is torch.Tensor
        and leaf.is_cpu
        and leaf.dtype in _INDICES
        and leaf.dim() == 2
        and leaf.shape[0] >= _FEWEST_ROWS
        and leaf.shape[1] >= _SHORTEST
        and leaf.numel() <= _MOST_VALUES
    ]
    return sorted(fit, key=lambda leaf: -leaf.numel())


def _looks_up(model: Any) -> bool:
    """Return whether a model looks up rows of a table, as for tokens."""
    return any(isinstance(part, torch.nn.Embedding) for part in model.modules())


def _some_values(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return some values of the largest parameters and their gradients that a CPU computes with."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    largest = sorted(parameters, key=lambda one: -one.numel())[:_PARAMETERS]
    values = [one.detach() for one in largest if type(one) is torch.nn.Parameter]
    values += [one.grad.detach() for one in largest if type(one.grad) is torch.Tensor]
    return [
        one.view(-1)[:: max(1, one.numel() // _OF_EACH)]
        for one in values
        if one.is_cpu
        and one.layout is torch.strided
        and one.dtype is torch.float32
        and one.is_contiguous()
    ]


def _updates() -> int:
    return recorder.convergence.updates if recorder.convergence is not None else -1


def _record(kind: str, updates: int, values: int, needless: int, padded: int) -> None:
    segment = recorder.always_on_segment()
    if segment is not None:
        segment.add(
            Stage.CONTENTS,
            clock.wall_ns(),
            0,
            padded,
            nbytes=values,
            number=updates,
            extra=needless,
            source=segment.name_id(kind),
        )
