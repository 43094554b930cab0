"""The fixes requested with ``--fix``."""

from dataclasses import dataclass
from typing import Any

from feedline.convergence.fix import Fix
from feedline.convergence.fixes import FIXES
from feedline.profiler.errors import FixError


@dataclass(frozen=True)
class Request:
    """One fix and its setting."""

    fix: Fix
    text: str
    setting: Any

    @property
    def lines(self) -> str:
        """The lines that the user would write."""
        return self.fix.lines(self.setting)


def parse(text: str) -> list[Request]:
    """Read ``NAME=VALUE,NAME=VALUE,...``.

    Raises:
        FixError: an unknown fix, an invalid value, a fix that cannot be applied from outside, or two that contradict each other.
    """
    known = {fix.name: fix for fix in FIXES}
    requests: list[Request] = []
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        fix = known.get(name.strip())
        if fix is None:
            raise FixError(f"unknown fix {name.strip()!r}; the fixes are {', '.join(sorted(known))}")
        try:
            requests.append(Request(fix, part.strip(), fix.parse(value.strip())))
        except ValueError as error:
            raise FixError(f"{part.strip()}: {error}") from error
    _check(requests)
    return requests


def _check(requests: list[Request]) -> None:
    names = [request.fix.name for request in requests]
    if not requests:
        raise FixError("--fix is empty: expected NAME=VALUE,..., such as warmup=5ep,lr_rule=sqrt")
    if len(set(names)) < len(names):
        raise FixError(f"a fix is given twice in {','.join(names)}")
    for request in requests:
        if request.fix.attach is None:
            raise FixError(f"{request.fix.name} cannot be applied from outside; add it to the program:", f"\n{request.lines}")
    optimizers = [request.fix.name for request in requests if request.fix.replaces_optimizer]
    if len(optimizers) > 1:
        raise FixError(f"{' and '.join(optimizers)} are optimizers: use only one")
    if optimizers and "lr_rule" in names:
        raise FixError(f"{optimizers[0]} sets its own learning rate: leave out lr_rule")
