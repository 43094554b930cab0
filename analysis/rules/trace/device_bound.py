"""Nothing holds the device back: it computes."""

from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view.tensor_cores import (
    CONDITION,
    FIXES,
    MIN_SHARE,
    TensorCores,
    tensor_cores,
)
from feedline.analysis.text.sentences import NAME, PART, PERCENT, Sentence
from feedline.analysis.traces.kernel_names import (
    ELEMENTWISE,
    FLOAT32_PRODUCT,
    NCHW_TO_NHWC,
    short_name,
)

_RULE_ID = "device_bound"
_MOSTLY = 0.80
_LESS_WORK = "Give the device less to do"
_COMPILE = "torch.compile, which fuses elementwise kernels"
_COMPILE_REST = "torch.compile for remaining elementwise kernels"
_REST = (
    "They come from code that is not compiled, or from graph breaks, which TORCH_LOGS=graph_breaks "
    "shows."
)
_CHANNELS_LAST = "channels_last for convolutions, whose inputs are converted now"
_OTHERWISE = (
    "Use a faster kernel for what takes the time, or less of it (the Kernels table of the HTML "
    "report shows it)."
)
_SAYS = Sentence("the device is computing for {part} of {whole}", part=PERCENT, whole=PART)
_TOP = Sentence("{part} of its busy time is {kernel}", part=PERCENT, kernel=PART)
_BESIDE = Sentence(
    "communication runs for {part} of {whole}, {hidden} of it while the device computes",
    part=PERCENT,
    whole=PART,
    hidden=PERCENT,
)
_PRODUCTS = Sentence(
    "{part} of its busy time is float32 matrix products without tensor cores", part=PERCENT
)
_BUSY = Sentence(
    "the device is busy for {part} of {whole}, but how much of that is computing is unknown",
    part=PERCENT,
    whole=PART,
)
_PERHAPS = Sentence(
    "{part} of its busy time is in kernels that may be communication by their names",
    part=PERCENT,
)
_NAMED = Sentence("most of these are {names}", names=NAME)
_FIND_OUT = [
    "Find out what these kernels do.",
    "If they move data between GPUs, the step waits for that, and faster computing does not help.",
]


def _check(facts: TraceFacts) -> Finding | None:
    """Say so where kernels compute nearly all the time.

    Where they may be communication as well, say that it is unknown.
    """
    part = facts.share("compute")
    if part < _MOSTLY or not facts.shown.gpu.busy_ns:
        return None
    if facts.perhaps_communication:
        return _unknown(facts, part)
    top = next((kernel for kernel in facts.shown.kernels if not kernel.communication), None)
    name = top.operator or short_name(top.name) if top else ""
    of = "one kernel of " if top and top.operator else ""
    more = [_TOP(part=top.busy_share, kernel=f"{of}{name}")] if top else []
    gpu = facts.shown.gpu
    beside, hidden = gpu.communication_ns / gpu.span_ns, (gpu.overlap_pct_of_comm or 0.0) / 100
    if beside * hidden >= MIN_SHARE:
        more.append(_BESIDE(part=beside, whole=facts.whole, hidden=hidden))
    cores = tensor_cores(facts.shown.devices.values())
    products = facts.busy_share(FLOAT32_PRODUCT)
    slow = products >= MIN_SHARE and cores is not TensorCores.NONE
    more += [_PRODUCTS(part=products)] if slow else []
    fix, *others = FIXES[cores] if slow else _less_work(facts)
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_SAYS(part=part, whole=facts.whole),
        more=more,
        evidence=[
            Evidence("compute_share", "computing", part, SHARE),
            *(
                [Evidence("kernel_share", f"busy time in {name}", top.busy_share, SHARE, name)]
                if top
                else []
            ),
            *(
                [Evidence("communication_share", "communicating", beside, SHARE)]
                if beside * hidden >= MIN_SHARE
                else []
            ),
            *(
                [
                    Evidence(
                        "float32_products_share",
                        "busy time in float32 matrix products",
                        products,
                        SHARE,
                    )
                ]
                if slow
                else []
            ),
        ],
        fix=fix,
        fix_more=others,
        condition=CONDITION if slow else "",
        how_to_check="Train on one batch that stays on the device. If the step gets much faster, "
        "this finding is wrong.",
    )


def _less_work(facts: TraceFacts) -> list[str]:
    """Say what gives the device less to do, of what its kernels show to be there, in sentences."""
    compiling = _COMPILE_REST if facts.shown.launching.compiled else _COMPILE
    ways = ((compiling, ELEMENTWISE), (_CHANNELS_LAST, NCHW_TO_NHWC))
    told = [way for way, kernels in ways if facts.busy_share(kernels) >= MIN_SHARE]
    if not told:
        return [_OTHERWISE]
    return [f"{_LESS_WORK}: {', '.join(told)}.", *([_REST] if _COMPILE_REST in told else [])]


def _unknown(facts: TraceFacts, part: float) -> Finding:
    found = facts.perhaps_communication
    total = sum(row.busy_share for row in found)
    names = " and ".join(dict.fromkeys(short_name(row.name) for row in found[:2]))
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=_BUSY(part=part, whole=facts.whole),
        more=[_PERHAPS(part=total), _NAMED(names=names)],
        evidence=[
            Evidence("busy_share", "busy with kernels", part, SHARE),
            Evidence(
                "perhaps_communication_share",
                "busy time in kernels that may be communication",
                total,
                SHARE,
            ),
        ],
        fix=_FIND_OUT[0],
        fix_more=_FIND_OUT[1:],
        how_to_check="If these kernels also run in a training on one GPU, they are not "
        "communication, and the device computes.",
    )


def _change(facts: TraceFacts) -> Refused:
    """Refuse to predict: there is nothing to fix."""
    return Refused(
        "nothing_to_change", "The device computes nearly all the time, so no fix is predicted."
    )


RULE: Rule[TraceFacts] = Rule(
    _RULE_ID, _check, _change, claims=("compute",), states=Statement.DEVICE_BUSY
)
