"""Replace attributes of other people's modules and classes, and put them back."""

from typing import Any

_MISSING = object()


class Patches:
    """Remembers what it replaced. ``undo`` restores the originals in reverse order, except where somebody else replaced ours since."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, new: Any) -> None:
        """``owner.name = new``; an inherited attribute is shadowed and later unshadowed."""
        old = vars(owner).get(name, _MISSING)
        setattr(owner, name, new)
        self._done.append((owner, name, old, vars(owner)[name]))

    def undo(self) -> None:
        for owner, name, old, new in reversed(self._done):
            if vars(owner).get(name, _MISSING) is not new:
                continue
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._done.clear()
