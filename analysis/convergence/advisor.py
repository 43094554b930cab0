"""What to do about it, cheapest first, each with the equal-budget control that it has to beat."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feedline.analysis.convergence import batch_cost, checks, curves, noise_windows
from feedline.analysis.convergence.curves import LossKind, Verdict, group_runs
from feedline.analysis.convergence.training_record import TrainingRecord, entries_of
from feedline.analysis.convergence.training_series import BatchPrice, NoiseOverTraining
from feedline.analysis.formatting import count, number, share
from feedline.analysis.intervals import FloatArray
from feedline.analysis.ledger.finding import Evidence, Finding

#: Optimizers that scale each update by the gradient's size themselves: their rate grows with the
#: square root of the batch (Malladi and others, arXiv:2205.10287; Krizhevsky, arXiv:1404.5997).
_ADAPTIVE = ("adam", "adamw", "nadam", "radam", "lamb", "novograd", "soap", "rmsprop", "adagrad")
_WARMUP_EPOCHS = 5.0  # Goyal and others, arXiv:1706.02677
#: Of the training at most: the longest of You and others (arXiv:1904.00962, table 4), 1/5 at a
#: batch of 32,768.
_WARMUP_SHARE = 1 / 5
_FEWEST_WARMUP = 2  # updates: a shorter one changes nothing
_STARTS_LOW = 0.5  # of its highest rate: a training whose rate begins below it warms up already
_ALREADY = 1.1  # times a rate that is not worth changing, or that two runs have in common
_GHOST = 32  # samples; Hoffer and others, arXiv:1705.08741, and the acceptance table
_NOISE_SIGMA = 0.5  # sigma of the acceptance table's arm O; 1 cost 5.6 points
_GROWTH_EPOCHS = 4  # fewer have no room for three stages
_WRITTEN = (
    "recalibrate_bn",
    "longer",
    "batch_growth",
    "local_sgd",
)  # fixes that cannot be applied from outside
_OWN_CONTROL = ("lars", "larc")  # fixes with a control of their own, which warms up for five epochs
_AS_IT_IS = "the unchanged training, with the same number of samples"
_RECALIBRATED_ON = (
    50  # batches (Wu and Johnson, arXiv:2105.07576: a few thousand samples are enough)
)
_WORTH_SAVING = 0.05  # of the samples: a smaller batch that saves less is not advised
_AT_MOST_LONGER = (
    8.0  # times as many epochs that are advised: beyond it, a smaller batch is the answer
)


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
    verdicts: list[Verdict]
    noise: NoiseOverTraining
    noise_of: str
    price: BatchPrice | None
    advice: list[Advice]
    needs: list[str]


@dataclass(frozen=True)
class _Case:
    """What recommendations are made from.

    Attributes:
        run: with the largest batch.
        reference: with the smallest; None: there is no smaller one.
        base: the reference's batch.
    """

    run: TrainingRecord
    reference: TrainingRecord | None
    noise: NoiseOverTraining
    price: BatchPrice | None
    verdict: Verdict | None = None

    @property
    def base(self) -> float | None:
        return self.reference.batch if self.reference is not None else None

    @property
    def ratio(self) -> float:
        return self.run.batch / self.base if self.base and self.run.batch else 1.0


def advise(runs: Sequence[TrainingRecord]) -> Advised:
    """Judge correctness, the kind of loss and the price of the batch, and advise what to try.

    Args:
        runs: one or more, of different batches or seeds.
    """
    ordered = [run for group in group_runs(runs) for run in group.runs]
    checked = [(run, checks.run_checks(run)) for run in ordered]
    findings = [(run.name, finding) for run, own in checked for finding in own]
    stopped = any(checks.stops_advice(finding) for _, finding in findings)
    verdicts = curves.classify(runs)
    largest, over, of = ordered[-1], *_best_noise(checked)
    priced = batch_cost.price_batch(over, largest.batch) if largest.batch else None
    case = _Case(largest, ordered[0] if len(group_runs(runs)) > 1 else None, over, priced)
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
    scales = [(noise_windows.usable_noise(run, findings), run.name) for run, findings in checked]
    return max(scales, key=lambda item: sum(window.value is not None for window in item[0].windows))


def _all(case: _Case, verdicts: Sequence[Verdict]) -> list[Advice]:
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
        _for_price(case) if all(verdict.kind != LossKind.INSTABILITY for verdict in mine) else ()
    ):
        by_title.setdefault(advice.fix or advice.id, advice)
    return [
        advice
        for advice in by_title.values()
        if advice.fix.partition("=")[0] not in _fixes(case.run)
    ]


def _for_deficit(case: _Case) -> Iterator[Advice]:
    """Yield advice for a large batch that makes fewer updates than it needs.

    Longer steps come first, then more of them, then better ones.
    """
    yield from _rate(case)
    inflation = _inflation(case)
    if inflation and inflation > 1.05:
        yield _make(
            case,
            "longer",
            f"train for {number(min(inflation, _AT_MOST_LONGER))} times the epochs",
            f"longer={case.run.batch:.5g}:base_batch={case.base:.5g}:critical_batch={case.noise.value:.3g}",
            f"at this batch size, a sample contributes {share(1 / inflation)} of what it "
            f"contributes in a batch of {number(case.base)}",
            f"reaches the small batch's loss in {share(inflation / case.ratio)} of its updates"
            if inflation <= _AT_MOST_LONGER
            else f"gets closer to the small batch's loss; reaching it needs {number(inflation)} "
            f"times the epochs: "
            "a smaller batch is better",
            "the small batch for the same number of epochs",
        )
    if not _has_norm(case.run):
        yield _make(
            case,
            "normalisation",
            "add normalization layers to the model",
            "",
            "no normalization layers were seen; with them, the model would tolerate a larger "
            "learning rate",
            control="the small batch with the same layers",
        )
    yield from _optimizer(case)
    yield from _growth(case)


def _for_lag(case: _Case) -> Iterator[Advice]:
    yield _make(
        case,
        "recalibrate_bn",
        "recalibrate batch norm's running statistics on training data before evaluating",
        f"recalibrate_bn={min(_RECALIBRATED_ON, _batches_of_epoch(case.run))}",
        _told(case),
        "closes the part of the gap that stale statistics cause; none if they are not stale",
    )


def _for_gap(case: _Case) -> Iterator[Advice]:
    """Yield advice that adds noise.

    Only where the training data is learned as well does it have something to give.
    """
    if "BatchNorm" in " ".join(_norms(case.run)) and _samples_of_forward(case.run) > _GHOST:
        yield _make(
            case,
            "ghost_bn",
            f"use ghost batch norm over {_GHOST} samples",
            f"ghost_bn={_GHOST}",
            _told(case),
        )
    yield _make(
        case,
        "gradient_noise",
        "add multiplicative gradient noise",
        f"gradient_noise={_NOISE_SIGMA}",
        _told(case),
    )
    yield from _growth(case)


def _for_instability(case: _Case) -> Iterator[Advice]:
    warmup = _warmup(case.run)
    if warmup is not None:
        at = (
            next(
                (fact.value for fact in case.verdict.evidence if fact.id == "updates_before_climb"),
                None,
            )
            if case.verdict
            else None
        )
        when = (
            f"; this one began after {share(at / case.run.updates)} of the training"
            if at is not None and case.run.updates
            else ""
        )
        gain = f"may remove a loss spike that comes early{when}"
        yield _make(
            case,
            "warmup",
            f"warm up the learning rate over {warmup.words}",
            warmup.setting,
            _told(case),
            gain,
        )
    yield from _lower_rate(case)
    yield _make(
        case,
        "larc",
        "try LARC, which bounds each layer's update by the norm of its weights",
        "larc=0.5",
        _told(case),
        "unknown; try 3 to 5 learning rates, each three times the one before",
        control_fix=_rate_fix(case)[0],
    )


def _lower_rate(case: _Case) -> Iterator[Advice]:
    """Yield the square root rule's rate, where that is lower than the rate that was unstable.

    It is also yielded where that rate is unknown.
    """
    root, scaled = math.sqrt(case.ratio), _scaled(case)
    if case.ratio <= 1 or scaled is not None and scaled < _ALREADY * root:
        return
    warmup = _warmup(case.run)
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
    yield _make(case, "sqrt_rule", what, fix, _told(case))


def _for_price(case: _Case) -> Iterator[Advice]:
    """Return what the batch itself gives, whatever the loss."""
    if case.price is None:
        return
    bound = case.noise.high if case.noise.high is not None else case.noise.value
    if case.price.where in ("far above", "above") and bound:
        kept, end = (
            _ratio_of_samples(case, bound),
            "" if case.noise.high is None else "the upper end of the range of ",
        )
        if kept is None or 1 - kept >= _WORTH_SAVING:
            yield _make(
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
        yield from _growth(case)
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
        yield _make(
            case,
            "larger_batch",
            f"increase the batch up to {number(low)}: with more ranks, or a larger batch per rank "
            f"if device memory allows; for twice the "
            f"batch, multiply the learning rate by {'1.4' if _adaptive(case.run) else '2'}",
            "",
            case.price.message,
            f"twice the batch needs {share(fewer)} of the updates and {number(2 * fewer)} times "
            f"the samples",
        )


_FOR = {
    LossKind.DEFICIT: _for_deficit,
    LossKind.LAG: _for_lag,
    LossKind.GAP: _for_gap,
    LossKind.INSTABILITY: _for_instability,
}


@dataclass(frozen=True)
class _Warmup:
    """How long to warm up, as a part of a ``--fix`` text and in words."""

    setting: str
    words: str


def _warmup(run: TrainingRecord) -> _Warmup | None:
    """Choose a warm-up of five epochs, or a fifth of the training where that is less.

    None: it warms up already, or its length is unknown or too short.
    """
    if "warmup" in _fixes(run) or _warms_up(run) or run.updates * _WARMUP_SHARE < _FEWEST_WARMUP:
        return None
    epochs = _epochs(run)
    if epochs is not None:
        length = float(f"{min(_WARMUP_EPOCHS, _WARMUP_SHARE * epochs):.2g}")
        return _Warmup(f"warmup={length:g}ep", f"{length:g} epoch{'s' * (length != 1)}")
    if not run.samples_known:
        return None
    samples = int(float(f"{_WARMUP_SHARE * run.samples:.2g}"))
    return _Warmup(f"warmup={samples}", f"{count(samples)} samples")


def _warms_up(run: TrainingRecord) -> bool:
    """Tell whether the learning rate begins low and is highest later."""
    rates = _rates(run)
    return len(rates) > 1 and float(rates[0]) < _STARTS_LOW * float(rates.max())


def _rate(case: _Case) -> Iterator[Advice]:
    """Yield the rule for the learning rate and a warm-up.

    What the training has already is left out.
    """
    fix, words = _rate_fix(case)
    if fix:
        yield _make(case, "rate_rule", words, fix, _told(case))


def _rate_fix(case: _Case) -> tuple[str, str]:
    """Return rule and warm-up as fix and in words.

    Both are empty where the training has both.
    """
    rule, words = _rule(case)
    warmup = _warmup(case.run)
    if warmup is None:
        return rule, words
    return ",".join(
        filter(None, (rule, warmup.setting))
    ), f"{words or 'keep the learning rate'}, with a warm-up over {warmup.words}"


def _rule(case: _Case) -> tuple[str, str]:
    """Return the rate rule of the noise scale, as fix and in words.

    It is for SGD where it is known, of the square root for Adam and its like. Both are empty where
    the rate already is as high, or no smaller batch is known.
    """
    times, base, scaled = case.ratio, case.base, _scaled(case)
    if times <= 1 or base is None:
        return "", ""
    if _adaptive(case.run):
        factor, fix, name = math.sqrt(times), f"lr_rule=sqrt:{times:.3g}", "sqrt rule"
    elif case.noise.value:
        factor, name = (
            min(times, (1 + case.noise.value / base) / (1 + case.noise.value / (times * base))),
            "noise-scale rule",
        )
        fix = f"lr_rule=noise:batch_factor={times:.3g}:critical_batch={case.noise.value:.3g}:base_batch={base:.5g}"
    else:
        factor, fix, name = times, f"lr_rule=linear:{times:.3g}", "linear rule"
    words = (
        f"multiply the small batch's learning rate by {_rounded(factor)} for {_rounded(times)} "
        f"times the batch ({name})"
    )
    if scaled is None:
        return fix, f"{words}; skip the rule if the learning rate is scaled already"
    if factor < _ALREADY * scaled:
        return "", ""
    if scaled > _ALREADY:
        return (
            f"lr_rule=linear:{factor / scaled:.3g}",
            f"{words}; it is {number(scaled)} times already",
        )
    return fix, words


def _rounded(factor: float) -> str:
    """Return a factor rounded to two digits: 1.4, 5, 16."""
    return number(factor, 2).removesuffix(".0")


def _scaled(case: _Case) -> float | None:
    """Return the highest learning rate over that of the small batch.

    None: unknown, or of optimizers that cannot be compared.
    """
    if case.reference is None or _kinds(case.run) != _kinds(case.reference):
        return None
    own, other = (_rates(run) for run in (case.run, case.reference))
    return float(own.max() / other.max()) if len(own) and len(other) and other.max() > 0 else None


def _rates(run: TrainingRecord) -> FloatArray:
    """Return the learning rates in their order."""
    rate = run.curves.get("lr")
    return rate.values[np.isfinite(rate.values)] if rate is not None else np.zeros(0)


def _optimizer(case: _Case) -> Iterator[Advice]:
    """Yield a layer-wise optimizer, on trial only.

    With batch norm and a good rate none beat its control.
    """
    adaptive = _adaptive(case.run)
    name, control = (
        ("lamb=0.01", "adamw=0.01")
        if adaptive or not _has_norm(case.run)
        else ("lars=1", _rate_fix(case)[0])
    )
    if name.partition("=")[0] in _kinds(case.run):
        return
    yield _make(
        case,
        "layerwise",
        f"try {name.split('=')[0].upper()} with 3 to 5 learning rates, each three times the one "
        f"before",
        name,
        _told(case),
        "none is known where normalization and learning rate are right (Nado et al., "
        "arXiv:2102.06356)",
        control_fix=control,
    )


def _growth(case: _Case) -> Iterator[Advice]:
    """Yield advice to grow the batch.

    None for a training that is known to be too short for three stages, or whose batch cannot be
    divided by four.
    """
    run, stages = case.run, _stages(case)
    epochs = _epochs(run)
    if not stages and (epochs is not None or run.batch and run.batch / run.ranks < 4):
        return
    rates = _rates(run)
    lowered = len(rates) > 1 and rates[-1] < rates.max()
    yield _make(
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


def _stages(case: _Case) -> dict[int, int]:
    """Return epoch -> samples per rank; {}: the training's length is unknown.

    From a quarter of the batch to all of it, doubled at half and at three quarters of the training.
    """
    run = case.run
    epochs = round(_epochs(run) or 0)
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


def _inflation(case: _Case) -> float | None:
    """Return the epochs at this batch over those at the reference's, for one loss.

    (1 + B/Bc) / (1 + B0/Bc).
    """
    if not case.noise.value or case.base is None or not case.run.batch:
        return None
    return (1 + case.run.batch / case.noise.value) / (1 + case.base / case.noise.value)


def _ratio_of_samples(case: _Case, batch: float) -> float | None:
    """Return the samples at another batch over those at this one.

    It goes by the noise scale's upper end, which says the least.
    """
    critical = case.noise.high or case.noise.value
    if not critical or case.price is None:
        return None
    return (1 + batch / critical) / (1 + case.price.batch / critical)


def _at_most_batch(case: _Case) -> float | None:
    """Return the lower end of the noise scale, or less.

    It is less where that would leave fewer than a hundred updates of the training.
    """
    low, run = case.noise.low, case.run
    return min(low, run.samples / curves.FEW_UPDATES) if low and run.samples_known else low


def _epochs(run: TrainingRecord) -> float | None:
    """Return the length of the training; None: unknown."""
    return (
        run.samples / run.samples_per_epoch if run.samples_known and run.samples_per_epoch else None
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


def _told(case: _Case) -> str:
    return case.verdict.message if case.verdict is not None else ""


def _make(
    case: _Case,
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


def _fixes(run: TrainingRecord) -> set[str]:
    """Return names of the fixes that the run was made with."""
    return {fix.partition("=")[0].strip() for fix in run.fixes.split(",") if fix}


def _kinds(run: TrainingRecord) -> list[str]:
    """Return the optimizers by their names in lower case."""
    return [str(optimizer.get("kind")).lower() for optimizer in entries_of(run, "optimizers")]


def _adaptive(run: TrainingRecord) -> bool:
    return any(kind in _ADAPTIVE for kind in _kinds(run))


def _norms(run: TrainingRecord) -> dict[str, int]:
    norms = run.setup.get("norms")
    return {str(kind): n for kind, n in norms.items() if n} if isinstance(norms, dict) else {}


def _has_norm(run: TrainingRecord) -> bool:
    """Tell whether the model has normalization.

    Unknown counts as yes, so that the advice never adds what is already there.
    """
    return bool(_norms(run)) or not isinstance(run.setup.get("norms"), dict)
