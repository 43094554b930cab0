"""What to do about it, cheapest first, each with the equal-budget control that it has to beat."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from feedline.analysis.convergence import checks, read_training, target
from feedline.analysis.convergence.advice import (
    Advice,
    AdviceCase,
    advice_for,
    fixes_of,
    for_price,
    growing_batch,
    is_adaptive,
    lower_rate,
    norm_layers,
    optimizer_kinds,
    rate_fix,
    scaled_rate,
    verdict_of,
    warmup_for,
)
from feedline.analysis.convergence.checks import STOPS
from feedline.analysis.convergence.loss_kinds import LossKind, LossVerdict, classify, group_runs
from feedline.analysis.convergence.training_record import (
    BatchPrice,
    NoiseOverTraining,
    TrainingRecord,
    entries_of,
)
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.text.formatting import number, share

# times as many epochs that are advised: beyond it, a smaller batch is the answer
_AT_MOST_LONGER = 8.0

_GHOST = 32  # samples; Hoffer and others, arXiv:1705.08741, and the acceptance table
_NOISE_SIGMA = 0.5  # sigma of the acceptance table's arm O; 1 cost 5.6 points
# batches (Wu and Johnson, arXiv:2105.07576: a few thousand samples are enough)
_RECALIBRATED_ON = 50


@dataclass(frozen=True)
class Advised:
    """What can be said of these runs.

    Attributes:
        findings: by run, mistakes in the set-up; where one of them stops, ``advice`` is empty.
        price: of the largest batch. None: its size is not known.
        noise: of the run that has the best measured noise scale.
        noise_of: that run's name.
        needs: what would have to be recorded to tell more.
    """

    runs: list[str]
    findings: list[tuple[str, Finding]]
    stopped: bool
    verdicts: list[LossVerdict]
    noise: NoiseOverTraining
    noise_of: str
    price: BatchPrice | None
    advice: list[Advice]
    needs: list[str]


def advise(runs: Sequence[TrainingRecord]) -> Advised:
    """Judge correctness, the kind of loss and the price of the batch, and advise what to try.

    Args:
        runs: one or more, of different batches or seeds.
    """
    ordered = [run for group in group_runs(runs) for run in group.runs]
    checked = [(run, checks.run_checks(run)) for run in ordered]
    findings = [(run.name, finding) for run, own in checked for finding in own]
    stopped = any(_stops_advice(finding) for _, finding in findings)
    verdicts = classify(runs)
    largest, over, of = ordered[-1], *_best_noise(checked)
    priced = target.price_batch(over, largest.batch) if largest.batch else None
    case = AdviceCase(largest, ordered[0] if len(group_runs(runs)) > 1 else None, over, priced)
    needs = list(dict.fromkeys(need for verdict in verdicts for need in verdict.needs))
    if over.value is None:
        needs.append(f"the noise scale, to judge the batch size: {over.why}")
    return Advised(
        [run.name for run in ordered],
        findings,
        stopped,
        verdicts,
        over,
        of,
        priced,
        [] if stopped else _all(case, verdicts),
        needs,
    )


def _best_noise(
    checked: Sequence[tuple[TrainingRecord, Sequence[Finding]]],
) -> tuple[NoiseOverTraining, str]:
    """Return the noise scale of the run with most measured windows.

    It is the training's, not the batch's.
    """
    scales = [(read_training.usable_noise(run, findings), run.name) for run, findings in checked]
    return max(scales, key=lambda item: sum(window.value is not None for window in item[0].windows))


def _all(case: AdviceCase, verdicts: Sequence[LossVerdict]) -> list[Advice]:
    """List each advice once, in the order of the verdicts and then of what the batch costs.

    Args:
        case: what is known of the training.
        verdicts: those of the largest batch come last.
    """
    mine = [verdict for verdict in verdicts if verdict.run == verdicts[-1].run]
    by_title: dict[str, Advice] = {}
    for verdict in mine:
        for advice in (
            _FOR[verdict.kind](replace(case, verdict=verdict)) if verdict.kind in _FOR else ()
        ):
            by_title.setdefault(advice.fix or advice.id, advice)
    for advice in (
        for_price(case) if all(verdict.kind != LossKind.INSTABILITY for verdict in mine) else ()
    ):
        by_title.setdefault(advice.fix or advice.id, advice)
    return [
        advice
        for advice in by_title.values()
        if advice.fix.partition("=")[0] not in fixes_of(case.run)
    ]


def _for_deficit(case: AdviceCase) -> Iterator[Advice]:
    """Yield advice for a large batch that makes fewer updates than it needs.

    Longer steps come first, then more of them, then better ones.
    """
    yield from scaled_rate(case)
    yield from _more_epochs(case)
    if not _has_norm(case.run):
        yield advice_for(
            case,
            "normalisation",
            "add normalization layers to the model",
            "",
            "no normalization layers were seen; with them, the model would tolerate a larger "
            "learning rate",
            control="the small batch with the same layers",
        )
    yield from _optimizer(case)
    yield from growing_batch(case)


def _for_lag(case: AdviceCase) -> Iterator[Advice]:
    yield advice_for(
        case,
        "recalibrate_bn",
        "recalibrate batch norm's running statistics on training data before evaluating",
        f"recalibrate_bn={min(_RECALIBRATED_ON, _batches_of_epoch(case.run))}",
        verdict_of(case),
        "closes the part of the gap that stale statistics cause; none if they are not stale",
    )


def _for_gap(case: AdviceCase) -> Iterator[Advice]:
    """Yield advice that adds noise.

    Only where the training data is learned as well does it have something to give.
    """
    if "BatchNorm" in " ".join(norm_layers(case.run)) and _samples_of_forward(case.run) > _GHOST:
        yield advice_for(
            case,
            "ghost_bn",
            f"use ghost batch norm over {_GHOST} samples",
            f"ghost_bn={_GHOST}",
            verdict_of(case),
        )
    yield advice_for(
        case,
        "gradient_noise",
        "add multiplicative gradient noise",
        f"gradient_noise={_NOISE_SIGMA}",
        verdict_of(case),
    )
    yield from growing_batch(case)


def _for_instability(case: AdviceCase) -> Iterator[Advice]:
    warmup = warmup_for(case.run)
    if warmup is not None:
        evidence = case.verdict.evidence if case.verdict else []
        climbs = (fact.value for fact in evidence if fact.id == "updates_before_climb")
        at = next(climbs, None)
        when = (
            f"; this one began after {share(at / case.run.updates)} of the training"
            if at is not None and case.run.updates
            else ""
        )
        gain = f"may remove a loss spike that comes early{when}"
        yield advice_for(
            case,
            "warmup",
            f"warm up the learning rate over {warmup.words}",
            warmup.setting,
            verdict_of(case),
            gain,
        )
    yield from lower_rate(case)
    yield advice_for(
        case,
        "larc",
        "try LARC, which bounds each layer's update by the norm of its weights",
        "larc=0.5",
        verdict_of(case),
        "unknown; try 3 to 5 learning rates, each three times the one before",
        control_fix=rate_fix(case)[0],
    )


_FOR = {
    LossKind.DEFICIT: _for_deficit,
    LossKind.LAG: _for_lag,
    LossKind.GAP: _for_gap,
    LossKind.INSTABILITY: _for_instability,
}


def _optimizer(case: AdviceCase) -> Iterator[Advice]:
    """Yield a layer-wise optimizer, on trial only.

    With batch norm and a good rate none beat its control.
    """
    adaptive = is_adaptive(case.run)
    name, control = (
        ("lamb=0.01", "adamw=0.01")
        if adaptive or not _has_norm(case.run)
        else ("lars=1", rate_fix(case)[0])
    )
    if name.partition("=")[0] in optimizer_kinds(case.run):
        return
    yield advice_for(
        case,
        "layerwise",
        f"try {name.split('=')[0].upper()} with 3 to 5 learning rates, each three times the one "
        f"before",
        name,
        verdict_of(case),
        "none is known where normalization and learning rate are right (Nado et al., "
        "arXiv:2102.06356)",
        control_fix=control,
    )


def _batches_of_epoch(run: TrainingRecord) -> int:
    """Return the updates in a pass over the data; where that is unknown, those of the training."""
    known = (
        run.samples_per_epoch / run.batch if run.samples_per_epoch and run.batch else run.updates
    )
    return max(1, math.ceil(known))


def _samples_of_forward(run: TrainingRecord) -> float:
    """Return samples that batch norm sees at once."""
    seen = [model["samples"] for model in entries_of(run, "batch_norms") if model.get("samples")]
    return float(max(seen)) if seen else (run.batch or 0.0) / run.ranks


def _has_norm(run: TrainingRecord) -> bool:
    """Tell whether the model has normalization.

    Unknown counts as yes, so that the advice never adds what is already there.
    """
    return bool(norm_layers(run)) or not isinstance(run.setup.get("norms"), dict)


def _more_epochs(case: AdviceCase) -> Iterator[Advice]:
    """Yield advice to train for more epochs, where a sample of this batch contributes less."""
    inflation = _inflation(case)
    if not inflation or inflation <= 1.05:
        return
    if inflation <= _AT_MOST_LONGER:
        gain = f"reaches the small batch's loss in {share(inflation / case.ratio)} of its updates"
    else:
        gain = (
            f"gets closer to the small batch's loss; reaching it needs {number(inflation)} times "
            f"the epochs: a smaller batch is better"
        )
    yield advice_for(
        case,
        "longer",
        f"train for {number(min(inflation, _AT_MOST_LONGER))} times the epochs",
        f"longer={case.run.batch:.5g}:base_batch={case.base:.5g}:critical_batch={case.noise.value:.3g}",
        f"at this batch size, a sample contributes {share(1 / inflation)} of what it "
        f"contributes in a batch of {number(case.base)}",
        gain,
        "the small batch for the same number of epochs",
    )


def _inflation(case: AdviceCase) -> float | None:
    """Return the epochs at this batch over those at the reference's, for one loss.

    (1 + B/Bc) / (1 + B0/Bc).
    """
    if not case.noise.value or case.base is None or not case.run.batch:
        return None
    return (1 + case.run.batch / case.noise.value) / (1 + case.base / case.noise.value)


def _stops_advice(finding: Finding) -> bool:
    """Tell whether nothing else should be advised before this is fixed."""
    return finding.rule_id in STOPS and finding.severity is not Severity.INFO
