"""Local SGD as ``--fix local_sgd=VALUE``, which prints the lines to add: it replaces an exchange that the program sets up."""

from dataclasses import dataclass
from typing import Any

from feedline.convergence.fix import Fix
from feedline.convergence.value import Value, number

__all__ = ["FIX", "LocalSgd", "local_sgd"]  # noqa: F822

_VALUE = "4 (updates between two exchanges), 4:after=500 (post-local: from the 500th update on)"


def __getattr__(name: str) -> Any:
    """Import `LocalSgd` and `local_sgd` on first use, because torch.distributed.optim takes a while."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from feedline.convergence import local_sgd_optimizer

    return getattr(local_sgd_optimizer, name)


@dataclass(frozen=True)
class Setting:
    """Both in updates."""

    period: int
    after: int


def parse(text: str) -> Setting:
    value = Value.of(text, _VALUE, ("after",))
    period, after = number(value.words[0] if len(value.words) == 1 else "", _VALUE), value.options.get("after", 0.0)
    if period < 1 or after < 0 or not (period.is_integer() and after.is_integer()):
        raise ValueError(f"{text!r} is not a setting of local SGD: expected {_VALUE}")
    return Setting(int(period), int(after))


def lines(setting: Setting) -> str:
    after = f", after={setting.after}" if setting.after else ""
    return (
        "from feedline.convergence.fixes.local_sgd import local_sgd\n\n"
        "model = DistributedDataParallel(model, broadcast_buffers=False)\n"
        f"optimizer = local_sgd(model, optimizer, period={setting.period}{after})  # before a scheduler is made"
    )


FIX = Fix(
    name="local_sgd",
    value=_VALUE,
    summary="ranks average their weights every few updates instead of gradients in every update; for slow networks, not for accuracy",
    parse=parse,
    lines=lines,
)
