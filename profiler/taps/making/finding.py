"""Finds the functions that make the program's batches."""

from types import CodeType
from typing import Any

import torch

from feedline.profiler.taps.making.returned import Returned
from feedline.profiler.taps.making.seeing import Calls

_HITS = 3  # steps in turn whose batch comes from a function
_MISSES = 4  # steps in turn whose batch comes from none, after which it stays unknown
_MOST_EVENTS = 60_000  # at 0.25 us each: 15 ms in the whole run


class Finder:
    """Observes all calls of the training outside models, backward passes and updates, in a few steps.

    Attributes:
        looks: calls are to be seen now.
        found: code of the functions; empty: not known yet.
    """

    def __init__(self) -> None:
        self._returned = Returned()
        self._calls = Calls(self._returned.entered, self._returned.left, _MOST_EVENTS)
        self.looks = False
        self.found: frozenset[CodeType] = frozenset()
        self._hits: list[frozenset[CodeType]] = []
        self._misses = 0
        self._forwards, self._by_loader = 0, False  # of this step
        self._makers: frozenset[CodeType] = frozenset()  # of what they got

    @property
    def gives_up(self) -> bool:
        """Whether the search is given up."""
        return self._misses >= _MISSES or self._calls.events >= _MOST_EVENTS

    def on(self) -> bool:
        """Code between those calls begins. False if it cannot be observed."""
        if self._calls.on():
            return True
        self.looks, self._hits = False, []
        self._misses += 1
        return False

    def off(self) -> None:
        """The next of those calls begins."""
        self._calls.off()
        self._returned.interrupted()

    def end(self) -> None:
        """Stop observing."""
        self._calls.end()

    def fed(self, by_loader: bool, given: Any) -> None:
        """A forward that trains receives this. The first of a step that receives what a function returned decides: one before it may choose
        an action.

        Args:
            by_loader: a DataLoader was asked for a batch in the step.
        """
        self._forwards += 1
        self._by_loader |= by_loader
        if self.looks and not self._makers:
            self._makers = self._returned.makers(given, first=self._forwards == 1)

    def moved(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """``Tensor.to`` or ``Tensor.cuda`` made another tensor."""
        self._returned.moved(source, target)

    def gave(self, output: Any) -> None:
        """A model returned this."""
        self._returned.given_back(output)

    def step_ends(self) -> None:
        """An update was made."""
        if not self._forwards:
            return
        if self.looks:
            makers = frozenset[CodeType]() if self._by_loader else self._makers
            self._hits = [*self._hits, makers] if makers else []
            self._misses = 0 if makers else self._misses + 1
        if len(self._hits) >= _HITS:
            self.found = frozenset().union(*self._hits)
        self.looks = not self._by_loader
        self._forwards, self._by_loader, self._makers = 0, False, frozenset()
        self._returned.step_ends()
