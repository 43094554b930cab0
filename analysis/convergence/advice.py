"""One thing to try, and the case that it is advised in: a training and a smaller batch of it."""

import shlex
from dataclasses import dataclass, field

from feedline.analysis.convergence.loss_kinds import LossVerdict
from feedline.analysis.convergence.training_record import TrainingRecord, entries_of
from feedline.analysis.convergence.training_series import BatchPrice, NoiseOverTraining
from feedline.analysis.ledger.finding import Evidence

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
AS_IT_IS = "the unchanged training, with the same number of samples"


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


def epochs_of(run: TrainingRecord) -> float | None:
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
    control: str = AS_IT_IS,
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


def has_norm(run: TrainingRecord) -> bool:
    """Tell whether the model has normalization.

    Unknown counts as yes, so that the advice never adds what is already there.
    """
    return bool(norm_layers(run)) or not isinstance(run.setup.get("norms"), dict)
