"""What is measured of a recorded rank, as plain dataclasses.

They are the run, its loaders and workers, and its machine; step_model.py has its steps. Seconds are
floats that end in ``_s``, bytes end in ``_bytes``, shares go from 0 to 1. None: it could not be
measured.
"""

import enum
from dataclasses import dataclass, field

#: CPUs that other programs use: less is not told from the kernel's own work: a process's CPU time is known to 10 ms, and
#: read every 250 ms at most (docs/rules/busy_neighbors.md).
MIN_OTHERS = 0.1
_WIDE = 0.1  # of a measured rate: a narrower interval is not told


@dataclass(frozen=True)
class RunInfo:
    """The run: what was recorded, when and where.

    Attributes:
        name: Name of the run folder.
        path: The run folder.
        state: finished; ended (the program itself ended the process, as multiprocessing.Pool does
            with its workers); cut (its process was killed; everything up to then is here); or live
            (still going).
        command: The command line, one item per argument. Values that might be private are masked.
        started: When recording began, ISO 8601.
        duration_s: From the beginning to the end of recording, of the rank recorded longest. Unit: s.
        exit_code: The script's exit code. None: the run was cut or is live.
        ranks: How many processes trained together.
        versions: Name -> version: feedline, python, torch and others.
        machine: Name -> value: cpu_model, cpus, effective_cpus (affinity and quota), affinity_cpus,
            cpu_quota, affinity (the CPUs' numbers, as 0-7), nice, memory_bytes, shm_bytes, system.
        model: Class of the outermost module that was trained; empty: not seen.
        optimizer: Class of each optimizer and its first learning rate, as in `SGD, lr 0.1`; empty:
            not seen.
        ended_by: What ended it: the type of an exception, or the name of a signal, if known; empty
            otherwise.
        ended_at: The line of the program that raised the exception or was interrupted, as in
            train.py:31, if known; empty otherwise.
        waited_s: How long the main process had waited, when the run ended, for a batch that did not
            come. Unit: s. None: it did not wait for one then.
        silent_s: For how long nothing had been recorded when the run failed or was interrupted.
            Unit: s. None: it was less than 3 s, or is unknown.
        stopped: Why recording ended before the training did, as in No space left on device; empty
            otherwise.
    """

    name: str
    path: str
    state: str
    command: list[str]
    started: str
    duration_s: float
    exit_code: int | None
    ranks: int
    versions: dict[str, str]
    machine: dict[str, object]
    model: str = ""
    optimizer: str = ""
    ended_by: str = ""
    ended_at: str = ""
    waited_s: float | None = None
    silent_s: float | None = None
    stopped: str = ""


@dataclass(frozen=True)
class Throughput:
    """The speed of the training.

    Attributes:
        samples_per_s: Samples per second in training steps of the shown rank. All means exclude the
            first step, if the run has four or more, and all steps up to the one whose FLOP were
            counted, unless these are more than half. Unit: samples/s. None: no step, batches of
            unknown size, or batches that nothing is trained on.
        steps_per_s: Steps (optimizer updates) per second. Unit: steps/s. None: no step.
        samples: Samples in all training steps. Unit: samples.
        steps: Training steps. Unit: steps.
        steps_in_detail: Steps whose records were all kept; splits into stages are means over these.
            Unit: steps.
        batch_size: Mean samples per step and rank. Unit: samples. None: no step, or batches of
            unknown size.
        ranks: Number of ranks whose samples all_ranks_samples_per_s counts.
        all_ranks_samples_per_s: Samples per second of all ranks together. Unit: samples/s. None:
            one rank, or not measured on all.
        low: Lower end of the 95 % interval of the samples per second of all ranks, as `feedline
            check` judges them. Unit: samples/s. None: fewer than eight steps, or steps that vary so
            much that it has no end.
        high: Upper end of the same. Unit: samples/s. None: fewer than eight steps, or steps that
            vary so much that it has no end.
    """

    samples_per_s: float | None
    steps_per_s: float | None
    samples: int
    steps: int
    steps_in_detail: int
    batch_size: float | None
    ranks: int = 1
    all_ranks_samples_per_s: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def of_all_ranks(self) -> float | None:
        """Samples/s of the training as a whole, as far as it was measured."""
        return (
            self.samples_per_s
            if self.all_ranks_samples_per_s is None
            else self.all_ranks_samples_per_s
        )

    @property
    def varies(self) -> tuple[float, float] | None:
        """The interval of its samples/s; None: not known, or so narrow that it need not be told."""
        rate, low, high = self.of_all_ranks, self.low, self.high
        if rate is None or low is None or high is None or high - low <= _WIDE * rate:
            return None
        return low, high


@dataclass(frozen=True)
class Cost:
    """Mean cost of one sample in one stage. wall = cpu + runqueue + blocked where all are measured.

    Attributes:
        wall_s: Wall time per sample; cpu_s + runqueue_s + blocked_s if all three are measured.
            Unit: s.
        cpu_s: CPU time of the thread that made the sample. Unit: s. None: no sample was measured in
            detail.
        runqueue_s: Time runnable but without a CPU. Unit: s. None: the kernel does not report it
            (no schedstat).
        blocked_s: The rest: waiting for a disk, the network or a lock, or sleeping. Unit: s. None:
            the kernel does not report it (no schedstat).
        bytes: Bytes read, decoded, collated or sent, depending on the stage; for total, the bytes
            that read calls returned. Unit: B. None: the stage counts none.
        error_s: Standard error of wall_s, because only one sample in N is timed (Student's t); 0 if
            all were. Unit: s. None: too few samples to tell.
    """

    wall_s: float
    cpu_s: float | None
    runqueue_s: float | None
    blocked_s: float | None
    bytes: float | None
    error_s: float | None


@dataclass(frozen=True)
class Operation:
    """One operation inside a sample, e.g. augment / RandomResizedCrop.

    Attributes:
        stage: The stage it belongs to.
        name: Its name, e.g. RandomResizedCrop.
        wall_s: Wall time per sample. Unit: s.
        cpu_s: CPU time per sample. Unit: s. None: not measured for this operation.
        calls: Calls per sample. Unit: calls.
        unpacked: Bytes of the chunks that its reads touch, over the bytes that they return. Unit: 1.
            None: it reads no chunks, or their size is not known.
    """

    stage: str
    name: str
    wall_s: float
    cpu_s: float | None
    calls: float
    unpacked: float | None = None


@dataclass(frozen=True)
class Workers:
    """What making batches costs, in the loader's workers or in the training process itself.

    Attributes:
        processes: How many processes made samples; 0: the main process itself did (num_workers=0).
            Unit: processes.
        busy_share: Share (0 to 1) of the workers' time, first to last batch, spent making batches.
            Unit: 1. None: no workers.
        idle_share: Share (0 to 1) of that time spent waiting for indices. Unit: 1. None: no
            workers.
        batches: Batches made. Unit: batches.
        samples: Samples made. Unit: samples.
        samples_in_detail: Samples whose operations were timed one by one. Unit: samples.
        per_sample: Stage -> mean cost of one sample; total is the sum of all except transport,
            which runs in another thread.
        operations: Single operations inside a sample, the longest first.
        fetch_mean_s: Mean time to make one batch; those before the first counted step count only if
            there are no others. Unit: s. None: no batch was made.
        fetch_cv: Standard deviation of that time, divided by its mean. Unit: 1. None: fewer than
            two batches.
        decoded_pixels: Pixels decoded per sample. Unit: pixels. None: no decoder was seen.
        output_pixels: Pixels per sample of the last picture before the tensor. Unit: pixels. None:
            no picture was seen.
        sample_wall_histogram: Pairs (upper edge, number of samples between the edge before and this
            one); estimated in long runs. Unit: s, samples.
        blocked_by: What the threads that make batches waited for -> share (0 to 1) of their blocked
            time, sampled from outside: sleep, lock, network, another process, file, page fault,
            unknown. Empty: not seen. Unit: 1.
        blocked_looks: How often a look at these threads found one blocked while it made a batch; if
            that is rare, blocked_by is uncertain. Unit: looks.
        process_cpu_s: CPU time per sample of the whole processes that make samples, helper threads
            included. Unit: s. None: /proc does not show it.
        batch_tensors: Tensors in a batch as collate made it. Unit: tensors. None: no batch was
            examined.
        without_batches: Of processes: made no batch, usually because the data has fewer parts than
            there are workers. Unit: workers.
    """

    processes: int
    busy_share: float | None
    idle_share: float | None
    batches: int
    samples: int
    samples_in_detail: int
    per_sample: dict[str, Cost]  # SAMPLE_STAGES that occurred, and total
    operations: list[Operation]
    fetch_mean_s: float | None
    fetch_cv: float | None
    decoded_pixels: float | None
    output_pixels: float | None
    sample_wall_histogram: list[tuple[float, int]]
    blocked_by: dict[str, float] = field(default_factory=dict)
    blocked_looks: int = 0
    process_cpu_s: float | None = None
    batch_tensors: float | None = None
    without_batches: int = 0


@dataclass(frozen=True)
class Loader:
    """A DataLoader as the program configured it, and what it handed over.

    Attributes:
        name: loader 0, loader 1, ... in the order they were made.
        kind: Class name.
        settings: num_workers, batch_size, prefetch_factor, in_order, ... as the program set them.
            made_at: the line that made the loader (train.py:31; absent if the file's name is
            masked); made_by: the library that creates it for this line, e.g. transformers.
        role: training, evaluation, or unused: no model was given its batches.
        batches: Batches handed to the program. Unit: batches.
        samples: Samples in them. Unit: samples.
        batch_bytes: Mean bytes of a batch's tensors. Unit: B. None: no tensor was seen in a batch.
        flags: What its batches are: float32, shared (in shared memory), pinned, objects (no
            tensors).
        pickle_bytes: Mean bytes pickled to send one batch. Unit: B. None: nothing was pickled
            (num_workers=0).
        first_batch_s: From asking for an iterator to its first batch, mean over epochs. Unit: s.
            None: no epoch delivered a batch.
        epochs: Epochs that began and delivered at least one batch. Unit: epochs.
        objects: Loader objects that were iterated: more than one if the program makes a new one for
            each epoch. Unit: loaders.
    """

    name: str
    kind: str
    settings: dict[str, object]
    role: str
    batches: int
    samples: int
    batch_bytes: float | None
    flags: list[str]
    pickle_bytes: float | None
    first_batch_s: float | None
    epochs: int = 0
    objects: int = 1


@dataclass(frozen=True)
class Gauge:
    """One sampled quantity, thinned to at most 600 points.

    Attributes:
        name: Source and quantity, e.g. cpu/used, gpu0/sm.
        unit: Unit of all its figures; 1 for ratios.
        mean: Mean over the run. Unit: see unit.
        minimum: Smallest value sampled. Unit: see unit.
        maximum: Largest value sampled. Unit: see unit.
        at_s: When each value was taken, since recording began; at most 600. Unit: s.
        values: One value for each time in at_s. Unit: see unit. None: (an element) it could not be
            read at that time.
    """

    name: str
    unit: str
    mean: float
    minimum: float
    maximum: float
    at_s: list[float]
    values: list[float]


@dataclass(frozen=True)
class Cpus:
    """Who used the CPUs while the steps ran. All in CPUs: CPU seconds per second, on average.

    Attributes:
        allowed: CPUs that the run may use: those of its affinity mask, capped by the quota. Unit:
            CPUs.
        quota: CPU quota of the control group. Unit: CPUs. None: it has none, or it cannot be seen.
        affinity: CPUs in the affinity mask, which other programs may use as well. Unit: CPUs. None:
            not measured.
        own: CPU seconds per second of the training's processes on this machine, of all ranks, with
            helper threads. Unit: CPUs. None: nothing was sampled while the steps ran: a run of less
            than a quarter of a second, or no /proc.
        others: CPU seconds per second of other programs on the CPUs of the affinity mask. Unit:
            CPUs. None: nothing was sampled while the steps ran: a run of less than a quarter of a
            second, or no /proc.
        free: CPUs that were idle and that the run may use. Unit: CPUs. None: nothing was sampled
            while the steps ran: a run of less than a quarter of a second, or no /proc.
        ranks: Ranks of the run on this machine, which share the CPUs. Unit: ranks.
    """

    allowed: float
    quota: float | None
    affinity: float | None
    own: float | None
    others: float | None
    free: float | None
    ranks: int = 1


class Holder(str, enum.Enum):
    """What holds memory that grows."""

    GRAPHS = "graphs"  # of past steps, that the program keeps
    COPIES = "copies"  # pages that workers shared with the main process, and copy on write
    OWN = "own"  # something that workers keep themselves
    OBJECTS = "objects"  # small Python objects, of which dicts and lists are made
    PIECES = "pieces"  # large ones: tensors, arrays, long strings


@dataclass(frozen=True)
class KeptGraphs:
    """Graphs of past steps that are still in memory.

    Attributes:
        looked_at, alive: how many were looked at, and how many of these are in memory.
        place: the line that keeps them; empty: unknown.
    """

    looked_at: int
    alive: int
    place: str


@dataclass(frozen=True)
class MemoryGrowth:
    """Memory that grows while the steps run, once it has warmed up.

    Attributes:
        who: main: the main process; workers: all processes below it together.
        per_step_bytes: Growth per step, by the median slope of its readings, or by its jumps. Unit:
            B.
        low_bytes: Lower end of its 95 % interval (bootstrap over blocks of readings, or over
            jumps). Unit: B.
        high_bytes: Upper end. Unit: B.
        grown_bytes: Growth in the steps that were looked at. Unit: B.
        at_end_bytes: Memory at their end. Unit: B.
        holder: What holds it: graphs (of past steps), copies (of pages that workers shared), own
            (something that workers keep), objects (small Python objects, as in dicts and lists),
            pieces (large ones, as of tensors and arrays). None: unknown.
        graphs: Graphs of past steps that were looked at. Unit: graphs.
        graphs_alive: Of these, still in memory. Unit: graphs.
        place: The line that keeps them, as in train.py:31; empty: unknown.
        places: Lines of which one may keep them, where the source shows two to four; empty: it
            shows one, more or none.
        still_shared_bytes: Of workers, what they still share and may copy. Unit: B. None: it does
            not apply.
        limit: Whose memory is full first: the machine's, or that of the control group (cgroup);
            empty: unknown.
        left_bytes: Until then. Unit: B. None: unknown.
        steps_left: Steps until then, at this rate. Unit: steps. None: unknown.
        seconds_left: The same in time. Unit: s. None: unknown.
        every_steps: Steps from one jump of memory to the next. Unit: steps. None: it grows in each
            step.
        at: What its jumps come with: epoch or evaluation; empty: neither, or none.
        new_objects: Small Python objects that come with each step and stay. Unit: objects. None: not
            counted, or it is not the main process.
        figures: Figures that pyplot keeps at their end, where these became more. Unit: figures.
            None: they did not, or it is not the main process.
    """

    who: str
    per_step_bytes: float
    low_bytes: float
    high_bytes: float
    grown_bytes: float
    at_end_bytes: float
    holder: Holder | None = None
    graphs: int = 0
    graphs_alive: int = 0
    place: str = ""
    places: list[str] = field(default_factory=list)
    still_shared_bytes: float | None = None
    limit: str = ""
    left_bytes: float | None = None
    steps_left: float | None = None
    seconds_left: float | None = None
    every_steps: float | None = None
    at: str = ""
    new_objects: float | None = None
    figures: float | None = None


@dataclass(frozen=True)
class Traffic:
    """File traffic of the training loader's processes, per sample.

    None where /proc does not tell.
    """

    read_chars: float | None  # bytes returned by read(), cached or not
    read_calls: float | None
    disk_bytes: float | None  # bytes that came from the disk
    major_faults: float | None
    # pages mapped without reading: new memory, or a file's pages in the cache
    minor_faults: float | None = None
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
        own_low, own_high: the same of the time in which the main thread did not wait for a CPU:
            that comes in few long pieces, where other programs want the CPUs, and says nothing of
            the training. None: as low and high.
    """

    steps: int
    low: float
    high: float
    own_low: float | None = None
    own_high: float | None = None

    @property
    def own(self) -> tuple[float, float]:
        """``own_low`` and ``own_high``."""
        return (self.low if self.own_low is None else self.own_low), (
            self.high if self.own_high is None else self.own_high
        )


@dataclass(frozen=True)
class Updated:
    """What the training's optimizer updates in each step, or several of one kind.

    Attributes:
        kind: its class.
        tensors, elements: of its parameters, in all groups.
        fused: every group is updated in one fused call.
        embedded: elements in embeddings whose gradients are dense, and for most rows zero.
        rows: of these embeddings.
        groups: of parameters.
        step: torch's class whose ``step()`` it runs; empty: it has one of its own. None: not known.
        foreach: a group is told to be updated with foreach.
        sparse: tensors whose gradients are sparse, as far as that is known.
        complex: tensors of complex numbers, as far as that is known.
    """

    kind: str
    tensors: int
    elements: int
    fused: bool
    embedded: int = 0
    rows: int = 0
    groups: int = 1
    step: str | None = None
    foreach: bool = False
    sparse: int = 0
    complex: int = 0

    @property
    def updates_as(self) -> str:
        """Torch's class whose update it makes; empty: one of its own."""
        return self.kind if self.step is None else self.step


@dataclass(frozen=True)
class Recompiled:
    """A function that torch.compile compiled more than once.

    Attributes:
        function: its name.
        place: file and first line; empty: it is a library's.
        times: that it was compiled, of the latest 64 compilations.
        gave_up: the limit was reached, and it runs without compilation.
        kind: of what had changed most often: size, rank, stride, dtype, gradients, number, module
            or other.
        name: of the variable that had changed; empty: unknown.
        values: that it had, as far as they are known.
    """

    function: str
    place: str
    times: int
    gave_up: bool
    kind: str
    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class GraphBreak:
    """A line at which torch.compile ended a graph, to go on in Python.

    Attributes:
        function: The function that was compiled there.
        place: The line, as in model.py:14; empty: all of it is a library's.
        reason: Why, in torch's words; other: they are not known to be torch's own.
        times: In how many compilations, those again too. Unit: compilations.
    """

    function: str
    place: str
    reason: str
    times: int


@dataclass(frozen=True)
class Unseen:
    """Input that neither a loader nor a function of the program was seen to make.

    Attributes:
        share: of the step that it takes at most: what no stage accounts for, or only one that may
            contain input.
        high: upper end of the 95 % interval of that.
        resident: models got only what was in memory before, unchanged, in all steps that count.
    """

    share: float
    high: float
    resident: bool


@dataclass(frozen=True)
class KilledWorker:
    """A worker that a SIGKILL ended, and with it the training.

    Attributes:
        worker: its number; None: it left no records.
        loader: number of its loader.
        at_s: when it was seen last, s since the recording began.
        size_bytes: what it had then, without files and shared memory. None: it was not read.
        grown_bytes, grown_s: by how much it had grown since it could work, and in what time.
        per_second_bytes: that growth, the median of all pairs of readings. None: it did not grow, or
            for one batch.
        together_bytes: what all workers of its loader had. None: as size_bytes.
        workers: of its loader that were read.
        for_memory: whether the kernel killed it because memory was full. None: it does not tell.
        limit_bytes: the smallest limit of the training's control groups; None: there is none.
        limit_reached: whether memory had to be freed because of it. None: not known.
        place: file and line of the data set that adds to what outlives a sample. Empty: unknown.
        batch_bytes: of grown_bytes, what came while it made one batch. None: it is not most of it.
        first_batch: whether that was its first; if not, it was its last.
        kept_perhaps: it had made one batch at most, so that batch_bytes may be kept of its samples.
    """

    worker: int | None
    loader: int
    at_s: float | None = None
    size_bytes: float | None = None
    grown_bytes: float = 0.0
    grown_s: float = 0.0
    per_second_bytes: float | None = None
    together_bytes: float | None = None
    workers: int = 0
    for_memory: bool | None = None
    limit_bytes: float | None = None
    limit_reached: bool | None = None
    place: str = ""
    batch_bytes: float | None = None
    first_batch: bool = False
    kept_perhaps: bool = False
