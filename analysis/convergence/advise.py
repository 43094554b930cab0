"""What to do about it, cheapest first, each with the equal-budget control that it has to beat."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from feedline.analysis.convergence import batch_cost, checks, classify, noise
from feedline.analysis.convergence.classify import DEFICIT, GAP, INSTABILITY, LAG, Verdict, groups
from feedline.analysis.convergence.model import BatchPrice, NoiseOverTraining
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.finding import Evidence, Finding
from feedline.analysis.formatting import number, share

#: Optimizers that scale each update by the gradient's size themselves: their rate grows with the square root of the batch
#: (Malladi and others, arXiv:2205.10287; Krizhevsky, arXiv:1404.5997).
ADAPTIVE = ("adam", "adamw", "nadam", "radam", "lamb", "novograd", "soap", "rmsprop", "adagrad")
WARMUP_EPOCHS = 5  # Goyal and others, arXiv:1706.02677, and the acceptance table
GHOST = 32  # samples; Hoffer and others, arXiv:1705.08741, and the acceptance table
NOISE = 0.5  # sigma of the acceptance table's arm O; 1 cost 5.6 points
GROWTH_EPOCHS = 4  # fewer have no room for three stages
WRITTEN = ("recalibrate_bn", "longer", "batch_growth", "local_sgd")  # fixes that cannot be applied from outside
AS_IT_IS = "the unchanged training, with the same number of samples"
BENCHMARK = "in feedline's benchmark (MNIST-1D, batch 256 instead of 32)"
WORTH_SAVING = 0.05  # of the samples: a smaller batch that saves less is not advised
AT_MOST_LONGER = 8.0  # times as many epochs that are advised: beyond it, a smaller batch is the answer


@dataclass(frozen=True)
class Advice:
    """One thing to try.

    Attributes:
        id: what to try, stable between versions.
        what: the same in one sentence.
        fix: the ``--fix`` text; "": no fix does it from outside.
        why: the evidence in words.
        gain: what is expected, as far as it can be said.
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
class Case:
    """What recommendations are made from."""

    run: Recorded
    ratio: float
    base: float | None
    noise: NoiseOverTraining
    price: BatchPrice | None
    verdict: Verdict | None = None


def advise(runs: Sequence[Recorded]) -> Advised:
    """Correctness, kind of loss, price, and what to try.

    Args:
        runs: one or more, of different batches or seeds.
    """
    ordered = [run for group in groups(runs) for run in group.runs]
    findings = [(run.name, finding) for run in ordered for finding in checks.run_checks(run)]
    stopped = any(checks.stops(finding) for _, finding in findings)
    verdicts = classify.classify(runs)
    largest, over, of = ordered[-1], *_best_noise(ordered)
    priced = batch_cost.price(over, largest.batch) if largest.batch else None
    base = ordered[0].batch if len(groups(runs)) > 1 else None
    ratio = largest.batch / base if base and largest.batch else 1.0
    case = Case(largest, ratio, base, over, priced)
    needs = list(dict.fromkeys(need for verdict in verdicts for need in verdict.needs))
    if over.value is None:
        needs.append(f"the noise scale, to judge the batch size: {over.why}")
    return Advised(
        [run.name for run in ordered], findings, stopped, verdicts, over, of, priced, [] if stopped else _all(case, verdicts), needs
    )


def _best_noise(runs: Sequence[Recorded]) -> tuple[NoiseOverTraining, str]:
    """Of the run with most measured windows; the noise scale is the training's, not the batch's."""
    found = [(noise.over_training(run), run.name) for run in runs]
    return max(found, key=lambda one: sum(window.value is not None for window in one[0].windows))


def _all(case: Case, verdicts: Sequence[Verdict]) -> list[Advice]:
    """Each thing once, in the order of the verdicts and then of what the batch costs.

    Args:
        verdicts: those of the largest batch come last.
    """
    mine = [verdict for verdict in verdicts if verdict.run == verdicts[-1].run]
    found: dict[str, Advice] = {}
    for verdict in mine:
        for advice in FOR[verdict.kind](replace(case, verdict=verdict)) if verdict.kind in FOR else ():
            found.setdefault(advice.fix or advice.id, advice)
    for advice in _for_price(case):
        found.setdefault(advice.fix or advice.id, advice)
    return list(found.values())


def _for_deficit(case: Case) -> Iterator[Advice]:
    """The large batch makes fewer updates than it needs: longer steps first, then more of them, then better ones."""
    yield _rate(case)
    inflation = _inflation(case)
    if inflation and inflation > 1.05:
        yield _make(
            case,
            "longer",
            f"train for {number(min(inflation, AT_MOST_LONGER))} times the epochs",
            f"longer={case.run.batch:.5g}:base_batch={case.base:.5g}:critical_batch={case.noise.value:.3g}",
            f"at this batch size, a sample contributes {share(1 / inflation)} of what it contributes in a batch of {number(case.base)}",
            f"reaches the small batch's loss in {share(inflation / case.ratio)} of its updates"
            if inflation <= AT_MOST_LONGER
            else f"gets closer to the small batch's loss; reaching it needs {number(inflation)} times the epochs: "
            "a smaller batch is better",
            "the small batch for the same number of epochs",
        )
    if not _has_norm(case.run):
        yield _make(
            case,
            "normalisation",
            "add normalization layers to the model",
            "",
            "no normalization layers were seen; with them, the model would tolerate a larger learning rate",
            f"the largest single gain {BENCHMARK}: 47.4 -> 82.6 % accuracy",
            "the small batch with the same layers",
        )
    yield _optimizer(case)
    yield _growth(case)


def _for_lag(case: Case) -> Iterator[Advice]:
    yield _make(
        case,
        "recalibrate_bn",
        "recalibrate batch norm's running statistics on training data before evaluating",
        "recalibrate_bn=50",
        _told(case),
        "closes the part of the gap that stale statistics cause; none if they are not stale",
    )


def _for_gap(case: Case) -> Iterator[Advice]:
    """Only here, where the training data is learned as well, does noise have something to give."""
    if "BatchNorm" in " ".join(_norms(case.run)):
        yield _make(
            case,
            "ghost_bn",
            f"use ghost batch norm over {GHOST} samples",
            f"ghost_bn={GHOST}",
            _told(case),
            f"unknown; no difference from plain batch norm {BENCHMARK}",
        )
    yield _make(
        case,
        "gradient_noise",
        "add multiplicative gradient noise",
        f"gradient_noise={NOISE}",
        _told(case),
        f"unknown; with an optimization deficit it costs accuracy (5.6 points {BENCHMARK})",
    )
    yield _growth(case)


def _for_instability(case: Case) -> Iterator[Advice]:
    yield _make(
        case,
        "warmup",
        f"warm up the learning rate over {WARMUP_EPOCHS} epochs",
        f"warmup={WARMUP_EPOCHS}ep",
        _told(case),
        "may remove the loss spike, if that comes early in the training",
    )
    if case.ratio > 1:
        yield _make(
            case,
            "sqrt_rule",
            f"set the small batch's learning rate and scale it by the square root rule ({number(math.sqrt(case.ratio))} times), with "
            "warm-up; undo any other scaling first",
            f"lr_rule=sqrt:{case.ratio:.3g},warmup={WARMUP_EPOCHS}ep",
            _told(case),
            f"more stable: the linear rule's learning rate is {number(math.sqrt(case.ratio))} times as high",
        )
    yield _make(
        case,
        "larc",
        "try LARC, which bounds each layer's update by the norm of its weights",
        "larc=0.5",
        _told(case),
        "unknown; try 3 to 5 learning rates, each three times the one before",
        control_fix=_rate(case).fix,
    )


def _for_price(case: Case) -> Iterator[Advice]:
    """What the batch itself gives, whatever the loss."""
    if case.price is None:
        return
    bound = case.noise.high if case.noise.high is not None else case.noise.value
    if case.price.where in ("far above", "above") and bound:
        kept, end = _ratio_of_samples(case, bound), "" if case.noise.high is None else "the upper end of the range of "
        if kept is None or 1 - kept >= WORTH_SAVING:
            yield _make(
                case,
                "smaller_batch",
                f"reduce the batch from {number(case.price.batch)} to {number(bound)} samples per update"
                f"{f' ({number(bound / case.run.ranks)} per rank)' * (case.run.ranks > 1)}, {end}the critical batch size",
                "",
                case.price.message,
                f"reaches the same loss with at least {share(1 - kept)} fewer samples{', on fewer ranks' * (case.run.ranks > 1)}"
                if kept is not None
                else "fewer samples",
                AS_IT_IS,
            )
        yield _growth(case)
    low = case.noise.low
    if case.price.where in ("far below", "below") and low:
        fewer = batch_cost.updates_factor(2 * case.price.batch, low) / batch_cost.updates_factor(case.price.batch, low)
        yield _make(
            case,
            "larger_batch",
            f"increase the batch up to {number(low)}: with more ranks, or a larger batch per rank if device memory allows; for twice the "
            f"batch, multiply the learning rate by {'1.4' if _adaptive(case.run) else '2'}",
            "",
            case.price.message,
            f"twice the batch needs {share(fewer)} of the updates and {number(2 * fewer)} times the samples",
        )


FOR = {DEFICIT: _for_deficit, LAG: _for_lag, GAP: _for_gap, INSTABILITY: _for_instability}


def _rate(case: Case) -> Advice:
    """Rate rule with warm-up: of the noise scale for SGD where it is known, of the square root for Adam and its like."""
    times, base = case.ratio, case.base
    if times <= 1 or base is None:
        fix, said = f"warmup={WARMUP_EPOCHS}ep", "the same learning rate"
    elif _adaptive(case.run):
        fix, said = f"lr_rule=sqrt:{times:.3g},warmup={WARMUP_EPOCHS}ep", f"{number(math.sqrt(times))} times the learning rate (sqrt rule)"
    elif case.noise.value:
        factor = min(times, (1 + case.noise.value / base) / (1 + case.noise.value / (times * base)))
        rule = f"noise:batch_factor={times:.3g}:critical_batch={case.noise.value:.3g}:base_batch={base:.5g}"
        fix = f"lr_rule={rule},warmup={WARMUP_EPOCHS}ep"
        said = f"{number(factor)} times the learning rate for {number(times)} times the batch (noise-scale rule)"
    else:
        fix, said = f"lr_rule=linear:{times:.3g},warmup={WARMUP_EPOCHS}ep", f"{number(times)} times the learning rate (linear rule)"
    return _make(
        case,
        "rate_rule",
        f"{said}, with {WARMUP_EPOCHS} epochs of warm-up",
        fix,
        _told(case),
        f"with SGD, the linear rule with warm-up raised accuracy from 82.6 to 89.1 % {BENCHMARK}; skip it if the learning rate is scaled "
        "already",
    )


def _optimizer(case: Case) -> Advice:
    """A layer-wise optimizer, on trial only: with batch norm and a good rate none beat its control."""
    adaptive = _adaptive(case.run)
    name, control = ("lamb=0.01", "adamw=0.01") if adaptive or not _has_norm(case.run) else ("lars=1", _rate(case).fix)
    return _make(
        case,
        "layerwise",
        f"try {name.split('=')[0].upper()} with 3 to 5 learning rates, each three times the one before",
        name,
        _told(case),
        f"none if normalization and learning rate are right (Nado et al., arXiv:2102.06356; none {BENCHMARK} either); "
        "more without normalization",
        control_fix=control,
    )


def _growth(case: Case) -> Advice:
    stages = _stages(case)
    return _make(
        case,
        "batch_growth",
        f"grow the batch where the schedule would lower the learning rate{_as_words(stages)}",
        _as_fix(stages),
        "the critical batch size grows as the loss falls, so small batches pay off most at the start",
        "fewer updates for nearly the same accuracy; on MNIST-1D, 90.7 % after 444 updates instead of 91.3 % after 768",
    )


def _stages(case: Case) -> dict[int, int]:
    """Epoch -> samples per rank, from a quarter of the batch to all of it, doubled at half and at three quarters of the training; {}: its
    length is unknown."""
    run = case.run
    epochs = round(run.samples / run.samples_per_epoch) if run.samples_per_epoch else 0
    if not run.batch or epochs < GROWTH_EPOCHS:
        return {}
    first = max(1, int(run.batch / run.ranks) // 4)
    return {0: first, epochs // 2: 2 * first, 3 * epochs // 4: 4 * first}


def _as_fix(stages: dict[int, int]) -> str:
    return "batch_growth=" + ":".join(f"{epoch}={size}" if epoch else str(size) for epoch, size in stages.items()) if stages else ""


def _as_words(stages: dict[int, int]) -> str:
    sizes = [f"{size} from epoch {epoch}" if epoch else f"{size} samples per rank" for epoch, size in stages.items()]
    return f" ({', '.join(sizes)})" if sizes else ""


def _inflation(case: Case) -> float | None:
    """Epochs at this batch over those at the reference's, for one loss: (1 + B/Bc) / (1 + B0/Bc)."""
    if not case.noise.value or case.base is None or not case.run.batch:
        return None
    return (1 + case.run.batch / case.noise.value) / (1 + case.base / case.noise.value)


def _ratio_of_samples(case: Case, batch: float) -> float | None:
    """Samples at another batch over those at this one, by the noise scale's upper end, which says the least."""
    critical = case.noise.high or case.noise.value
    if not critical or case.price is None:
        return None
    return (1 + batch / critical) / (1 + case.price.batch / critical)


def _told(case: Case) -> str:
    return case.verdict.message if case.verdict is not None else ""


def _make(case: Case, id: str, what: str, fix: str, why: str, gain: str, control: str = AS_IT_IS, control_fix: str = "") -> Advice:
    facts = list(case.verdict.evidence) if case.verdict is not None else []
    said = f"--fix {control_fix}, for the same number of samples" if control_fix else control
    return Advice(id, what, fix, why, gain, said, control_fix, verify_line(fix, control_fix), facts)


def verify_line(fix: str, control: str) -> str:
    """The command that trains with and without it, with seeds and equal samples; "": no fix can be run."""
    if not fix or written(fix):
        return ""
    against = f" --control {shlex.quote(control)}" if control else ""
    return f"feedline verify --fix {shlex.quote(fix)}{against} -- SCRIPT ... --seed {{seed}} --output-dir out/{{arm}}-{{seed}}"


def written(fix: str) -> bool:
    """Whether it cannot be applied from outside: its lines are written into the program."""
    return fix.partition("=")[0] in WRITTEN


def _adaptive(run: Recorded) -> bool:
    found = run.setup.get("optimizers")
    kinds = [str(one.get("kind")).lower() for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return any(kind in ADAPTIVE for kind in kinds)


def _norms(run: Recorded) -> dict[str, int]:
    found = run.setup.get("norms")
    return {str(kind): n for kind, n in found.items() if n} if isinstance(found, dict) else {}


def _has_norm(run: Recorded) -> bool:
    """Unknown counts as yes, so that the advice never adds what is already there."""
    return bool(_norms(run)) or not isinstance(run.setup.get("norms"), dict)
