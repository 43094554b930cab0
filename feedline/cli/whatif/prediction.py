"""What a prediction starts from: a run whose loader can be replayed, and the change."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.analysis.explain.predictions import joined
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, Factor, Refused
from feedline.analysis.ledger.view import loader_call
from feedline.analysis.ledger.view.cpus import crowded
from feedline.analysis.text.formatting import seconds, size
from feedline.cli.parser import suggestion
from feedline.cli.settings import LOADER, Value, as_code, as_typed
from feedline.profiler.errors import ScriptError

if TYPE_CHECKING:
    from feedline.analysis.ledger.facts import RuleInputs
    from feedline.analysis.ledger.finding import Change, Refused
    from feedline.analysis.measure.model import Gauge, Throughput
    from feedline.analysis.predict.limits import Predictor
    from feedline.analysis.predict.search import Memory

#: Settings whose effect no recording holds -> why, and what would measure it.
_UNKNOWN = {
    "pin_memory": "copying from pinned memory depends on the device, and was not measured: "
    "feedline verify RUN --set pin_memory=VALUE -- SCRIPT runs the training both ways",
    "batch_size": "the recording does not show how long a step with another batch size takes, and "
    "a larger batch also changes how the "
    "training converges: feedline verify RUN --set batch_size=VALUE -- SCRIPT measures the speed, "
    "and feedline probe --model MODULE:NAME "
    "--parts sweep that of the model alone",
    "image_size": "another size also changes what reading and augmenting cost: resize a part of "
    "the dataset, and record the training "
    "with it",
    "store": "reading another store depends on the disk and on its cache: feedline pack makes one "
    "to record the training with",
    "device": "the recording does not show how long a step takes on another device: record a few "
    "dozen steps there with feedline run",
}
#: Of the loader as recorded, where torch would refuse them without workers -> torch's default.
_DROPPED = {"prefetch_factor": 2, "persistent_workers": False}
_OTHER_INPUT = (
    "{} returns a different image type than the transforms get now; the cost of "
    "adapting them is not predicted."
)
_RECORD_ADVICE = "record the training itself with `feedline run SCRIPT`"


@dataclass(frozen=True)
class _SettingsChange:
    """A change that can be replayed.

    Attributes:
        extremes: the same with a measured part at both ends of its spread.
        workers: with it.
        line: of the program, to change; empty where none is.
        remarks: on side effects, and on what was measured.
    """

    change: Change
    extremes: tuple[Change, ...]
    workers: int
    line: str
    remarks: tuple[str, ...]


def change_of_settings(
    asked: Mapping[str, Value], fix: Change, facts: RuleInputs, data: Path | None
) -> _SettingsChange | Refused:
    """Return what settings change.

    Args:
        asked: setting -> value.
        fix: of a finding, made at the same time.
        facts: of the loader and its step.
        data: the user's images, to measure a decoder.

    Raises:
        ScriptError: there is no such decoder.
        DataError, MissingDependency: the images cannot be used.
    """
    for name, why in _UNKNOWN.items():
        if name in asked:
            return Refused(f"unknown_{name}", f"{as_typed({name: asked[name]})}: {why}")
    measured = (
        _MeasuredStage()
        if "decode" not in asked
        else _measured_decoder(str(asked["decode"]), facts, data)
    )
    if isinstance(measured, Refused):
        return measured
    settings = {
        name: value for name, value in asked.items() if name in LOADER and isinstance(value, int)
    }
    cores = asked.get("cores")
    cpus = None if cores is None else float(cores)
    change, *extremes = [
        joined([Change(settings, stages, cpus=cpus), fix]) for stages in measured.stages
    ]
    line = loader_call.line_to_change(facts, settings) if settings else ""
    workers = settings.get("num_workers", facts.setting("num_workers", 0))
    remarks = (*measured.remarks, *_side_effects(settings, facts))
    return _SettingsChange(
        change, tuple(extremes), workers if isinstance(workers, int) else 0, line, remarks
    )


def _side_effects(settings: Mapping[str, int | bool], facts: RuleInputs) -> Iterator[str]:
    """Say what else the settings do, or need."""
    workers, now = settings.get("num_workers", 0), facts.setting("num_workers", 0)
    if isinstance(now, int) and workers > now and (held := crowded(facts)):
        yield held
    if settings.get("in_order") is False:
        yield (
            "in_order=False changes the order of batches, and so the course of the training "
            "from run to run."
        )
    explicit = {
        name: value
        for name, usual in _DROPPED.items()
        if isinstance(value := facts.setting(name), (int, bool)) and value not in (usual, None)
    }
    if settings.get("num_workers") == 0 and explicit:
        yield (
            f"Without workers, torch refuses {as_code(explicit)}: remove "
            f"{'it' if len(explicit) == 1 else 'them'}."
        )


@dataclass(frozen=True)
class _MeasuredStage:
    """What was measured of one stage.

    Attributes:
        stages: stage -> factor: as measured, and at both ends of the spread. Empty where nothing
            was asked for.
        remarks: on the measurement.
    """

    stages: tuple[dict[str, Factor], ...] = ({},)
    remarks: tuple[str, ...] = ()


def _measured_decoder(name: str, facts: RuleInputs, data: Path | None) -> _MeasuredStage | Refused:
    """Measure another decoder on the user's files, in this process.

    Raises:
        ScriptError: there is no such decoder.
        DataError, MissingDependency: the images cannot be used.
    """
    from feedline.pipelines.probes import decoders

    new = decoders.find_decoder(name)
    operations = facts.workers.operations if facts.workers else []
    now = decoders.recorded_decoder(
        [operation.name for operation in operations if operation.stage == "decode"]
    )
    if now is None:
        return Refused(
            "decoder_not_seen",
            f"decode={name}: which decoder this training uses was not recorded, so nothing can be "
            f"compared",
        )
    if now == new:
        return Refused(
            "same_decoder", f"decode={name}: this training decodes with {new.name} already"
        )
    if data is None:
        return Refused(
            "no_data",
            f"decode={name}: {new.name} has to be measured on your own files: add --data DIR",
        )
    measured = decoders.compare_decoders(
        now, new, data, facts.workers.decoded_pixels if facts.workers else None
    )
    if isinstance(measured, str):
        return Refused("not_measured", f"decode={name}: {measured.rstrip('.')}")
    remark = (
        f"Measured on {measured.files} files: {now.name} decodes one in {seconds(measured.now_s)} "
        f"of CPU time, {new.name} in "
        f"{seconds(measured.then_s)}; pixels differ from Pillow's by {measured.grey_levels:.2f} "
        f"of 255 gray levels on average."
    )
    factors = (measured.then_s / measured.now_s, measured.low, measured.high)
    return _MeasuredStage(
        tuple({"decode": Factor(cpu=factor)} for factor in factors),
        (remark, _OTHER_INPUT.format(new.name)),
    )


@dataclass(frozen=True)
class Replayable:
    """A recorded training.

    Attributes:
        facts: of its loader and its step.
        predict: its throughput with a change.
        throughput: as measured.
    """

    facts: "RuleInputs"
    gauges: "list[Gauge]"
    predict: "Predictor"
    throughput: "Throughput"

    @property
    def settings(self) -> dict[str, object]:
        """Return the settings of the training loader."""
        return self.facts.loader.settings if self.facts.loader else {}

    @property
    def memory(self) -> "Memory":
        """Return what a worker and a batch take, as recorded.

        A worker takes at most what a process of the training took on average: pages that workers
        share with the main process, which is the largest, count for each.
        """
        from feedline.analysis.predict.search import Memory

        total_bytes = self._gauge("memory/processes_anonymous", max)
        workers = self.facts.setting("num_workers", 0)
        worker_bytes = (
            total_bytes / (1 + workers)
            if total_bytes is not None and isinstance(workers, int)
            else None
        )
        return Memory(worker_bytes, self.facts.loader.batch_bytes if self.facts.loader else None)

    @property
    def room(self) -> tuple[float | None, float | None]:
        """Return the memory, and of it /dev/shm, that workers and their batches may take, B.

        That is what was free, and what those of the recording took. None: not recorded.
        """
        from feedline.analysis.predict.search import recorded_settings

        memory, now = self.memory, recorded_settings(self.settings)
        available, free = self._available(), self._gauge("shm/free", min)
        return (
            None if available is None else available + (memory.of(now) or 0.0),
            None if free is None else free + memory.shared_of(now),
        )

    def memory_remark(self, changed: Mapping[str, Value]) -> str:
        """Say that workers and batches with these settings may not fit into memory; "": they may."""
        from feedline.analysis.predict.search import recorded_settings

        loader = {name: value for name, value in changed.items() if isinstance(value, int)}
        settings, (room, shared) = {**recorded_settings(self.settings), **loader}, self.room
        takes, batches = self.memory.of(settings), self.memory.shared_of(settings)
        if room is not None and takes is not None and takes > room:
            return (
                f"Its workers and their batches may take {size(takes)} of memory, and only "
                f"{size(room)} were free for them."
            )
        if shared is not None and batches > shared:
            return (
                f"Its batches may take {size(batches)} of /dev/shm, and only "
                f"{size(shared)} were free for them."
            )
        return ""

    def _available(self) -> float | None:
        """Return bytes left of the machine's memory, or of the control group's if fewer are."""
        rooms = [self._gauge("memory/available", min)]
        used = self._gauge("cgroup/memory", max)
        limit = self._gauge("cgroup/memory_limit", min)
        if used is not None and limit is not None:
            rooms.append(max(limit - used, 0.0))
        return min((room for room in rooms if room is not None), default=None)

    def _gauge(self, name: str, choose: Callable[[list[float]], float]) -> float | None:
        """Return a figure of a gauge of the run; None: it was not sampled."""
        values: list[float] = next(
            (gauge.values for gauge in self.gauges if gauge.name == name), []
        )
        return choose(values) if values else None

    def supposed_of_fix(self, rule_id: str) -> str:
        """Return what a prediction of a finding's fix supposes; empty: the fix, as it stands."""
        from feedline.analysis.explain.diagnose import diagnose
        from feedline.analysis.rules import BY_ID

        named = next((one for one in diagnose(self.facts) if one.rule_id == rule_id), None)
        if named is None or named.names_known_call or not BY_ID[rule_id].predicting:
            return ""
        return f"Predicted {BY_ID[rule_id].predicting}."

    def change_of_fix(self, rule_id: str) -> "Change | Refused":
        """Return what the fix of a finding changes.

        Raises:
            ScriptError: the run has no finding with this id.
        """
        from feedline.analysis.explain.diagnose import diagnose
        from feedline.analysis.explain.predictions import change_of
        from feedline.analysis.ledger.finding import Change, Refused

        findings = [finding.rule_id for finding in diagnose(self.facts, ())]
        if rule_id not in findings:
            named = ", ".join(findings) or "none"
            raise ScriptError(
                f"--fix {rule_id}: this run has no such finding{suggestion(rule_id, findings)}; "
                f"its findings: {named}"
            )
        change = change_of(rule_id, self.facts)
        if isinstance(change, (Change, Refused)):
            return change
        return Refused(
            "between_ranks",
            f"{rule_id} is about several ranks: feedline report says what its fix would give",
        )


def replayable(path: Path, again: bool = False) -> "Replayable | Refused":
    """Read a run.

    Args:
        path: the run folder.
        again: whether to predict settings that ``feedline verify`` rejected, too: they are tried
            again.

    Returns:
        Refused: it holds no recorded loader whose settings could change.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: there is no run, it holds several trainings, or it
            cannot be read.
        CeilingsDamaged: its ceilings.json cannot be read.
    """
    from feedline.analysis.explain.reports_of_run import (
        ceilings_of,
        holds_traces,
        place,
        rejected_of,
        training_input,
    )
    from feedline.analysis.ledger.finding import Refused
    from feedline.profiler.store.trainings import open_run, require_one_training

    run = open_run(path)
    if holds_traces(run):
        return Refused(
            "trace",
            f"a trace of another tool does not say how long each batch takes to make: "
            f"{_RECORD_ADVICE}",
        )
    training = require_one_training(run)
    inputs = training_input(
        training, ceilings_of(place(path, None)[0]), () if again else rejected_of(training)
    )
    if inputs.facts is None or inputs.predictions is None:
        return Refused(
            "no_step", f"no training step was recorded: {_RECORD_ADVICE}, for a few dozen steps"
        )
    if inputs.facts.loader is None:
        return Refused(
            "no_loader", "no DataLoader feeds this training, so it has no settings to change"
        )
    return Replayable(inputs.facts, inputs.gauges, inputs.predictions.of, inputs.throughput)
