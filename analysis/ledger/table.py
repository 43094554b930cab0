"""The ledger: tables of seconds that close.

A row is some seconds with an owner; a table is rows that sum to its whole.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from feedline.analysis.measure.code_places import COMPILE
from feedline.analysis.measure.code_tree import MAIN, SampledCode, functions_of
from feedline.analysis.measure.model import Cost
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.ranks.communication import ExposedKind, RankParts

_CLOSES = 0.001  # of the whole: how much of it rows may miss, or exceed
_USER = "user"
_GARBAGE, _PERIODIC, _WAIT = "gc", "periodic", "wait"
#: Stages that own_code and the kinds of waiting divide; and one that is torch's alone, though
#: libraries that it calls look like the program's.
_NOT_SAMPLED = ("other", "loss", _WAIT, COMPILE)
_PLACE = re.compile(r"(?P<name>.*) \((?P<place>[^()]+)\)")


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
            in fewer than two, the row is of a run, or the run was so long that not all of its steps
            were kept.
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


def step_rows(
    step: StepSummary,
    parts: RankParts | None = None,
    kinds: Sequence[ExposedKind] = (),
    code: SampledCode | None = None,
) -> list[LedgerRow]:
    """Return the mean step as disjoint rows that sum to it.

    The kinds of waiting are rows below ``wait``, communication that nothing hides is below the
    phase in which it is called. What functions of the program take between models, backward passes
    and updates are rows below ``other`` and ``loss``, in proportion: which of the two they ran in
    was not recorded. Garbage collections, and what every nth step takes longer, are rows below the
    stages that they lie in. Functions have at most what these and communication leave of their
    stage, because their own seconds hold both.

    Args:
        parts: of the step of one of several ranks; None: they were not compared.
        kinds: of its communication that nothing hides. What the rank waits for others is divided as
            their transfer is.
        code: the program's functions in sampled stacks; None: none were sampled.
    """
    others = [*_garbage(step), *_periodic(step)]
    if parts is not None:
        others += [*_without(step, [*_communication(step, parts, kinds)], others)]
    inside = [*_waits(step), *_functions(step), *_sampled(step, code)]
    inside = [*_without(step, inside, others), *others]
    rows = []
    for name, stage_s in step.stages.items():
        left = stage_s - sum(row.s for row in inside if row.stage == name)
        rows.append(LedgerRow(name, left))
    return [*rows, *inside]


def sample_rows(
    costs: Mapping[str, Cost], code: SampledCode | None = None
) -> tuple[float, list[LedgerRow]]:
    """Return the seconds of a mean sample, and its rows.

    What each stage spends on a CPU, waiting for one, and blocked.

    What functions of the program take of a stage is below it, divided as the stage is.

    Args:
        code: the program's functions in sampled stacks; None: none were sampled.
    """
    rows: list[LedgerRow] = []
    for stage, cost in costs.items():
        if stage == "total":
            continue
        kinds = {"cpu": cost.cpu_s, "run_queue": cost.runqueue_s, "blocked": cost.blocked_s}
        known = {kind: seconds for kind, seconds in kinds.items() if seconds is not None}
        known[""] = max(0.0, cost.wall_s - sum(known.values()))
        functions = functions_of(code, stage) if code is not None else []
        left = 1.0
        for name, place, part in functions:
            left -= part
            rows += [
                LedgerRow(_path(f"{stage}/{_USER}/{name}", kind), seconds * part, place=place)
                for kind, seconds in known.items()
            ]
        rows += [
            LedgerRow(_path(stage, kind), seconds * max(left, 0.0))
            for kind, seconds in known.items()
        ]
    # it is sent after it is made
    whole = sum(costs[name].wall_s for name in ("total", "transport") if name in costs)
    return whole or sum(row.s for row in rows), rows


def _path(where: str, kind: str) -> str:
    return f"{where}/{kind}" if kind else where


def _sampled(step: StepSummary, code: SampledCode | None) -> Iterator[LedgerRow]:
    """Functions of the program inside of stages; those of the loop itself are ``_functions``."""
    if code is None:
        return
    for stage, seconds in step.stages.items():
        if stage not in _NOT_SAMPLED:
            for name, place, part in functions_of(code, stage, MAIN):
                yield LedgerRow(f"{stage}/{_USER}/{name}", seconds * part, place=place)


def _waits(step: StepSummary) -> Iterator[LedgerRow]:
    for kind, seconds in step.waits.items():
        yield LedgerRow(f"wait/{kind}", seconds)


def _functions(step: StepSummary) -> Iterator[LedgerRow]:
    own = step.own_code
    if own is None or own.s <= 0:
        return
    in_other = min(1.0, step.stages.get("other", 0.0) / own.s)
    for function in own.functions:
        match = _PLACE.fullmatch(function.name)
        name, place = (match["name"], match["place"]) if match else (function.name, "")
        for stage, part in (("other", in_other), ("loss", 1 - in_other)):
            yield LedgerRow(f"{stage}/{_USER}/{name}", function.s * part, place=place)


def _garbage(step: StepSummary) -> Iterator[LedgerRow]:
    """Return garbage collections, as rows below the stages that they run in.

    Those while the step waits for a batch are left out: it would wait as long without them.
    """
    for stage, seconds in step.garbage.stages.items() if step.garbage else ():
        if stage != _WAIT:
            yield LedgerRow(f"{stage}/{_GARBAGE}", seconds)


def _periodic(step: StepSummary) -> Iterator[LedgerRow]:
    """Return what every nth step takes longer, as far as its stages have room for it."""
    stall, collected = step.periodic, {row.stage: row.s for row in _garbage(step)}
    if stall is None:
        return
    for stage, seconds in stall.stages.items():
        room = step.stages.get(stage, 0.0) - collected.get(stage, 0.0)
        yield LedgerRow(
            f"{stage}/{_PERIODIC}",
            max(min(seconds, room), 0.0),
            steps=1 / stall.period,
            period=float(stall.period),
            place=stall.place,
        )


def _without(
    step: StepSummary, rows: list[LedgerRow], others: Sequence[LedgerRow]
) -> Iterator[LedgerRow]:
    """Take other rows off what is known of their stage, as far as it does not fit beside them."""
    taken = dict.fromkeys((row.stage for row in others), 0.0)
    for row in others:
        taken[row.stage] += row.s
    for row in rows:
        seconds = taken.get(row.stage, 0.0)
        known = sum(one.s for one in rows if one.stage == row.stage)
        room = max(step.stages.get(row.stage, 0.0) - seconds, 0.0)
        yield replace(row, s=row.s * room / known) if known > room else row


def _communication(
    step: StepSummary, parts: RankParts, kinds: Sequence[ExposedKind]
) -> Iterator[LedgerRow]:
    """Return the communication that no computing hides, at most the stage that it is called in."""
    whole = sum(kind.transfer_s for kind in kinds)
    for phase in dict.fromkeys(kind.phase for kind in kinds if kind.phase in step.stages):
        transfer_s = sum(kind.transfer_s for kind in kinds if kind.phase == phase)
        left = step.stages[phase]
        for name, seconds in (
            ("transfer", transfer_s),
            ("late", (parts.exposed_wait_s or 0.0) * transfer_s / whole if whole else 0.0),
        ):
            part = min(left, seconds)
            left -= part
            yield LedgerRow(f"{phase}/comm/{name}", part)
