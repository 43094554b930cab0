"""What to try, and the case that it is advised in: a training and a smaller batch of it.

First comes advice on the learning rate and its warm-up, then on the size of the batch: another one,
one that grows, or more epochs.
"""

import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from feedline.analysis.convergence import target
from feedline.analysis.convergence.loss_kinds import FEW_UPDATES, LossVerdict, grows_with_batch
from feedline.analysis.convergence.training_record import (
    BatchPrice,
    NoiseOverTraining,
    TrainingRecord,
    entries_of,
)
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import Evidence
from feedline.analysis.text.formatting import count, number, share

#: Optimizers that scale each update by the gradient's size themselves: their rate grows with the
#: square root of the batch (Malladi and others, arXiv:2205.10287; Krizhevsky, arXiv:1404.5997).
#: Parts of their names, as in apex's FusedAdam and DeepSpeed's DeepSpeedCPUAdam.
_ADAPTIVE = (
    *("adam", "adagrad", "adadelta", "adafactor", "rmsprop"),
    *("lamb", "lion", "novograd", "shampoo", "soap"),
)
# fixes that cannot be applied from outside
_WRITTEN = ("recalibrate_bn", "longer", "batch_growth", "local_sgd")
_OWN_CONTROL = ("lars", "larc")  # fixes with a control of their own, which warms up for five epochs
_AS_IT_IS = "the unchanged training, with the same number of samples"
_WARMUP_EPOCHS = 5.0  # Goyal and others, arXiv:1706.02677
#: Of the training at most: the longest of You and others (arXiv:1904.00962, table 4), 1/5 at a
#: batch of 32,768.
_WARMUP_SHARE = 1 / 5
_FEWEST_WARMUP = 2  # updates: a shorter one changes nothing
_STARTS_LOW = 0.5  # of its highest rate: a training whose rate begins below it warms up already
_ALREADY = 1.1  # times a rate that is not worth changing, or that two runs have in common
_GROWTH_EPOCHS = 4  # fewer have no room for three stages
_WORTH_SAVING = 0.05  # of the samples: a smaller batch that saves less is not advised


@dataclass(frozen=True)
class Advice:
    """One thing to try.

    Attributes:
        id: what to try, stable between versions.
        what: the same in one sentence.
        fix: the ``--fix`` text; "": no fix does it from outside.
        why: the evidence in words.
        gain: what these runs let expect; "": nothing. What a fix gained elsewhere is on its page
            (docs/fixes).
        control: the arm at equal budget that it must beat, in words.
        control_fix: its ``--fix`` text; "": the training as it is.
        verify: command line; "" where no fix does it.
    """

    id: str
    what: str
    fix: str
    why: str
    gain: str
    control: str
    control_fix: str
    verify: str
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True)
class AdviceCase:
    """What recommendations are made from.

    Attributes:
        run: with the largest batch.
        reference: the run with the smallest batch; None: no run has a smaller one.
        base: the reference's batch.
    """

    run: TrainingRecord
    reference: TrainingRecord | None
    noise: NoiseOverTraining
    price: BatchPrice | None
    verdict: LossVerdict | None = None

    @property
    def base(self) -> float | None:
        return self.reference.batch if self.reference is not None else None

    @property
    def ratio(self) -> float:
        return self.run.batch / self.base if self.base and self.run.batch else 1.0


def _epochs_of(run: TrainingRecord) -> float | None:
    """Return the length of the training; None: unknown."""
    return (
        run.samples / run.samples_per_epoch if run.samples_known and run.samples_per_epoch else None
    )


def verdict_of(case: AdviceCase) -> str:
    return case.verdict.message if case.verdict is not None else ""


def advice_for(
    case: AdviceCase,
    id: str,
    what: str,
    fix: str,
    why: str,
    gain: str = "",
    control: str = _AS_IT_IS,
    control_fix: str = "",
) -> Advice:
    facts = list(case.verdict.evidence) if case.verdict is not None else []
    against = f"--fix {control_fix}, for the same number of samples" if control_fix else control
    return Advice(
        id, what, fix, why, gain, against, control_fix, _verify_line(fix, control_fix), facts
    )


def _verify_line(fix: str, control: str) -> str:
    """Return the command that trains with and without it, with seeds and equal samples.

    "": no fix can be run.
    """
    if not fix or is_written(fix):
        return ""
    own = fix.partition("=")[0] in _OWN_CONTROL  # which would be tried without being named
    against = f" --control {shlex.quote(control or 'none')}" if control or own else ""
    return (
        f"feedline verify --fix {shlex.quote(fix)}{against} -- SCRIPT ... --seed {{seed}} "
        f"--output-dir out/{{arm}}-{{seed}}"
    )


def is_written(fix: str) -> bool:
    """Tell whether a fix cannot be applied from outside: its lines are written into the program."""
    return fix.partition("=")[0] in _WRITTEN


def fixes_of(run: TrainingRecord) -> set[str]:
    """Return names of the fixes that the run was made with."""
    return {fix.partition("=")[0].strip() for fix in run.fixes.split(",") if fix}


def optimizer_kinds(run: TrainingRecord) -> list[str]:
    """Return the optimizers by their names in lower case."""
    return [str(optimizer.get("kind")).lower() for optimizer in entries_of(run, "optimizers")]


def is_adaptive(run: TrainingRecord) -> bool:
    """Tell whether the optimizer divides by the size of gradients, by its name or its betas."""
    return any(name in kind for kind in optimizer_kinds(run) for name in _ADAPTIVE) or any(
        group.get("betas")
        for optimizer in entries_of(run, "optimizers")
        for group in optimizer.get("groups") or []
        if isinstance(group, dict)
    )


def norm_layers(run: TrainingRecord) -> dict[str, int]:
    norms = run.setup.get("norms")
    return {str(kind): n for kind, n in norms.items() if n} if isinstance(norms, dict) else {}


def lower_rate(case: AdviceCase) -> Iterator[Advice]:
    """Yield the square root rule's rate, where that is lower than the rate that was unstable.

    It is also yielded where that rate is unknown.
    """
    root, scaled = math.sqrt(case.ratio), _scaled(case)
    if case.ratio <= 1 or scaled is not None and scaled < _ALREADY * root:
        return
    warmup = warmup_for(case.run)
    too, then = (
        (f",{warmup.setting}", f", with a warm-up over {warmup.words}")
        if warmup is not None
        else ("", "")
    )
    if scaled is None:
        what = (
            f"set the small batch's learning rate and scale it by the square root rule "
            f"({number(root)} times){then}; undo any other "
        )
        fix, what = f"lr_rule=sqrt:{case.ratio:.3g}{too}", f"{what}scaling first"
    else:
        fix = f"lr_rule=linear:{root / scaled:.3g}{too}"
        what = (
            f"lower the learning rate from {number(scaled)} to {number(root)} times that of "
            f"the small batch (square root rule){then}"
        )
    yield advice_for(case, "sqrt_rule", what, fix, verdict_of(case))


@dataclass(frozen=True)
class _Warmup:
    """How long to warm up, as a part of a ``--fix`` text and in words."""

    setting: str
    words: str


def warmup_for(run: TrainingRecord) -> _Warmup | None:
    """Choose a warm-up of five epochs, or a fifth of the training where that is less.

    None: it warms up already, or its length is unknown or too short.
    """
    if "warmup" in fixes_of(run) or _warms_up(run) or run.updates * _WARMUP_SHARE < _FEWEST_WARMUP:
        return None
    epochs = _epochs_of(run)
    if epochs is not None:
        length = float(f"{min(_WARMUP_EPOCHS, _WARMUP_SHARE * epochs):.2g}")
        return _Warmup(f"warmup={length:g}ep", f"{length:g} epoch{'s' * (length != 1)}")
    if not run.samples_known:
        return None
    samples = int(float(f"{_WARMUP_SHARE * run.samples:.2g}"))
    return _Warmup(f"warmup={samples}", f"{count(samples)} samples")


def _warms_up(run: TrainingRecord) -> bool:
    """Tell whether the learning rate begins low and is highest later."""
    rates = _rates_of(run)
    return len(rates) > 1 and float(rates[0]) < _STARTS_LOW * float(rates.max())


def scaled_rate(case: AdviceCase) -> Iterator[Advice]:
    """Yield the rule for the learning rate and a warm-up.

    What the training has already is left out.
    """
    fix, words = rate_fix(case)
    if fix:
        yield advice_for(case, "rate_rule", words, fix, verdict_of(case))


def rate_fix(case: AdviceCase) -> tuple[str, str]:
    """Return rule and warm-up as fix and in words.

    Both are empty where the training has both.
    """
    rule, words = _rule(case)
    warmup = warmup_for(case.run)
    if warmup is None:
        return rule, words
    return ",".join(
        filter(None, (rule, warmup.setting))
    ), f"{words or 'keep the learning rate'}, with a warm-up over {warmup.words}"


def _rule(case: AdviceCase) -> tuple[str, str]:
    """Return the rate rule of the noise scale, as fix and in words.

    It is for SGD where it is known, of the square root for Adam and its like. Both are empty where
    the rate already is as high, or no smaller batch is known.
    """
    times, base, scaled = case.ratio, case.base, _scaled(case)
    if times <= 1 or base is None:
        return "", ""
    if is_adaptive(case.run):
        factor, fix, name = math.sqrt(times), f"lr_rule=sqrt:{times:.3g}", "sqrt rule"
    elif case.reference is not None and grows_with_batch([case.reference], [case.run]):
        return "", ""  # so does its gradient, and with it each step
    elif case.noise.value:
        factor = min(times, (1 + case.noise.value / base) / (1 + case.noise.value / (times * base)))
        name = "noise-scale rule"
        fix = f"lr_rule=noise:batch_factor={times:.3g}:critical_batch={case.noise.value:.3g}:base_batch={base:.5g}"
    else:
        factor, fix, name = times, f"lr_rule=linear:{times:.3g}", "linear rule"
    words = (
        f"for a batch {_rounded(times)} times as large, use {_rounded(factor)} times the learning "
        f"rate"
    )
    if scaled is None:
        return fix, f"{words}, unless it is scaled already ({name})"
    if factor < _ALREADY * scaled:
        return "", ""
    if scaled > _ALREADY:
        return (
            f"lr_rule=linear:{factor / scaled:.3g}",
            f"{words} instead of {number(scaled)} times ({name})",
        )
    return fix, f"{words} ({name})"


def _rounded(factor: float) -> str:
    """Return a factor rounded to two digits: 1.4, 5, 16."""
    return number(factor, 2).removesuffix(".0")


def _scaled(case: AdviceCase) -> float | None:
    """Return the highest learning rate over that of the small batch.

    None: unknown, or of optimizers that cannot be compared.
    """
    if case.reference is None or optimizer_kinds(case.run) != optimizer_kinds(case.reference):
        return None
    own, other = (_rates_of(run) for run in (case.run, case.reference))
    return float(own.max() / other.max()) if len(own) and len(other) and other.max() > 0 else None


def _rates_of(run: TrainingRecord) -> FloatArray:
    """Return the learning rates in their order."""
    rate = run.curves.get("lr")
    return rate.values[np.isfinite(rate.values)] if rate is not None else np.zeros(0)


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
                _AS_IT_IS,
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
        fewer = target.updates_factor(2 * case.price.batch, critical) / target.updates_factor(
            case.price.batch, critical
        )
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
    epochs = _epochs_of(run)
    if not stages and (epochs is not None or run.batch and run.batch / run.ranks < 4):
        return
    rates = _rates_of(run)
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
    epochs = round(_epochs_of(run) or 0)
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
