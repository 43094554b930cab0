"""Settings that make an optimizer another than its name says, and layers at odds with it."""

from feedline.analysis.convergence.checks.setup import groups_of, listed, norm_layers
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import number

LAYERWISE = ("lars", "larc", "lamb", "lambc")
#: Libraries whose LARS has its rate outside the momentum (docs/measured/optimizer-differences.md).
OUTSIDE = ("pytorch_optimizer", "torch_optimizer", "timm")
#: Parts of at least so many samples have batch statistics of their own: Hoffer and others (arXiv:1705.08741) used ghosts of 32 to 512.
GHOST = 32


def layerwise_without_decay(recorded: Recorded) -> Finding | None:
    """LARS or LAMB of a library that does not adapt tensors without weight decay."""
    for optimizer in listed(recorded, "optimizers"):
        kind, module = str(optimizer.get("kind")), str(optimizer.get("module"))
        if kind.lower() not in LAYERWISE or module.startswith("feedline."):
            continue
        groups = [group for group in groups_of(optimizer) if (group.get("tensors") or 0) > (group.get("vectors") or 0)]
        bare = [group for group in groups if not group.get("weight_decay")]
        if not bare:
            continue
        plain = "Adam" if "lamb" in kind.lower() else "SGD"
        return Finding(
            "layerwise_without_decay",
            Severity.LOW,
            says=f"{kind} of {module} runs with weight decay 0 on {len(bare)} of {len(groups)} groups that hold matrices: "
            f"several libraries leave out the trust ratio then, and it is {plain} under another name",
            evidence=[Evidence("groups_without_decay", "groups without weight decay", len(bare), "groups")],
            fix="give it a weight decay, however small, or always_adapt=True where the library has it; feedline's adapts either way",
            disproof="layers whose update divided by their weight's norm is the same",
        )
    return None


def rate_outside_momentum(recorded: Recorded) -> Finding | None:
    """A layer-wise optimizer that multiplies the rate outside its momentum, while the rate changes."""
    for optimizer in listed(recorded, "optimizers"):
        if str(optimizer.get("kind")).lower() not in ("lars", "larc") or str(optimizer.get("module")).split(".")[0] not in OUTSIDE:
            continue
        if not listed(recorded, "schedulers"):
            continue
        return Finding(
            "rate_outside_momentum",
            Severity.INFO,
            says=f"{optimizer.get('kind')} multiplies the rate outside its momentum, and the paper (You and others, arXiv:1708.03888) "
            "inside: while the rate rises, old gradients are taken at the new rate",
            fix="feedline.convergence.fixes.lars.Lars, or a longer warm-up",
            disproof="a constant rate, at which both are the same",
        )
    return None


def sync_batch_norm(recorded: Recorded) -> Finding | None:
    """Statistics over all ranks where each rank has samples enough, or where ghost statistics are asked for."""
    synced = norm_layers(recorded).get("SyncBatchNorm", 0)
    part = recorded.batch / recorded.ranks if recorded.batch else 0.0
    wanted = "ghost_bn" in recorded.fixes
    if not synced or recorded.ranks < 2 or not (wanted or part >= GHOST):
        return None
    why = "while ghost_bn asks for those of small groups" if wanted else f"although each rank has {number(part)} samples of its own"
    return Finding(
        "sync_batch_norm",
        Severity.LOW if wanted else Severity.INFO,
        says=f"{synced} SyncBatchNorm layers take their statistics over all {recorded.ranks} ranks, {why}: the noise of small groups, "
        "which regularises, is gone, each layer waits for all ranks, and the ranks' gradients are not independent",
        evidence=[
            Evidence("sync_batchnorm_layers", "SyncBatchNorm layers", synced, "layers"),
            Evidence("samples_of_rank", "samples of a rank in an update", part, "samples"),
        ],
        fix="leave out convert_sync_batchnorm: BatchNorm over a rank's own samples is ghost batch norm already",
        disproof="a validation loss that is worse without it at equal samples",
    )
