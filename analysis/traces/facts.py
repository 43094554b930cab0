"""What the rules for traces look at."""

from collections.abc import Mapping
from dataclasses import dataclass

from feedline.analysis.traces.between.compare import Between
from feedline.analysis.traces.budget import Budget
from feedline.analysis.traces.summary import RankTrace


@dataclass(frozen=True, eq=False)
class TraceFacts:
    """All ranks' traces, and the one whose figures a report shows.

    Attributes:
        shown: the lowest rank.
        budgets: rank -> its budget, with waiting for other ranks where that can be told.
        between: None: one rank, or ranks that did nothing together.
    """

    shown: RankTrace
    budgets: Mapping[int, Budget]
    between: Between | None

    @property
    def budget(self) -> Budget:
        """Of the rank that is shown."""
        return self.budgets[min(self.budgets)]

    @property
    def step_s(self) -> float:
        """Mean step of that rank; without steps, its whole trace."""
        return mean_step_s(self.budget)

    @property
    def whole(self) -> str:
        """What shares are of, in words."""
        return "the step" if len(self.shown.steps) else "the trace"

    def share(self, part: str) -> float:
        """Share (0 to 1) of its steps that one part of its budget takes."""
        return self.budget.shares.get(part, 0.0)


def mean_step_s(budget: Budget) -> float:
    """Of the steps that it splits."""
    steps = max(len(budget.edges) - 1, 1)
    return float(budget.edges[-1] - budget.edges[0]) / 1e9 / steps if len(budget.edges) else 0.0
