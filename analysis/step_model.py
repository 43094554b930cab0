"""The mean training step of a report, as plain dataclasses. Units as in model.py."""

from dataclasses import dataclass

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
class GpuWork:
    """What the GPU did in the steps that torch.profiler recorded."""

    busy_s: float  # per step: kernels, copies and fills, where they overlap once
    kernels: float  # per step
    kernel_s: float  # mean duration of one
    steps: int
    ranks: int = 1  # of the training: one of several GPUs is also busy waiting for the others
    float32_products_s: float = 0.0  # per step: matrix products of float32 that do not use tensor cores
    device: str = ""  # its name; empty: the window does not say


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
