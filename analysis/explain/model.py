"""The one object that every report is drawn from, as plain dataclasses.

``docs/report.md`` says the same for users of the JSON. Seconds are floats that end in ``_s``, bytes
end in ``_bytes``, shares go from 0 to 1. None: it could not be measured; ``notes`` or ``hooks`` say
why.
"""

from dataclasses import dataclass, field, fields

from feedline.analysis.convergence.training_record import ConvergenceSummary
from feedline.analysis.ledger.finding import (
    Finding,
    Gain,
    PredictedRate,
)
from feedline.analysis.ledger.table import Ledger
from feedline.analysis.measure.model import (
    Cpus,
    Gauge,
    GraphBreak,
    Loader,
    MemoryGrowth,
    RunInfo,
    Throughput,
    Workers,
)
from feedline.analysis.measure.step_model import StepSummary
from feedline.analysis.measure.user_code import UserCode
from feedline.analysis.ranks.communication import Communication, RankParts

MAX_FINDINGS = 3  # that ask for a change: more is a list, not advice
REPORT_SCHEMA_VERSION = 3


@dataclass(frozen=True)
class Hook:
    """One hook of the recorder.

    Attributes:
        name: What is attached to.
        attached: Whether it could be attached.
        why: What it records, or why it could not be attached.
        reason: Why it could not be attached, as a stable name, e.g. no_gpu; empty if it was
            attached or the cause has no such name.
    """

    name: str
    attached: bool
    why: str
    reason: str = ""  # profiler/message.py


@dataclass(frozen=True)
class ThroughputBound:
    """One bound of the throughput.

    All of a report's are in samples/s at the run's own FLOP per sample.

    Attributes:
        id: Stable name, once in a report, e.g. workers, decode, cold_disk.
        name: What it is called in the figure.
        kind: device, step, gpu (its work for a step), turns (without workers, one process makes a
            batch and trains on it in turn), workers, cores, stage, ceiling or loader.
        samples_per_s: Highest throughput it allows, at the run's FLOP per sample. Unit: samples/s.
        low: Slowest round of its measurement. Unit: samples/s. None: not measured in rounds.
        high: Fastest round of its measurement. Unit: samples/s. None: not measured in rounds.
        message: What it is made of, with figures.
        source: this run, or the source of the ceiling.
        binds: true: it can limit this run; false: it cannot, because it is only one stage of the
            loader, or another loader.
    """

    id: str
    name: str
    kind: str  # of analysis/ledger/rule.py, _ROOF_KINDS
    samples_per_s: float
    low: float | None
    high: float | None
    message: str = field(metadata={"key": "says"})
    source: str
    binds: bool


@dataclass(frozen=True)
class Sweep:
    """Throughput of the model alone by batch size.

    Lists all have one length, batch sizes ascending.

    Attributes:
        batch_sizes: Batch sizes, ascending. All lists have one length. Unit: samples.
        samples_per_s: Throughput with each. Unit: samples/s.
        low: Slowest round. Unit: samples/s.
        high: Fastest round. Unit: samples/s.
        knee: The smallest batch size with at least 95 % of the best throughput. Unit: samples.
        source: How it was measured.
    """

    batch_sizes: list[int]
    samples_per_s: list[float]
    low: list[float]
    high: list[float]
    knee: int
    source: str


@dataclass(frozen=True)
class Roofline:
    """The run among its roofs.

    Attributes:
        samples_per_s: Throughput of the run. Unit: samples/s.
        low: Lower end of the 95 % interval of samples_per_s. Unit: samples/s. None: too few steps.
        high: Upper end of the same. Unit: samples/s. None: too few steps.
        flop_per_sample: Forward and backward. Unit: FLOP. None: not known: flop_source says why.
        flop_source: How flop_per_sample is known, or why it is not.
        peak_flops: Peak of the device. Unit: FLOP/s. None: no file of ceilings with one was given.
        peak_source: Where the peak is from, or why there is none.
        mfu: FLOP/s of the run, divided by the peak (0 to 1). Unit: 1. None: one of the two is not
            known, or the measured peak is too low: peak_source says so.
        roofs: Limits of the throughput, lowest first.
        nearest: The binding limit: the lowest one at or above the rate of the run. None: none is
            known.
        next: The one after it. None: none is known.
        becomes: Throughput without the binding limit, by the next one. Unit: samples/s. None: no
            next one is known.
        message: The binding and the next limit in a sentence.
        sweep: Throughput of the model alone by batch size. None: no file of ceilings with a sweep
            was given.
        nearest_id: The id of nearest. None: none is known.
        next_id: The id of next. None: none is known.
    """

    samples_per_s: float
    low: float | None
    high: float | None
    flop_per_sample: float | None
    flop_source: str
    peak_flops: float | None
    peak_source: str
    mfu: float | None
    roofs: list[ThroughputBound]
    nearest: str | None
    next: str | None
    becomes: float | None
    message: str = field(metadata={"key": "says"})
    sweep: Sweep | None
    nearest_id: str | None = None
    next_id: str | None = None


@dataclass(frozen=True)
class TraceFile:
    """One rank's trace, which another tool made.

    Attributes:
        rank: Its number.
        source: Name of the file.
        maker: kineto, nsight, rocprof or xprof (JAX, TensorFlow).
        events: How many it holds.
        span_s: From its first to its last event. Unit: s.
        steps: How steps were found in it.
    """

    rank: int
    source: str
    maker: str
    events: int
    span_s: float
    steps: str


@dataclass(frozen=True)
class KernelTime:
    """All kernels of one name.

    Attributes:
        name: Of the kernel.
        count: How many ran.
        total_s: Their durations summed; those that overlap count twice. Unit: s.
        busy_share: Share (0 to 1) of the time in which the device was busy in the steps. Kernels
            that ran at once, on several streams or devices, count once. Unit: 1.
        communication: true: it moves bytes between ranks.
        operator: The operator that launched most of it; empty: the trace does not say.
    """

    name: str
    count: int
    total_s: float
    busy_share: float
    communication: bool
    operator: str


@dataclass(frozen=True)
class OperatorTime:
    """All calls of one operator, range or Python function.

    Attributes:
        name: Of the operator, range or function.
        kind: operator, annotation or python.
        count: Calls. Unit: calls.
        total_s: Host time, with what they called. Unit: s.
        own_s: Host time without what they called. Unit: s.
        device_s: Device time of what they and those they called launched. Unit: s.
        flop: Of the calls whose cost is known. Unit: FLOP. None: none is.
        bytes: Operands and results of these. Unit: B. None: the trace does not say their types.
        flop_per_s: flop divided by their device time; by host time without a device. Unit: FLOP/s.
            None: flop is null.
        flop_per_byte: Arithmetic intensity. Unit: FLOP/B. None: flop or bytes are null.
    """

    name: str
    kind: str
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
    """All copies of one direction and kind of memory.

    Attributes:
        direction: HtoD, DtoH, DtoD, PtoP or HtoH; empty: the trace does not say.
        memory: pageable, pinned or managed; empty: the trace does not say.
        count: How many.
        total_s: Their durations summed. Unit: s.
        bytes: Moved by them. Unit: B. None: the trace does not say.
        gb_per_s: bytes divided by the time of those whose bytes are known, 1 GB = 1e9 B. Unit:
            GB/s. None: bytes is null.
    """

    direction: str
    memory: str
    count: int
    total_s: float
    bytes: int | None
    gb_per_s: float | None


@dataclass(frozen=True)
class Traces:
    """What traces of other tools hold. Tables are of the rank that the report shows.

    Attributes:
        files: The trace file of each rank.
        basis: Time span that the report's figures cover: steps of the shown rank, or its whole
            trace if no steps were found.
        budget_notes: Notes on how to read the budget.
        kernels: Kernels of the shown rank in its steps by name, the longest first.
        operators: Operators, ranges and Python functions of its host that began in the steps, most
            device time first.
        copies: Copies in the steps by direction and kind of memory.
    """

    files: list[TraceFile]
    basis: str
    budget_notes: list[str]
    kernels: list[KernelTime]
    operators: list[OperatorTime]
    copies: list[CopyTime]


@dataclass(frozen=True)
class RankGpu:
    """A rank's device in its trace, in percent of the span.

    Attributes:
        span_s: The steps; without any, the whole trace. Unit: s. None: `reasons` says why.
        idle_pct: Of the span: nothing ran. Unit: %. None: `reasons` says why.
        compute_pct: Of the span: a kernel ran that is not communication. Unit: %. None: `reasons`
            says why.
        other_pct: Of the span: something ran, but no such kernel. Unit: %. None: `reasons` says
            why.
        overlap_pct_of_comm: Of all communication: a kernel computed at the same time. Unit: %.
            None: `reasons` says why.
        exposed_comm_s: Communication while no kernel computed. Unit: s. None: `reasons` says why.
        exposed_comm_pct: The same, of the span. Unit: %. None: `reasons` says why.
        reasons: Field -> why it is null.
    """

    span_s: float | None
    idle_pct: float | None
    compute_pct: float | None
    other_pct: float | None
    overlap_pct_of_comm: float | None
    exposed_comm_s: float | None
    exposed_comm_pct: float | None
    reasons: dict[str, str]

    @property
    def ran_no_communication(self) -> bool:
        """Whether it worked, and none of that was communication."""
        return self.span_s is not None and self.overlap_pct_of_comm is None


@dataclass(frozen=True)
class RankInput:
    """What a rank waited for batches, in its trace.

    Attributes:
        loader_pct: Of the steps: the main thread waited for a batch. Unit: %. None: `reasons` says
            why.
        stall_pct: Of the steps: it did, and the device had no work. Unit: %. None: `reasons` says
            why.
        speedup_ceiling: How many times as fast the steps would be if batches were always ready.
            None: `reasons` says why.
        reasons: Field -> why it is null.
    """

    loader_pct: float | None
    stall_pct: float | None
    speedup_ceiling: float | None
    reasons: dict[str, str]


@dataclass(frozen=True)
class RankSummary:
    """One rank in short.

    Attributes:
        steps: Its steps: those recorded in full and those only counted. Unit: steps.
        mean_s: Mean time of a step. Unit: s. None: the rank made no step.
        stages: Stage -> mean seconds per step; they sum to mean_s. From traces: those of the
            budget, see traces.md. Unit: s.
        state: As in RunInfo.
        comm: Its mean step, split into computing, transfer and waiting. None: the report's comm is
            null, or this rank was left out of the comparison.
        gpu: Its device in the trace. None: feedline recorded the run itself.
        input: Its waits for batches in the trace. None: feedline recorded the run itself.
        budget: What its steps' time went to -> share of it, 0 to 1; they sum to 1. None: feedline
            recorded the run itself.
    """

    steps: int
    mean_s: float | None
    stages: dict[str, float]
    state: str
    comm: RankParts | None = None
    gpu: RankGpu | None = None
    input: RankInput | None = None
    budget: dict[str, float] | None = None


@dataclass(frozen=True)
class MeasuredRun:
    """A run as it was measured: what limits it and what to change is concluded from this."""

    run: RunInfo
    throughput: Throughput
    step: StepSummary | None  # None: the run never made a step
    workers: Workers | None  # None: no loader was seen, or not how it makes its batches
    loaders: list[Loader]
    # by rank number; all other figures are those of the rank ``shown``
    ranks: dict[str, RankSummary]
    gauges: list[Gauge]
    hooks: list[Hook]
    notes: list[str] = field(default_factory=list)
    comm: Communication | None = None  # None: one rank, or no collective was seen
    traces: Traces | None = None  # None: feedline recorded the run itself
    convergence: ConvergenceSummary | None = None  # None: nothing was trained
    cpus: Cpus | None = None  # None: it is not known how many there are, or no step was made
    shown: int | None = None  # the rank that all figures are of; None: the lowest
    ledger: Ledger | None = None  # None: no step was made
    # what has to be known before the verdict: a crash, a kill, a full disk; empty where the run
    # ended well
    headline: str = ""
    user_code: UserCode | None = None  # None: no stacks were sampled
    memory_growth: list[MemoryGrowth] = field(default_factory=list)
    graph_breaks: list[GraphBreak] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """What limits a training and what to change, in sentences of at most 22 words.

    Attributes:
        limit: What limits it, and how much of the step that is.
        cause: Its cause, with at most two figures; empty: limit says it.
        caveat: What must be known before; empty: nothing.
        fix: What to change: arguments of the DataLoader, or one sentence; empty: nothing.
        place: Where the program has to be changed; empty: unknown.
        condition: What must be true for the fix to be harmless; empty: nothing.
        gain: Throughput with the fix. None: the finding asks for no change or costs no time.
        gives: What the fix gives where that is no speed; empty: it is, or nothing is known.
        finding: The cause of the finding in findings that it tells; empty: none.
    """

    limit: str
    cause: str = ""
    caveat: str = ""
    fix: str = ""
    place: str = ""
    condition: str = ""
    gain: Gain | None = None
    gives: str = ""
    finding: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.caveat, self.limit, self.cause)))


@dataclass(frozen=True, kw_only=True)
class Report(MeasuredRun):
    """Everything a report shows. One of these per run; JSON is exactly this object.

    Attributes:
        run: What was run, when, where.
        throughput: How fast the training went.
        step: The mean training step, split into stages. None: no step was recorded.
        workers: What making samples costs in the training loader's processes. None: no loader was
            seen, or how it makes batches is not visible.
        loaders: Every loader that the program made.
        ranks: Rank number (as text) -> that rank in short. Figures outside `ranks` and `comm` are
            those of the rank `shown`, unless they are described as those of all ranks.
        gauges: Sampled quantities of the machine: CPU, memory, disk, GPU.
        hooks: What was attached to the training, and what could not be.
        notes: What a reader should know about these figures: what is missing and why, what was left
            out.
        comm: Communication between the ranks. None: one rank, or no collective was seen: hooks and
            notes say why.
        traces: What traces of other tools hold. None: feedline recorded the run itself.
        convergence: Losses, metrics, learning rate, noise scale, and mistakes in the setup. None:
            nothing was trained.
        cpus: Who used the CPUs while the steps ran. None: the number of CPUs is unknown, or no step
            was recorded.
        shown: The rank that the figures describe: the one that the others wait for, or else the
            lowest. Of traces of other tools, figures are always those of the lowest. None: the
            report is of traces of other tools.
        ledger: Where the time of the step and of the run went, of the rank `shown`. None: no step
            was recorded.
        headline: What must be known before the verdict: a crash, a kill, a full disk; empty if the
            run ended normally.
        user_code: Functions and lines of the program that take time, from sampled stacks of all
            its processes. None: no stacks were sampled.
        memory_growth: Memory of the main process and of its workers that grows while the steps
            run.
        graph_breaks: Lines at which torch.compile ended a graph and went on in Python, most often
            first. What they cost is not known.
        verdict: What limits the training and what to change, or that nothing measured does.
        findings: Causes with evidence and fix, most important first; at most three that are not of
            severity info. Those about the training loop (``LOOP`` in analysis/rules/__init__.py)
            come in addition.
        roofline: The limits of the run's throughput. None: no step, too few of them, or batches of
            unknown size.
        together: Throughput predicted with all predicted fixes of the loader at once. None: fewer
            than two fixes are predicted.
        schema_version: Version of this structure. It changes when a field is removed or changes its
            meaning, not when one is added.
    """

    verdict: Verdict
    findings: list[Finding]
    roofline: Roofline | None = None
    together: PredictedRate | None = None
    schema_version: int = REPORT_SCHEMA_VERSION

    @classmethod
    def of(
        cls,
        run: MeasuredRun,
        verdict: Verdict,
        findings: list[Finding],
        roofline: Roofline | None = None,
        together: PredictedRate | None = None,
    ) -> "Report":
        """Return the report of a run: what was measured, and what was concluded from it."""
        measured = {member.name: getattr(run, member.name) for member in fields(MeasuredRun)}
        return cls(
            **measured, verdict=verdict, findings=findings, roofline=roofline, together=together
        )
