"""Types and ranges of the JSON members in a run folder that readers rely on.

Other members are passed on.
"""

from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from feedline.profiler.files.checking import MOST_NS, MOST_RANKS, MOST_TIME_NS, Count

_MOST_PROCESSES = 65_536
_Source = Annotated[int, Meta(ge=0, lt=65_536)]
_Pid = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Number = bool | int | float
RankNumber = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
_WorldSize = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
_Moment = Annotated[int, Meta(ge=0, lt=MOST_NS)]
_TimeOfDay = Annotated[int, Meta(ge=0, lt=MOST_TIME_NS)]


class VersionShape(TypedDict):
    """The schema version with which every JSON file of feedline begins."""

    schema_version: Annotated[int, Meta(ge=1)]


class _PlaceShape(TypedDict, total=False):
    rank: RankNumber
    local_rank: RankNumber
    world_size: _WorldSize
    group_rank: RankNumber | None
    restart: Count
    launcher: str


class _MachineShape(TypedDict, total=False):
    cpu_model: str
    cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    effective_cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    affinity_cpus: Annotated[float, Meta(gt=0, le=1e6)] | None
    affinity: Annotated[str, Meta(max_length=10_000)]
    cpu_quota: Annotated[float, Meta(gt=0, le=1e6)] | None
    nice: Annotated[int, Meta(ge=-20, le=19)]
    malloc: str


class _HookRequired(TypedDict):
    name: str
    attached: bool
    why: str


class _HookShape(_HookRequired, total=False):
    reason: str


class _AnchorShape(TypedDict):
    perf_counter_ns: _Moment
    time_ns: _TimeOfDay


class _LoaderRequired(TypedDict):
    kind: str


class _LoaderShape(_LoaderRequired, total=False):
    num_workers: bool | _Source
    batch_size: _Number
    prefetch_factor: _Number
    in_order: _Number
    persistent_workers: _Number
    pin_memory: _Number
    drop_last: _Number
    timeout: _Number
    collate: str
    sampler: str
    torchs_sampler: bool
    replacement: bool
    batch_sampler: str
    dataset: str
    dataset_library: str
    wrapped_library: str
    dataset_shards: Count
    resampled: bool
    dataset_changes: list[str]
    sample_code: str
    asks_for_worker: bool
    map_style: bool
    whole_batches: bool
    torchs_dispatch: bool
    dataset_samples: Count
    epoch_samples: Count
    start_method: str


class _GroupShape(TypedDict, total=False):
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
    sparse: Count


class _SchedulerRequired(TypedDict):
    kind: str
    horizon: Annotated[int, Meta(ge=-(1 << 53), lt=1 << 53)] | None
    steps: Annotated[int, Meta(ge=-1, lt=1 << 53)]


class _SchedulerShape(_SchedulerRequired, total=False):
    optimizer: Count


class _SamplerRequired(TypedDict):
    kind: str
    shuffles: bool
    epochs: Count
    distinct: Count
    samples: Count
    of: Count


class _SamplerShape(_SamplerRequired, total=False):
    loader: Count


class _OptimizerRequired(TypedDict):
    kind: str
    module: str
    groups: list[_GroupShape]


class _OptimizerShape(_OptimizerRequired, total=False):
    step: str
    samplers: list[_SamplerShape]


class _ScalerShape(TypedDict):
    kind: str
    skipped: Count


class _BatchNormShape(TypedDict):
    layers: Count
    synced: Count
    samples: Count
    gpu: bool


class _ChangedShape(TypedDict):
    kind: str
    name: str
    values: list[float]


class _CompiledShape(TypedDict):
    function: str
    place: str
    times: Count
    gave_up: bool
    causes: list[_ChangedShape]


class _BreakShape(TypedDict):
    function: str
    place: str
    reason: str
    times: Count


class _TrainingShape(TypedDict, total=False):
    optimizers: list[_OptimizerShape]
    schedulers: list[_SchedulerShape]
    norms: dict[str, Count]
    batch_norms: list[_BatchNormShape]
    samplers: list[_SamplerShape]
    scaler: _ScalerShape
    compiled: list[_CompiledShape]
    graph_breaks: list[_BreakShape]
    updates: Count
    samples: Count
    samples_known: bool
    noise_scale: str
    noise_scale_reason: str
    fixes: str
    fixes_failed: dict[str, str]


class _KilledShape(TypedDict, total=False):
    pid: _Pid
    kills: Count
    machine_kills: Count
    limit_hits: Count
    limit_bytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class ManifestShape(TypedDict, total=False):
    """manifest.json of a known schema version."""

    launch: str
    group: str
    command: list[str]
    place: _PlaceShape
    environment: dict[str, str]
    versions: dict[str, str]
    machine: _MachineShape
    hooks: list[_HookShape]
    loaders: Annotated[list[_LoaderShape], Meta(max_length=65_536)]
    training: _TrainingShape
    pid: _Pid
    pid_started: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    home: str
    parent: Annotated[list[Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]], Meta(max_length=2)]
    anchors: list[_AnchorShape]
    exit_code: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)] | None
    ended: bool
    ended_by: str
    ended_at: str
    killed: _KilledShape
    notes: list[str]


class MainShape(TypedDict):
    """Header of the training process's segment."""

    role: Literal["main"]


class WorkerShape(TypedDict):
    """Header of a worker's segment."""

    role: Literal["worker"]
    loader: _Source
    worker: _Source


class _Described(TypedDict):
    """A process in the metadata of events.parquet."""

    header: dict[str, Any]
    names: dict[_Source, str]


ProcessesShape = Annotated[list[_Described], Meta(min_length=1, max_length=_MOST_PROCESSES)]


class _LegendRequired(TypedDict):
    gauges: Annotated[list[tuple[str, str]], Meta(max_length=65_536)]


class LegendShape(_LegendRequired, total=False):
    """gauges.json of a known schema version."""

    absent: dict[str, str]
    machine: dict[str, Any]


class LineShape(TypedDict, total=False):
    """An observation of a process: a line of processes.jsonl."""

    pid: Count
    started: Count
    command: list[str]
    imported: str
    recorded: str
    unseen: str
    ended_by: str
