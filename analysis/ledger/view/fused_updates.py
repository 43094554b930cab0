"""Whether torch can make the updates of an optimizer in one fused call."""

from feedline.analysis.measure.model import Updated
from feedline.analysis.traces.launching import Launching

#: Optimizers with such a call (torch.optim's documentation, "fused").
_FUSED = frozenset({"SGD", "Adam", "AdamW", "Adagrad"})


def may_be_fused(updated: Updated) -> bool:
    """Return whether ``fused=True`` is new to an optimizer, and torch takes it.

    torch refuses it where a gradient is sparse or a parameter complex; optimizers of other kinds do
    not have it.
    """
    refused = updated.fused or updated.sparse or updated.complex
    return {updated.kind, updated.updates_as} <= _FUSED and not refused


def may_be_fused_in(trace: Launching) -> bool:
    """Return the same of a trace, as far as it shows the updates."""
    kinds = trace.optimizers
    return bool(kinds) and kinds <= _FUSED and not trace.fused and not trace.sparse


def without_foreach(updated: Updated) -> str:
    """Return what to leave out with ``fused=True``: torch refuses both together."""
    return ", without foreach" if updated.foreach else ""
