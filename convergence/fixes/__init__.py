"""The fixes, one module each: a function or class, and its ``FIX``.

The page beside it in docs/fixes says when it helps, what it costs and its source. The description
of local SGD is here, because its module is slow to import.
"""

from dataclasses import dataclass

from feedline.convergence.fix import Fix, FixValue
from feedline.convergence.fixes import (
    adamw,
    batch_growth,
    ghost_bn,
    gradient_noise,
    lamb,
    larc,
    lars,
    longer,
    lr_rule,
    muon,
    novograd,
    recalibrate_bn,
    soap,
    warmup,
)

_LOCAL_SGD_VALUE = (
    "4 (updates between two exchanges), 4:after=500 (post-local: from the 500th update on)"
)


@dataclass(frozen=True)
class _LocalSgdSetting:
    """Period and start of local SGD, in updates."""

    period: int
    after: int


def _parse_local_sgd(text: str) -> _LocalSgdSetting:
    value = FixValue.of(text, _LOCAL_SGD_VALUE, ("after",))
    period = FixValue.number(value.words[0] if len(value.words) == 1 else "", _LOCAL_SGD_VALUE)
    after = value.options.get("after", 0.0)
    if period < 1 or after < 0 or not (period.is_integer() and after.is_integer()):
        raise ValueError(f"{text!r} is not a setting of local SGD: expected {_LOCAL_SGD_VALUE}")
    return _LocalSgdSetting(int(period), int(after))


def _local_sgd_lines(setting: _LocalSgdSetting) -> str:
    after = f", after={setting.after}" if setting.after else ""
    return (
        "from feedline.convergence.fixes.local_sgd import local_sgd\n\n"
        "model = DistributedDataParallel(model, broadcast_buffers=False)\n"
        f"optimizer = local_sgd(model, optimizer, period={setting.period}{after})  # before a "
        f"scheduler is made"
    )


_LOCAL_SGD = Fix(
    name="local_sgd",
    value=_LOCAL_SGD_VALUE,
    summary="ranks average their weights every few updates instead of gradients in every update; "
    "for slow networks, not for accuracy",
    parse=_parse_local_sgd,
    lines=_local_sgd_lines,
)

# cheapest first
FIXES: list[Fix] = [
    lr_rule.FIX,
    warmup.FIX,
    longer.FIX,
    ghost_bn.FIX,
    recalibrate_bn.FIX,
    gradient_noise.FIX,
    batch_growth.FIX,
    _LOCAL_SGD,
    lars.FIX,
    larc.FIX,
    lamb.FIX,
    novograd.FIX,
    muon.FIX,
    soap.FIX,
    adamw.FIX,
]
