"""Advice on the size of the batch: another one, one that grows, or more epochs."""

from collections.abc import Iterator

from feedline.analysis.convergence import batch_cost
from feedline.analysis.convergence.advice import (
    AS_IT_IS,
    Advice,
    AdviceCase,
    advice_for,
    epochs_of,
    is_adaptive,
)
from feedline.analysis.convergence.loss_kinds import FEW_UPDATES
from feedline.analysis.convergence.rate_advice import rates_of
from feedline.analysis.text.formatting import number, share

_GROWTH_EPOCHS = 4  # fewer have no room for three stages
_WORTH_SAVING = 0.05  # of the samples: a smaller batch that saves less is not advised
# times as many epochs that are advised: beyond it, a smaller batch is the answer
_AT_MOST_LONGER = 8.0


def for_price(case: AdviceCase) -> Iterator[Advice]:
    """Return what the batch itself gives, whatever the loss."""
    if case.price is None:
        return
    bound = case.noise.high if case.noise.high is not None else case.noise.value
    if case.price.where in ("far above", "above") and bound:
        kept = _ratio_of_samples(case, bound)
        end = "" if case.noise.high is None else "the upper end of the range of "
        if kept is None or 1 - kept >= _WORTH_SAVING:
            yield advice_for(
                case,
                "smaller_batch",
                f"reduce the batch from {number(case.price.batch)} to {number(bound)} samples per "
                f"update"
                f"{f' ({number(bound / case.run.ranks)} per rank)' * (case.run.ranks > 1)}, "
                f"{end}the critical batch size",
                "",
                case.price.message,
                f"reaches the same loss with at least {share(1 - kept)} fewer "
                f"samples{', on fewer ranks' * (case.run.ranks > 1)}"
                if kept is not None
                else "fewer samples",
                AS_IT_IS,
            )
        yield from growing_batch(case)
    low = _at_most_batch(case)
    if (
        case.price.where in ("far below", "below")
        and case.noise.low
        and low
        and low >= 2 * case.price.batch
    ):
        critical = case.noise.low
        fewer = batch_cost.updates_factor(
            2 * case.price.batch, critical
        ) / batch_cost.updates_factor(case.price.batch, critical)
        yield advice_for(
            case,
            "larger_batch",
            f"increase the batch up to {number(low)}: with more ranks, or a larger batch per rank "
            f"if device memory allows; for twice the "
            f"batch, multiply the learning rate by {'1.4' if is_adaptive(case.run) else '2'}",
            "",
            case.price.message,
            f"twice the batch needs {share(fewer)} of the updates and {number(2 * fewer)} times "
            f"the samples",
        )


def growing_batch(case: AdviceCase) -> Iterator[Advice]:
    """Yield advice to grow the batch.

    None for a training that is known to be too short for three stages, or whose batch cannot be
    divided by four.
    """
    run, stages = case.run, _stages(case)
    epochs = epochs_of(run)
    if not stages and (epochs is not None or run.batch and run.batch / run.ranks < 4):
        return
    rates = rates_of(run)
    lowered = len(rates) > 1 and rates[-1] < rates.max()
    yield advice_for(
        case,
        "batch_growth",
        f"grow the batch "
        f"{'where the schedule would lower the learning rate' if lowered else 'during the training'}{_as_words(stages)}",
        _as_fix(stages),
        "the critical batch size grows as the loss falls, so small batches pay off most at the "
        "start",
        f"a loss closer to the small batch's, for {number(_updates_of(stages, round(epochs)))} "
        f"times the updates"
        if stages and epochs
        else "",
    )


def more_epochs(case: AdviceCase) -> Iterator[Advice]:
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


def _updates_of(stages: dict[int, int], epochs: int) -> float:
    """Return the updates with a growing batch over those with its last size."""
    ends = [*list(stages)[1:], epochs]
    largest = max(stages.values())
    return (
        sum(
            (end - first) * largest / size
            for (first, size), end in zip(stages.items(), ends, strict=True)
        )
        / epochs
    )


def _stages(case: AdviceCase) -> dict[int, int]:
    """Return epoch -> samples per rank; {}: the training's length is unknown.

    From a quarter of the batch to all of it, doubled at half and at three quarters of the training.
    """
    run = case.run
    epochs = round(epochs_of(run) or 0)
    if not run.batch or epochs < _GROWTH_EPOCHS or run.batch / run.ranks < 4:
        return {}
    first = int(run.batch / run.ranks) // 4
    return {0: first, epochs // 2: 2 * first, 3 * epochs // 4: 4 * first}


def _as_fix(stages: dict[int, int]) -> str:
    return (
        "batch_growth="
        + ":".join(f"{epoch}={size}" if epoch else str(size) for epoch, size in stages.items())
        if stages
        else ""
    )


def _as_words(stages: dict[int, int]) -> str:
    sizes = [
        f"{size} from epoch {epoch}" if epoch else f"{size} samples per rank"
        for epoch, size in stages.items()
    ]
    return f" ({', '.join(sizes)})" if sizes else ""


def _inflation(case: AdviceCase) -> float | None:
    """Return the epochs at this batch over those at the reference's, for one loss.

    (1 + B/Bc) / (1 + B0/Bc).
    """
    if not case.noise.value or case.base is None or not case.run.batch:
        return None
    return (1 + case.run.batch / case.noise.value) / (1 + case.base / case.noise.value)


def _ratio_of_samples(case: AdviceCase, batch: float) -> float | None:
    """Return the samples at another batch over those at this one.

    It goes by the noise scale's upper end, which says the least.
    """
    critical = case.noise.high or case.noise.value
    if not critical or case.price is None:
        return None
    return (1 + batch / critical) / (1 + case.price.batch / critical)


def _at_most_batch(case: AdviceCase) -> float | None:
    """Return the lower end of the noise scale, or less.

    It is less where that would leave fewer than a hundred updates of the training.
    """
    low, run = case.noise.low, case.run
    return min(low, run.samples / FEW_UPDATES) if low and run.samples_known else low
