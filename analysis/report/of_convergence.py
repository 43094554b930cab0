"""What the terminal and the HTML report say of how the training got on."""

from feedline.analysis.convergence.curves import words_of_name
from feedline.analysis.convergence.training_record import ConvergenceSummary, CurvePoints
from feedline.analysis.explain.model import Report
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.text.formatting import count, counted, number, sentence
from feedline.profiler.message import ONE_GRADIENT

_MOST_CHECKS, _MOST_CURVES = 3, 2  # lines and curves of the terminal
_LEAST_EPOCHS = 0.01  # below this the dataset is endless, and epochs mean nothing
# times as many updates as steps: several optimizers take turns, and the number of steps is told as
# well
_TURNS = 2
#: Instead of the whole reason, where there is one line for it.
_NEEDS = "Noise scale: not measured; it needs several ranks or gradient accumulation."


def _progress(curve: CurvePoints) -> str:
    """Return how a curve went: ``train loss 2.26 to 1.06``, or its one value."""
    if not curve.values:
        return f"{curve.name} has no finite value"
    first, last = number(curve.values[0]), number(curve.final)
    then = (
        f" (without {counted(curve.not_finite, 'value')}: NaN or infinite)"
        if curve.not_finite
        else ""
    )
    return (
        f"{curve.name} {last}{then}"
        if len(curve.values) == 1
        else f"{curve.name} {first} to {last}{then}"
    )


def trained(made: ConvergenceSummary, steps: int, short: bool = False) -> str:
    """Return over how much it trained: ``48 updates, 3,076 samples (3.00 epochs)``.

    In short, it is one of the last two. Optimizers that take turns make several updates per step.
    """
    updates = counted(made.updates, "update")
    if 0 < _TURNS * steps <= made.updates:
        updates += f" in {count(steps)} steps"
    said = f"{updates}, {count(made.samples)} samples" if made.samples else updates
    if (
        not made.samples_per_epoch
        or not made.samples
        or made.samples < _LEAST_EPOCHS * made.samples_per_epoch
    ):
        return said
    epochs = number(made.samples / made.samples_per_epoch)
    return f"{updates if short else said} ({epochs} epoch{'' if epochs == '1.00' else 's'})"


def told_curves(made: ConvergenceSummary) -> list[CurvePoints]:
    """Return the curves worth a figure: the losses first, without the learning rate."""
    kept = [curve for curve in made.curves if curve.name != "lr"]
    return sorted(kept, key=lambda curve: "loss" not in words_of_name(curve.name))


def price(made: ConvergenceSummary) -> str:
    """Return the batch against the noise scale in a sentence, or why there is none."""
    said = (
        made.price.message
        if made.price
        else f"the noise scale is unknown: {made.noise.why}"
        if made.noise.why
        else ""
    )
    return f"{sentence(said)}." if said else ""


def own_checks(report: Report) -> list[tuple[Finding, bool]]:
    """Return what is wrong with the training's set-up.

    Each comes with whether the report's findings tell it already.
    """
    told = {finding.rule_id for finding in report.findings}
    return (
        [(finding, finding.rule_id in told) for finding in report.convergence.checks]
        if report.convergence
        else []
    )


def sentences(report: Report) -> list[str]:
    """Return how the training got on, and the batch against the noise scale; empty: nothing."""
    made = report.convergence
    if made is None or not (made.curves or made.noise.windows or made.checks):
        return []
    curves = ", ".join(_progress(curve) for curve in told_curves(made)[:_MOST_CURVES])
    text = (
        f"{trained(made, report.throughput.steps, short=True)}: "
        f"{curves or 'no metric was recorded'}."
    )
    if made.noise.value is not None or (made.price and made.price.where != "unknown"):
        scale = price(made)
    else:
        scale = _no_scale(made)
    return [text, scale] if scale else [text]


def mistakes(report: Report) -> list[str]:
    """Return what is wrong with the training's set-up, a line each."""
    return [
        f"{finding.rule_id}: {'see the findings' if told else finding.fix or finding.message}"
        for finding, told in own_checks(report)[:_MOST_CHECKS]
    ]


def _no_scale(made: ConvergenceSummary) -> str:
    if not made.noise.why:
        return ""
    return (
        _NEEDS
        if made.noise.reason == ONE_GRADIENT
        else f"Noise scale: not measured; {made.noise.why}."
    )
