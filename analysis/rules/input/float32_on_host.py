"""Pictures are made into float32 on the host: four times the bytes to collate, hand over and copy."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
)
from feedline.analysis.ledger.rule import CHEAPER, Rule
from feedline.analysis.ledger.view.input_wait import (
    input_wait,
    making_share,
    operations_share,
    severity,
)
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.text.sentences import SIZE, Sentence

_RULE_ID = "float32_on_host"

_SAYS = Sentence("batches hold images in floating point and take {batch}", batch=SIZE)
_QUARTER = "as uint8, images take a quarter of the bytes"

#: float32 has 4 bytes where the decoded uint8 had 1: three quarters of what is moved are the
#: conversion's.
_ADDED_BYTES = 0.75
_WIDE = 2.0  # bytes of a pixel

_CONVERSIONS = (
    "totensor",
    "to_tensor",
    "convertimagedtype",
    "convert_image_dtype",
    "todtype",
    "to_dtype",
    "tofloat",
    "normalize",
)


def _check(facts: RuleInputs) -> Finding | None:
    """Add up what the conversion, and the bytes it adds, cost.

    It is silent where no picture was decoded, where its values have 16 bits, or it is not worth a
    change.
    """
    loader, maker = facts.loader, facts.workers
    if loader is None or maker is None or "float32" not in loader.flags or not maker.decoded_pixels:
        return None
    if _are_wide(facts, maker.decoded_pixels):
        return None
    converting = operations_share(facts, _CONVERSIONS)
    making = min(1.0, converting + _ADDED_BYTES * making_share(facts, "collate"))
    moving_s = (
        input_wait(facts).transport_s
        + facts.step.stages.get("pin", 0.0)
        + facts.step.stages.get("copy", 0.0)
    )
    cost_s = input_wait(facts).making_s * making + _ADDED_BYTES * moving_s
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    evidence = [
        Evidence(
            "to_float32_share", "conversion to float32, share of a sample's time", converting, SHARE
        ),
        Evidence(
            "collate_share",
            "collate, share of a sample's time",
            making_share(facts, "collate"),
            SHARE,
        ),
        Evidence("moving_s", "transport (also within wait), pin and copy per step", moving_s, "s"),
    ]
    if loader.batch_bytes is not None:
        evidence.append(Evidence("batch_bytes", "bytes per batch", loader.batch_bytes, "B"))
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(batch=loader.batch_bytes),
        more=[_QUARTER],
        evidence=evidence,
        fix=f"Return uint8 tensors, then convert{_and_normalize(facts)} whole batches "
        f"{'on the device' if facts.on_gpu else 'in the loop'}.",
        place=making_line(facts),
        how_to_check="Have the loader return the uint8 tensors. If it is no faster, this finding "
        "is wrong.",
        cost_s=cost_s,
    )


def _are_wide(facts: RuleInputs, pixels: float) -> bool:
    """Tell whether a pixel has two bytes, as in X-rays and depth images: uint8 would lose one."""
    decoded = facts.costs.get("decode")
    if decoded is None or decoded.bytes is None:
        return False
    return round(decoded.bytes / pixels, 1) == _WIDE


def _and_normalize(facts: RuleInputs) -> str:
    return " and normalize" if operations_share(facts, ("normalize",)) else ""


def _change(facts: RuleInputs) -> Change | Refused:
    """Convert nothing on the host, and move a quarter of the bytes.

    It is refused where no other device takes the conversion over.
    """
    if not facts.step.stages.get("copy"):
        return Refused(
            "no_device",
            "No batch is copied to a device, so the conversion would become part of the step, "
            "where its duration is unknown. Convert whole "
            "batches in the training loop, and record again.",
        )
    left, augmenting = 1 - _ADDED_BYTES, 1 - operations_share(facts, _CONVERSIONS, "augment")
    moved = dict.fromkeys(("collate", "transport", "pin", "copy"), Factor(left, left))
    return Change(stages={**moved, "augment": Factor(augmenting, augmenting)})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=(
        "sample/augment/cpu",
        "sample/collate/cpu",
        "sample/transport",
        "transport",
        "pin",
        "copy",
    ),
    lifts=CHEAPER | {"step", "gpu", "ceiling"},
    of_input=True,
    action="convert to float per batch",
)
