"""Build the one object that every report is drawn from.

recorded_report
    measure          records -> what each rank did, and the facts that rules read (measured.py)
    _predictions_of  limits (roofline.py), which predictions keep to (predictions.py)
    diagnose         findings in their order (diagnose.py, order.py), each held against the limits (next_limit.py)
    verdict          what holds the run back, in a sentence (verdict.py)
"""

import dataclasses
from collections.abc import Sequence

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.gain import with_gains
from feedline.analysis.explain.measured import Measurement, measure
from feedline.analysis.explain.model import Report, Roofline, Verdict
from feedline.analysis.explain.next_limit import cap_at_next_limit
from feedline.analysis.explain.predictions import Predictions, of_recording, unknown_input
from feedline.analysis.explain.roofline import roofline
from feedline.analysis.explain.tried import Trial, rejected
from feedline.analysis.explain.verdict import of_finding, verdict
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, PredictedRate
from feedline.analysis.ledger.view.cpus import contended
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.measure.model import Gauge, Throughput
from feedline.analysis.measure.rank_metrics import RankMetrics
from feedline.analysis.ranks.comparison import NO_HINTS, NetworkHints
from feedline.analysis.rules import BY_ID
from feedline.analysis.rules.input import no_batch
from feedline.analysis.rules.loop import killed_worker
from feedline.profiler.ceilings import Ceilings
from feedline.profiler.store.run_folder import Run
from feedline.profiler.store.segment import WINDOW


def recorded_report(
    run: Run, ceilings: Ceilings | None = None, hints: NetworkHints = NO_HINTS
) -> Report:
    """Read a run and say what it did and what holds it back.

    Args:
        run: an open run folder.
        ceilings: what the parts of the machine can do, for the roofline and the network.
        hints: what is known about the network.

    Raises:
        RunDamaged: the records of every rank's training process are missing.
    """
    read = measure(run, ceilings, hints)
    if read.facts is None:
        none = killed_worker.found(read.killed) or no_batch.found(
            read.end, read.run.loaders, read.run.run
        )
        said = of_finding(none, "" if none else _unknown(read.shown))
        return _report(read, said, [none] if none else [])
    predictions = _predictions_of(read, read.facts, ceilings, rejected_of(run))
    checks = read.run.convergence.checks if read.run.convergence else []
    findings = cap_at_next_limit(
        diagnose(read.facts, checks, predictions), predictions.limits, read.facts.step.mean_s
    )
    if read.ended_badly:
        findings = [_without_more(finding, read.facts) for finding in findings]
    beside_others = contended(read.facts) and not read.facts.on_gpu
    findings = with_gains(
        findings,
        read.run.throughput,
        read.run.step,
        beside_others,
        read.facts.all_steps_s,
        workers=_workers(read.facts),
    )
    together = predictions.together(findings)
    return _report(read, verdict(findings, read.facts), findings, predictions.limits, together)


def _unknown(shown: RankMetrics) -> str:
    """Return why nothing is known of the steps of a rank."""
    why = (
        f"Steps are longer than the windows of {WINDOW} batches that were kept"
        if shown.main.stride > 1 and shown.steps is not None
        else "No training step was recorded"
    )
    return f"{why}, so what limits the training is unknown."


def _workers(facts: RuleInputs) -> tuple[int, float] | None:
    """Return how many workers make batches, and the share of the time in which they do."""
    number, made = num_workers(facts), facts.workers
    return (number, (made.busy_share if made else None) or 1.0) if number else None


def _report(
    read: Measurement,
    said: Verdict,
    findings: list[Finding],
    limits: Roofline | None = None,
    together: PredictedRate | None = None,
) -> Report:
    """Return the report; of a run that hung, why that was comes before all else."""
    if read.hang is not None:
        said = of_finding(read.hang.finding, read.hang.limit, read.hang.cause, said.caveat)
        findings = [read.hang.finding, *findings]
    return Report.of(read.run, said, findings, limits, together)


def rejected_of(run: Run) -> list[Trial]:
    """Return the trials that rejected settings of this training.

    There are none if the process ran several, because trials do not say which.
    """
    return rejected(run.path) if run.part is None else []


def _predictions_of(
    read: Measurement, facts: RuleInputs, ceilings: Ceilings | None, tried: Sequence[Trial]
) -> Predictions:
    """Return predictions for a run, held against its limits.

    They are those of its report, of ``whatif`` and of ``tune``. A rate is compared with limits of
    the input: how long steps wait for it must be known.

    Args:
        tried: trials that rejected settings, which are not predicted.
    """
    known = not facts.loader_elsewhere and unknown_input(facts) is None
    limits = roofline(read.run, ceilings) if known else None
    return of_recording(read.shown, facts, read.run.throughput.of_all_ranks, limits, tried)


def _without_more(finding: Finding, facts: RuleInputs) -> Finding:
    """Return the finding without its fix, where that is another recording.

    This run cannot simply be made longer, and the headline says why.
    """
    rule = BY_ID.get(finding.rule_id)
    if rule is None or not rule.asks_for_more or (rule.names_error and facts.failed):
        return finding
    return dataclasses.replace(finding, fix="")


@dataclasses.dataclass(frozen=True)
class TrainingInput:
    """What a prediction starts from.

    Attributes:
        shown: the rank that a report shows.
        facts: its training loader and its step; None: it made no step.
        throughput: of all its ranks.
        predictions: of that; None: it made no step.
    """

    shown: RankMetrics
    facts: RuleInputs | None
    gauges: list[Gauge]
    throughput: Throughput
    predictions: Predictions | None


def training_input(
    run: Run, ceilings: Ceilings | None = None, tried: Sequence[Trial] = ()
) -> TrainingInput:
    """Read what ``recorded_report`` reads, without its findings. Errors as there.

    Args:
        tried: trials that rejected settings, which are then not predicted.
    """
    read = measure(run, ceilings)
    predictions = _predictions_of(read, read.facts, ceilings, tried) if read.facts else None
    return TrainingInput(read.shown, read.facts, read.run.gauges, read.run.throughput, predictions)
