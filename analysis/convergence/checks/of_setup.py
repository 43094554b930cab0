"""Checks of what a training is made of: samplers, schedules, optimizers and batch norms."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from feedline.analysis.convergence.checks.of_updates import parts_agree
from feedline.analysis.convergence.training_record import TrainingRecord, entries_of
from feedline.analysis.ledger.finding import Evidence, Finding, Severity
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NAME, NUMBER, PART, PERCENT, Sentence

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
_FEWER_STEPS = Sentence("1/{ranks} of the steps per epoch", ranks=COUNT)
_NOT_SPLIT = "only if the ranks are data parallel, and the program does not split the data itself"
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
# 8 groups: they divide the channels of most models, of narrow ones too
_GROUP_NORM = "torch.nn.GroupNorm(8, channels) in place of batch norm"
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


def whole_data(recorded: TrainingRecord) -> Finding | None:
    """Find that each of several ranks draws the whole dataset in an epoch."""
    for sampler in entries_of(recorded, "samplers"):
        drawn, of = sampler.get("samples"), sampler.get("of")
        if recorded.ranks < 2 or not drawn or not of or drawn < of:
            continue
        if not sampler.get("shuffles"):  # an evaluation may read all of it
            continue
        if "Distributed" in str(sampler.get("kind")):
            continue
        apart = parts_agree(recorded) is False
        order = "in different orders" if apart else "perhaps in the same order"
        # ranks that split one model need the same samples; those that train one each may have them
        shares = recorded.norms is not None or recorded.setup.get("shares_gradients") is True
        effects = [_TRAINS_ON(ranks=recorded.ranks), _TOO_LONG_SCHEDULES(ranks=recorded.ranks)]
        return Finding(
            "whole_data_on_every_rank",
            Severity.HIGH if shares and not apart else Severity.INFO,
            message=_WHOLE(ranks=recorded.ranks, samples=of),
            more=[
                _ORDER(sampler=sampler.get("kind"), order=order),
                *(effects if shares else []),
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
            gives=_FEWER_STEPS(ranks=recorded.ranks),
        )
    return None


def missing_set_epoch(recorded: TrainingRecord) -> Finding | None:
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
            gives="batches that differ from epoch to epoch",
        )
    return None


def schedule_in_steps(recorded: TrainingRecord) -> Finding | None:
    """Find a schedule that was told another number of steps than the training made."""
    for scheduler in entries_of(recorded, "schedulers"):
        horizon = scheduler.get("horizon")
        steps = scheduler.get("steps")
        kind = str(scheduler.get("kind"))
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
            gives="a schedule that ends with the training",
        )
    return None


def rate_at_top(recorded: TrainingRecord) -> Finding | None:
    """Find a schedule that should take the rate down, and did not."""
    rate = recorded.curves.get("lr")
    kinds = [
        str(scheduler.get("kind"))
        for scheduler in entries_of(recorded, "schedulers")
        if _should_have_lowered(scheduler)
    ]
    if not recorded.ended or rate is None or not kinds or schedule_in_steps(recorded) is not None:
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


def _should_have_lowered(scheduler: Mapping[str, Any]) -> bool:
    """Tell whether a scheduler lowers the rate in the end, and was stepped wrongly.

    It was never stepped, or more often than in a trial run.
    """
    return (
        str(scheduler.get("kind")) in _SCHEDULERS_THAT_DECAY
        and not 0 < (scheduler.get("steps") or 0) < _MIN_SCHEDULER_STEPS
    )


def layerwise_without_decay(recorded: TrainingRecord) -> Finding | None:
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


def _groups_of(optimizer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return its parameter groups."""
    groups = optimizer.get("groups")
    return (
        [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    )


def rate_outside_momentum(recorded: TrainingRecord) -> Finding | None:
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


def few_samples(recorded: TrainingRecord) -> Finding | None:
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
        gives="no noise from small batches",
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
        f"For accuracy, not speed: {_GROUP_NORM}, or {4 * _MIN_NORM_SAMPLES} samples per "
        f"forward{per_rank}.",
        *([_ONE_BY_ONE] if accumulates else []),
        *([_NEEDS_GPUS] if ranks > 1 and not gpu else []),
    ]


def sync_batch_norm(recorded: TrainingRecord) -> Finding | None:
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


def _norm_layers(recorded: TrainingRecord) -> dict[str, Any]:
    """Count the model's layers of each kind."""
    layers = recorded.setup.get("norms")
    return layers if isinstance(layers, dict) else {}


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
