"""Every message as "x": in what is there already, and in what is made meanwhile."""

import copy
import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import feedline.analysis
from feedline.profiler.message import reworded

#: Fields that hold words for people, in whatever dataclass of the analysis they are.
WORDS = frozenset(
    "message refused fix how_to_check what why task gain control needs notes budget_notes network "
    "nccl unseen verdict headline conclusion "
    "contradictions flags left_out flop_source peak_source stopped".split()
)
#: The same in one class only; and fields of such a name that hold an identifier.
MORE = {
    "Finding": {"more", "fix_more", "condition"},
    "Why": {"more", "fix_more"},
    "Waiting": {"more"},
    "Exposed": {"more", "separate"},
    "ThroughputBound": {"name", "source"},
    "Roofline": {"nearest", "next"},
    "Traces": {"basis"},
    "Verdict": {"limit", "cause", "caveat", "condition"},
    "TraceFile": {"steps"},
    "Steps": {"how"},
    "Study": {"late"},
}
IDENTIFIERS = {
    "Advice": {"fix"},
    "Loader": {"flags"},
    "Trial": {"fix", "control", "verdict"},
    "Case": {"verdict"},
    "Finding": {"gain"},  # a rate with its kind
    "Verdict": {"gain"},
    "Report": {"verdict"},  # an object of words and figures
}
X = "x"


def words_of(cls: type) -> list[str]:
    """Names of the fields that hold words."""
    wanted = (WORDS | MORE.get(cls.__name__, set())) - IDENTIFIERS.get(cls.__name__, set())
    return [field.name for field in dataclasses.fields(cls) if field.name in wanted]


def x(value: Any) -> Any:
    """Words as "x". What says nothing goes on saying nothing."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(x, value))
    return reworded(value, X) if isinstance(value, str) and value else value


def all_x(value: Any) -> Any:
    """A copy of anything, with the words in it as "x"."""
    if isinstance(value, dict):
        return {key: all_x(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(all_x, value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    made, words = copy.copy(value), words_of(type(value))
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        object.__setattr__(made, field.name, x(item) if field.name in words else all_x(item))
    return made


def dataclasses_of_analysis() -> Iterator[type]:
    for info in pkgutil.walk_packages(feedline.analysis.__path__, "feedline.analysis."):
        module = importlib.import_module(info.name)
        for cls in vars(module).values():
            if (
                isinstance(cls, type)
                and dataclasses.is_dataclass(cls)
                and cls.__module__ == module.__name__
            ):
                yield cls


def from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the analysis makes has "x" for words from its beginning."""
    for cls in dataclasses_of_analysis():
        if words := words_of(cls):
            monkeypatch.setattr(cls, "__init__", _with_x(cls.__init__, words))


def _with_x(original: Any, words: list[str]) -> Any:
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for name in words:
            object.__setattr__(self, name, x(getattr(self, name)))

    return made
