"""The ledger: tables of seconds that close.

A row is some seconds with an owner; a table is rows that sum to its whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_CLOSES = 0.001  # of the whole: how much of it rows may miss, or exceed


@dataclass(frozen=True)
class LedgerRow:
    """Seconds with an owner.

    Attributes:
        where: Path from the stage down to what it hides, such as wait/starved or
            other/user/validate. Of a run, the first part is start, steps, evaluation, profiled
            (steps that torch.profiler recorded), between (steps) or end, and the stage follows. Of
            a sample, cpu, run_queue (waiting for a CPU) and blocked are below each stage. Of
            traces, rows are the parts of the budget.
        s: What it takes of the table's whole. Unit: s.
        steps: Share (0 to 1) of the steps in which it occurs. Unit: 1. None: unknown, or
            the row is of a run.
        period: Steps from one in which it occurs to the next, the median. Unit: 1. None: it occurs
            in fewer than two, or the row is of a run.
        trend: Its mean in the last third of the recorded steps over that in the first. Unit: 1.
            None: the steps are fewer than 15.
        place: File and line; empty: unknown.
    """

    where: str
    s: float
    steps: float | None = None
    period: float | None = None
    trend: float | None = None
    place: str = ""

    @property
    def stage(self) -> str:
        """The stage that it is part of."""
        return self.where.partition("/")[0]


@dataclass(frozen=True)
class LedgerTable:
    """Rows that sum to a whole.

    Attributes:
        of: step or sample (the mean one), run, or trace (all of one without steps).
        whole_s: What the rows sum to, within 0.1 %. Unit: s.
        rows: Disjoint parts of it, the largest first.
    """

    of: str
    whole_s: float
    rows: list[LedgerRow] = field(default_factory=list)

    @classmethod
    def made_of(cls, of: str, whole_s: float, rows: Iterable[LedgerRow]) -> "LedgerTable":
        """Return a table of the rows that are not empty."""
        return cls(of, whole_s, sorted((row for row in rows if row.s > 0), key=lambda row: -row.s))

    @property
    def closes(self) -> bool:
        """Whether its rows sum to the whole. Those of a damaged recording may not."""
        return abs(self.whole_s - sum(row.s for row in self.rows)) <= _CLOSES * self.whole_s

    def row(self, where: str) -> LedgerRow | None:
        """Return the row of this path, with the seconds of those below it; None: there is none."""
        exact = next((row for row in self.rows if row.where == where), None)
        return replace(exact, s=self.total_s(where)) if exact is not None else None

    def under(self, where: str) -> list[LedgerRow]:
        """Return the row of this path and those below it."""
        return [row for row in self.rows if row.where == where or row.where.startswith(f"{where}/")]

    def total_s(self, *where: str) -> float:
        """Return the sum of the rows at or below these paths."""
        return sum(row.s for path in where for row in self.under(path))

    def share(self, *where: str) -> float:
        """Return the same as a share (0 to 1) of the whole."""
        return self.total_s(*where) / self.whole_s if self.whole_s else 0.0


@dataclass(frozen=True)
class Ledger:
    """Where one rank's time went.

    Attributes:
        step: The mean step; of a trace without steps, all of it.
        run: The whole run, from the begin of the recording to its end. None: one of these is
            unknown.
        sample: The mean sample, as the process that makes it spends the time. None: no sample was
            recorded.
    """

    step: LedgerTable
    run: LedgerTable | None
    sample: LedgerTable | None = None
