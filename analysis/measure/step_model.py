"""What is measured of the steps of a recorded rank, as plain dataclasses.

Units and names are those of model.py.
"""

from dataclasses import dataclass

from feedline.analysis.traces.launching import GpuWork

_GPU_AT_MOST = 1.03  # of the mean step: the clocks of two processes differ
GPU_BEHIND = 1.1  # times the mean step: what profiled steps and the others differ by anyway


@dataclass(frozen=True)
class StepSeries:
    """Step by step, thinned to at most 600 columns.

    Each column holds the median over the steps in it.

    Attributes:
        start_s: Start of the column's first step, since the first step's start. All lists have one
            length, at most 600. Unit: s.
        steps: How many steps the column represents. Unit: steps.
        wall_min_s: Shortest step in the column. Unit: s.
        wall_s: Median step in the column. Unit: s.
        wall_max_s: Longest step in the column. Unit: s.
        stages: Stage -> mean time per step in the column. Unit: s.
    """

    start_s: list[float]
    steps: list[int]
    wall_min_s: list[float]
    wall_s: list[float]
    wall_max_s: list[float]
    stages: dict[str, list[float]]


@dataclass(frozen=True)
class Flop:
    """Floating-point operations of one step, counted operator by operator (profiler/taps/flops.py).

    Attributes:
        forward: Of all forwards in training mode, as torch.utils.flop_counter counts. Unit: FLOP.
        backward: Of all backwards. Unit: FLOP.
        samples: In that step. Unit: samples.
        computed_in: float64, float32, tf32, float16 or bfloat16: the fastest in which a tenth of
            them or more are computed; empty: unknown.
    """

    forward: float
    backward: float
    samples: float
    computed_in: str = ""


@dataclass(frozen=True)
class Sampled:
    """How the mean step is known where most steps were only counted and timed.

    Attributes:
        counted: Steps that were only counted and timed. Unit: steps.
        recorded: Steps recorded in full, from which the stages are estimated. Unit: steps.
        windows: Runs of consecutive steps that these belong to. Unit: windows.
        share_low: Stage -> lower end of the 95 % interval of its share of such a step (bootstrap
            over the windows). Unit: 1.
        share_high: Stage -> upper end. Unit: 1.
        recording_s: Extra time that recording a step in full takes; subtracted from all figures.
            Unit: s.
    """

    counted: int
    recorded: int
    windows: int
    share_low: dict[str, float]
    share_high: dict[str, float]
    recording_s: float


@dataclass(frozen=True)
class OwnFunction:
    """A function that the training loop calls, or lines of the loop itself.

    It runs between models, backward passes and updates.

    Attributes:
        name: The function with its file and first line, or lines of the loop with their file.
        s: What it takes of s, with everything that it calls there. Unit: s.
        low_s: Lower end of its 95 % interval (Student's t over the steps that were looked at).
            Unit: s.
        high_s: Upper end. Unit: s.
        mainly: A function called in it that takes at least half of its time; empty if none is
            known.
    """

    name: str
    s: float
    low_s: float
    high_s: float
    mainly: str


@dataclass(frozen=True)
class OwnCode:
    """The program's own code between models, backward passes and updates, by function.

    Its parts sum to at most ``s``.

    Attributes:
        s: All of this code: per step, or of evaluations and rollouts in total. Unit: s.
        looks: Stretches of this code that were observed, chosen at random: each lasts from one call
            of a model, backward or optimizer to the next. Unit: looks.
        functions: What the training loop calls, and lines of the loop itself, longest first. They
            add up to at most s.
        few_s: What lies in a few long steps unlike any that was observed, such as the last of an
            epoch: it belongs to none of the functions. Unit: s.
    """

    s: float
    looks: int
    functions: list[OwnFunction]
    few_s: float = 0.0


@dataclass(frozen=True)
class GarbageCollection:
    """Python's garbage collections in the training's thread, in its mean step.

    Attributes:
        s: What they take of the step, inside its stages. Unit: s.
        stages: Stage -> what they take of it; they sum to s. Unit: s.
        steps_share: Share (0 to 1) of the steps with a collection of 1 ms or more. Unit: 1.
        longest_s: The longest of them. Unit: s.
        full_share: Share (0 to 1) of s in full collections, which look at every object. Unit: 1.
        called_share: Share (0 to 1) of s in calls of gc.collect by the program. Unit: 1.
        called_at: The line that makes most of these calls, as in train.py:31; empty: none does, or
            it is not known.
        frozen: Objects that gc.freeze had set aside at the end, which no collection looks at.
            Unit: objects. None: the run was cut.
        every_steps: Steps from each one of 1 ms or more to the next. Unit: steps. None: that varies.
    """

    s: float
    stages: dict[str, float]
    steps_share: float
    longest_s: float
    full_share: float
    called_share: float
    called_at: str = ""
    frozen: int | None = None
    every_steps: int | None = None


@dataclass(frozen=True)
class PeriodicStall:
    """Every nth step takes longer than those around it.

    It leaves out the input, checkpoints, compilation, garbage collections and evaluation.

    Attributes:
        period: Steps from one of them to the next. Unit: steps.
        number: Such steps that were recorded. Unit: steps.
        longer_s: What one takes longer, the median. Unit: s.
        s: The same per mean step. Unit: s.
        stages: Stage -> part of s that lies in it. Unit: s.
        function: Function of the program that takes most of it; empty: too few samples show it, or
            stacks were not sampled.
        place: Its file and line, as in train.py:31; empty: as for function.
        place_share: Share (0 to 1) of what they take longer that this function takes. Unit: 1.
        library: The library's function that the line mostly calls; empty: none, or one in C.
        looks: Samples in such steps. Unit: samples.
    """

    period: int
    number: int
    longer_s: float
    s: float
    stages: dict[str, float]
    function: str = ""
    place: str = ""
    place_share: float = 0.0
    library: str = ""
    looks: int = 0


@dataclass(frozen=True)
class StepSummary:
    """The mean step. ``stages`` sums to ``mean_s``.

    Attributes:
        mean_s: Mean wall time of a step. Unit: s.
        median_s: Median wall time of a step. Unit: s.
        p95_s: 95 % of the steps took at most this long. Unit: s.
        stages: Stage -> mean time per step, in the order they happen; they sum to mean_s. other:
            outside all stages. Unit: s.
        waits: Why the main process waited -> mean time per step; they sum to stages.wait. Unit: s.
        boundary: What cut the run into steps: optimizer, backward or loader; in traces
            profiler_step, feedline, range, optimizer, collectives or none.
        evaluation_s: Time in loops that only infer (evaluation, rollouts) over the whole run,
            outside all steps. Unit: s.
        series: Step by step over the run.
        gpu_stages: Stage -> mean time per step from the GPU's start of the stage's work to its end,
            gaps included. Stages may overlap. Unit: s. None: no GPU was timed: the hook CUDA events
            says why.
        flop: Floating-point operations of one step. None: they were not counted: the hook FLOP says
            why.
        cpu_s: CPU time per step of the training process and all it started, threads included. Unit:
            s. None: fewer than three readings.
        runqueue_s: Time per step during which the main thread could run but had no CPU, in forward
            and backward. Unit: s. None: the kernel does not report it (no schedstat).
        sampled: How the stages were estimated if steps were so short that most were only counted.
            None: every step was recorded.
        main_runqueue_share: Share (0 to 1) of the step in which the main thread could run but had
            no CPU, in loading, forward and backward. Unit: 1. None: the kernel does not report it
            (no schedstat).
        input_share: Share (0 to 1) of the step that its input takes. The start of a loader that
            starts only once is excluded. Unit: 1. None: no loader was seen, or only the program's
            own threads read from it; or the figures come from a trace.
        input_share_low: Lower end of its 95 % interval (Student's t over the steps, or bootstrap
            over windows). Unit: 1. None: no loader was seen, or only the program's own threads read
            from it; or the figures come from a trace.
        input_share_high: Upper end. Unit: 1. None: no loader was seen, or only the program's own
            threads read from it; or the figures come from a trace.
        own_code: The program's own code in the step: what the stage other, and loss between a
            forward and its backward, are spent on. None: too few steps were observed, or the
            program has a trace or profile function of its own.
        evaluation_code: The same of evaluations and rollouts, over the whole run. None: too few
            steps were observed, or the program has a trace or profile function of its own.
        gpu_work: What the GPU did per step, in the steps that torch.profiler recorded. None:
            torch.profiler recorded no steps of this training, or did not see the work of exactly
            one GPU.
        garbage: Python's garbage collections, which are a part of other stages. None: nothing of
            them was recorded in these steps.
        periodic: Every nth step takes longer, which is a part of other stages. None: no such period
            was found.
        evaluations: How many such loops there were; several without a step between them count as
            one, and one before the first step only if there are more than that and one at the end.
            Where not all steps were kept, passes over a loader; 0: it was none.
        evaluation_once_s: Of evaluation_s, what happens once, such as a test at the end: how much
            longer the loops before the first step or after the last take than the median of the
            others, if more than twice as long. 0 where not all steps were kept. Unit: s.
        evaluation_loads: Whether such a loop asked a loader, as an evaluation does. Rollouts,
            generation and evaluations of tensors in memory ask none.
        evaluation_period: Steps from one to the next, the median. Unit: steps. None: there were
            fewer than two, or the run was so long that not all of its steps were kept.
        evaluation_place: Line of the training loop at which most of that time is spent, as in
            train.py:31; empty: too few samples show it, or stacks were not sampled.
    """

    mean_s: float
    median_s: float
    p95_s: float
    stages: dict[str, float]
    waits: dict[str, float]  # by _WAIT_KINDS of measure/waits.py
    boundary: str
    evaluation_s: float
    series: StepSeries
    gpu_stages: dict[str, float] | None = None
    flop: Flop | None = None
    cpu_s: float | None = None
    runqueue_s: float | None = None
    sampled: Sampled | None = None
    main_runqueue_share: float | None = None
    input_share: float | None = None
    input_share_low: float | None = None
    input_share_high: float | None = None
    own_code: OwnCode | None = None
    evaluation_code: OwnCode | None = None
    gpu_work: GpuWork | None = None
    garbage: GarbageCollection | None = None
    periodic: PeriodicStall | None = None
    evaluations: int = 0
    evaluation_once_s: float = 0.0
    evaluation_loads: bool = False
    evaluation_period: float | None = None
    evaluation_place: str = ""

    @property
    def evaluating_s(self) -> float:
        """Seconds of evaluation and rollouts, without what happens once."""
        return self.evaluation_s - self.evaluation_once_s

    @property
    def gpu_s(self) -> float:
        """Seconds that the GPU needs for a step, while the host may wait for a batch.

        0.0: not known, as for one of several ranks, and where the mean step was shorter than the
        few that torch.profiler recorded.
        """
        work = self.gpu_work
        return (
            work.busy_s
            if work and work.ranks == 1 and work.busy_s <= self.mean_s * _GPU_AT_MOST
            else 0.0
        )

    @property
    def gpu_is_behind(self) -> bool:
        """Whether the GPU needs longer for its recorded steps than the mean step, so that it lags.

        The run's rate is then not the GPU's. Of one of several ranks that is not known: its GPU is
        also busy waiting for the others.
        """
        work = self.gpu_work
        return work is not None and work.ranks == 1 and work.busy_s > self.mean_s * GPU_BEHIND
