"""What is measured of a recorded rank, as plain dataclasses: the run, its steps, its loaders and workers, its machine.

Seconds are floats that end in ``_s``, bytes end in ``_bytes``, shares go from 0 to 1. None: it could not be measured.
"""

from dataclasses import dataclass, field

from feedline.analysis.traces.windows import GpuWork

#: Why the main process waited for a batch.
WAIT_KINDS = ("starved", "head_of_line", "handover", "in_transit", "first_batch", "overhead")


_WIDE = 0.1  # of a measured rate: a narrower interval is not told


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


_GPU_AT_MOST = 1.03  # of the mean step: the clocks of two processes differ


GPU_BEHIND = 1.1  # times the mean step: what profiled steps and the others differ by anyway


@dataclass(frozen=True)
class StepSeries:
    """Step by step, thinned to at most 600 columns: for each column the median over the steps in it. Lists all have one length."""

    start_s: list[float]  # seconds since the first step
    steps: list[int]  # how many steps the column stands for
    wall_min_s: list[float]
    wall_s: list[float]  # median
    wall_max_s: list[float]
    stages: dict[str, list[float]]  # stage -> mean seconds a step


@dataclass(frozen=True)
class Flop:
    """Floating-point operations of one step, counted operator by operator (profiler/taps/flops.py)."""

    forward: float
    backward: float
    samples: float
    computed_in: str = ""  # float32, tf32, float16 or bfloat16: the fastest of much of them; empty: not known


@dataclass(frozen=True)
class Sampled:
    """How the mean step is known where most steps were only counted and timed, to keep recording cheap."""

    counted: int
    recorded: int  # in full, which stand for the counted ones
    windows: int  # of neighboring steps that they come in
    share_low: dict[str, float]  # stage -> of a step in which nothing special happens, 95 % interval
    share_high: dict[str, float]
    recording_s: float  # what recording a step in full took longer; in none of the figures


@dataclass(frozen=True)
class OwnFunction:
    """A function that the training loop calls, or lines of the loop itself, between models, backward passes and updates."""

    name: str  # with file and line
    s: float  # with all that it calls there
    low_s: float  # 95 % interval
    high_s: float
    mainly: str  # a function called in it that has at least half of its time; empty: none is known


@dataclass(frozen=True)
class OwnCode:
    """The program's own code between models, backward passes and updates, by function. Its parts sum to at most ``s``."""

    s: float  # of step.own_code: per step, in the stages other and loss. Of step.evaluation_code: in all evaluations and rollouts
    looks: int  # stretches of it in which calls were timed, chosen by chance
    functions: list[OwnFunction]  # that which takes longest first


@dataclass(frozen=True)
class StepSummary:
    """The mean step. ``stages`` sums to ``mean_s``."""

    mean_s: float
    median_s: float
    p95_s: float
    stages: dict[str, float]
    waits: dict[str, float]  # WAIT_KINDS -> mean seconds a step; sums to stages["wait"]
    boundary: str  # what the steps were cut by: "optimizer", "backward" or "loader"; of traces, see traces.files.steps
    evaluation_s: float  # time in evaluation loops, outside all steps, over the whole run
    series: StepSeries
    gpu_stages: dict[str, float] | None = None  # stage -> mean seconds a step between two marks in the GPU's work
    flop: Flop | None = None
    cpu_s: float | None = None  # of the training process and all it started, threads included
    runqueue_s: float | None = None  # the main thread runnable without a CPU, in forward and backward
    sampled: Sampled | None = None  # None: every step was recorded in full
    main_runqueue_share: float | None = None  # of the step: the main thread runnable without a CPU, in loading, forward and backward
    input_share: float | None = None  # of the step, the loader's only start aside
    input_share_low: float | None = None  # 95 % interval
    input_share_high: float | None = None
    own_code: OwnCode | None = None  # None: not looked at
    evaluation_code: OwnCode | None = None
    gpu_work: GpuWork | None = None  # None: no window of torch.profiler, or none that shows the work of one GPU

    @property
    def gpu_s(self) -> float:
        """Seconds that the GPU needs for a step, while the host may wait for a batch; 0.0: not known.

        It is not for one of several ranks, and where the mean step was shorter than the few that torch.profiler recorded.
        """
        work = self.gpu_work
        return work.busy_s if work and work.ranks == 1 and work.busy_s <= self.mean_s * _GPU_AT_MOST else 0.0

    @property
    def gpu_is_behind(self) -> bool:
        """The GPU's work for the steps that torch.profiler recorded takes longer than the mean step, so the run's rate is not the GPU's.

        Of one of several ranks that is not known: its GPU is also busy waiting for the others.
        """
        work = self.gpu_work
        return work is not None and work.ranks == 1 and work.busy_s > self.mean_s * GPU_BEHIND


@dataclass(frozen=True)
class Traffic:
    """File traffic of the training loader's processes, per sample. None where /proc does not tell."""

    read_chars: float | None  # bytes returned by read(), cached or not
    read_calls: float | None
    disk_bytes: float | None  # bytes that came from the disk
    major_faults: float | None
    minor_faults: float | None = None  # pages mapped without reading: new memory, or a file's pages in the cache
    system_s: float | None = None  # CPU time in the kernel


@dataclass(frozen=True)
class Moved:
    """What one step moves in one stage: through a worker's queue, to pinned memory, to a device.

    Attributes:
        times: how often (batches, tensors).
        nbytes: of tensors and arrays; of ``transport``, of the pickle.
        cpu_s: of the thread that moves them (None: not measured).
        pageable: share (0 to 1) of the bytes that came from memory that is not pinned.
    """

    times: float
    nbytes: float
    cpu_s: float | None
    pageable: float


@dataclass(frozen=True)
class Certainty:
    """How well the steps tell the share of the input, the loader's only start aside.

    Attributes:
        steps: that count in the mean.
        low, high: 95 % interval of the share; 0 and 1 where one step tells nothing.
        own_low, own_high: the same of the time in which the main thread did not wait for a CPU: that comes in few long pieces, where other
            programs want the CPUs, and says nothing of the training. None: as low and high.
    """

    steps: int
    low: float
    high: float
    own_low: float | None = None
    own_high: float | None = None

    @property
    def own(self) -> tuple[float, float]:
        """``own_low`` and ``own_high``."""
        return (self.low if self.own_low is None else self.own_low), (self.high if self.own_high is None else self.own_high)


@dataclass(frozen=True)
class Updated:
    """What the training's optimizer updates.

    Attributes:
        kind: its class.
        tensors, elements: of its parameters, in all groups.
        fused: every group is updated in one fused call.
    """

    kind: str
    tensors: int
    elements: int
    fused: bool


@dataclass(frozen=True)
class Unseen:
    """Input that neither a loader nor a function of the program was seen to make.

    Attributes:
        share: of the step that it takes at most: what no stage accounts for, or only one that may contain input.
        high: upper end of the 95 % interval of that.
        resident: models got only what was in memory before, unchanged, in all steps that count.
    """

    share: float
    high: float
    resident: bool
