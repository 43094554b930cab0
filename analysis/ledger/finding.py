"""What a rule says: one cause, how much it matters, what proves it, what to do."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from feedline.analysis.formatting import number, seconds, share

#: Unit of a share from 0 to 1, which people read as a percentage.
SHARE = "share"


class Severity(str, enum.Enum):
    """How much of the step a cause costs."""

    INFO = "info"
    LOW = "low"
    HIGH = "high"

    @classmethod
    def of(cls, share: float) -> "Severity":
        """Severity of something that costs this share (0 to 1) of the step.

        5 % and 20 % are XProf's words for "moderately" and "highly input-bound".
        """
        if share >= 0.20:
            return cls.HIGH
        return cls.LOW if share >= 0.05 else cls.INFO


class CostKind(str, enum.Enum):
    """What the cost of a finding says of the time that its fix saves."""

    PREDICTED = "predicted"  # a replay without the cause saves it, within an interval
    ESTIMATED = "estimated"  # the time of the cause: what the fix saves can be more or less
    AT_LEAST = "at_least"  # estimated, and probably more: on full CPUs, cheaper samples also leave CPU time to the step
    BOUND = "bound"  # no fix of this cause saves more
    UNKNOWN = "unknown"  # no time is known


@dataclass(frozen=True)
class Evidence:
    """One measured fact.

    Attributes:
        id: what was measured, stable between versions, for code; ``what`` is for people.
        value: in ``unit``: "s", "B", "samples/s", ``SHARE`` for shares from 0 to 1, "1" for other ratios, ...
        of: which one, where a finding has several of one id or names one of many: a rank, an operation, the "lower" end of an interval.
    """

    id: str
    what: str
    value: float
    unit: str
    of: str = ""


def measured(rows: Iterable[tuple[str, str, float | None, str]]) -> list[Evidence]:
    """Evidence from rows of (id, what, value or None, unit), without those whose value is unknown."""
    return [Evidence(id, what, value, unit) for id, what, value, unit in rows if value is not None]


@dataclass(frozen=True)
class Blame:
    """The rank that a finding names, and what it does.

    Attributes:
        rank: the late one; None: it changes from step to step.
        phase: what it takes longer for than the others: ``wait`` (for its loader), ``copy``, ``forward``, ``backward``, ``optimizer``,
            ``other``, or a stage that the user named. Of traces also ``computing``, ``launching``, ``synchronising`` and ``BEFORE_TRACE``.
        part: of a sample, where the phase is ``wait`` and its workers tell: ``read``, ``decode``, ``augment``, ...
    """

    rank: int | None
    phase: str
    part: str | None = None


@dataclass(frozen=True)
class PredictedRate:
    """Throughput of all ranks, in samples/s, as it is and with a change.

    Attributes:
        before: as recorded.
        after: with the change.
        low, high: the 95 % interval of ``after``.
    """

    before: float = field(metadata={"key": "from"})
    after: float = field(metadata={"key": "to"})
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """One cause with its evidence and its fix.

    Attributes:
        rule_id: the rule's name, a stable identifier such as ``decode_bound``.
        severity: from the share of the step that it costs.
        message: one sentence for a person, with the figures.
        evidence: what was measured.
        fix: what to change.
        how_to_check: what to do, and the outcome that would prove this finding wrong.
        cost_s: seconds per step that the cause costs. 0: none is known; null in JSON.
        cost_low_s, cost_high_s: the 95 % interval of the prediction; None: ``cost_s`` is not a prediction.
        cost_kind: what ``cost_s`` says of the gain. A rule sets it where it knows a bound; other costs are estimates (diagnose.py): without
            the cause, what is left may hide behind the step or get its CPU time, so the gain can be larger (docs/measured/faults.md).
        blame: the rank and its phase, where ranks were compared and one of them is the cause.
        settings: arguments of the DataLoader that the fix names -> their new values.
        environment: variables that the fix names -> their values.
        predicted: the throughput with the fix; None: not predicted.
        refused: why it is not predicted, in a sentence that says how to find out; empty if it is.
        claims: patterns of the rows of the ledger that it explains, where its rule does not say which.
    """

    rule_id: str = field(metadata={"key": "cause"})
    severity: Severity
    message: str = field(metadata={"key": "says"})
    evidence: list[Evidence] = field(default_factory=list)
    fix: str = ""
    how_to_check: str = field(default="", metadata={"key": "disproof"})
    cost_s: float = field(default=0.0, metadata={"unknown": 0.0})
    blame: Blame | None = None
    cost_low_s: float | None = None
    cost_high_s: float | None = None
    settings: dict[str, int | bool] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    predicted: PredictedRate | None = None
    refused: str = ""
    cost_kind: CostKind = CostKind.UNKNOWN
    claims: list[str] = field(default_factory=list)


#: Why a cost may be more.
COMPETES = "the step would also get CPU time that workers use now"


def cost(finding: Finding, mean_step_s: float | None) -> str:
    """``241 ms per step (19.4 %)``; without the share where the mean step is not known."""
    part = f" ({share(finding.cost_s / mean_step_s)})" if mean_step_s else ""
    return f"{seconds(finding.cost_s)} per step{part}"


def saving(finding: Finding, mean_step_s: float | None) -> str:
    """The sentence on the gain that follows the message; empty if the finding costs no time."""
    if finding.predicted is not None:
        return f" Predicted with the fix: {rates(finding.predicted)}."
    if finding.cost_s <= 0:
        return ""
    if finding.cost_kind is CostKind.PREDICTED:
        return f" Replaying the steps without this delay predicts that {cost(finding, mean_step_s)} can be saved ({interval(finding)})."
    if finding.cost_kind is CostKind.BOUND:
        return f" Up to {cost(finding, mean_step_s)} can be saved."
    more = f", or more: {COMPETES}" if finding.cost_kind is CostKind.AT_LEAST else ""
    return f" That costs about {cost(finding, mean_step_s)}{more}."


def rates(predicted: PredictedRate) -> str:
    """``251 -> 410 samples/s [380, 430]``, the 95 % interval in brackets."""
    unsure = ", which may be no gain" if predicted.low <= predicted.before else ""
    low, high = number(predicted.low), number(predicted.high)
    return f"{number(predicted.before)} -> {number(predicted.after)} samples/s [{low}, {high}]{unsure}"


def interval(finding: Finding) -> str:
    """``95 % interval 50.4 ms to 65.8 ms``, of a cost that is a prediction."""
    return f"95 % interval {seconds(finding.cost_low_s)} to {seconds(finding.cost_high_s)}"


#: What a roof is.
ROOF_KINDS = (
    "device",  # its peak over the run's FLOP per sample
    "step",  # the step without waiting for a batch
    "gpu",  # the GPU's work for a step
    "turns",  # no workers: making a batch and computing on it take turns
    "workers",  # all workers busy
    "cores",  # all CPUs busy
    "stage",  # one stage alone
    "ceiling",  # measured apart: disk, transport, copy
    "loader",  # another loader, of a comparison
)
