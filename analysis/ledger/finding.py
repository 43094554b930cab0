"""What a rule says: one cause, how much it matters, what proves it, what to do, what that changes."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feedline.analysis.text.formatting import seconds, share

#: Unit of a share from 0 to 1, which people read as a percentage.
SHARE = "share"
#: Id of the evidence that a call is known to be slow.
KNOWN_CALL = "known_call_share"
#: Why a cost may be more.
COMPETES = "the step would also get CPU time that workers use now"
#: Reason of ``Refused``: the change was tried and rejected, so it is not recommended again.
REJECTED = "rejected"


class Severity(str, enum.Enum):
    """How much of the step a cause costs."""

    INFO = "info"
    LOW = "low"
    HIGH = "high"

    @classmethod
    def of(cls, share: float) -> "Severity":
        """Return the severity of something that costs this share (0 to 1) of the step.

        5 % and 20 % are XProf's words for "moderately" and "highly input-bound".
        """
        if share >= 0.20:
            return cls.HIGH
        return cls.LOW if share >= 0.05 else cls.INFO


class CostKind(str, enum.Enum):
    """What the cost of a finding says of the time that its fix saves."""

    PREDICTED = "predicted"  # a replay without the cause saves it, within an interval
    ESTIMATED = "estimated"  # the time of the cause: what the fix saves can be more or less
    # estimated, and probably more: on full CPUs, cheaper samples also leave CPU time to the step
    OR_MORE = "or_more"
    # a part of the cause's time, all of which the fix saves: the rest was not measured
    AT_LEAST = "at_least"
    BOUND = "bound"  # no fix of this cause saves more
    CAUSE_ONLY = "cause_only"  # the time of the cause: what the fix saves is not known
    UNKNOWN = "unknown"  # no time is known


@dataclass(frozen=True)
class Evidence:
    """One measured fact.

    Attributes:
        id: What was measured, as a name that is stable between versions, e.g. decode_share.
        what: The same in words.
        value: The figure. Unit: see unit.
        unit: s, B, samples/s and so on; share for shares from 0 to 1, 1 for other ratios.
        of: Which one, if a finding has several with the same id: a rank, an operation, the lower or
            upper end; else empty.
    """

    id: str
    what: str
    value: float
    unit: str  # SHARE for shares
    of: str = ""


def measured(rows: Iterable[tuple[str, str, float | None, str]]) -> list[Evidence]:
    """Return evidence from rows of (id, what, value or None, unit).

    Rows whose value is unknown are left out.
    """
    return [Evidence(id, what, value, unit) for id, what, value, unit in rows if value is not None]


@dataclass(frozen=True)
class Blame:
    """The rank that a finding names, and what it does.

    Attributes:
        rank: The late rank. None: it changes from step to step.
        phase: What takes it longer: wait (for its loader), copy, forward, backward, optimizer,
            other, or a user's stage.
        part: The stage of a sample that takes longer: read, decode, augment, .... None: phase is
            not wait, or not measured.
    """

    rank: int | None
    phase: str  # of traces also computing, launching, synchronising and BEFORE_TRACE
    part: str | None = None


@dataclass(frozen=True)
class PredictedRate:
    """Throughput of all ranks, in samples/s, as it is and with a change.

    Attributes:
        before: Throughput of all ranks as recorded. Unit: samples/s.
        after: The same with the fix. Unit: samples/s.
        low: Lower end of the 95 % interval of to. Unit: samples/s.
        high: Its upper end. Unit: samples/s.
    """

    before: float = field(metadata={"key": "from"})
    after: float = field(metadata={"key": "to"})
    low: float
    high: float


class GainKind(str, enum.Enum):
    """How sure a gain is."""

    PREDICTED = "predicted"  # by a replay, within an interval
    ABOUT = "about"  # from the time of the cause: the fix may save more or less
    AT_LEAST = "at_least"  # from a part of that time: the fix saves it all, and more
    AT_MOST = "at_most"  # no fix of this cause gives more
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Gain:
    """Throughput as it is and with a fix.

    Attributes:
        kind: predicted: a replay gives it, within low and high. about: estimated from the time of
            the cause. at_least: from the measured part of its time, all of which the fix saves.
            at_most: no fix of this cause gives more. unknown: no figure is known.
        unit: samples/s of all ranks; steps/s where the batch size is unknown. Of the whole run, with
            evaluation, where the cause lies outside the steps.
        before: As recorded. None: unknown.
        after: With the fix. None: unknown.
        low: Lower end of the 95 % interval of after. None: not predicted.
        high: Its upper end. None: not predicted.
    """

    kind: GainKind
    unit: str
    before: float | None = None
    after: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Finding:
    """One cause with its evidence and its fix.

    Attributes:
        rule_id: The rule's name, stable between versions, e.g. decode_bound.
        severity: Usually by the cost: info below 5 % of a step, low from 5 %, high from 20 %
            (docs/rules/engine.md has the exceptions, such as a cause of half the wait or more). Of
            a mistake in the setup (cost_s null): high: the training is not the one that was
            intended.
        message: One sentence of at most 22 words, with at most two figures.
        evidence: What was measured.
        fix: What to change, in one sentence of at most 22 words.
        how_to_check: How to check the finding: an experiment, and the outcome that would prove it
            wrong.
        cost_s: What the cause costs per step; cost_kind says what that means for the fix's gain.
            Unit: s. None: no cost per step is known: a trace has no steps, the finding is about the
            setup, or it asks for no change.
        blame: The late rank and its phase. None: the finding is not about late ranks.
        cost_low_s: Lower end of the 95 % interval of the prediction. Unit: s. None: cost_s is not a
            prediction.
        cost_high_s: Its upper end. Unit: s. None: cost_s is not a prediction.
        settings: Arguments of the DataLoader that the fix names -> their new values, e.g.
            num_workers.
        environment: Environment variables that the fix names -> their values, with which to start
            the program.
        predicted: Throughput predicted with the fix, by a replay of the loader or of the ranks.
            None: refused says why not.
        refused: Why the fix is not predicted, and which measurement would settle it; empty if it is
            predicted.
        cost_kind: What cost_s says of the gain. predicted: a replay saves it, cost_low_s to
            cost_high_s. estimated: the time of the cause; the gain can be more or less
            (docs/rules/engine.md). or_more: estimated, and probably more, because the CPUs are
            full and the fix also leaves CPU time to the step. at_least: the measured part of the
            cause's time, all of which the fix saves. bound: no fix of this cause saves more.
            cause_only: the time of the cause, of which nothing says how much the fix saves.
            unknown: no time is known.
        claims: Rows of the ledger whose time it explains; those of a sample begin with sample/.
        place: Where the program has to be changed, e.g. train.py:31; empty: unknown.
        condition: What must be true for the fix to be harmless, e.g. "only if the dataset does not
            change between epochs"; empty: nothing.
        more: Further sentences on the cause, for those who want to know.
        fix_more: Further sentences on the fix: alternatives, what it does not change.
        gain: Throughput with the fix, and how sure it is. None: the finding costs no time, or asks
            for no change.
        gives: What the fix gives where that is no speed, in a few words; empty: it is, or nothing is
            known.
        at_most_per_s: Upper end of the 95 % interval of the throughput predicted if what it names
            took no time: no fix of it should give more. Unit: samples/s. None: not predicted.
        outside_s: What the cause takes outside the steps, such as in evaluation, in the whole run.
            Unit: s. None: it is a part of steps, or not known.
        action: What its fix does, in a few words, where its rule knows several; empty: the same as
            of every finding of this cause.
    """

    rule_id: str = field(metadata={"key": "cause"})
    severity: Severity
    message: str = field(metadata={"key": "says"})
    evidence: list[Evidence] = field(default_factory=list)
    fix: str = ""
    how_to_check: str = field(default="", metadata={"key": "disproof"})
    cost_s: float = field(default=0.0, metadata={"unknown": 0.0})  # 0: not known
    blame: Blame | None = None
    cost_low_s: float | None = None
    cost_high_s: float | None = None
    settings: dict[str, int | bool] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    predicted: PredictedRate | None = None
    refused: str = ""
    # a rule sets it if it knows a bound; other costs are estimates (diagnose.py)
    cost_kind: CostKind = CostKind.UNKNOWN
    claims: list[str] = field(default_factory=list)
    place: str = ""
    condition: str = ""
    more: list[str] = field(default_factory=list)
    fix_more: list[str] = field(default_factory=list)
    gain: Gain | None = None
    gives: str = ""
    at_most_per_s: float | None = None
    outside_s: float | None = None
    action: str = ""

    @property
    def names_known_call(self) -> bool:
        """Whether what it names is a call that is known to be slow."""
        return any(one.id == KNOWN_CALL for one in self.evidence)


def advice(finding: Finding) -> str:
    """Return the fix in one line, with its place and its condition.

    ``Set in_order=False (now True). (train.py:31, only if the order of batches may change)``.
    """
    aside = ", ".join(filter(None, (finding.place, finding.condition)))
    return f"{finding.fix}{f' ({aside})' if aside else ''}"


def cost(finding: Finding, mean_step_s: float | None) -> str:
    """Return ``241 ms per step (19.4 %)``; without the share where the mean step is not known."""
    part = f" ({share(finding.cost_s / mean_step_s)})" if mean_step_s else ""
    return f"{seconds(finding.cost_s)} per step{part}"


def predicted_gain(rates: PredictedRate) -> Gain:
    """Return a predicted rate as the gain that it is."""
    return Gain(GainKind.PREDICTED, "samples/s", rates.before, rates.after, rates.low, rates.high)


def interval(finding: Finding) -> str:
    """Return ``95 % interval 50.4 ms to 65.8 ms``, of a cost that is a prediction."""
    return f"95 % interval {seconds(finding.cost_low_s)} to {seconds(finding.cost_high_s)}"


@dataclass(frozen=True)
class Factor:
    """Factors by which a stage's time is multiplied: 0 removes it, 1 leaves it as it was.

    Attributes:
        cpu: of its CPU seconds.
        off_cpu: of the seconds in which it waits for something that is not a CPU: a disk, a lock,
            the network.
    """

    cpu: float = 1.0
    off_cpu: float = 1.0


@dataclass(frozen=True)
class Change:
    """Any number of changes at once.

    Attributes:
        settings: arguments of the DataLoader -> their new values: num_workers, prefetch_factor,
            in_order, persistent_workers, ...
        stages: stage of a sample, batch or step (``read``, ``decode``, ``augment``, ``collate``,
            ``transport``, ...) -> its factor.
        helper_threads: whether the threads that workers' libraries start still use CPUs.
        cpus: that the training may use then; None: as many as it had.
        others: whether other programs still use CPUs.
        into_shared: whether arrays that were pickled are made in shared memory instead, which takes
            CPU time, as giving it back does.
        one_loader: whether one loader is made for all passes, whose workers stay.
        endless: whether the loader is gone through only once, and that pass does not end.
        lifts: kinds of limits that what it changes besides settings raises, as the rule of a fix
            knows them; empty: see next_limit.py.
    """

    settings: Mapping[str, int | bool] = field(default_factory=dict)
    stages: Mapping[str, Factor] = field(default_factory=dict)
    helper_threads: bool = True
    cpus: float | None = None
    others: bool = True
    into_shared: bool = False
    one_loader: bool = False
    endless: bool = False
    lifts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Refused:
    """No prediction: what is missing, as an identifier and in a sentence that says how to get it."""

    reason: str
    message: str


NOTHING_TO_CHANGE = Refused("nothing_to_change", "No change to the input is advised.")
