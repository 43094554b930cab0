"""Calls functions when the program imports a module. Imports nothing itself.

A finder at the head of sys.meta_path looks the module up where the others would find it, and its
loader tells when the module has run.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from feedline.profiler.fail_open import fail_open

_Arrived = Callable[[ModuleType], None]


class _ImportArrivals:
    """Import hook in sys.meta_path while a module is awaited.

    It has no lock, which a fork could leave locked.
    """

    def __init__(self) -> None:
        self._awaited: dict[str, list[_Arrived]] = {}

    def when_imported(self, name: str, arrived: _Arrived) -> Callable[[], None]:
        """Call ``arrived`` once a module has run, in the thread that imports it.

        It is called at once if the module is already imported. What it raises is dropped: it would
        end the program's import.

        Returns:
            What ends the waiting.
        """
        module = sys.modules.get(name)
        if module is not None:
            _call(arrived, module)
            return lambda: None
        self._awaited.setdefault(name, []).append(arrived)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        return lambda: self._wait_no_more(name, arrived)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec found by the later finders, with a loader that reports the import.

        None: the module is not awaited.
        """
        if name not in self._awaited:
            return None
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if not isinstance(spec.loader, type) and hasattr(spec.loader, "exec_module"):
                    spec.loader = _NotifyingLoader(spec.loader, self._notify)  # type: ignore[assignment]
                return spec
        return None

    def _notify(self, module: ModuleType) -> None:
        for arrived in self._awaited.pop(module.__name__, ()):
            _call(arrived, module)

    def _wait_no_more(self, name: str, arrived: _Arrived) -> None:
        waiting = [callback for callback in self._awaited.pop(name, ()) if callback is not arrived]
        if waiting:
            self._awaited[name] = waiting
        if not self._awaited:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]


def _call(arrived: _Arrived, module: ModuleType) -> None:
    with fail_open:
        arrived(module)


class _NotifyingLoader:
    """Wraps a loader until its module has run.

    By then, module and spec have their own loader again.

    Args:
        notify: called with the module when it has run; not where that raised.
    """

    def __init__(self, loader: Any, notify: _Arrived) -> None:
        self._loader, self._notify = loader, notify

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        for place, name in ((module.__spec__, "loader"), (module, "__loader__")):
            if getattr(place, name, None) is self:
                setattr(place, name, self._loader)
        self._loader.exec_module(module)
        self._notify(module)


arrivals = _ImportArrivals()
