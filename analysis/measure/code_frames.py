"""Whose code a sampled frame is: the program's, a library's, Python's own or feedline's."""

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


_WRAPPERS = frozenset(("wrapper", "wrapped", "inner", "decorate_context", "decorator"))
#: Functions whose names alone say nothing: file of a library -> what calls them.
_NAMES = {
    ("pandas", "core/indexing.py"): "pandas.DataFrame.iloc",
    ("pandas", "core/series.py"): "pandas.Series",
    ("pandas", "core/frame.py"): "pandas.DataFrame",
    (PYTHON, "_strptime.py"): "datetime.strptime",
}


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
