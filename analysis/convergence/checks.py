"""Checks of how a training is set up, before its batch size is judged.

There is one small function per mistake.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.convergence.training_record import Curve, TrainingRecord
from feedline.analysis.formatting import counted
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.sentences import COUNT, NAME, NUMBER, PART, PERCENT, Sentence

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
#: A schedule may be off by a ragged batch or an epoch; the batch that grew makes it off by the
#: factor that it grew by.
_TOO_LONG, _TOO_SHORT = 1.5, 0.67
_MIN_SCHEDULER_STEPS = 5  # of a scheduler; fewer are a trial run
#: Schedulers that go on at what they came to where their steps are over, so that ending early is
#: meant.
_SCHEDULERS_THAT_STAY = {
    "LinearLR",
    "ConstantLR",
    "StepLR",
    "MultiStepLR",
    "PolynomialLR",
    "SequentialLR",
    "ExponentialLR",
}
#: Schedulers that take the rate down in the end.
_SCHEDULERS_THAT_DECAY = {
    "CosineAnnealingLR",
    "OneCycleLR",
    "PolynomialLR",
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
}
_TOP_SHARE = 0.9
_LAYERWISE_OPTIMIZERS = ("lars", "larc", "lamb", "lambc")
#: Libraries whose LARS has its rate outside the momentum (docs/measured/optimizer-differences.md).
_RATE_OUTSIDE_LIBRARIES = ("pytorch_optimizer", "torch_optimizer", "timm")
#: Parts of at least this many samples have batch statistics of their own: Hoffer and others
#: (arXiv:1705.08741) used ghosts of 32 to 512.
_GHOST_BATCH = 32
#: With fewer samples, statistics are too noisy: ResNet-50 on ImageNet has an error of 23.6, 23.7,
#: 24.8, 27.3 and 34.7 % with 32, 16, 8, 4 and 2 images per GPU (Wu and He, arXiv:1803.08494, table
#: 2).
_MIN_NORM_SAMPLES = 8
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
_NEW_MICRO_BATCH = ["Draw a new micro-batch for each backward."]
_OWN_SAMPLES = [
    "Give each rank its own samples: sampler=DistributedSampler(dataset) instead of shuffle=True.",
    "Call sampler.set_epoch(epoch) before each epoch.",
    "An IterableDataset has to divide its samples among the ranks itself.",
]
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
_WHOLE = Sentence(
    "each of the {ranks} ranks draws all {samples} samples of its dataset per epoch",
    ranks=COUNT,
    samples=COUNT,
)
_ORDER = Sentence("{sampler} draws them {order}", sampler=NAME, order=PART)
_TRAINS_ON = Sentence("one epoch trains on {ranks} times the data", ranks=COUNT)
_TOO_LONG_SCHEDULES = Sentence(
    "schedules that count epochs run {ranks} times too long", ranks=COUNT
)
_NOT_SPLIT = "only if the program does not give each rank its own part of the data"
_DISTRIBUTED = "Replace shuffle=True with sampler=DistributedSampler(dataset)."
_SET_EPOCH = "Call sampler.set_epoch(epoch) before each epoch."
_REPEATED = Sentence(
    "{sampler} repeated the same order for {epochs} epochs: set_epoch() was not called",
    sampler=NAME,
    epochs=COUNT,
)
_SAME_BATCHES = "batches hold the same samples in every epoch"
_ENDED_EARLY = Sentence(
    "{scheduler} is set to {steps} steps, but scheduler.step() was called {calls} times",
    scheduler=NAME,
    steps=COUNT,
    calls=COUNT,
)
_ENDED_AFTER = Sentence("it ended after {part} of the training", part=PERCENT)
_NO_END = "it did not reach its end"
_COUNTS_STEPS = "a schedule that counts steps does not adapt to the batch size"
_SET_LENGTH = Sentence(
    "Set the length of {scheduler} (T_max, total_steps or total_iters) to the number of "
    "scheduler.step() calls.",
    scheduler=NAME,
)
_CALLS = Sentence(
    "That is {calls} here: len(loader) * epochs if it is called once per batch.", calls=COUNT
)
_AT_TOP = Sentence(
    "the training ended at {part} of its highest learning rate, although {schedulers} should have "
    "lowered it",
    part=PERCENT,
    schedulers=NAME,
)
_STILL_NOISY = "the final loss still contains the noise of a high learning rate"
_STEP_SCHEDULER = (
    "Call scheduler.step() in the unit of the schedule (per batch or per epoch), or set its length "
    "to the number of calls."
)
_WITHOUT_DECAY = Sentence(
    "{optimizer} of {module} has weight decay 0 in {bare} of {groups} parameter groups with "
    "matrices",
    optimizer=NAME,
    module=NAME,
    bare=COUNT,
    groups=COUNT,
)
_PLAIN = Sentence(
    "several libraries then skip the trust ratio, so the optimizer becomes plain {plain}",
    plain=NAME,
)
_DECAY = "Set a weight decay, however small, or always_adapt=True if the library has it."
_ALWAYS_ADAPTS = "feedline's version always adapts."
_OUTSIDE = Sentence(
    "{optimizer} applies the learning rate after the momentum, although its paper applies it "
    "before",
    optimizer=NAME,
)
_PAPER = "the paper is You et al., arXiv:1708.03888"
_OLD_GRADIENTS = "while the learning rate rises, past gradients are scaled by the new rate"
_LARS = "Use feedline.convergence.fixes.lars.Lars, or a longer warm-up."
_FEW = Sentence(
    "{layers} with the statistics of {samples}{per_rank}",
    layers=PART,
    samples=PART,
    per_rank=PART,
)
_NOISE = "statistics of so few samples are noise (Wu and He, arXiv:1803.08494)"
_CONVERT_SYNC = (
    "Before DistributedDataParallel, model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)."
)
_SYNC_SAMPLES = Sentence("Statistics then come from {samples} samples.", samples=COUNT)
_GROUP_NORM = "torch.nn.GroupNorm(32, channels) in place of batch norm"
_ONE_BY_ONE = "Accumulated micro-batches are normalized one by one."
_NEEDS_GPUS = "SyncBatchNorm needs GPUs."
_SYNCED = Sentence(
    "{layers} SyncBatchNorm layers compute their statistics over all {ranks} ranks",
    layers=COUNT,
    ranks=COUNT,
)
_GHOSTS_WANTED = "ghost_bn, however, needs statistics of small groups"
_ENOUGH = Sentence("each rank has {samples} samples per forward, which are enough", samples=NUMBER)
_SYNC_EFFECTS = [
    "this removes the regularizing noise of small groups, and makes each layer wait for all ranks",
    "it also makes the ranks' gradients depend on each other",
]
_REMOVE_SYNC = [
    "Remove convert_sync_batchnorm (in Lightning, sync_batchnorm=True).",
    "BatchNorm over a rank's own samples already is ghost batch norm.",
]
_LEAVE_OUT = ["Leave out ghost_bn, or convert_sync_batchnorm (in Lightning, sync_batchnorm=True)."]
_Check = Callable[[TrainingRecord], Finding | None]
#: Causes that make every other figure say something about the mistake instead of the training.
STOPS = frozenset(
    [
        "same_data",
        "sum_not_mean",
        "schedule_in_steps",
        "missing_set_epoch",
        "whole_data_on_every_rank",
        "layerwise_without_decay",
        "few_samples_in_batch_norm",
    ]
)
#: After which the noise scale says nothing: it is made of the same gradients.
_GRADIENT_CHECKS = frozenset(["same_data", "sum_not_mean"])
#: Why it then says nothing; batch norm over a few samples adds to the noise.
WITHOUT_NOISE_SCALE = {
    **{
        rule_id: f"the gradients are not a mean over distinct samples ({rule_id})"
        for rule_id in sorted(_GRADIENT_CHECKS)
    },
    "few_samples_in_batch_norm": "batch norm over a few samples adds noise of its own to the "
    "gradients (few_samples_in_batch_norm)",
    "loss_exploded": "the training diverged (loss_exploded)",
}
#: A check -> the one that says more where both find something: one sampler repairs both.
_SAME_FIX = {"whole_data_on_every_rank": "same_data"}
#: The training has diverged: going on cannot repair it.
DIVERGED = ("not_finite", "loss_exploded")
#: The training is another than it was meant to be: that is to be heard before anything about how
#: fast it is.
GRAVE = frozenset([*_GRADIENT_CHECKS, "whole_data_on_every_rank", *DIVERGED])


def _not_finite(recorded: TrainingRecord) -> Finding | None:
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
    )


def _exploded(recorded: TrainingRecord) -> Finding | None:
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
    )


def _last_finite(curve: Curve, before: int) -> Evidence:
    values = curve.values[:before]
    return Evidence(
        "loss_before", "loss before", float(values[-1]) if len(values) else float("nan"), "1"
    )


def _skipped_steps(recorded: TrainingRecord) -> Finding | None:
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


def entries_of(recorded: TrainingRecord, key: str) -> list[dict[str, Any]]:
    """Return a list of the setup, without entries that are not dictionaries."""
    entries = recorded.setup.get(key)
    return (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )


def _groups_of(optimizer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return its parameter groups."""
    groups = optimizer.get("groups")
    return (
        [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    )


def _norm_layers(recorded: TrainingRecord) -> dict[str, Any]:
    """Count the model's layers of each kind."""
    layers = recorded.setup.get("norms")
    return layers if isinstance(layers, dict) else {}


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


def _same_data(recorded: TrainingRecord) -> Finding | None:
    """Find that the gradient of a part equals that of the whole, update for update."""
    ratio = _ratio_of(recorded)
    if len(ratio) < _MIN_EQUAL_UPDATES or float(np.abs(ratio - 1).max()) > _SAME_GRADIENT:
        return None
    assert recorded.norms is not None
    micro = recorded.norms.how == "accumulation"
    ranks = "both ranks" if recorded.norms.parts == 2 else f"all {recorded.norms.parts} ranks"
    part, plural = ("micro-batch", "es") if micro else ("rank", "s")
    who = "the micro-batches of an update hold" if micro else f"{ranks} train on"
    fix, *others = _NEW_MICRO_BATCH if micro else _OWN_SAMPLES
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
    )


def _sum_not_mean(recorded: TrainingRecord) -> Finding | None:
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
    )


def _whole_data(recorded: TrainingRecord) -> Finding | None:
    """Find that each of several ranks draws the whole dataset in an epoch."""
    for sampler in entries_of(recorded, "samplers"):
        drawn, of = sampler.get("samples"), sampler.get("of")
        if (
            recorded.ranks < 2 or not drawn or not of or drawn < of or not sampler.get("shuffles")
        ):  # an evaluation may read all of it
            continue
        if "Distributed" in str(sampler.get("kind")):
            continue
        ratio = _ratio_of(recorded)
        apart = len(ratio) >= _MIN_EQUAL_UPDATES and float(np.abs(ratio - 1).max()) > _SAME_GRADIENT
        order = "in different orders" if apart else "perhaps in the same order"
        return Finding(
            "whole_data_on_every_rank",
            Severity.INFO if apart else Severity.HIGH,
            message=_WHOLE(ranks=recorded.ranks, samples=of),
            more=[
                _ORDER(sampler=sampler.get("kind"), order=order),
                _TRAINS_ON(ranks=recorded.ranks),
                _TOO_LONG_SCHEDULES(ranks=recorded.ranks),
            ],
            evidence=[
                Evidence(
                    "epoch_samples_of_rank", "samples that a rank draws per epoch", drawn, "samples"
                ),
                Evidence("dataset_samples", "samples in its dataset", of, "samples"),
            ],
            fix=_DISTRIBUTED,
            condition=_NOT_SPLIT,
            fix_more=[_SET_EPOCH],
            how_to_check="Collect the samples that each rank draws in an epoch. If no sample is "
            "on two ranks, this finding is wrong.",
        )
    return None


def _missing_set_epoch(recorded: TrainingRecord) -> Finding | None:
    """Find a DistributedSampler that shuffles the same way in every epoch."""
    for sampler in entries_of(recorded, "samplers"):
        epochs, distinct = sampler.get("epochs") or 0, sampler.get("distinct")
        if (
            not sampler.get("shuffles")
            or "Distributed" not in str(sampler.get("kind"))
            or epochs < 2
            or distinct != 1
        ):
            continue
        return Finding(
            "missing_set_epoch",
            Severity.LOW,
            message=_REPEATED(sampler=sampler.get("kind"), epochs=epochs),
            more=[_SAME_BATCHES],
            evidence=[
                Evidence("epochs", "epochs", epochs, "epochs"),
                Evidence("orders", "different orders", 1, "orders"),
            ],
            fix=_SET_EPOCH,
            how_to_check="Print the indices of two epochs. If they differ, this finding is wrong.",
        )
    return None


def _schedule_in_steps(recorded: TrainingRecord) -> Finding | None:
    """Find a schedule that was told another number of steps than the training made."""
    for scheduler in entries_of(recorded, "schedulers"):
        horizon, steps, kind = (
            scheduler.get("horizon"),
            scheduler.get("steps"),
            str(scheduler.get("kind")),
        )
        if not recorded.ended or not horizon or not steps or steps < _MIN_SCHEDULER_STEPS:
            continue
        over = horizon < _TOO_SHORT * steps and kind not in _SCHEDULERS_THAT_STAY
        if not over and horizon <= _TOO_LONG * steps:
            continue
        times = horizon / steps
        return Finding(
            "schedule_in_steps",
            Severity.HIGH,
            message=_ENDED_EARLY(scheduler=kind, steps=horizon, calls=steps),
            more=[_ENDED_AFTER(part=times) if over else _NO_END, _COUNTS_STEPS],
            evidence=[
                Evidence("schedule_steps", "steps of the schedule", horizon, "steps"),
                Evidence("steps", "calls of scheduler.step()", steps, "steps"),
            ],
            fix=_SET_LENGTH(scheduler=kind),
            fix_more=[_CALLS(calls=steps)],
            how_to_check="If the training was meant to stop before its schedule ends, this "
            "finding is wrong.",
        )
    return None


def _should_have_lowered(scheduler: Mapping[str, Any]) -> bool:
    """Tell whether a scheduler lowers the rate in the end, and was stepped wrongly.

    It was never stepped, or more often than in a trial run.
    """
    return (
        str(scheduler.get("kind")) in _SCHEDULERS_THAT_DECAY
        and not 0 < (scheduler.get("steps") or 0) < _MIN_SCHEDULER_STEPS
    )


def _rate_at_top(recorded: TrainingRecord) -> Finding | None:
    """Find a schedule that should take the rate down, and did not."""
    rate = recorded.curves.get("lr")
    kinds = [
        str(scheduler.get("kind"))
        for scheduler in entries_of(recorded, "schedulers")
        if _should_have_lowered(scheduler)
    ]
    if not recorded.ended or rate is None or not kinds or _schedule_in_steps(recorded) is not None:
        return None
    values = rate.values[np.isfinite(rate.values)]
    if (
        len(values) < 2 * _MIN_SCHEDULER_STEPS
        or values.max() <= 0
        or values[-1] < _TOP_SHARE * values.max()
    ):
        return None
    return Finding(
        "rate_at_top",
        Severity.INFO,
        message=_AT_TOP(part=float(values[-1] / values.max()), schedulers=", ".join(kinds)),
        more=[_STILL_NOISY],
        evidence=[
            Evidence("last_rate", "last learning rate", float(values[-1]), "1"),
            Evidence("highest_rate", "highest learning rate", float(values.max()), "1"),
        ],
        fix=_STEP_SCHEDULER,
        how_to_check="Lower the learning rate over the last tenth. If the loss does not fall, "
        "this finding is wrong.",
    )


def _layerwise_without_decay(recorded: TrainingRecord) -> Finding | None:
    """Find LARS or LAMB of a library that does not adapt tensors without weight decay."""
    for optimizer in entries_of(recorded, "optimizers"):
        kind, module = str(optimizer.get("kind")), str(optimizer.get("module"))
        if kind.lower() not in _LAYERWISE_OPTIMIZERS or module.startswith("feedline."):
            continue
        groups = [
            group
            for group in _groups_of(optimizer)
            if (group.get("tensors") or 0) > (group.get("vectors") or 0)
        ]
        bare = [group for group in groups if not group.get("weight_decay")]
        if not bare:
            continue
        plain = "Adam" if "lamb" in kind.lower() else "SGD"
        return Finding(
            "layerwise_without_decay",
            Severity.LOW,
            message=_WITHOUT_DECAY(
                optimizer=kind, module=module, bare=len(bare), groups=len(groups)
            ),
            more=[_PLAIN(plain=plain)],
            evidence=[
                Evidence("groups_without_decay", "groups without weight decay", len(bare), "groups")
            ],
            fix=_DECAY,
            fix_more=[_ALWAYS_ADAPTS],
            how_to_check="Compare |update| / |weight| of two layers. If equal, the trust ratio is "
            "applied and this finding is wrong.",
        )
    return None


def _rate_outside_momentum(recorded: TrainingRecord) -> Finding | None:
    """Find a layer-wise optimizer that multiplies the rate outside its momentum.

    It matters while the rate changes.
    """
    for optimizer in entries_of(recorded, "optimizers"):
        if (
            str(optimizer.get("kind")).lower() not in ("lars", "larc")
            or str(optimizer.get("module")).split(".")[0] not in _RATE_OUTSIDE_LIBRARIES
        ):
            continue
        if not entries_of(recorded, "schedulers"):
            continue
        return Finding(
            "rate_outside_momentum",
            Severity.INFO,
            message=_OUTSIDE(optimizer=optimizer.get("kind")),
            more=[_OLD_GRADIENTS, _PAPER],
            fix=_LARS,
            how_to_check="If the learning rate is constant, both forms are equivalent and this "
            "finding does not matter.",
        )
    return None


def _few_samples(recorded: TrainingRecord) -> Finding | None:
    """Find batch norm that normalizes with the statistics of a handful of samples."""
    models = [
        model
        for model in entries_of(recorded, "batch_norms")
        if model.get("layers") and 0 < (model.get("samples") or 0) < _MIN_NORM_SAMPLES
    ]
    if not models:
        return None
    model = min(models, key=lambda item: item["samples"])
    samples, layers = int(model["samples"]), int(model["layers"])
    per_rank = " on each rank" if recorded.ranks > 1 else ""
    fix, *others = _larger_norm_batches(samples, recorded, bool(model.get("gpu")))
    return Finding(
        "few_samples_in_batch_norm",
        Severity.LOW,
        message=_FEW(
            layers=f"{counted(layers, 'batch norm layer')} normalize{'s' * (layers == 1)}",
            samples=counted(samples, "sample"),
            per_rank=per_rank,
        ),
        more=[_NOISE],
        evidence=[
            Evidence("samples_of_forward", "samples per rank and forward", samples, "samples"),
            Evidence("batchnorm_layers", "batch norm layers", layers, "layers"),
        ],
        fix=fix,
        fix_more=others,
        how_to_check=f"Train once with {4 * _MIN_NORM_SAMPLES} samples per forward for the same "
        f"number of samples. "
        "If the evaluation is not better, this finding is wrong.",
    )


def _larger_norm_batches(samples: int, recorded: TrainingRecord, gpu: bool) -> list[str]:
    """Say how batch norm gets more samples.

    SyncBatchNorm only where it works, which is on GPUs, and helps: with samples enough on all ranks
    together.
    """
    ranks, per_rank = recorded.ranks, " and rank" * (recorded.ranks > 1)
    if gpu and ranks * samples >= _MIN_NORM_SAMPLES:
        return [_CONVERT_SYNC, _SYNC_SAMPLES(samples=ranks * samples), f"Or use {_GROUP_NORM}."]
    accumulates = recorded.batch is not None and recorded.batch >= 2 * ranks * samples
    return [
        f"Use {_GROUP_NORM}, or {4 * _MIN_NORM_SAMPLES} samples per forward{per_rank}.",
        *([_ONE_BY_ONE] if accumulates else []),
        *([_NEEDS_GPUS] if ranks > 1 and not gpu else []),
    ]


def _sync_batch_norm(recorded: TrainingRecord) -> Finding | None:
    """Find statistics over all ranks that are not needed.

    Each rank has samples enough, or ghost statistics are asked for.
    """
    synced = _norm_layers(recorded).get("SyncBatchNorm", 0)
    part = _samples_of_forward(recorded)
    wanted = "ghost_bn" in recorded.fixes
    if not synced or recorded.ranks < 2 or not (wanted or part >= _GHOST_BATCH):
        return None
    fix, *others = _REMOVE_SYNC if part >= _GHOST_BATCH else _LEAVE_OUT
    return Finding(
        "sync_batch_norm",
        Severity.LOW if wanted else Severity.INFO,
        message=_SYNCED(layers=synced, ranks=recorded.ranks),
        more=[_GHOSTS_WANTED if wanted else _ENOUGH(samples=part), *_SYNC_EFFECTS],
        evidence=[
            Evidence("sync_batchnorm_layers", "SyncBatchNorm layers", synced, "layers"),
            Evidence("samples_of_rank", "samples per rank and forward", part, "samples"),
        ],
        fix=fix,
        fix_more=others,
        how_to_check="Train without it for the same number of samples. If the validation loss is "
        "worse, this finding is wrong.",
    )


def _samples_of_forward(recorded: TrainingRecord) -> float:
    """Return what one forward of a rank was given.

    Of a run that does not hold it, what a rank has per update.
    """
    known = [
        model["samples"]
        for model in entries_of(recorded, "batch_norms")
        if model.get("synced") and model.get("samples")
    ]
    return float(max(known)) if known else (recorded.batch or 0.0) / recorded.ranks


#: In the order in which findings of one severity are shown.
CHECKS: list[_Check] = [
    _same_data,
    _sum_not_mean,
    _whole_data,
    _schedule_in_steps,
    _missing_set_epoch,
    _layerwise_without_decay,
    _few_samples,
    _not_finite,
    _exploded,
    _skipped_steps,
    _rate_outside_momentum,
    _sync_batch_norm,
    _rate_at_top,
]


#: Told among the findings, but no answer to what holds the run back: a run that is only measured
#: ends before its schedule.
ASIDE = ("schedule_in_steps", "skipped_steps")


def run_checks(recorded: TrainingRecord) -> list[Finding]:
    """Return all that is found, most severe first."""
    order = list(Severity)[::-1]
    findings = [finding for check in CHECKS if (finding := check(recorded)) is not None]
    return sorted(findings, key=lambda item: order.index(item.severity))


def without_same_fix(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those whose fix another one of them asks for already."""
    there = {finding.rule_id for finding in findings}
    return [finding for finding in findings if _SAME_FIX.get(finding.rule_id) not in there]


def stops_advice(finding: Finding) -> bool:
    """Tell whether nothing else should be advised before this is fixed."""
    return finding.rule_id in STOPS and finding.severity is not Severity.INFO
