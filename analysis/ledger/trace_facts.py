"""What rules read of traces."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from feedline.analysis.intervals import NONE, clip, joined, length, union, without
from feedline.analysis.ledger.facts import Exposed, RankFacts, Waiting
from feedline.analysis.ledger.finding import SHARE, Evidence, Severity
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.ranks.communication import ExposedKind
from feedline.analysis.ranks.cross_rank import RankComparison
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NAME, PART, PERCENT, TIME, Sentence
from feedline.analysis.traces.collectives import operation
from feedline.analysis.traces.kernel_names import may_communicate, operation_of
from feedline.analysis.traces.rank_trace import KernelRow, RankTrace
from feedline.analysis.traces.trace_budget import StepBudget

_MUCH_LESS = 0.5  # of the shown rank's: then waiting is most of it
SHOWN = 3  # operations, one by one
#: Ranges of FSDP, the first and the second; of DistributedDataParallel, in Python and of its reducer.
_OF_FSDP = re.compile(r"FullyShardedDataParallel\b|FSDP::")
_OF_DDP = re.compile(r"DistributedDataParallel\b|torch\.distributed\.ddp\.")
_ALL_RANKS = [
    "Ingest the traces of all ranks in one command (`feedline ingest rank0.json.gz rank1.json.gz "
    "...`).",
    "feedline can then separate transfer time from waiting time.",
]
_WAITS = Sentence(
    "rank {rank} waits for others for {part} of {whole}", rank=COUNT, part=PERCENT, whole=PART
)
_LAST = Sentence(
    "rank {rank} joins {last} of {collectives} last",
    rank=NAME,
    last=COUNT,
    collectives=PART,
)
_INCLUDES = Sentence(
    "this includes waiting for other ranks, which {which} cannot separate", which=PART
)
_LEAST = Sentence(
    "on rank {rank} it takes {least}, so most of it is waiting for other ranks",
    rank=COUNT,
    least=TIME,
)


@dataclass(frozen=True, eq=False)
class TraceFacts:
    """All ranks' traces, and the one whose figures a report shows.

    Attributes:
        shown: the lowest rank.
        budgets: rank -> its budget, with waiting for other ranks where that can be told.
        between: None: one rank, or ranks that did nothing together.
    """

    shown: RankTrace
    budgets: Mapping[int, StepBudget]
    between: RankComparison | None

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
        return f"in {counted(steps, 'step')}" if steps else "in the trace"

    def share(self, part: str, rank: int | None = None) -> float:
        """Return the share (0 to 1) of its steps that one part of a rank's budget takes.

        Args:
            rank: None: the one that is shown.
        """
        return self.budgets[self.rank if rank is None else rank].shares.get(part, 0.0)

    def cost_s(self, part: str, rank: int | None = None) -> float:
        """Return that part in seconds per step, as the rank's mean step shows it."""
        budget = self.budgets[self.rank if rank is None else rank]
        return self.share(part, rank) * mean_step_s(budget)

    @cached_property
    def rows(self) -> dict[str, float]:
        """Row of the ledger -> seconds per step; of a trace without steps, in all of it."""
        return {row.where: row.s for row in self.ledger.step.rows}

    @cached_property
    def ledger(self) -> Ledger:
        """Where the time of the shown rank went: each part of its mean step, or of the whole trace."""
        budget = self.budgets[self.rank]
        whole_s = mean_step_s(budget)
        rows = [LedgerRow(part, share * whole_s) for part, share in budget.shares.items()]
        return Ledger(
            LedgerTable.made_of("step" if self.shown.basis.steps else "trace", whole_s, rows), None
        )

    def busy_share(self, kernels: re.Pattern[str]) -> float:
        """Return the share (0 to 1) of busy time in kernels whose names have the pattern."""
        return sum(row.busy_share for row in self.shown.kernels if kernels.search(row.name))

    @property
    def perhaps_communication(self) -> list[KernelRow]:
        """Kernels counted as computing that may be communication by their names, most first.

        There are none where they take next to nothing.
        """
        found = [
            row for row in self.shown.kernels if not row.communication and may_communicate(row.name)
        ]
        return (
            found if Severity.of(sum(row.busy_share for row in found)) is not Severity.INFO else []
        )

    @property
    def ranks(self) -> RankFacts:
        """What they cost each other."""
        comm = self.between.communication if self.between else None
        return RankFacts(
            len(self.budgets),
            self.whole,
            comm,
            comm.late if comm else [],
            _waiting(self),
            _exposed(self),
            traced=True,
        )


def mean_step_s(budget: StepBudget) -> float:
    """Return the mean of the steps that it splits, s."""
    steps = max(len(budget.edges) - 1, 1)
    return float(budget.edges[-1] - budget.edges[0]) / 1e9 / steps if len(budget.edges) else 0.0


def _waiting(facts: TraceFacts) -> Waiting | None:
    """Return the waiting of the first rank that is not late itself."""
    between = facts.between
    if between is None or not between.communication.late:
        return None
    late = between.communication.late[0].rank
    others = [rank for rank in facts.budgets if rank != late]
    waiter, part = min(others), "waiting_for_rank"
    most = max(others, key=lambda rank: facts.share(part, rank))
    waited = facts.share(part, waiter)
    last = int((between.last == late).sum())
    met = len(between.last)
    return Waiting(
        waiter,
        facts.cost_s(part, waiter),
        mean_step_s(facts.budgets[waiter]),
        waited,
        between.parts.get(waiter),
        more=[
            _WAITS(rank=waiter, part=waited, whole=facts.whole),
            _LAST(rank=late, last=last, collectives=counted(met, "collective")),
        ],
        evidence=[
            Evidence(
                "waiting_for_rank_share",
                f"rank {waiter} waits for other ranks",
                waited,
                SHARE,
                str(waiter),
            ),
            Evidence("last_in", f"collectives that rank {late} joined last", last, ""),
            Evidence(
                "longest_wait_share",
                f"the longest wait, that of rank {most}",
                facts.share(part, most),
                SHARE,
                str(most),
            ),
        ],
    )


def _exposed(facts: TraceFacts) -> Exposed:
    """Return the exposed transfer of the shown rank, and the rank that has far less.

    What the shown one has more is waiting that clocks hide.
    """
    part, kinds, hidden = "exposed_transfer", _kinds(facts), facts.shown.gpu.overlap_pct_of_comm
    own_s, least = facts.cost_s(part), min(facts.budgets, key=lambda rank: facts.cost_s(part, rank))
    least_s, alone = facts.cost_s(part, least), facts.between is None or not facts.between.waiting
    which = "one rank's trace" if facts.between is None else "these traces"
    more = [_INCLUDES(which=which)] if alone else []
    if least_s <= _MUCH_LESS * own_s:
        more.append(_LEAST(rank=least, least=least_s))
    exposed = "exposed per step" if facts.shown.basis.steps else "exposed"
    evidence = [
        Evidence("exposed_transfer_share", "exposed communication", facts.share(part), SHARE)
    ]
    if hidden is not None:
        evidence.append(
            Evidence(
                "hidden_transfer_share",
                "communication that overlaps with computation",
                hidden / 100,
                SHARE,
            )
        )
    return Exposed(
        facts.rank,
        own_s,
        facts.share(part),
        beyond="computation",
        kinds=kinds,
        hidden_share=hidden / 100 if hidden is not None else None,
        more=more,
        separate=_ALL_RANKS if alone else [],
        evidence=[
            *evidence,
            *(
                Evidence("exposed_s", f"{exposed}: {one.name}", one.transfer_s, "s", one.name)
                for one in kinds
            ),
        ],
        ddp=any(_OF_DDP.match(row.name) for row in facts.shown.calls),
        sharded=any(_OF_FSDP.match(row.name) for row in facts.shown.calls),
    )


def _done_by(kernel: str) -> str:
    return operation_of(kernel) or operation(kernel)


def _kinds(facts: TraceFacts) -> list[ExposedKind]:
    """Return the shown rank's exposed transfer by operation, most first, then the others together.

    What two move at once is the first one's.
    """
    shown, window = facts.shown, facts.shown.basis
    seen, table = shown.collectives, shown.collectives.table
    names = [
        operation(seen.names[row["said"]])
        if row["said"] >= 0
        else _done_by(seen.names[row["name"]])
        for row in table
    ]
    taken = joined(
        seen.hidden, facts.between.waiting.get(facts.rank, NONE) if facts.between else NONE
    )
    found = []
    for name in sorted(set(names), key=names.index):
        mine = np.array([one == name for one in names])
        spans = without(
            clip(union(table["start"][mine], table["end"][mine]), window.begin, window.end), taken
        )
        taken = joined(taken, spans)
        found.append(ExposedKind(name, "", length(spans) / 1e9 / max(window.steps, 1)))
    most = sorted(
        (kind for kind in found if kind.transfer_s > 0), key=lambda kind: -kind.transfer_s
    )
    rest_s = sum(kind.transfer_s for kind in most[SHOWN:])
    return [*most[:SHOWN], *([ExposedKind("other", "", rest_s)] if rest_s else [])]
