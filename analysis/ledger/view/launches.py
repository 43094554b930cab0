"""What to do where a device waits for its host to launch work: of recorded runs and of traces."""

from feedline.analysis.ledger.finding import Refused
from feedline.analysis.measure.model import Updated
from feedline.analysis.traces.launching import Launching

#: Optimizers with such a call (torch.optim's documentation, "fused").
_FUSED_ON_CPU = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})
_LONG_S = 1e-3  # of a kernel: launching takes some 10 us
_IDLE_S = 100e-6  # per kernel: ten times as long
_FEWER = "Launch fewer and longer kernels: {}{}{}larger batches."
_FUSED = "fused optimizers (fused=True{}), "
_BETWEEN = (
    "Look at what the host does between launches, for example with py-spy: launching these "
    "kernels takes far less time than that."
)
_CHECK_COMPILED = (
    "Train a few hundred steps with torch.compile(model, mode='reduce-overhead'). This finding is "
    "wrong only if all three hold: the "
    "steps take just as long, TORCH_LOGS=cudagraphs shows that CUDA graphs were used, and py-spy "
    "shows no slow Python outside the model."
)
_CHECK_BETWEEN = (
    "Watch the main process with `py-spy top`. If it spends its time waiting for the "
    "GPU, this finding is wrong."
)


def may_be_fused(updated: Updated) -> bool:
    """Return whether ``fused=True`` is new to an optimizer, and torch takes it.

    torch refuses it where a gradient is sparse or a parameter complex; optimizers of other kinds do
    not have it.
    """
    refused = updated.fused or updated.sparse or updated.complex
    return {updated.kind, updated.updates_as} <= _FUSED_ON_CPU and not refused


def _may_be_fused_in(trace: Launching) -> bool:
    """Return the same of a trace, as far as it shows the updates."""
    kinds = trace.optimizers
    return bool(kinds) and kinds <= _FUSED_ON_CPU and not trace.fused and not trace.sparse


def without_foreach(updated: Updated) -> str:
    """Return what to leave out with ``fused=True``: torch refuses both together."""
    return ", without foreach" if updated.foreach else ""


def fix(
    mean_kernel_s: float, idle_s: float, compiled: bool = False, updated: Updated | None = None
) -> str:
    """Return what to change.

    Args:
        mean_kernel_s: mean duration of a kernel.
        idle_s: of the device, per kernel.
        compiled: torch.compile was seen to compile the model.
        updated: what the optimizer updates. None: not known.
    """
    fused = updated is None or may_be_fused(updated)
    without = "" if updated is None else without_foreach(updated)
    return _fix(mean_kernel_s, idle_s, compiled, False, _FUSED.format(without) if fused else "")


def fix_in(trace: Launching, mean_kernel_s: float, idle_s: float) -> str:
    """Return the same for a trace, without what it has already."""
    fused = _FUSED.format("") if _may_be_fused_in(trace) else ""
    return _fix(mean_kernel_s, idle_s, trace.compiled, trace.graphs, fused)


def _fix(mean_kernel_s: float, idle_s: float, compiled: bool, graphs: bool, fused: str) -> str:
    if _between(mean_kernel_s, idle_s):
        return _BETWEEN
    return _FEWER.format(
        "" if compiled else "torch.compile, ", "" if graphs else "CUDA graphs, ", fused
    )


def how_to_check(mean_kernel_s: float, idle_s: float) -> str:
    """Return what to do, and what would prove the finding wrong. Arguments as for ``fix``."""
    return _CHECK_BETWEEN if _between(mean_kernel_s, idle_s) else _CHECK_COMPILED


def _between(mean_kernel_s: float, idle_s: float) -> bool:
    return mean_kernel_s >= _LONG_S or idle_s >= _IDLE_S


def change(run: object) -> Refused:
    """Refuse to predict: how much of it a compiler saves is unknown.

    So is what else the host does.
    """
    return Refused(
        "unknown_launches",
        "How much of what the host does while the device is idle can be avoided is unknown.",
    )
