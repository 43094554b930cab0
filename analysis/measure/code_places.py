"""Where in the pipeline a sampled stack stands, and whose code each of its frames is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from feedline.profiler.masks import FEEDLINE, PYTHON, library
from feedline.profiler.store.sampled_stacks import StackFrame

_PROGRAM = ""
#: Begins what is told of feedline's wrappers of libraries' operations, wherever their code is.
OPERATIONS = "taps/operations/"

#: Files as a recording has them: whole paths, or what is left of them where folders are masked.
_PACKAGE = re.compile(r"(?:^|.*/)(?:site|dist)-packages/(?P<name>\w+)(?:/(?P<tail>.*)|\.\w+)?$")
_PYTHON = re.compile(r"(?:^|.*/)python3\.\d+/(?P<tail>.*)$")
_OUR_FOLDERS = r"(?:taps|record|session|samplers|follow|store|files)/.*"
_OURS = re.compile(rf"(?:^|.*/)(?:feedline/)?profiler/(?P<tail>{_OUR_FOLDERS}|\w+\.py)$")
#: Those below the folder in which the program ran, where it may have a profiler/ of its own.
_OURS_BELOW = re.compile(rf"(?!/)(?:(?:.*/)?feedline/(?:profiler|cli)/.*|profiler/{_OUR_FOLDERS})")
_OUR_COMMANDS = re.compile(r"(?:^|.*/)feedline/(?P<tail>cli/.*)$")
#: What a tap adds to the file of the code that it puts in a function's place (taps/patch.py).
_TAP = re.compile(r" \(feedline; [^)]*\)$")
_NO_FILE = re.compile(r"<(?!ipython-input|stdin|string)[^>]*>$")
#: Their classes call the program's, or are called in its place: in a stack without any code of the
#: program, the first frame of another library is taken for it.
_FRAMEWORKS = frozenset(
    (
        *(PYTHON, FEEDLINE, "torch", "torchvision", "torchaudio", "torchdata", "functorch"),
        *(
            "numpy",
            "PIL",
            "pandas",
            "pyarrow",
            "scipy",
            "h5py",
            "zarr",
            "cv2",
            "lmdb",
            "_distutils_hack",
        ),
        *("lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities"),
        *("transformers", "tokenizers", "accelerate", "datasets", "timm", "torchmetrics"),
        *("webdataset", "albumentations", "monai", "nvidia", "triton", "tqdm", "fsspec"),
        *("wandb", "mlflow", "tensorboard", "matplotlib", "IPython", "ipykernel", "traitlets"),
    )
)
#: Frames without a name of their own: a part of the function that they are written in.
_INSIDE = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_LINE = "line "  # begins the key of a line of a module
_LAMBDA = "<lambda>"
_MODULE = "<module>"
_OF_TEXT = "<string>"
_WRAPPERS = frozenset(("wrapper", "wrapped", "inner", "decorate_context", "decorator"))
#: Functions whose names alone say nothing: file of a library -> what calls them.
_NAMES = {
    ("pandas", "core/indexing.py"): "pandas.DataFrame.iloc",
    ("pandas", "core/series.py"): "pandas.Series",
    ("pandas", "core/frame.py"): "pandas.DataFrame",
    (PYTHON, "_strptime.py"): "datetime.strptime",
}
#: Of making a batch, in a worker or in the main process.
DATASET, COLLATE = "dataset", "collate"
#: Of a worker: it has nothing to do.
IDLE = "idle"
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
#: torchdata's StatefulDataLoader has files of its own for what torch's DataLoader does.
_STATEFUL = r"stateful_dataloader/stateful_dataloader\.py"
_STARTS = "__iter__|_get_iterator|_reset|__init__"
#: Files of feedline that only record.
_RECORDS = ("record/", "clock.py", "store/", "samplers/", "stacks/", "taps/batch_contents.py")
_LOGS = frozenset(
    ("wandb", "mlflow", "matplotlib", "tqdm", "neptune", "comet_ml", "clearml", "tensorboard")
)


@dataclass(frozen=True)
class _Origin:
    """Whose a file is.

    Attributes:
        owner: the installed library, ``python``, ``feedline``; empty: the program's.
        tail: the file below the folder of its owner; of the program's, as it is.
    """

    owner: str
    tail: str


@lru_cache(maxsize=4096)
def origin(file: str) -> _Origin:
    """Return whose a file is, also where its folders are masked."""
    plain = _TAP.sub("", file)
    if ours := _OURS.match(plain) or _OUR_COMMANDS.match(plain):
        if plain != file or library(plain) == FEEDLINE or _OURS_BELOW.fullmatch(plain):
            return _Origin(FEEDLINE, ours["tail"])
    if plain != file:
        return _Origin(FEEDLINE, f"{OPERATIONS}{plain}")
    if package := _PACKAGE.match(file):
        return _of_package(package["name"], package["tail"] or "")
    if _NO_FILE.match(file):
        return _Origin(PYTHON, file)
    if python := _PYTHON.match(file):
        return _Origin(PYTHON, python["tail"])
    return _Origin(library(file), file)


def _of_package(name: str, tail: str) -> _Origin:
    return _Origin(name, tail.removeprefix("profiler/") if name == FEEDLINE else tail)


def _is_framework(frame: StackFrame) -> bool:
    """Return whether a frame without a name of the program around it says nothing of the program."""
    return origin(frame.file).owner in _FRAMEWORKS


@dataclass(frozen=True)
class CodeFrame:
    """A frame of the program, with the libraries' frames that it called directly.

    Attributes:
        key: what tells one function from another: its file and name. The name of a lambda or of the
            module itself has its line.
        line: of it that was being executed.
        below: frames of libraries between it and the next one of the program, outermost first.
    """

    key: tuple[str, str]
    line: int
    below: tuple[StackFrame, ...] = ()

    @property
    def file(self) -> str:
        return self.key[0]

    @property
    def function(self) -> str:
        return self.key[1]


def program_frames(frames: Sequence[StackFrame]) -> list[CodeFrame]:
    """Return the frames of the program, outermost first, each function once.

    Of a recursion it is the deepest call; comprehensions belong to their function.

    Without any, the first frame of a library that is no framework, such as an installed trainer,
    counts as the program's.
    """
    own = [place for place, frame in enumerate(frames) if origin(frame.file).owner == _PROGRAM]
    # what libraries make of text, such as proxies and named tuples, where the program has files
    own = [place for place in own if frames[place].file != _OF_TEXT] or own
    if not own:
        own = [place for place, frame in enumerate(frames) if not _is_framework(frame)][:1]
    chain: list[CodeFrame] = []
    for place, after in zip(own, [*own[1:], len(frames)]):
        frame = frames[place]
        below = tuple(
            other
            for other in frames[place + 1 : after]
            if origin(other.file).owner != FEEDLINE and not _is_glue(other)
        )
        if frame.function in _INSIDE and chain and chain[-1].file == frame.file:
            outer = chain.pop()
            chain.append(CodeFrame(outer.key, frame.line, below))
        else:
            chain.append(CodeFrame((frame.file, _named(frame)), frame.line, below))
    return _without_recursion(chain)


def within_the_program(frames: Sequence[StackFrame]) -> Sequence[StackFrame]:
    """Return the frames inside of those with which feedline runs a program."""
    ours = [
        at
        for at, frame in enumerate(frames)
        if (whose := origin(frame.file)).owner == FEEDLINE and whose.tail.startswith("cli/")
    ]
    return frames[ours[-1] + 1 :] if ours else frames


def in_one_body(key: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two keys are of one function: lines of a module have a key each."""
    of_module = is_line_of_module(key) and is_line_of_module(other)
    return key == other or of_module and key[0] == other[0]


def is_line_of_module(key: tuple[str, str]) -> bool:
    """Tell whether a key is of a line of a module rather than of a function."""
    return key[1].startswith(_LINE)


def _named(frame: StackFrame) -> str:
    name = frame.function.rpartition(".")[2] if "<" not in frame.function else frame.function
    last = frame.function.rpartition(".")[2]
    if last == _LAMBDA:
        return f"lambda of line {frame.line}"
    if last == _MODULE:
        return f"{_LINE}{frame.line}"
    return name.rpartition(".")[2]


def _is_glue(frame: StackFrame) -> bool:
    """Whether a frame only passes a call on: it is no name for what takes the time."""
    return frame.file.startswith("<") and not frame.file.startswith("<frozen")


def _without_recursion(chain: Sequence[CodeFrame]) -> list[CodeFrame]:
    """Return the chain with each recursive function once, as its last call."""
    shown: dict[tuple[str, str], CodeFrame] = {}
    for frame in chain:
        if frame.key in shown:
            before = list(shown)
            for key in before[before.index(frame.key) :]:
                del shown[key]
        shown[frame.key] = frame
    return list(shown.values())


def called(below: Sequence[StackFrame]) -> str:
    """Return the name of the library's function that the program calls, such as ``json.loads``.

    Empty: none, or one in C.
    """
    if not below:
        return ""
    first = origin(below[0].file)
    module = first.owner
    if module == PYTHON:
        module = first.tail.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    if (name := _NAMES.get((first.owner, first.tail))) and below[0].function.startswith("_"):
        return name
    names = (
        frame.function.rpartition(".")[2]
        for frame in below
        if origin(frame.file).owner == first.owner
    )
    public = next((name for name in names if not _passes_on(name)), "")
    return f"{module}.{public}" if public else module


def _passes_on(name: str) -> bool:
    """Whether a function's name says little: it is private, or that of a decorator's inside."""
    return name.startswith(("_", "<")) or name in _WRAPPERS


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
