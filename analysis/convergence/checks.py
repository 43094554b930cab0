"""Checks of how a training is set up, before its batch size is judged.

There is one small function per mistake.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.analysis.convergence.training_record import Curve, TrainingRecord
from feedline.analysis.formatting import count, counted, number, share
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity

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
        message=f"the loss was NaN or infinite {counted(len(bad), 'time')}, first after "
        f"{count(int(curve.updates[bad[0]]))} updates",
        evidence=[
            Evidence("not_finite", "NaN or infinite values", len(bad), "values"),
            _last_finite(curve, int(bad[0])),
        ],
        fix="Lower the learning rate or warm it up, clip gradients, and look for log(0), division "
        "by 0 and float16 overflow at that "
        "update.",
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
        message=f"the loss rose from at most {number(first)} (first tenth of the run) to "
        f"{number(last)} (median of the last)",
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
        fix="Lower the learning rate or warm it up, and clip gradients.",
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
        message=f"GradScaler skipped {count(skipped)} of {count(tried)} updates "
        f"({share(skipped / tried)}) because gradients overflowed",
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
    return Finding(
        "same_data",
        Severity.HIGH,
        message=f"{who} the same samples: the gradient of one {part} has the same squared norm as "
        f"the mean gradient of all (ratio 1.000 in "
        f"all {count(len(ratio))} updates compared; with different samples, it would be larger). "
        f"The batch of all {part}{plural} "
        "only repeats the samples of one",
        evidence=[
            Evidence(
                "part_over_mean", "|g_part|^2 / |g_mean|^2, median", float(np.median(ratio)), "1"
            ),
            Evidence(
                "largest_distance", "largest deviation from 1", float(np.abs(ratio - 1).max()), "1"
            ),
            Evidence("updates", "updates", len(ratio), "updates"),
        ],
        fix="Draw a new micro-batch for each backward."
        if micro
        else "Give each rank its own samples: sampler=DistributedSampler(dataset) instead of "
        "shuffle=True, and sampler.set_epoch(epoch) "
        "before each epoch. An IterableDataset has to divide its samples among the ranks itself.",
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
        message=f"gradients are summed over the {norms.parts} ranks, not averaged: |g_whole|^2 is "
        f"{number(longer)} times |g_part|^2, and "
        f"a mean is never longer than its parts. With SGD, that multiplies the learning rate by "
        f"{norms.parts}",
        evidence=[
            Evidence("whole_over_part", "|g_whole|^2 / |g_part|^2", longer, "1"),
            Evidence("parts", "parts", norms.parts, "parts"),
        ],
        fix="Average instead: ReduceOp.AVG or grad.div_(world_size). "
        f"With SGD without weight decay or clipping, dividing the learning rate by {norms.parts} "
        f"works as well.",
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
            message=f"each of the {recorded.ranks} ranks draws all {count(of)} samples of its "
            f"dataset per epoch ({sampler.get('kind')}), "
            f"{order}: one epoch trains on {recorded.ranks} times the data, and schedules that "
            f"count epochs run {recorded.ranks} times too "
            "long. Ignore this if the program gives each rank its own part of the data",
            evidence=[
                Evidence(
                    "epoch_samples_of_rank", "samples that a rank draws per epoch", drawn, "samples"
                ),
                Evidence("dataset_samples", "samples in its dataset", of, "samples"),
            ],
            fix="Replace shuffle=True with sampler=DistributedSampler(dataset), and call "
            "sampler.set_epoch(epoch) before each epoch.",
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
            message=f"{sampler.get('kind')} repeated the same order for {count(epochs)} epochs: "
            f"set_epoch() was not called, so batches "
            "hold the same samples in every epoch",
            evidence=[
                Evidence("epochs", "epochs", epochs, "epochs"),
                Evidence("orders", "different orders", 1, "orders"),
            ],
            fix="Call sampler.set_epoch(epoch) before each epoch.",
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
        what = (
            f"ended after {share(times)} of the training: it is set to {count(horizon)} steps"
            if over
            else f"did not reach its end: it is set to {count(horizon)} steps"
        )
        return Finding(
            "schedule_in_steps",
            Severity.HIGH,
            message=f"{kind} {what}, but scheduler.step() was called {count(steps)} times. A "
            f"schedule that counts steps does not adapt to "
            "the batch size",
            evidence=[
                Evidence("schedule_steps", "steps of the schedule", horizon, "steps"),
                Evidence("steps", "calls of scheduler.step()", steps, "steps"),
            ],
            fix=f"Set the length of {kind} (T_max, total_steps or total_iters) to the number "
            f"of scheduler.step() calls, here {count(steps)}: len(loader) * epochs if it is "
            "called once per batch.",
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
        message=f"the training ended at {share(values[-1] / values.max())} of its highest "
        f"learning rate, although {', '.join(kinds)} "
        "should have lowered it: the final loss still contains the noise of a high learning rate",
        evidence=[
            Evidence("last_rate", "last learning rate", float(values[-1]), "1"),
            Evidence("highest_rate", "highest learning rate", float(values.max()), "1"),
        ],
        fix="Call scheduler.step() in the unit of the schedule (per batch or per epoch), or set "
        "its length to the number of calls.",
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
            message=f"{kind} of {module} has weight decay 0 in {len(bare)} of {len(groups)} "
            f"parameter groups with matrices: several "
            f"libraries then skip the trust ratio, so the optimizer becomes plain {plain}",
            evidence=[
                Evidence("groups_without_decay", "groups without weight decay", len(bare), "groups")
            ],
            fix="Set a weight decay, however small, or always_adapt=True if the library has it; "
            "feedline's version always adapts.",
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
            message=f"{optimizer.get('kind')} applies the learning rate after the momentum; the "
            f"paper (You et al., arXiv:1708.03888) "
            "applies it before: while the learning rate rises, past gradients are scaled by the "
            "new rate",
            fix="Use feedline.convergence.fixes.lars.Lars, or a longer warm-up.",
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
    return Finding(
        "few_samples_in_batch_norm",
        Severity.LOW,
        message=f"{counted(layers, 'batch norm layer')} normalize{'s' * (layers == 1)} with the "
        f"statistics of "
        f"{counted(samples, 'sample')}{per_rank}: such statistics are noise (Wu and He, "
        f"arXiv:1803.08494)",
        evidence=[
            Evidence("samples_of_forward", "samples per rank and forward", samples, "samples"),
            Evidence("batchnorm_layers", "batch norm layers", layers, "layers"),
        ],
        fix=_larger_norm_batches(samples, recorded, bool(model.get("gpu"))),
        how_to_check=f"Train once with {4 * _MIN_NORM_SAMPLES} samples per forward for the same "
        f"number of samples. "
        "If the evaluation is not better, this finding is wrong.",
    )


def _larger_norm_batches(samples: int, recorded: TrainingRecord, gpu: bool) -> str:
    """Say how batch norm gets more samples.

    SyncBatchNorm only where it works, which is on GPUs, and helps: with samples enough on all ranks
    together.
    """
    ranks, per_rank = recorded.ranks, " and rank" * (recorded.ranks > 1)
    group = "torch.nn.GroupNorm(32, channels) in place of batch norm"
    if gpu and ranks * samples >= _MIN_NORM_SAMPLES:
        sync = (
            "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before "
            "DistributedDataParallel"
        )
        return f"{sync}: statistics then come from {count(ranks * samples)} samples. Or {group}."
    accumulates = recorded.batch is not None and recorded.batch >= 2 * ranks * samples
    one_by_one = " Accumulated micro-batches are normalized one by one." if accumulates else ""
    sync = " SyncBatchNorm needs GPUs." if ranks > 1 and not gpu else ""
    return (
        f"Use {group}, or {4 * _MIN_NORM_SAMPLES} samples per forward{per_rank}.{one_by_one}{sync}"
    )


def _sync_batch_norm(recorded: TrainingRecord) -> Finding | None:
    """Find statistics over all ranks that are not needed.

    Each rank has samples enough, or ghost statistics are asked for.
    """
    synced = _norm_layers(recorded).get("SyncBatchNorm", 0)
    part = _samples_of_forward(recorded)
    wanted = "ghost_bn" in recorded.fixes
    if not synced or recorded.ranks < 2 or not (wanted or part >= _GHOST_BATCH):
        return None
    why = (
        "but ghost_bn needs statistics of small groups"
        if wanted
        else f"although each rank has {number(part)} samples per forward"
    )
    return Finding(
        "sync_batch_norm",
        Severity.LOW if wanted else Severity.INFO,
        message=f"{synced} SyncBatchNorm layers compute their statistics over all "
        f"{recorded.ranks} ranks, {why}: this removes the "
        "regularizing noise of small groups, makes each layer wait for all ranks, and makes the "
        "ranks' gradients depend on each other",
        evidence=[
            Evidence("sync_batchnorm_layers", "SyncBatchNorm layers", synced, "layers"),
            Evidence("samples_of_rank", "samples per rank and forward", part, "samples"),
        ],
        fix="Remove convert_sync_batchnorm (in Lightning, sync_batchnorm=True): BatchNorm over a "
        "rank's own samples already is ghost batch "
        "norm."
        if part >= _GHOST_BATCH
        else "Leave out ghost_bn, or convert_sync_batchnorm (in Lightning, sync_batchnorm=True).",
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
