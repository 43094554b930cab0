"""What ``feedline diff`` found, as plain data.

``before`` is A, ``after`` is B; seconds end in ``_s``, shares go from 0 to 1.
"""

from dataclasses import dataclass, field

_DIFF_SCHEMA = 1


class Outcome:
    """What a quantity did."""

    CHANGED = "changed"  # by more than noise, and by more than the machine explains
    # by more than noise, but the machine explains it: other programs, or CPUs that were slower for
    # everything
    MACHINE = "machine"
    # by more than noise; the machine and the program may both be why, by shares that are unknown
    EITHER = "either"
    SAME = "same"  # by no more than noise, or by less than counts
    UNKNOWN = "unknown"  # there are too few values to tell
    ONE_SIDE = "one side"  # it occurs in A or in B only


@dataclass(frozen=True)
class Quantity:
    """One measured quantity in both runs.

    Attributes:
        id: stable name: ``step/mean``, ``stage/forward``, ``cpu/forward``, ``sample/decode``,
            ``sample/total``, ``code_sample/load() in data.py``, ``wait/starved``,
            ``collective/exposed_wait``, ``gauge/cpu/used``.
        group: ``step``, ``stage``, ``cpu`` (of the main thread in a stage), ``sample``,
            ``blocked``, ``code_sample`` and ``code_step`` (functions of the program, without those
            that they call), ``work``, ``wait``, ``collective`` or ``gauge``.
        unit: of ``before`` and ``after``: seconds per step (or per sample, where batch sizes
            differ), else the gauge's.
        clock: ``wall``; ``cpu`` for CPU seconds, which waiting for a CPU does not lengthen;
            ``blocked`` for time asleep.
        before, after: as the reports of the runs have it, the mean over several runs. None: no run
            of the side has it.
        ratio: after / before with the machine's part taken out. None: not comparable.
        low, high: 95 % interval of ``ratio``.
        machine: after / before that the machine explains at most; 1: nothing.
        p: of no change, corrected for the number of quantities compared (Holm). None: not tested.
        outcome: ``changed``, ``machine``, ``either``, ``same``, ``unknown`` or ``one side``.
    """

    id: str
    group: str
    name: str
    unit: str
    clock: str
    before: float | None
    after: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    machine: float = 1.0
    p: float | None = None
    outcome: str = Outcome.UNKNOWN

    @property
    def measured(self) -> float | None:
        """The ratio of after over before, as measured."""
        return self.after / self.before if self.before and self.after is not None else None

    @property
    def measured_interval(self) -> tuple[float | None, float | None]:
        """Of ``measured``, 95 %."""
        return (
            (None, None)
            if self.low is None or self.high is None
            else (self.low * self.machine, self.high * self.machine)
        )

    @property
    def grew(self) -> bool:
        """Whether B has more of it than A, or has it at all."""
        return (self.after or 0.0) > (self.before or 0.0)


@dataclass(frozen=True)
class MachineChange:
    """What the machine did to the two sides.

    Attributes:
        speed: CPU time of B over A for the same work, the common change of all stages. None: too
            few stages to tell.
        waiting_before, waiting_after: time of the main thread over its time with a CPU: 1.25 means
            that it waited for a CPU 20 % of the time. None: not measured.
        others_before, others_after: CPUs that other programs used. None: not measured.
        cpus_before, cpus_after: CPUs that the run may use. None: unknown.
    """

    speed: float | None
    waiting_before: float | None
    waiting_after: float | None
    others_before: float | None
    others_after: float | None
    cpus_before: float | None
    cpus_after: float | None


@dataclass(frozen=True)
class FindingChange:
    """A finding of a side, or of both.

    Attributes:
        change: ``came``, ``went`` or ``stayed``; ``unjudged``: the other side's runs do not tell
            whether they have it.
        severity_before, severity_after: "" where it is not.
    """

    rule_id: str
    change: str
    severity_before: str
    severity_after: str
    message: str


@dataclass(frozen=True)
class Differing:
    """A setting, a version or a property of the machine that differs.

    Attributes:
        kind: ``loader``, ``version``, ``machine``, ``command``, ``training`` or ``environment``.
        name: of the setting; that of the kind where a side tells nothing of the whole kind.
        before, after: as text. Where a side does not have it: ``not set``, ``not loaded`` (of a
            library), ``not seen`` or ``unknown``.
    """

    kind: str
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class RunName:
    """One of the runs.

    Attributes:
        state: how it ended, as in the report's ``run.state``.
        steps: that were recorded or counted.
    """

    name: str
    path: str
    state: str
    steps: int


@dataclass(frozen=True)
class RunDiff:
    """The whole comparison.

    Attributes:
        conclusion: what it comes to, in a few sentences.
        per: what times of steps are of: ``step``, or ``sample`` where batch sizes differ.
        min_change: share by which a quantity has to change to count.
        cause: id of the quantity that explains the change best; "": none changed.
        between: how run-to-run variation is known: ``measured`` (several runs of each) or ``drift``
            (one of each: from how the stretches of a run differ).
    """

    before: list[RunName]
    after: list[RunName]
    conclusion: str
    per: str
    min_change: float
    between: str
    cause: str
    quantities: list[Quantity]
    machine: MachineChange
    findings: list[FindingChange]
    settings: list[Differing]
    notes: list[str] = field(default_factory=list)
    schema_version: int = _DIFF_SCHEMA

    def of(self, id: str) -> Quantity | None:
        """Return a quantity by its id."""
        return next((quantity for quantity in self.quantities if quantity.id == id), None)

    @property
    def changed(self) -> list[Quantity]:
        """Quantities that changed by more than noise, steps before stages before samples."""
        return [quantity for quantity in self.quantities if quantity.outcome == Outcome.CHANGED]
