"""Nothing holds the device back: it computes."""

from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.formatting import share
from feedline.analysis.predict.change import Refused
from feedline.analysis.rules.loop.float32_products import FIX, MIN_SHARE
from feedline.analysis.traces.facts import TraceFacts
from feedline.analysis.traces.kinds_of_work import FLOAT32_PRODUCT

RULE_ID = "device_bound"
MOSTLY = 0.80


def check(facts: TraceFacts) -> Finding | None:
    """Say so where kernels compute nearly all the time."""
    part = facts.share("compute")
    if part < MOSTLY or not facts.shown.gpu.busy_ns:
        return None
    top = facts.shown.kernels[0] if facts.shown.kernels else None
    name = top.operator or top.name.split("(")[0][:60] if top else ""
    of = "one kernel of " if top and top.operator else ""
    where = f"; {share(top.busy_share)} of its busy time is {of}{name}" if top else ""
    products = sum(kernel.busy_share for kernel in facts.shown.kernels if FLOAT32_PRODUCT.search(kernel.name))
    slow = products >= MIN_SHARE
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"the device is computing for {share(part)} of {facts.whole}{where}"
        + (f"; {share(products)} is float32 matrix products without tensor cores" if slow else ""),
        evidence=[
            Evidence("compute_share", "computing", part, SHARE),
            *([Evidence("kernel_share", f"busy time in {name}", top.busy_share, SHARE, name)] if top else []),
            *([Evidence("float32_products_share", "busy time in float32 matrix products", products, SHARE)] if slow else []),
        ],
        fix=FIX if slow else f"Give the device less to do: a lower precision (torch.autocast), torch.compile{_of_convolutions(facts)}.",
        how_to_check="Train on one batch that stays on the device. If the step gets much faster, this finding is wrong.",
    )


def _of_convolutions(facts: TraceFacts) -> str:
    """A memory format for convolutions, where some were traced."""
    traced = any("conv" in f"{kernel.operator} {kernel.name}".lower() for kernel in facts.shown.kernels)
    return ", channels_last for convolutions" if traced else ""


def change(facts: TraceFacts) -> Refused:
    """Nothing is predicted: there is nothing to fix."""
    return Refused("nothing_to_change", "The device computes nearly all the time, so no fix is predicted.")
