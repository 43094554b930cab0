"""The GPU is the limit, and computes matrix products of float32 without its tensor cores.

With them, it is several times faster.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.tensor_cores import (
    CONDITION,
    FIXES,
    MIN_SHARE,
    TensorCores,
    tensor_cores,
)
from feedline.analysis.text.sentences import TIME, Sentence

_TRY_TF32 = (
    "Train a few hundred steps with torch.set_float32_matmul_precision('high'). If they "
    "take just as long, this finding is wrong."
)
_TRY_FLOAT16 = (
    "Train a few hundred steps under torch.autocast('cuda', dtype=torch.float16). If "
    "they take just as long, this finding is wrong."
)
_CHECKS = {
    TensorCores.UNKNOWN: _TRY_TF32,
    TensorCores.TF32: _TRY_TF32,
    TensorCores.FLOAT16: _TRY_FLOAT16,
}

_RULE_ID = "float32_products"

_SAYS = Sentence(
    "the GPU spends {products} of each {step} step on float32 matrix products without tensor cores",
    products=TIME,
    step=TIME,
)
_BUSY = Sentence("the GPU is busy for {busy} of each step", busy=TIME)

#: Of the step that the GPU works. If it works less, the host or the input limits the training.
_MIN_BUSY = 0.80


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh the products, where the program lets none of any weight use TF32.

    Where it does, and the library still chose other kernels, no setting is known to help; nor where
    the GPU has no tensor cores.
    """
    step, work = facts.step, facts.step.gpu_work
    if work is None or work.ranks > 1 or step.flop is None or step.flop.computed_in != "float32":
        return None
    cores = tensor_cores([work.device])
    if cores is TensorCores.NONE:
        return None
    busy, part = work.busy_s / step.mean_s, work.float32_products_s / step.mean_s
    if busy < _MIN_BUSY or part < MIN_SHARE:
        return None
    fix, *others = FIXES[cores]
    return Finding(
        _RULE_ID,
        Severity.of(part),
        message=_SAYS(products=work.float32_products_s, step=step.mean_s),
        more=[_BUSY(busy=work.busy_s)],
        evidence=[
            Evidence(
                "float32_products_s",
                "float32 matrix products without tensor cores, per step",
                work.float32_products_s,
                "s",
            ),
            Evidence("float32_products_share", "share of the step", part, SHARE),
            Evidence("gpu_busy_s", "GPU busy, per step", work.busy_s, "s"),
            Evidence("gpu_busy_share", "GPU busy, share of the step", busy, SHARE),
            Evidence("profiled_steps", "steps recorded by torch.profiler", work.steps, ""),
        ],
        fix=fix,
        fix_more=others,
        condition=CONDITION,
        how_to_check=_CHECKS[cores],
        cost_s=min(work.float32_products_s, step.mean_s),
        cost_kind=CostKind.BOUND,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict.

    Tensor cores are from once to eight times as fast, which depends on the GPU and on the sizes.
    """
    return Refused(
        "unknown_kernels",
        "How much faster the products become depends on the GPU and on their sizes. Record a few "
        "hundred steps with TF32, and compare the "
        "runs with `feedline diff`.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("forward", "backward"),
    bound="GPU-bound",
    lifts=frozenset({"gpu", "step"}),
    supposing="if these products took no time",
    action="allow TF32 or bfloat16",
)
