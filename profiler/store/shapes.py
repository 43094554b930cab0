"""Types and ranges of the JSON members in a run folder that readers rely on. Other members are passed on."""

from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from feedline.profiler.files.checking import Count, Moment, RankNumber, TimeOfDay, WorldSize

_MOST_PROCESSES = 65_536
Source = Annotated[int, Meta(ge=0, lt=65_536)]
Pid = Annotated[int, Meta(ge=0, lt=1 << 32)]
Number = bool | int | float


class Version(TypedDict):
    """The schema version with which every JSON file of feedline begins."""

    schema_version: Annotated[int, Meta(ge=1)]


class Place(TypedDict, total=False):
    rank: RankNumber
    local_rank: RankNumber
    world_size: WorldSize
    group_rank: RankNumber | None
    restart: Count
    launcher: str


class Machine(TypedDict, total=False):
    cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    effective_cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    affinity_cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    cpu_quota: Annotated[float, Meta(gt=0, le=1e6)] | None
    malloc: str


class RequiredOfHook(TypedDict):
    name: str
    attached: bool
    why: str


class Hook(RequiredOfHook, total=False):
    reason: str


class Anchor(TypedDict):
    perf_counter_ns: Moment
    time_ns: TimeOfDay


class RequiredOfLoader(TypedDict):
    kind: str


class Loader(RequiredOfLoader, total=False):
    num_workers: bool | Source
    batch_size: Number
    prefetch_factor: Number
    in_order: Number
    persistent_workers: Number
    pin_memory: Number
    drop_last: Number
    timeout: Number
    collate: str
    sampler: str
    torchs_sampler: bool
    replacement: bool
    batch_sampler: str
    dataset: str
    dataset_changes: list[str]
    sample_code: str
    asks_for_worker: bool
    map_style: bool
    whole_batches: bool
    torchs_dispatch: bool
    dataset_samples: Count
    epoch_samples: Count
    start_method: str


class ParameterGroup(TypedDict, total=False):
    lr: float
    weight_decay: float
    momentum: float
    eps: float
    dampening: float
    betas: list[float]
    tensors: Count
    vectors: Count
    elements: Count
    fused: bool
    foreach: bool


class RequiredOfScheduler(TypedDict):
    kind: str
    horizon: Annotated[int, Meta(ge=-(1 << 53), lt=1 << 53)] | None
    steps: Annotated[int, Meta(ge=-1, lt=1 << 53)]


class Scheduler(RequiredOfScheduler, total=False):
    optimizer: Count


class RequiredOfSampler(TypedDict):
    kind: str
    shuffles: bool
    epochs: Count
    distinct: Count
    samples: Count
    of: Count


class Sampler(RequiredOfSampler, total=False):
    loader: Count


class RequiredOfOptimizer(TypedDict):
    kind: str
    module: str
    groups: list[ParameterGroup]


class Optimizer(RequiredOfOptimizer, total=False):
    samplers: list[Sampler]


class Scaler(TypedDict):
    kind: str
    skipped: Count


class BatchNorm(TypedDict):
    layers: Count
    synced: Count
    samples: Count
    gpu: bool


class Training(TypedDict, total=False):
    optimizers: list[Optimizer]
    schedulers: list[Scheduler]
    norms: dict[str, Count]
    batch_norms: list[BatchNorm]
    samplers: list[Sampler]
    scaler: Scaler
    updates: Count
    samples: Count
    samples_known: bool
    noise_scale: str
    noise_scale_reason: str
    fixes: str
    fixes_failed: dict[str, str]


class ManifestShape(TypedDict, total=False):
    """manifest.json of a known schema version."""

    launch: str
    group: str
    command: list[str]
    place: Place
    environment: dict[str, str]
    versions: dict[str, str]
    machine: Machine
    hooks: list[Hook]
    loaders: Annotated[list[Loader], Meta(max_length=65_536)]
    training: Training
    pid: Pid
    pid_started: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    parent: Annotated[list[Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]], Meta(max_length=2)]
    anchors: list[Anchor]
    exit_code: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)] | None
    ended: bool
    ended_by: str
    ended_at: str
    notes: list[str]


class Main(TypedDict):
    """Header of the training process's segment."""

    role: Literal["main"]


class Worker(TypedDict):
    """Header of a worker's segment."""

    role: Literal["worker"]
    loader: Source
    worker: Source


class _Described(TypedDict):
    """A process in the metadata of events.parquet."""

    header: dict[str, Any]
    names: dict[Source, str]


Processes = Annotated[list[_Described], Meta(min_length=1, max_length=_MOST_PROCESSES)]


class RequiredOfLegend(TypedDict):
    gauges: Annotated[list[tuple[str, str]], Meta(max_length=65_536)]


class Legend(RequiredOfLegend, total=False):
    """gauges.json of a known schema version."""

    absent: dict[str, str]
    machine: dict[str, Any]


class Line(TypedDict, total=False):
    """An observation of a process: a line of processes.jsonl."""

    pid: Count
    started: Count
    command: list[str]
    imported: str
    recorded: str
    unseen: str
    ended_by: str
