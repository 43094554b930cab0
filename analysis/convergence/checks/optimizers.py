"""Settings that make an optimizer another than its name says."""

from feedline.analysis.convergence.checks.setup import groups_of, listed
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.ledger.finding import Evidence, Finding, Severity

_LAYERWISE = ("lars", "larc", "lamb", "lambc")
#: Libraries whose LARS has its rate outside the momentum (docs/measured/optimizer-differences.md).
_OUTSIDE = ("pytorch_optimizer", "torch_optimizer", "timm")


def layerwise_without_decay(recorded: Recorded) -> Finding | None:
    """LARS or LAMB of a library that does not adapt tensors without weight decay."""
    for optimizer in listed(recorded, "optimizers"):
        kind, module = str(optimizer.get("kind")), str(optimizer.get("module"))
        if kind.lower() not in _LAYERWISE or module.startswith("feedline."):
            continue
        groups = [group for group in groups_of(optimizer) if (group.get("tensors") or 0) > (group.get("vectors") or 0)]
        bare = [group for group in groups if not group.get("weight_decay")]
        if not bare:
            continue
        plain = "Adam" if "lamb" in kind.lower() else "SGD"
        return Finding(
            "layerwise_without_decay",
            Severity.LOW,
            message=f"{kind} of {module} has weight decay 0 in {len(bare)} of {len(groups)} parameter groups with matrices: several "
            f"libraries then skip the trust ratio, so the optimizer becomes plain {plain}",
            evidence=[Evidence("groups_without_decay", "groups without weight decay", len(bare), "groups")],
            fix="Set a weight decay, however small, or always_adapt=True if the library has it; feedline's version always adapts.",
            how_to_check="Compare |update| / |weight| of two layers. If equal, the trust ratio is applied and this finding is wrong.",
        )
    return None


def rate_outside_momentum(recorded: Recorded) -> Finding | None:
    """A layer-wise optimizer that multiplies the rate outside its momentum, while the rate changes."""
    for optimizer in listed(recorded, "optimizers"):
        if str(optimizer.get("kind")).lower() not in ("lars", "larc") or str(optimizer.get("module")).split(".")[0] not in _OUTSIDE:
            continue
        if not listed(recorded, "schedulers"):
            continue
        return Finding(
            "rate_outside_momentum",
            Severity.INFO,
            message=f"{optimizer.get('kind')} applies the learning rate after the momentum; the paper (You et al., arXiv:1708.03888) "
            "applies it before: while the learning rate rises, past gradients are scaled by the new rate",
            fix="Use feedline.convergence.fixes.lars.Lars, or a longer warm-up.",
            how_to_check="If the learning rate is constant, both forms are equivalent and this finding does not matter.",
        )
    return None
