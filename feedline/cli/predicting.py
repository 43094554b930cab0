"""What ``feedline whatif`` and ``feedline tune`` start from: a run whose loader can be replayed."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.parser import meant
from feedline.profiler.errors import ScriptError

if TYPE_CHECKING:
    from feedline.analysis.facts import RuleInputs
    from feedline.analysis.model import Gauge
    from feedline.analysis.predict.change import Refused
    from feedline.analysis.predict.limits import Predictor

RECORD = "record the training itself: feedline run SCRIPT"


@dataclass(frozen=True)
class Replayable:
    """A recorded training.

    Attributes:
        facts: of its loader and its step.
        predict: its throughput with a change.
    """

    facts: "RuleInputs"
    gauges: "list[Gauge]"
    predict: "Predictor"

    @property
    def settings(self) -> dict[str, object]:
        """Of the training loader."""
        return self.facts.loader.settings if self.facts.loader else {}

    def change_of_fix(self, rule_id: str) -> "dict[str, int | bool] | Refused":
        """Settings that the fix of a finding changes.

        Raises:
            ScriptError: the run has no such finding.
        """
        from feedline.analysis.diagnose import diagnose
        from feedline.analysis.predict.change import Refused

        findings = {finding.rule_id: finding for finding in diagnose(self.facts, ())}
        if rule_id not in findings:
            named = ", ".join(findings) or "none"
            raise ScriptError(f"--fix {rule_id}: this run has no such finding{meant(rule_id, findings)}; its findings: {named}")
        changed = findings[rule_id].settings
        why = f"the fix of {rule_id} is not a setting of the DataLoader, and what it gives cannot be replayed"
        return dict(changed) if changed else Refused("not_a_setting", why)


def replayable(path: Path) -> "Replayable | Refused":
    """Read a run.

    Returns:
        Refused: it has no loader whose settings could change, or cannot be replayed.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: there is no run, it holds several trainings, or it cannot be read.
    """
    from feedline.analysis.build import training_input
    from feedline.analysis.build_traces import holds_traces
    from feedline.analysis.predict.change import Refused
    from feedline.analysis.predict.replay_of import predict, recorded_input
    from feedline.profiler.store.opening import open_run
    from feedline.profiler.store.parts import only

    run = open_run(path)
    if holds_traces(run):
        return Refused("trace", f"a trace of another tool does not say how long each batch takes to make: {RECORD}")
    found = training_input(only(run))
    if found.facts is None:
        return Refused("no_step", f"no training step was recorded: {RECORD}, for a few dozen steps")
    recorded = recorded_input(found.shown, found.facts)
    if isinstance(recorded, Refused):
        return recorded
    return Replayable(found.facts, found.gauges, partial(predict, recorded))
