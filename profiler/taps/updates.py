"""Updates of the parameters, and the moments between calls.

Work that must not begin or end inside a call waits for these. torch's global hooks are set once per
process and stay. Its optimizers iterate over them while they step, and adding or removing an entry
meanwhile would end the training: a recording may end in a hook of the program, or in another
thread.

An update can be made inside a backward (memory-saving recipes) or a forward. Whatever torch binds
to a thread there, such as a profiler, would be half undone when that call returns;
``between_calls`` postpones it until then.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from feedline.profiler.record.recorder import inside, unobserved
from feedline.profiler.torch_internals import in_backward

_Listener = Callable[[torch.optim.Optimizer], None]
_MAX_ALTERNATING = 64  # updates in a row of one optimizer while that of the steps makes none


class _Updates:
    """Calls its listeners before and after each update of any optimizer.

    They are called in the order in which they were added.
    """

    def __init__(self) -> None:
        self.waiting: dict[
            Callable[[], None], None
        ] = {}  # for the end of the outermost call; each once
        self._before: tuple[
            _Listener, ...
        ] = ()  # replaced, never changed: another thread may be going through it
        self._after: tuple[_Listener, ...] = ()
        self._hooked = False
        self._places = 0, 0  # of the two hooks, in torch's dictionaries

    @property
    def others(self) -> bool:
        """Whether more than one tap listens."""
        return len(self._before) + len(self._after) > 2

    def hand_over(self, before_it: Callable[..., None], after: Callable[..., None]) -> None:
        """Let torch call these before and after each update instead of the listeners.

        Entries keep their places: torch may be iterating.
        """
        before, behind = self._places
        torch_optimizer._global_optimizer_pre_hooks[before] = before_it
        torch_optimizer._global_optimizer_post_hooks[behind] = after

    def take_back(self) -> None:
        """Call the listeners again."""
        if self._hooked:
            before, behind = self._places
            torch_optimizer._global_optimizer_pre_hooks[before] = self.notify_before
            torch_optimizer._global_optimizer_post_hooks[behind] = self._notify_after

    def follow(
        self, before: _Listener | None = None, after: _Listener | None = None
    ) -> Callable[[], None]:
        """Add these listeners; returns a function that removes them.

        Raises:
            RuntimeError: an optimizer is in the middle of its hooks, and none may be added now.
        """
        if not self._hooked:
            if _steps_now():
                raise RuntimeError(
                    "the recording began inside an optimizer's step, where torch accepts no new "
                    "hooks"
                )
            self._places = (
                torch_optimizer.register_optimizer_step_pre_hook(self.notify_before).id,
                torch_optimizer.register_optimizer_step_post_hook(self._notify_after).id,
            )
            self._hooked = True
        self._before += (before,) if before is not None else ()
        self._after += (after,) if after is not None else ()

        def end() -> None:
            self._before = tuple(listener for listener in self._before if listener != before)
            self._after = tuple(listener for listener in self._after if listener != after)

        return end

    def between_calls(self, act: Callable[[], None]) -> None:
        """Call ``act`` when this thread is in no forward or backward.

        That is now, or when the outermost one ends. It must not raise.
        """
        if between():
            act()
        else:
            self.waiting[act] = None

    def call_ended(self) -> None:
        """Note that an outermost forward or backward has returned or raised."""
        if between():
            waiting, self.waiting = self.waiting, {}
            for act in waiting:
                act()

    def notify_before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Note that an update is about to be made."""
        if torch.compiler.is_compiling():  # a compiled step stays one graph, and is not seen
            return
        for listener in self._before:
            listener(optimizer)

    def _notify_after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with unobserved():
            for listener in self._after:
                listener(optimizer)


updates = _Updates()


class CountedSteps:
    """Counts the updates of one optimizer, which are steps where several alternate.

    It is the first. When it is gone, or makes no update while another one makes many, that one
    takes over.

    Attributes:
        updates: how many were counted, with those that one made before it took over.
        taken_over: whether the last one was the first of an optimizer that took over from another
            one that is still there: what began with the update before it has lasted for many steps.
    """

    def __init__(self) -> None:
        self.updates = 0
        self.taken_over = False
        self._optimizer: Callable[[], object] = lambda: None  # a weak reference
        # by id, updates since the last counted one; an optimizer may get the address of one that
        # is gone, and weak keys would need its hash
        self._made: dict[int, tuple[weakref.ref[torch.optim.Optimizer], int]] = {}

    def ends(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that an update was made; returns whether a step ends with it."""
        known, made = self._made.get(id(optimizer), (None, 0))
        made = made + 1 if known is not None and known() is optimizer else 1
        self._made[id(optimizer)] = weakref.ref(optimizer), made
        counted = self._optimizer()
        if counted is not optimizer:
            if counted is not None and made <= _MAX_ALTERNATING:
                return False
            self._optimizer = weakref.ref(optimizer)
        self.taken_over = counted is not None and counted is not optimizer
        self._made.clear()
        self.updates += made
        return True


class OpenSteps(threading.local):
    """Tells which of the optimizers that step one another is the outermost.

    SAM and ZeroRedundancyOptimizer are optimizers that step another one, made of their groups.
    """

    def __init__(self) -> None:
        self._open: list[int] = []  # by id, the outermost first

    def begins(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that a step begins; returns whether it is the outermost."""
        if self._open:
            self._close(optimizer)  # its last step raised
            under_way = _stepping()
            self._open = [number for number in self._open if number in under_way]
        self._open.append(id(optimizer))
        return len(self._open) == 1

    def ends(self, optimizer: torch.optim.Optimizer) -> bool:
        """Note that a step has ended; returns whether it was the outermost."""
        self._close(optimizer)
        return not self._open

    def _close(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) in self._open:
            del self._open[self._open.index(id(optimizer)) :]


def between() -> bool:
    """Return whether this thread is neither in a watched call nor in a backward pass."""
    return not inside.depth and not in_backward()


def _stepping() -> set[int]:
    """Return the optimizers, by id, whose steps are on this thread's stack."""
    found: set[int] = set()
    at: Any = sys._getframe(1)
    while at is not None:
        if at.f_code.co_filename == torch_optimizer.__file__ and "self" in at.f_locals:
            found.add(id(at.f_locals["self"]))  # of the wrapper of step()
        at = at.f_back
    return found


def _steps_now() -> bool:
    """Return whether any thread is inside an optimizer's step."""
    for frame in sys._current_frames().values():
        at: Any = frame
        while at is not None:
            if at.f_code.co_filename == torch_optimizer.__file__:
                return True
            at = at.f_back
    return False
