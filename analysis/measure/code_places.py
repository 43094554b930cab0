"""Where in the pipeline a sampled stack stands, told from the frames of torch and of feedline."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from feedline.analysis.measure.code_frames import origin
from feedline.profiler.masks import FEEDLINE, PYTHON
from feedline.profiler.store.sampled_stacks import StackFrame

#: Of making a batch, in a worker or in the main process.
DATASET, COLLATE = "dataset", "collate"
#: Of a worker: it has nothing to do.
IDLE = "idle"
#: Of either: feedline's own work for the recording.
RECORDING = "recording"
#: What no place tells: the loop's own lines, or a worker's start.
OTHER = "other"
#: Of the main process: a function of the program makes batches without a loader.
INPUT = "input"
#: A loop that only infers.
EVALUATION = "evaluation"
#: Of the main process: each is a stage of the step.
WAIT, START, SAMPLER = "wait", "epoch_start", "sampler"
FORWARD, LOSS, BACKWARD = "forward", "loss", "backward"
GRADIENTS, OPTIMIZER = "gradients", "optimizer"
#: Those of them in which only a program stands that learns.
TRAINING = (BACKWARD, OPTIMIZER)
COMPILE, CHECKPOINT, _COPY = "compile", "checkpoint", "copy"
#: A call that writes or draws what people look at: a part of the loop's own lines.
LOGGING = "logging"

#: Places in which samples and batches are made.
MAKING = (DATASET, COLLATE)

#: What torch does besides, in whatever place: a forward pass that a backward pass repeats
#: (torch.utils.checkpoint), stacks that anomaly detection keeps for each operation, and what
#: DistributedDataParallel does after a forward.
RECOMPUTED, ANOMALY, AFTER_FORWARD = "recomputed", "anomaly", "after_forward"


@dataclass(frozen=True)
class _Mark:
    """Frames that tell a place.

    Attributes:
        place: that they tell.
        owner: of the file.
        file: pattern of the file below its owner's folder.
        function: pattern of the function's name.
    """

    place: str
    owner: str
    file: str
    function: str = ".*"

    def fits(self, frame: StackFrame) -> bool:
        return _fits(self, frame.file, frame.function)


@lru_cache(maxsize=65536)
def _fits(mark: _Mark, file: str, function: str) -> bool:
    whose = origin(file)
    return (
        whose.owner == mark.owner
        and re.fullmatch(mark.file, whose.tail) is not None
        and re.fullmatch(mark.function, function.rpartition(".")[2]) is not None
    )


@lru_cache(maxsize=16384)
def _mark_of(file: str, function: str) -> "_Mark | None":
    """Return the first of the marks of the main process that a frame is."""
    return next((mark for mark in _MARKS if _fits(mark, file, function)), None)


_FETCH = _Mark(DATASET, "torch", r"utils/data/_utils/fetch\.py", "fetch")
_COLLATING = (
    _Mark(COLLATE, FEEDLINE, r"taps/fetch\.py", "collate"),
    _Mark(COLLATE, "torch", r"utils/data/_utils/collate\.py"),
)
#: torchdata's StatefulDataLoader has files of its own for what torch's DataLoader does.
_STATEFUL = r"stateful_dataloader/stateful_dataloader\.py"
_STARTS = "__iter__|_get_iterator|_reset|__init__"
_WORKER_LOOPS = (
    _Mark(IDLE, "torch", r"utils/data/_utils/worker\.py", "_worker_loop"),
    _Mark(IDLE, "torchdata", r"stateful_dataloader/worker\.py", "_worker_loop"),
)
_QUEUE = _Mark(IDLE, PYTHON, r"multiprocessing/(queues|connection)\.py")
_MARKS = (
    _Mark(START, "torch", r"utils/data/dataloader\.py", _STARTS),
    _Mark(START, "torchdata", _STATEFUL, _STARTS),
    _Mark(SAMPLER, "torch", r"utils/data/dataloader\.py", "_next_index"),
    _Mark(SAMPLER, "torch", r"utils/data/(sampler|distributed)\.py"),
    _Mark(SAMPLER, "torchdata", _STATEFUL, "_next_index"),
    _Mark(SAMPLER, "torchdata", r"stateful_dataloader/sampler\.py"),
    _Mark(WAIT, "torch", r"utils/data/dataloader\.py"),
    _Mark(WAIT, "torchdata", _STATEFUL, "(?!(load_)?state_dict).*"),
    _Mark(BACKWARD, "torch", r"_tensor\.py", "backward"),
    _Mark(
        BACKWARD, "torch", r"autograd/(__init__|graph)\.py", "backward|grad|_engine_run_backward"
    ),
    _Mark(GRADIENTS, "torch", r"optim/.*", "zero_grad"),
    _Mark(GRADIENTS, "torch", r"nn/utils/clip_grad\.py"),
    _Mark(OPTIMIZER, "torch", r"optim/(?!lr_scheduler|swa_utils).*"),
    _Mark(CHECKPOINT, "torch", r"serialization\.py", "_?save|_legacy_save"),
    _Mark(COMPILE, "torch", r"_dynamo/(convert_frame|symbolic_convert|output_graph)\.py"),
    _Mark(COMPILE, "torch", r"_inductor/(compile_fx|graph|scheduler|codecache)\.py"),
    _Mark(_COPY, FEEDLINE, r"taps/training\.py", "move"),
    _Mark(LOSS, "torch", r"nn/modules/loss\.py"),
    _Mark(FORWARD, "torch", r"nn/modules/module\.py", "_call_impl|_wrapped_call_impl"),
)
_BESIDES = (
    _Mark(RECOMPUTED, "torch", r"utils/checkpoint\.py"),
    _Mark(ANOMALY, "torch", r"fx/traceback\.py", "format_stack"),
    _Mark(AFTER_FORWARD, "torch", r"nn/parallel/distributed\.py", "_post_forward"),
)
#: Files of feedline that only record.
_RECORDS = ("record/", "clock.py", "store/", "samplers/", "stacks/", "taps/batch_contents.py")
_LOGS = frozenset(
    ("wandb", "mlflow", "matplotlib", "tqdm", "neptune", "comet_ml", "clearml", "tensorboard")
)
_LOG_FILES = (
    _Mark(LOGGING, PYTHON, r"logging/.*"),
    _Mark(LOGGING, "torch", r"utils/tensorboard/.*"),
)


@dataclass(frozen=True)
class _Standing:
    """Where a stack stands.

    Attributes:
        place: one of the names above.
        inside: index of the first frame inside of what tells the place; the number of frames where
            nothing does.
    """

    place: str
    inside: int


def standing(frames: Sequence[StackFrame]) -> _Standing:
    """Return where a stack of the main thread stands, of the main process or of a worker.

    What makes a batch does so whatever it calls. Else the innermost place counts, only a forward
    pass within a backward pass belongs to it.
    """
    fetch = next((at for at, frame in enumerate(frames) if _FETCH.fits(frame)), None)
    if fetch is not None:
        return _making(frames, fetch)
    loops = (is_worker_loop(frame.file, frame.function) for frame in frames)
    loop = next((at for at, found in enumerate(loops) if found), None)
    if loop is not None:
        idle = any(_QUEUE.fits(frame) for frame in frames[loop + 1 :])
        return _Standing(IDLE if idle else OTHER, loop + 1)
    told = _Standing(OTHER, len(frames))
    for at, frame in enumerate(frames):
        mark = _mark_of(frame.file, frame.function)
        if mark is None or told.place == BACKWARD and mark.place in (FORWARD, LOSS):
            continue
        told = _Standing(mark.place, at + 1) if mark.place != told.place else told
    return told


def is_worker_loop(file: str, function: str) -> bool:
    """Return whether a function is the loop of a loader's worker."""
    return any(_fits(mark, file, function) for mark in _WORKER_LOOPS)


def besides(frames: Sequence[StackFrame]) -> tuple[str, int] | None:
    """Return what torch does besides in a stack, and its first frame; None: nothing of that kind."""
    for at, frame in enumerate(frames):
        for mark in _BESIDES:
            if mark.fits(frame):
                return mark.place, at
    return None


def is_recording(frames: Sequence[StackFrame]) -> bool:
    """Return whether feedline itself works there: its clocks and records, not what it calls."""
    last = next(
        (
            whose
            for frame in reversed(frames)
            if (whose := origin(frame.file)).owner != PYTHON or whose.tail.startswith("<")
        ),
        None,
    )
    return last is not None and last.owner == FEEDLINE and last.tail.startswith(_RECORDS)


def _making(frames: Sequence[StackFrame], fetch: int) -> _Standing:
    for at in range(fetch + 1, len(frames)):
        if any(mark.fits(frames[at]) for mark in _COLLATING):
            return _Standing(COLLATE, at + 1)
        if origin(frames[at].file).owner not in ("torch", FEEDLINE):
            break
    return _Standing(DATASET, fetch + 1)


def logs(below: Sequence[StackFrame]) -> bool:
    """Return whether what the program calls writes a log, or draws a figure."""
    return any(
        origin(frame.file).owner in _LOGS or any(mark.fits(frame) for mark in _LOG_FILES)
        for frame in below
    )
