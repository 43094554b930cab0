"""What ``feedline whatif`` and ``feedline tune`` start from: a run whose loader can be replayed."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.cli.parser import meant
from feedline.profiler.errors import ScriptError

if TYPE_CHECKING:
    from feedline.analysis.ledger.change import Change, Refused
    from feedline.analysis.ledger.facts import RuleInputs
    from feedline.analysis.measure.model import Gauge, Throughput
    from feedline.analysis.predict.limits import Predictor

_RECORD = "record the training itself with `feedline run SCRIPT`"


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
        """Of the training loader."""
        return self.facts.loader.settings if self.facts.loader else {}

    def change_of_fix(self, rule_id: str) -> "Change | Refused":
        """What the fix of a finding changes.

        Raises:
            ScriptError: the run has no finding with this id.
        """
        from feedline.analysis.explain.diagnose import diagnose
        from feedline.analysis.explain.predictions import change_of
        from feedline.analysis.ledger.change import Change, Refused

        findings = [finding.rule_id for finding in diagnose(self.facts, ())]
        if rule_id not in findings:
            named = ", ".join(findings) or "none"
            raise ScriptError(f"--fix {rule_id}: this run has no such finding{meant(rule_id, findings)}; its findings: {named}")
        change = change_of(rule_id, self.facts)
        if isinstance(change, (Change, Refused)):
            return change
        return Refused("between_ranks", f"{rule_id} is about several ranks: feedline report says what its fix would give")


def replayable(path: Path, again: bool = False) -> "Replayable | Refused":
    """Read a run.

    Args:
        again: predict settings, too, that ``feedline verify`` rejected: they are tried again.

    Returns:
        Refused: it holds no recorded loader whose settings could change.

    Raises:
        RunNotFound, RunDamaged, SchemaTooNew: there is no run, it holds several trainings, or it cannot be read.
        CeilingsDamaged: its ceilings.json cannot be read.
    """
    from feedline.analysis.explain.build import rejected_of, training_input
    from feedline.analysis.explain.build_traces import holds_traces
    from feedline.analysis.explain.pipeline import ceilings_of, place
    from feedline.analysis.ledger.change import Refused
    from feedline.profiler.store.trainings import open_run, require_one_training

    run = open_run(path)
    if holds_traces(run):
        return Refused("trace", f"a trace of another tool does not say how long each batch takes to make: {_RECORD}")
    training = require_one_training(run)
    found = training_input(training, ceilings_of(place(path, None)[0]), () if again else rejected_of(training))
    if found.facts is None or found.predictions is None:
        return Refused("no_step", f"no training step was recorded: {_RECORD}, for a few dozen steps")
    if found.facts.loader is None:
        return Refused("no_loader", "no DataLoader feeds this training, so it has no settings to change")
    return Replayable(found.facts, found.gauges, found.predictions.of, found.throughput)
