"""The one object that every report is drawn from, as plain dataclasses. ``docs/report.md`` says the same for users of the JSON.

Seconds are floats that end in ``_s``, bytes end in ``_bytes``, shares go from 0 to 1. None: it could not be measured;
``notes`` or ``hooks`` say why.
"""

from dataclasses import dataclass, field, fields

from feedline.analysis.convergence.training_series import ConvergenceSummary
from feedline.analysis.ledger.finding import Finding, PredictedRate
from feedline.analysis.ledger.table import Ledger
from feedline.analysis.measure.model import Cpus, Gauge, Loader, RunInfo, StepSummary, Throughput, Workers
from feedline.analysis.ranks.communication import Communication, RankParts

REPORT_SCHEMA_VERSION = 2

FIRST_STEPS = "first_steps"  # the note on steps that are not in the means


@dataclass(frozen=True)
class Hook:
    name: str
    attached: bool
    why: str  # what it gives, or why it could not be attached
    reason: str = ""  # why it could not be attached, as an identifier (profiler/message.py); empty where nothing depends on it


@dataclass(frozen=True)
class ThroughputBound:
    """One bound of the throughput. All of a report's are in samples/s at the run's own FLOP per sample."""

    id: str  # once in a report
    name: str
    kind: str  # ROOF_KINDS
    samples_per_s: float
    low: float | None
    high: float | None
    message: str = field(metadata={"key": "says"})  # what it is made of, with figures
    source: str  # "this run", or where the ceiling is from
    binds: bool  # whether it can limit this run: a stage is only a part of its loader, another loader an alternative


@dataclass(frozen=True)
class Sweep:
    """Throughput of the model alone by batch size. Lists all have one length, batch sizes ascending."""

    batch_sizes: list[int]
    samples_per_s: list[float]
    low: list[float]
    high: list[float]
    knee: int  # the smallest batch size with 95 % of the best throughput
    source: str


@dataclass(frozen=True)
class Roofline:
    """The run among its roofs."""

    samples_per_s: float
    low: float | None
    high: float | None
    flop_per_sample: float | None
    flop_source: str  # how it is known, or why it is not
    peak_flops: float | None
    peak_source: str
    mfu: float | None
    roofs: list[ThroughputBound]  # lowest first
    nearest: str | None
    next: str | None
    becomes: float | None  # samples/s when the nearest is gone, by that limit
    message: str = field(metadata={"key": "says"})
    sweep: Sweep | None
    nearest_id: str | None = None
    next_id: str | None = None


@dataclass(frozen=True)
class TraceFile:
    """One rank's trace, which another tool made."""

    rank: int
    source: str
    maker: str  # "kineto", "nsight", "rocprof" or "xprof"
    events: int
    span_s: float
    steps: str  # how steps were found


@dataclass(frozen=True)
class KernelTime:
    """All kernels of one name."""

    name: str
    count: int
    total_s: float
    busy_share: float
    communication: bool
    operator: str


@dataclass(frozen=True)
class OperatorTime:
    """All calls of one operator, range or Python function."""

    name: str
    kind: str  # "operator", "annotation" or "python"
    count: int
    total_s: float
    own_s: float
    device_s: float
    flop: int | None
    bytes: int | None
    flop_per_s: float | None
    flop_per_byte: float | None


@dataclass(frozen=True)
class CopyTime:
    """All copies of one direction and kind of memory."""

    direction: str
    memory: str
    count: int
    total_s: float
    bytes: int | None
    gb_per_s: float | None


@dataclass(frozen=True)
class Traces:
    """What traces of other tools hold. Tables are of the rank that the report shows."""

    files: list[TraceFile]
    basis: str  # what every figure is of
    budget_notes: list[str]
    kernels: list[KernelTime]  # longest first
    operators: list[OperatorTime]  # most device time first
    copies: list[CopyTime]


@dataclass(frozen=True)
class RankGpu:
    """A rank's device in its trace, in percent of the span."""

    span_s: float | None  # the steps; without any, the whole trace
    idle_pct: float | None
    compute_pct: float | None
    other_pct: float | None
    overlap_pct_of_comm: float | None
    exposed_comm_s: float | None
    exposed_comm_pct: float | None
    reasons: dict[str, str]  # figure -> why it is None


@dataclass(frozen=True)
class RankInput:
    """What a rank waited for batches, in its trace."""

    loader_pct: float | None
    stall_pct: float | None
    speedup_ceiling: float | None
    reasons: dict[str, str]  # figure -> why it is None


@dataclass(frozen=True)
class RankSummary:
    """One rank in short."""

    steps: int
    mean_s: float | None
    stages: dict[str, float]
    state: str  # as in RunInfo
    comm: RankParts | None = None
    gpu: RankGpu | None = None  # of traces; so are those below
    input: RankInput | None = None
    budget: dict[str, float] | None = None


@dataclass(frozen=True)
class MeasuredRun:
    """A run as it was measured: what limits it and what to change is concluded from this."""

    run: RunInfo
    throughput: Throughput
    step: StepSummary | None  # None: the run never made a step
    workers: Workers | None  # None: no loader was seen
    loaders: list[Loader]
    ranks: dict[str, RankSummary]  # by rank number; all other figures are those of the rank ``shown``
    gauges: list[Gauge]
    hooks: list[Hook]
    notes: list[str] = field(default_factory=list)
    comm: Communication | None = None  # None: one rank, or no collective was seen
    traces: Traces | None = None  # None: feedline recorded the run itself
    convergence: ConvergenceSummary | None = None  # None: nothing was trained
    cpus: Cpus | None = None  # None: it is not known how many there are, or no step was made
    shown: int | None = None  # the rank that all figures are of; None: the lowest
    ledger: Ledger | None = None  # None: no step was made
    headline: str = ""  # what has to be known before the verdict: a crash, a kill, a full disk; empty where the run ended well


@dataclass(frozen=True, kw_only=True)
class Report(MeasuredRun):
    """Everything a report shows. One of these per run; JSON is exactly this object."""

    verdict: str  # what limits the training, and what to change
    findings: list[Finding]  # most important first, at most three that are not "info"
    roofline: Roofline | None = None  # None: no step, or batches of unknown size
    together: PredictedRate | None = None  # with all fixes in the loader that are predicted; None: fewer than two are
    schema_version: int = REPORT_SCHEMA_VERSION

    @classmethod
    def of(
        cls,
        run: MeasuredRun,
        verdict: str,
        findings: list[Finding],
        roofline: Roofline | None = None,
        together: PredictedRate | None = None,
    ) -> "Report":
        """Return the report of a run: what was measured, and what was concluded from it."""
        measured = {one.name: getattr(run, one.name) for one in fields(MeasuredRun)}
        return cls(**measured, verdict=verdict, findings=findings, roofline=roofline, together=together)
