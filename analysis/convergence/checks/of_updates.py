"""Checks of what was recorded of updates: losses, and gradients of parts and of the whole."""

import numpy as np
import numpy.typing as npt

from feedline.analysis.convergence.training_record import Curve, TrainingRecord
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NUMBER, PART, PERCENT, Sentence

_SKIPPED_SHARE = 0.05
# times the largest loss at the start, and 1: no noise, no critic's score and no sum over a larger
# batch rises that far
_EXPLODED_TIMES = 1e6
_START_SHARE = 0.1  # of the updates
_MIN_SKIPPED_UPDATES = 5  # a GradScaler begins too high and skips a few updates in any healthy run
#: Equal gradients differ by the rounding of float32 sums only: a norm of 12 million elements was
#: 5e-5 off on a CPU, of their own each.
_SAME_GRADIENT = 2e-4
_MIN_EQUAL_UPDATES = 3  # updates, below which luck could make gradients alike
_NOT_FINITE = Sentence(
    "the loss was NaN or infinite {times}, first after {updates} updates", times=PART, updates=COUNT
)
_ROSE = Sentence(
    "the loss rose from {first} at the start to {last} at the end", first=NUMBER, last=NUMBER
)
_TENTHS = "that is the largest loss of the first tenth of the run and the median of the last tenth"
_WARM_UP = "Lower the learning rate or warm it up, and clip gradients."
_LOOK_FOR = "At that update, look for log(0), division by 0 and float16 overflow."
_SKIPPED = Sentence(
    "GradScaler skipped {part} of {updates} updates because gradients overflowed",
    part=PERCENT,
    updates=COUNT,
)
_SAME = Sentence("{who} the same samples", who=PART)
_SAME_NORM = Sentence(
    "the gradient of one {part} has the same squared norm as the mean gradient of all", part=PART
)
_SAME_RATIO = Sentence(
    "their ratio was 1.000 in all {updates} updates compared, and would be larger with different "
    "samples",
    updates=COUNT,
)
_REPEATS = Sentence("the batch of all {parts} only repeats the samples of one", parts=PART)
_DIFFERENT = Sentence("{parts} times as many different samples per update", parts=COUNT)
_NEW_MICRO_BATCH = ["Draw a new micro-batch for each backward."]
_OWN_SAMPLES = [
    "Give each rank its own samples: sampler=DistributedSampler(dataset) instead of shuffle=True.",
    "Call sampler.set_epoch(epoch) before each epoch.",
    "An IterableDataset has to divide its samples among the ranks itself.",
]
#: A library of loaders or of streams -> how its ranks get samples of their own.
_OWN_SAMPLES_OF = {
    "DALI": ["Give the pipeline's reader shard_id=rank and num_shards=world_size."],
    "Grain": [
        "Give each rank its part of the data: dataset[rank::world_size], before shuffle().",
        "Of a grain.DataLoader, give the sampler shard_options=ShardOptions(rank, world_size).",
    ],
    "Ray Data": [
        "Give each rank its part of the data: with Ray Train, ray.train.get_dataset_shard().",
        "Without it, ds.split(world_size, equal=True)[rank] after the same shuffle seed on all ranks.",
    ],
    "torchdata.nodes": [
        "Give each rank its part: MapStyleWrapper(dataset, DistributedSampler(dataset)).",
        "Of a stream, let its node read only each world_size-th file or sample.",
    ],
    "torchrl": [
        "Fill each rank's replay buffer with its own samples.",
        "If all hold the same, seed the buffer's sampler with the rank.",
    ],
    "datasets": [
        "Call datasets.distributed.split_dataset_by_node(dataset, rank, world_size).",
        "Call dataset.set_epoch(epoch) before each epoch of a stream.",
    ],
    "litdata": ["Make the StreamingDataset after init_process_group: it splits itself then."],
    "streaming": ["Start the ranks with torchrun or composer: the stream splits itself by RANK."],
    "webdataset": ["Add wds.split_by_node to the pipeline, before wds.split_by_worker."],
}
_SUMMED = Sentence("gradients are summed over the {ranks} ranks instead of averaged", ranks=COUNT)
_LONGER = Sentence(
    "|g_whole|^2 is {times} times |g_part|^2, and a mean is never longer than its parts",
    times=NUMBER,
)
_MULTIPLIES = Sentence("with SGD, that multiplies the learning rate by {ranks}", ranks=COUNT)
_AVERAGE = "Average instead: ReduceOp.AVG or grad.div_(world_size)."
_DIVIDE = Sentence(
    "With SGD without weight decay or clipping, dividing the learning rate by {ranks} works as "
    "well.",
    ranks=COUNT,
)


def not_finite(recorded: TrainingRecord) -> Finding | None:
    """Find a loss that was NaN or infinite."""
    curve = recorded.curves.get("train loss")
    bad = np.flatnonzero(~np.isfinite(curve.values)) if curve is not None else np.zeros(0, int)
    if curve is None or not len(bad):
        return None
    return Finding(
        "not_finite",
        Severity.HIGH,
        message=_NOT_FINITE(times=counted(len(bad), "time"), updates=int(curve.updates[bad[0]])),
        evidence=[
            Evidence("not_finite", "NaN or infinite values", len(bad), "values"),
            _last_finite(curve, int(bad[0])),
        ],
        fix=_WARM_UP,
        fix_more=[_LOOK_FOR],
        how_to_check="Run that batch through the untrained model. If its loss is not finite "
        "either, the data is the cause.",
        gives="a loss that stays finite",
    )


def exploded(recorded: TrainingRecord) -> Finding | None:
    """Find a loss that is finite, and larger than at the start by orders of magnitude."""
    curve = recorded.curves.get("train loss")
    values = curve.values if curve is not None else np.zeros(0)
    if curve is None or not len(values) or not np.isfinite(values).all():
        return None
    few = max(1, int(_START_SHARE * len(values)))
    first, last = float(np.abs(values[:few]).max()), float(np.median(values[-few:]))
    limit = _EXPLODED_TIMES * max(first, 1.0)
    if last <= limit:
        return None
    beyond = np.flatnonzero(values > limit)
    return Finding(
        "loss_exploded",
        Severity.HIGH,
        message=_ROSE(first=first, last=last),
        more=[_TENTHS],
        evidence=[
            Evidence("loss_at_start", "largest loss of the first tenth of the run", first, "1"),
            Evidence("loss_at_end", "loss in the last tenth, median", last, "1"),
            Evidence(
                "update",
                "updates before it rose out of proportion",
                float(curve.updates[beyond[0]]),
                "updates",
            ),
        ],
        fix=_WARM_UP,
        how_to_check="Train with a tenth of the learning rate. If the loss rises as far, this "
        "finding is wrong.",
        gives="a loss that does not explode",
    )


def _last_finite(curve: Curve, before: int) -> Evidence:
    values = curve.values[:before]
    return Evidence(
        "loss_before", "loss before", float(values[-1]) if len(values) else float("nan"), "1"
    )


def skipped_steps(recorded: TrainingRecord) -> Finding | None:
    """Find that mixed precision threw away more than a few updates."""
    scaler = recorded.setup.get("scaler")
    skipped = scaler.get("skipped") or 0 if isinstance(scaler, dict) else 0
    tried = recorded.updates + skipped
    if skipped <= _MIN_SKIPPED_UPDATES or skipped / tried <= _SKIPPED_SHARE:
        return None
    return Finding(
        "skipped_steps",
        Severity.of(skipped / tried),
        message=_SKIPPED(part=skipped / tried, updates=tried),
        evidence=[Evidence("skipped_share", "share of updates skipped", skipped / tried, SHARE)],
        fix="Use bfloat16 instead of float16, or warm up the learning rate.",
        how_to_check="Log scaler.get_scale(). If it falls only in the first hundred updates, this "
        "finding is wrong.",
    )


def _usable(recorded: TrainingRecord) -> npt.NDArray[np.bool_]:
    """Return rows with two norms to compare: bool [n]."""
    norms = recorded.norms
    if norms is None or norms.parts < 2:
        return np.zeros(0, bool)
    return (
        np.isfinite(norms.small_sq)
        & np.isfinite(norms.big_sq)
        & (norms.big_sq > 0)
        & (norms.small_sq > 0)
    )


def _ratio_of(recorded: TrainingRecord) -> FloatArray:
    """Return |g_part|^2 / |g_whole|^2 of each update where both are known."""
    kept = _usable(recorded)
    if recorded.norms is None or not len(kept):
        return np.zeros(0)
    return np.asarray(recorded.norms.small_sq[kept] / recorded.norms.big_sq[kept], float)


def parts_agree(recorded: TrainingRecord) -> bool | None:
    """Tell whether the gradient of a part equals that of the whole, update for update.

    None: too few of them are known.
    """
    ratio = _ratio_of(recorded)
    if len(ratio) < _MIN_EQUAL_UPDATES:
        return None
    return float(np.abs(ratio - 1).max()) <= _SAME_GRADIENT


def same_data(recorded: TrainingRecord) -> Finding | None:
    """Find that the gradient of a part equals that of the whole, update for update."""
    if not parts_agree(recorded):
        return None
    ratio = _ratio_of(recorded)
    assert recorded.norms is not None
    micro = recorded.norms.how == "accumulation"
    ranks = "both ranks" if recorded.norms.parts == 2 else f"all {recorded.norms.parts} ranks"
    part, plural = ("micro-batch", "es") if micro else ("rank", "s")
    who = "the micro-batches of an update hold" if micro else f"{ranks} train on"
    of_ranks = _OWN_SAMPLES_OF.get(recorded.library, _OWN_SAMPLES)
    fix, *others = _NEW_MICRO_BATCH if micro else of_ranks
    return Finding(
        "same_data",
        Severity.HIGH,
        message=_SAME(who=who),
        more=[
            _SAME_NORM(part=part),
            _SAME_RATIO(updates=len(ratio)),
            _REPEATS(parts=f"{part}{plural}"),
        ],
        evidence=[
            Evidence(
                "part_over_mean", "|g_part|^2 / |g_mean|^2, median", float(np.median(ratio)), "1"
            ),
            Evidence(
                "largest_distance", "largest deviation from 1", float(np.abs(ratio - 1).max()), "1"
            ),
            Evidence("updates", "updates", len(ratio), "updates"),
        ],
        fix=fix,
        fix_more=others,
        how_to_check="Print the sample indices that each rank or micro-batch uses in one update. "
        "If they differ, this finding is wrong.",
        gives=_DIFFERENT(parts=recorded.norms.parts),
    )


def sum_not_mean(recorded: TrainingRecord) -> Finding | None:
    """Find that the gradient of the whole is longer than its parts'.

    By Jensen's inequality a mean is not: |mean g|^2 <= mean |g|^2.
    """
    ratio = _ratio_of(recorded)
    norms = recorded.norms
    if (
        norms is None
        or norms.how == "accumulation"
        or len(ratio) < _MIN_EQUAL_UPDATES
        or norms.parts < 2
    ):
        return None  # whether the program divides the losses of micro-batches is unknown
    kept = _usable(recorded)
    longer = float(norms.big_sq[kept].mean() / norms.small_sq[kept].mean())
    # a sum of parts with gradients all noise is as many times as long (squared) as there are parts,
    # one without noise that times more; three quarters leave room for parts that were not all seen
    if longer < max(0.75 * norms.parts, 1.1):
        return None
    return Finding(
        "sum_not_mean",
        Severity.HIGH,
        message=_SUMMED(ranks=norms.parts),
        more=[_LONGER(times=longer), _MULTIPLIES(ranks=norms.parts)],
        evidence=[
            Evidence("whole_over_part", "|g_whole|^2 / |g_part|^2", longer, "1"),
            Evidence("parts", "parts", norms.parts, "parts"),
        ],
        fix=_AVERAGE,
        fix_more=[_DIVIDE(ranks=norms.parts)],
        how_to_check="If the loss is a sum over samples by design and the learning rate is tuned "
        "for it, this finding is wrong.",
        gives="the learning rate that was set",
    )
