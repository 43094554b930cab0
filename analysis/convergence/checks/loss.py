"""A loss that is lost, and updates that were thrown away."""

import numpy as np

from feedline.analysis.convergence.recorded import Curve, Recorded
from feedline.analysis.formatting import count, counted, number, share
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity

SKIPPED = 0.05
_EXPLODED = 1e6  # times the largest loss at the start, and 1: no noise, no critic's score and no sum over a larger batch rises that far
_START = 0.1  # of the updates
_FEWEST_SKIPPED = 5  # a GradScaler begins too high and skips a few updates in any healthy run


def not_finite(recorded: Recorded) -> Finding | None:
    """The loss was NaN or infinite."""
    curve = recorded.curves.get("train loss")
    bad = np.flatnonzero(~np.isfinite(curve.values)) if curve is not None else np.zeros(0, int)
    if curve is None or not len(bad):
        return None
    return Finding(
        "not_finite",
        Severity.HIGH,
        message=f"the loss was NaN or infinite {counted(len(bad), 'time')}, first after {count(int(curve.updates[bad[0]]))} updates",
        evidence=[Evidence("not_finite", "NaN or infinite values", len(bad), "values"), _last_finite(curve, int(bad[0]))],
        fix="Lower the learning rate or warm it up, clip gradients, and look for log(0), division by 0 and float16 overflow at that "
        "update.",
        how_to_check="Run that batch through the untrained model. If its loss is not finite either, the data is the cause.",
    )


def exploded(recorded: Recorded) -> Finding | None:
    """The loss is finite, and larger than at the start by orders of magnitude."""
    curve = recorded.curves.get("train loss")
    values = curve.values if curve is not None else np.zeros(0)
    if curve is None or not len(values) or not np.isfinite(values).all():
        return None
    few = max(1, int(_START * len(values)))
    first, last = float(np.abs(values[:few]).max()), float(np.median(values[-few:]))
    limit = _EXPLODED * max(first, 1.0)
    if last <= limit:
        return None
    beyond = np.flatnonzero(values > limit)
    return Finding(
        "loss_exploded",
        Severity.HIGH,
        message=f"the loss rose from at most {number(first)} (first tenth of the run) to {number(last)} (median of the last)",
        evidence=[
            Evidence("loss_at_start", "largest loss of the first tenth of the run", first, "1"),
            Evidence("loss_at_end", "loss in the last tenth, median", last, "1"),
            Evidence("update", "updates before it rose out of proportion", float(curve.updates[beyond[0]]), "updates"),
        ],
        fix="Lower the learning rate or warm it up, and clip gradients.",
        how_to_check="Train with a tenth of the learning rate. If the loss rises as far, this finding is wrong.",
    )


def _last_finite(curve: Curve, before: int) -> Evidence:
    values = curve.values[:before]
    return Evidence("loss_before", "loss before", float(values[-1]) if len(values) else float("nan"), "1")


def skipped_steps(recorded: Recorded) -> Finding | None:
    """Mixed precision threw away more than a few updates."""
    scaler = recorded.setup.get("scaler")
    skipped = scaler.get("skipped") or 0 if isinstance(scaler, dict) else 0
    tried = recorded.updates + skipped
    if skipped <= _FEWEST_SKIPPED or skipped / tried <= SKIPPED:
        return None
    return Finding(
        "skipped_steps",
        Severity.of(skipped / tried),
        message=f"GradScaler skipped {count(skipped)} of {count(tried)} updates ({share(skipped / tried)}) because gradients overflowed",
        evidence=[Evidence("skipped_share", "share of updates skipped", skipped / tried, SHARE)],
        fix="Use bfloat16 instead of float16, or warm up the learning rate.",
        how_to_check="Log scaler.get_scale(). If it falls only in the first hundred updates, this finding is wrong.",
    )
