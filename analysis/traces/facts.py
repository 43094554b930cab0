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
    def rank(self) -> int:
        """That is shown."""
        return min(self.budgets)

    @property
    def whole(self) -> str:
        """What shares are of, in words."""
        return self.shown.basis.whole

    @property
    def in_steps(self) -> str:
        """Where counts are from, in words."""
        steps = self.shown.basis.steps
        return f"in {steps:,} step{'' if steps == 1 else 's'}" if steps else "in the trace"

    def share(self, part: str, rank: int | None = None) -> float:
        """Share (0 to 1) of its steps that one part of a rank's budget takes. ``rank``: None: the one that is shown."""
        return self.budgets[self.rank if rank is None else rank].shares.get(part, 0.0)

    def cost_s(self, part: str, rank: int | None = None) -> float:
        """The same in seconds per step, as the rank's mean step shows it."""
        budget = self.budgets[self.rank if rank is None else rank]
        return self.share(part, rank) * mean_step_s(budget)


def mean_step_s(budget: Budget) -> float:
    """Of the steps that it splits."""
    steps = max(len(budget.edges) - 1, 1)
    return float(budget.edges[-1] - budget.edges[0]) / 1e9 / steps if len(budget.edges) else 0.0
