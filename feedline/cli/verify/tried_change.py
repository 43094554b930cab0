"""What is tried in pairs of runs: the settings or variables of a change, and what was predicted of it.

The lines to change in the program are found by ``ast``, so that its formatting stays.
"""

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from feedline.analysis.explain.predictions import change_of
from feedline.analysis.explain.speed_trial import Recorded, Tried
from feedline.analysis.ledger.finding import Change, PredictedRate, Refused
from feedline.analysis.measure.model import Throughput
from feedline.analysis.ranks.communication import Prediction
from feedline.analysis.rules.input import page_faults, thread_oversubscription
from feedline.cli.settings import LOADER, WORKER_THREADS, Value, as_code, refuse_impossible
from feedline.cli.whatif.prediction import Replayable, change_of_settings
from feedline.profiler.errors import ScriptError


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
#: Without workers torch refuses other values of these.
_WITHOUT_WORKERS: dict[str, Value | None] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
#: Of transformers, which makes its loaders from arguments given elsewhere.
_TRAINING_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_THEIR_NAMES = {
    name: f"dataloader_{name}"
    for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
}


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
    if made_by == "transformers" and settings.keys() <= _THEIR_NAMES.keys():
        instead = (
            f"set {as_code({_THEIR_NAMES[key]: value for key, value in settings.items()})} "
            f"in TrainingArguments"
        )
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
    if made_by == "transformers":
        if not settings.keys() <= _THEIR_NAMES.keys():
            raise NoDiff("calls transformers, whose TrainingArguments have no such setting")
        call = _only(
            [call for call in calls if _called(call) in _TRAINING_ARGUMENTS],
            "calls transformers, but this file does not create exactly one TrainingArguments",
        )
        return _Target(call, {_THEIR_NAMES[name]: value for name, value in settings.items()})
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
        target = _Target(call, settings, _POSITIONAL)
        repairs = {
            name: value
            for name, value in _WITHOUT_WORKERS.items()
            if settings.get("num_workers") == 0 and name in target.given()
        }
        return _Target(call, {**repairs, **settings}, _POSITIONAL)
    passing = [call for call in here if {word.arg for word in call.keywords} >= settings.keys()]
    return _Target(
        _only(passing, f"calls no DataLoader, and nothing that takes {', '.join(settings)}"),
        settings,
    )


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
