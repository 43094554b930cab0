"""The one object that every report is drawn from, as plain dataclasses. ``docs/report.md`` says the same for users of the JSON.

Seconds are floats that end in ``_s``, bytes end in ``_bytes``, shares go from 0 to 1. None: it could not be measured;
``notes`` or ``hooks`` say why.
"""

from dataclasses import dataclass, field

from feedline.analysis.comm.model import Communication, RankParts
from feedline.analysis.convergence.model import ConvergenceSummary
from feedline.analysis.finding import Finding, PredictedRate
from feedline.analysis.ledger import Ledger
from feedline.analysis.step_model import StepSummary

REPORT_SCHEMA_VERSION = 2

FIRST_STEPS = "first_steps"  # the note on steps that are not in the means

#: Why the main process waited for a batch.
WAIT_KINDS = ("starved", "head_of_line", "handover", "in_transit", "first_batch", "overhead")

_WIDE = 0.1  # of a measured rate: a narrower interval is not told

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


@dataclass(frozen=True)
class RunInfo:
    name: str
    path: str
    state: str  # "finished", "ended" (by the program itself), "cut" (its process was killed) or "live"
    command: list[str]  # masked argv
    started: str  # ISO 8601
    duration_s: float
    exit_code: int | None
    ranks: int
    versions: dict[str, str]  # feedline, python, torch, ...
    machine: dict[str, object]  # cpus, cpu_quota, memory_bytes, hostname is not in it
    model: str = ""  # class of the outermost module that was trained
    optimizer: str = ""  # class and first learning rate, as in "SGD, lr 0.1"
    ended_by: str = ""  # type of the exception, or name of the signal, that ended it
    ended_at: str = ""  # line of the program that raised the exception or was interrupted, as in "train.py:31"
    waited_s: float | None = None  # it had waited for a batch that did not come when it ended
    silent_s: float | None = None  # nothing was recorded at its end, where that was long
    stopped: str = ""  # why recording ended before the training did, as in "No space left on device"


@dataclass(frozen=True)
class Throughput:
    samples_per_s: float | None
    steps_per_s: float | None
    samples: int
    steps: int
    steps_in_detail: int  # steps whose records were all kept
    batch_size: float | None  # mean samples per step
    ranks: int = 1  # whose samples are in all_ranks_samples_per_s
    all_ranks_samples_per_s: float | None = None  # None: one rank, or not measured on all
    low: float | None = None  # 95 % interval of the samples/s of all ranks: how another run of the same training may differ
    high: float | None = None

    @property
    def of_all_ranks(self) -> float | None:
        """Samples/s of the training as a whole, as far as it was measured."""
        return self.samples_per_s if self.all_ranks_samples_per_s is None else self.all_ranks_samples_per_s

    @property
    def varies(self) -> tuple[float, float] | None:
        """The interval of its samples/s; None: not known, or so narrow that it need not be told."""
        rate, low, high = self.of_all_ranks, self.low, self.high
        if rate is None or low is None or high is None or high - low <= _WIDE * rate:
            return None
        return low, high


@dataclass(frozen=True)
class Cost:
    """Mean cost of one sample in one stage. wall = cpu + runqueue + blocked where all are measured."""

    wall_s: float
    cpu_s: float | None
    runqueue_s: float | None
    blocked_s: float | None
    bytes: float | None
    error_s: float | None  # standard error of wall_s from looking at one sample in N; 0: every sample was measured


@dataclass(frozen=True)
class Operation:
    """One operation inside a sample, e.g. augment / RandomResizedCrop."""

    stage: str
    name: str
    wall_s: float  # per sample
    cpu_s: float | None
    calls: float  # per sample


@dataclass(frozen=True)
class Workers:
    """What making batches costs, in the loader's workers or, without workers, in the training process itself."""

    processes: int
    busy_share: float | None  # of the time between first and last batch of the workers that made some
    idle_share: float | None  # waiting for indices
    batches: int
    samples: int
    samples_in_detail: int
    per_sample: dict[str, Cost]  # SAMPLE_STAGES that occurred, and "total"
    operations: list[Operation]
    fetch_mean_s: float | None  # S: making one batch
    fetch_cv: float | None  # its coefficient of variation
    decoded_pixels: float | None  # per sample
    output_pixels: float | None  # per sample, of the last picture before the tensor
    sample_wall_histogram: list[tuple[float, int]]  # (upper edge in s, samples)
    blocked_by: dict[str, float] = field(default_factory=dict)  # what blocked makers of batches waited for -> share of the looks at them
    blocked_looks: int = 0  # that found one blocked
    process_cpu_s: float | None = None  # per sample, of whole processes, helper threads included
    batch_tensors: float | None = None  # per batch, as collate made it
    without_batches: int = 0  # of processes: made none, though the loader had begun


@dataclass(frozen=True)
class Loader:
    """A DataLoader as the program configured it, and what it handed over."""

    name: str  # "loader 0"
    kind: str  # class name
    settings: dict[
        str, object
    ]  # num_workers, batch_size, prefetch_factor, in_order, persistent_workers, start_method, sampler, collate, made_at (train.py:31), ...
    role: str  # "training", "evaluation" or "unused": no model was given its batches
    batches: int
    samples: int
    batch_bytes: float | None
    flags: list[str]  # of its batches: float32, shared, pinned, objects
    pickle_bytes: float | None  # per batch
    first_batch_s: float | None  # mean over epochs: from asking for an iterator to its first batch
    epochs: int = 0  # that were begun, with a first batch
    objects: int = 1  # more than one: the program makes it again, for each epoch or now and then


@dataclass(frozen=True)
class Gauge:
    """One sampled quantity, thinned to at most 600 points."""

    name: str  # e.g. "cpu/used", "gpu0/sm"
    unit: str
    mean: float
    minimum: float
    maximum: float
    at_s: list[float]
    values: list[float]


@dataclass(frozen=True)
class Cpus:
    """Who used the CPUs while the steps ran. All in CPUs: CPU seconds per second, on average."""

    allowed: float  # that the run may use: affinity, capped by the quota
    quota: float | None  # of the control group; None: it has none
    affinity: float | None  # in the affinity mask: those that the run shares with other programs
    own: float | None  # by the training's processes on this machine, of all ranks, helper threads included
    others: float | None  # by other programs, on the CPUs of the affinity mask
    free: float | None  # that the training may use and that were idle
    ranks: int = 1  # of the run, that share them


@dataclass(frozen=True)
class Hook:
    name: str
    attached: bool
    why: str  # what it gives, or why it could not be attached
    reason: str = ""  # why it could not be attached, as an identifier (profiler/reasons.py); empty where nothing depends on it


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
class Report:
    """Everything a report shows. One of these per run; JSON is exactly this object."""

    run: RunInfo
    verdict: str  # what limits the training, and what to change
    findings: list[Finding]  # most important first, at most three that are not "info"
    throughput: Throughput
    step: StepSummary | None  # None: the run never made a step
    workers: Workers | None  # None: no loader was seen
    loaders: list[Loader]
    ranks: dict[str, RankSummary]  # by rank number; all other figures are those of the rank ``shown``
    gauges: list[Gauge]
    hooks: list[Hook]
    notes: list[str] = field(default_factory=list)
    roofline: Roofline | None = None  # None: no step, or batches of unknown size
    comm: Communication | None = None  # None: one rank, or no collective was seen
    traces: Traces | None = None  # None: feedline recorded the run itself
    convergence: ConvergenceSummary | None = None  # None: nothing was trained
    cpus: Cpus | None = None  # None: it is not known how many there are, or no step was made
    shown: int | None = None  # the rank that all figures are of; None: the lowest
    ledger: Ledger | None = None  # None: no step was made, or the report is of traces
    together: PredictedRate | None = None  # with all fixes in the loader that are predicted; None: fewer than two are
    headline: str = ""  # what has to be known before the verdict: a crash, a kill, a full disk; empty where the run ended well
    schema_version: int = REPORT_SCHEMA_VERSION
