"""What is tried in pairs of runs: the settings or variables of a change, and what was predicted of it.

The lines to change in the program are found by ``ast``, so that its formatting stays.
"""

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from feedline.analysis.explain.predictions import change_of
from feedline.analysis.explain.speed_trial import Recorded, Tried
from feedline.analysis.ledger.finding import Change, PredictedRate, Refused
from feedline.analysis.ledger.view.loader_call import (
    FIRST_WITH_LATER,
    LATER_TRAINING_ARGUMENTS,
    TRAINING_ARGUMENTS,
    TRANSFORMERS,
)
from feedline.analysis.measure.model import Throughput
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.rules.input import page_faults, thread_oversubscription
from feedline.cli.settings import LOADER, WORKER_THREADS, Value, as_code, refuse_impossible
from feedline.cli.whatif.prediction import Replayable, change_of_settings
from feedline.profiler.errors import FixError, ScriptError

_Given = TypeVar("_Given")

#: Fixes that can be applied, though what they give is not predicted.
_NOT_PREDICTED: Mapping[str, Mapping[str, Value]] = {
    thread_oversubscription.RULE_ID: {WORKER_THREADS: 1}
}
#: Without workers torch refuses other values of these.
_WITHOUT_WORKERS: dict[str, Value | None] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
#: Of transformers, which makes its loaders from arguments given elsewhere.
_TRAINING_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")


def settings_of(rule_id: str, training: Replayable) -> Mapping[str, Value]:
    """Return the settings that the fix of a finding changes.

    Raises:
        ScriptError: there is no such finding.
        FixError: its fix is more than settings.
    """
    change = training.change_of_fix(rule_id)
    if rule_id in _NOT_PREDICTED:
        return _NOT_PREDICTED[rule_id]
    if isinstance(change, Refused):
        raise FixError(
            f"feedline cannot apply the fix of {rule_id}: make the change, record the training "
            f"again, and compare both runs (feedline diff)"
        )
    if change != Change(settings=change.settings):
        raise FixError(
            f"the fix of {rule_id} is a change of the program or the machine, not of the loader's "
            f"settings: make it, record the training "
            "again, and compare both runs"
        )
    return change.settings


def environment_of(rule_id: str, training: Replayable) -> dict[str, str]:
    """Return the environment variables that a finding's fix sets; {} if it sets none.

    Raises:
        ScriptError: the run has no finding with this id.
        FixError: it does not apply to this training.
    """
    if rule_id != page_faults.RULE_ID:
        return {}
    training.change_of_fix(rule_id)
    if variables := page_faults.environment(training.facts):
        return variables
    raise FixError(
        f"the fix of {rule_id} does not apply to this training: its malloc is not glibc's or is "
        f"already configured in the environment, "
        "or the images are too large for this glibc or of unknown size"
    )


def tried(
    training: Replayable, settings: Mapping[str, Value], rule_id: str, margin: float
) -> Tried:
    """Return a change of settings, with its prediction.

    Raises:
        ScriptError: torch would refuse it, or the training was recorded with it.
    """
    refuse_impossible(settings, training.settings)
    if all(training.settings.get(name) == value for name, value in settings.items()):
        raise ScriptError(
            f"the training was recorded with {as_code(settings)} already: there is nothing to "
            f"compare"
        )
    return _tried_change(
        training, as_code(settings), _prediction(training, settings), rule_id, margin
    )


def tried_with(
    environment: Mapping[str, str], training: Replayable, rule_id: str, margin: float
) -> Tried:
    """Return a change of the environment, with the prediction of the finding's fix."""
    return _tried_change(
        training,
        as_assignments(environment),
        _of_fix(training, page_faults.RULE_ID),
        rule_id,
        margin,
    )


def _tried_change(
    training: Replayable,
    change: str,
    predicted: PredictedRate | Refused,
    rule_id: str,
    margin: float,
) -> Tried:
    return Tried(
        change=change,
        finding=rule_id,
        made_at=str(training.settings.get("made_at", "")),
        unit="samples/s" if training.facts.throughput.samples_per_s else "steps/s",
        margin=margin,
        predicted=predicted if isinstance(predicted, PredictedRate) else None,
        refused=predicted.message if isinstance(predicted, Refused) else "",
        recorded=_recorded_rate(training.throughput),
    )


def _recorded_rate(throughput: Throughput) -> Recorded | None:
    """Return the recorded rate, in the unit of the trial."""
    if throughput.of_all_ranks:
        return Recorded(throughput.of_all_ranks, throughput.low, throughput.high)
    return Recorded(throughput.steps_per_s, None, None) if throughput.steps_per_s else None


def _of_fix(training: Replayable, rule_id: str) -> PredictedRate | Refused:
    """Predict the fix of a finding of one rank."""
    change = change_of(rule_id, training.facts)
    assert not isinstance(change, Prediction)
    return training.predict(change) if isinstance(change, Change) else change


def _prediction(training: Replayable, settings: Mapping[str, Value]) -> PredictedRate | Refused:
    """Predict as ``feedline whatif`` does."""
    if settings == {WORKER_THREADS: 1}:
        return _of_fix(training, thread_oversubscription.RULE_ID)
    if unknown := [name for name in settings if name not in LOADER]:
        return Refused(
            "unknown_setting", f"the replay does not know what {', '.join(unknown)} changes"
        )
    asked = change_of_settings(settings, Change(), training.facts, None)
    return asked if isinstance(asked, Refused) else training.predict(asked.change)


def as_assignments(environment: Mapping[str, str]) -> str:
    """Return ``A=1 B=2``, as before a command."""
    return " ".join(f"{name}={value}" for name, value in environment.items())


#: Positional arguments of torch's DataLoader, in order (torch/utils/data/dataloader.py).
_POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)


class NoDiff(Exception):
    """No line can be named for sure; the message says why, and what to write instead."""


@dataclass(frozen=True)
class _Target:
    """A call to change.

    Attributes:
        arguments: its new values, by name.
        positional: names of its positional arguments.
    """

    call: ast.Call
    arguments: Mapping[str, Value | None]
    positional: tuple[str, ...] = ()

    def given(self) -> dict[str, ast.expr]:
        """Return its arguments as they are.

        Raises:
            NoDiff: they cannot all be seen.
        """
        if any(word.arg is None for word in self.call.keywords) or any(
            isinstance(value, ast.Starred) for value in self.call.args
        ):
            raise NoDiff("passes arguments by * or **, where their names cannot be seen")
        return {
            **dict(zip(self.positional, self.call.args, strict=False)),
            **{word.arg: word.value for word in self.call.keywords if word.arg},
        }


@dataclass(frozen=True)
class _Edit:
    """Bytes of a source to replace; ``begin == end`` inserts."""

    begin: int
    end: int
    new: str


def loader_diff(
    made_at: str, made_by: str, kind: str, settings: Mapping[str, Value], folder: Path = Path()
) -> str:
    """Return a diff for ``patch -p0`` and ``git apply -p0`` in a folder.

    Args:
        made_at: ``train.py:31``, relative to the folder; "": not known.
        made_by: the library which that line calls; "": it makes the loader itself.
        kind: class of the loader.
        settings: its new arguments.
        folder: the program's.

    Raises:
        NoDiff: the line is unknown, masked or cannot be changed for sure.
    """
    name, _, line = made_at.rpartition(":")
    path, instead = folder / name, f"write {kind}(..., {as_code(settings)})"
    if made_by == TRANSFORMERS:
        instead = _in_training_arguments(settings)
    if WORKER_THREADS in settings:
        raise NoDiff(_threads_in_code(settings))
    if not name or not line.isdecimal() or "***" in name:
        raise NoDiff(f"the file that makes the DataLoader is not known: {instead}")
    if path.is_symlink():
        raise NoDiff(f"{name} is a symbolic link, which patch does not follow: {instead}")
    try:
        source = path.read_bytes()
        old = source.decode()
        target = _target(ast.parse(source), int(line), made_by, kind, settings)
        new = _applied(source, _edits(source, target)).decode()
        _check_changed(new, target)
    except (OSError, SyntaxError, ValueError) as error:
        raise NoDiff(f"{name} cannot be changed ({type(error).__name__}): {instead}") from error
    except NoDiff as error:
        raise NoDiff(f"{made_at} {error}: {instead}") from error
    return _unified(name, old, new)


def _in_training_arguments(settings: Mapping[str, Value]) -> str:
    """Say what to write where transformers make the loader."""
    if _unknown_to_training_arguments(settings):
        return f"override Trainer.get_train_dataloader, and set {as_code(settings)} there"
    return f"set {as_code(_named_as_training_arguments(settings))} in TrainingArguments"


def _named_as_training_arguments(values: Mapping[str, _Given]) -> dict[str, _Given]:
    return {
        TRAINING_ARGUMENTS[name]: value
        for name, value in values.items()
        if name in TRAINING_ARGUMENTS
    }


def _unknown_to_training_arguments(settings: Mapping[str, Value]) -> list[str]:
    """Return the settings that the installed transformers cannot be given."""
    installed: tuple[int, ...] = ()
    with suppress(PackageNotFoundError):
        installed = tuple(map(int, re.findall(r"\d+", version(TRANSFORMERS))[:2]))
    missing = LATER_TRAINING_ARGUMENTS if installed < FIRST_WITH_LATER else ()
    return [name for name in settings if name in missing or name not in TRAINING_ARGUMENTS]


def _threads_in_code(settings: Mapping[str, Value]) -> str:
    """Say what to write if the threads of workers are limited."""
    threads = settings[WORKER_THREADS]
    others = {name: value for name, value in settings.items() if name != WORKER_THREADS}
    opencv = f"cv2.setNumThreads({0 if threads == 1 else threads})"
    advice = (
        f"threads are limited in code: write a worker_init_fn that calls "
        f"torch.set_num_threads({threads}) and, if used, {opencv}"
    )
    return f"{advice}, and DataLoader(..., {as_code(others)})" if others else advice


def _target(
    tree: ast.Module, line: int, made_by: str, kind: str, settings: Mapping[str, Value]
) -> _Target:
    """Find the call to change.

    Raises:
        NoDiff: there is none, or more than one.
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if made_by == TRANSFORMERS:
        if unknown := _unknown_to_training_arguments(settings):
            raise NoDiff(
                f"calls transformers, whose TrainingArguments have no {' or '.join(unknown)} in "
                f"the installed version"
            )
        call = _only(
            [call for call in calls if _called(call) in _TRAINING_ARGUMENTS],
            "calls transformers, but this file does not create exactly one TrainingArguments",
        )
        without = _named_as_training_arguments(_WITHOUT_WORKERS)
        repairs = _repairs(_Target(call, {}), settings, without)
        return _Target(call, {**repairs, **_named_as_training_arguments(settings)})
    here = [call for call in calls if call.lineno <= line <= (call.end_lineno or line)]
    loaders = [
        call
        for call in here
        if _called(call).endswith("DataLoader") or _called(call) == kind or _is_super_init(call)
    ]
    if loaders:
        call = _only(
            [call for call in loaders if call.lineno == max(other.lineno for other in loaders)],
            "makes several loaders",
        )
        repairs = _repairs(_Target(call, {}, _POSITIONAL), settings, _WITHOUT_WORKERS)
        return _Target(call, {**repairs, **settings}, _POSITIONAL)
    passing = [call for call in here if {word.arg for word in call.keywords} >= settings.keys()]
    return _Target(
        _only(passing, f"calls no DataLoader, and nothing that takes {', '.join(settings)}"),
        settings,
    )


def _repairs(
    target: _Target, settings: Mapping[str, Value], without: Mapping[str, Value | None]
) -> dict[str, Value | None]:
    """Return the given arguments that are refused without workers, with the values that are not.

    Raises NoDiff.
    """
    if settings.get("num_workers") != 0:
        return {}
    return {name: value for name, value in without.items() if name in target.given()}


def _only(calls: list[ast.Call], otherwise: str) -> ast.Call:
    """Return the only call. Raises NoDiff if there is none, or more than one."""
    if len(calls) != 1:
        raise NoDiff(otherwise)
    return calls[0]


def _called(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )


def _is_super_init(call: ast.Call) -> bool:
    """Return whether it is ``super().__init__(...)``, in a loader class of the program's own."""
    owner = (
        call.func.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
        else None
    )
    return isinstance(owner, ast.Call) and _called(owner) == "super"


def _edits(source: bytes, target: _Target) -> Iterator[_Edit]:
    """Return what to change in a call. Raises NoDiff."""
    starts, given = _line_starts(source), target.given()
    for name in given.keys() & target.arguments.keys():
        yield _Edit(*_span(starts, given[name]), repr(target.arguments[name]))
    if new := [
        f"{name}={value!r}" for name, value in target.arguments.items() if name not in given
    ]:
        yield _insertion(source, starts, target.call, new)


def _check_changed(changed: str, target: _Target) -> None:
    """Check that the call has its new arguments, and nothing else is different.

    Raises:
        NoDiff, SyntaxError: it is not so, as where the last argument stands in parentheses.
    """
    calls = [node for node in ast.walk(ast.parse(changed)) if isinstance(node, ast.Call)]
    place = (target.call.lineno, target.call.col_offset)
    for call in calls:
        if (call.lineno, call.col_offset) == place and _called(call) == _called(target.call):
            now, before = _Target(call, target.arguments, target.positional).given(), target.given()
            expected = {name: ast.dump(value) for name, value in before.items()}
            expected |= {
                name: ast.dump(ast.Constant(value)) for name, value in target.arguments.items()
            }
            if {name: ast.dump(value) for name, value in now.items()} == expected:
                return
    raise NoDiff("is written in a way that cannot be edited safely")


def _insertion(source: bytes, starts: list[int], call: ast.Call, new: list[str]) -> _Edit:
    """Put arguments behind the last one.

    They are on lines of their own if that has one, else on the same line.
    """
    arguments = [*call.args, *(word.value for word in call.keywords)]
    close = starts[(call.end_lineno or 1) - 1] + (call.end_col_offset or 1) - 1
    if not arguments:
        return _Edit(close, close, ", ".join(new))
    last = max(arguments, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    word = next((word for word in call.keywords if word.value is last), None)
    _, end = _span(starts, last)
    first = (word or last).lineno
    indent = source[starts[first - 1] : starts[first - 1] + (word or last).col_offset]
    if indent.strip() or first == call.lineno:  # something stands before it
        return _Edit(end, end, "".join(f", {argument}" for argument in new))
    line = source[starts[first - 1] : starts[first] if first < len(starts) else None]
    newline = "\r\n" if line.endswith(b"\r\n") else "\n"
    return _Edit(end, end, "".join(f",{newline}{indent.decode()}{argument}" for argument in new))


def _line_starts(source: bytes) -> list[int]:
    """Return the offset of each line, as ``ast`` counts them."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(starts: list[int], node: ast.expr) -> tuple[int, int]:
    """Return offsets of a node's first byte and of the one after its last.

    Parentheses around it are outside.
    """
    return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 1) - 1] + (
        node.end_col_offset or 0
    )


def _applied(source: bytes, edits: Iterator[_Edit]) -> bytes:
    """Apply the edits, the last one first."""
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        source = source[: edit.begin] + edit.new.encode() + source[edit.end :]
    return source


def _unified(name: str, old: str, new: str) -> str:
    """Return a unified diff.

    A last line without a newline is marked as ``patch`` wants it, and a name with blanks is ended
    by a tab.
    """
    shown = f"{name}\t" if " " in name else name
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    lines = difflib.unified_diff(before, after, shown, shown)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
