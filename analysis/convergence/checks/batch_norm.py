"""How many samples batch norm takes its statistics from: too few, or more than it needs."""

from feedline.analysis.convergence.checks.setup import listed, norm_layers
from feedline.analysis.convergence.recorded import Recorded
from feedline.analysis.formatting import count, counted, number
from feedline.analysis.ledger.finding import Evidence, Finding, Severity

#: Parts of at least this many samples have batch statistics of their own: Hoffer and others (arXiv:1705.08741) used ghosts of 32 to 512.
_GHOST = 32
#: With fewer samples, statistics are too noisy: ResNet-50 on ImageNet has an error of 23.6, 23.7, 24.8, 27.3 and 34.7 % with 32, 16, 8, 4
#: and 2 images per GPU (Wu and He, arXiv:1803.08494, table 2).
_FEWEST = 8


def few_samples(recorded: Recorded) -> Finding | None:
    """Batch norm that normalizes with the statistics of a handful of samples."""
    models = [one for one in listed(recorded, "batch_norms") if one.get("layers") and 0 < (one.get("samples") or 0) < _FEWEST]
    if not models:
        return None
    model = min(models, key=lambda one: one["samples"])
    samples, layers = int(model["samples"]), int(model["layers"])
    per_rank = " on each rank" if recorded.ranks > 1 else ""
    return Finding(
        "few_samples_in_batch_norm",
        Severity.LOW,
        message=f"{counted(layers, 'batch norm layer')} normalize{'s' * (layers == 1)} with the statistics of "
        f"{counted(samples, 'sample')}{per_rank}: such statistics are noise (Wu and He, arXiv:1803.08494)",
        evidence=[
            Evidence("samples_of_forward", "samples per rank and forward", samples, "samples"),
            Evidence("batchnorm_layers", "batch norm layers", layers, "layers"),
        ],
        fix=_fix(samples, recorded, bool(model.get("gpu"))),
        how_to_check=f"Train once with {4 * _FEWEST} samples per forward for the same number of samples. If the evaluation is not better, "
        "this finding is wrong.",
    )


def _fix(samples: int, recorded: Recorded, gpu: bool) -> str:
    """SyncBatchNorm only where it works, which is on GPUs, and helps: with samples enough on all ranks together."""
    ranks, per_rank = recorded.ranks, " and rank" * (recorded.ranks > 1)
    group = "torch.nn.GroupNorm(32, channels) in place of batch norm"
    if gpu and ranks * samples >= _FEWEST:
        sync = "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before DistributedDataParallel"
        return f"{sync}: statistics then come from {count(ranks * samples)} samples. Or {group}."
    accumulates = recorded.batch is not None and recorded.batch >= 2 * ranks * samples
    one_by_one = " Accumulated micro-batches are normalized one by one." if accumulates else ""
    sync = " SyncBatchNorm needs GPUs." if ranks > 1 and not gpu else ""
    return f"Use {group}, or {4 * _FEWEST} samples per forward{per_rank}.{one_by_one}{sync}"


def sync_batch_norm(recorded: Recorded) -> Finding | None:
    """Statistics over all ranks where each rank has samples enough, or where ghost statistics are asked for."""
    synced = norm_layers(recorded).get("SyncBatchNorm", 0)
    part = _samples_of_forward(recorded)
    wanted = "ghost_bn" in recorded.fixes
    if not synced or recorded.ranks < 2 or not (wanted or part >= _GHOST):
        return None
    why = "but ghost_bn needs statistics of small groups" if wanted else f"although each rank has {number(part)} samples per forward"
    return Finding(
        "sync_batch_norm",
        Severity.LOW if wanted else Severity.INFO,
        message=f"{synced} SyncBatchNorm layers compute their statistics over all {recorded.ranks} ranks, {why}: this removes the "
        "regularizing noise of small groups, makes each layer wait for all ranks, and makes the ranks' gradients depend on each other",
        evidence=[
            Evidence("sync_batchnorm_layers", "SyncBatchNorm layers", synced, "layers"),
            Evidence("samples_of_rank", "samples per rank and forward", part, "samples"),
        ],
        fix="Remove convert_sync_batchnorm (in Lightning, sync_batchnorm=True): BatchNorm over a rank's own samples already is ghost batch "
        "norm."
        if part >= _GHOST
        else "Leave out ghost_bn, or convert_sync_batchnorm (in Lightning, sync_batchnorm=True).",
        how_to_check="Train without it for the same number of samples. If the validation loss is worse, this finding is wrong.",
    )


def _samples_of_forward(recorded: Recorded) -> float:
    """What one forward of a rank was given; of a run that does not hold it, what a rank has per update."""
    known = [one["samples"] for one in listed(recorded, "batch_norms") if one.get("synced") and one.get("samples")]
    return float(max(known)) if known else (recorded.batch or 0.0) / recorded.ranks
