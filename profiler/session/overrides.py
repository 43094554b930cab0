"""What ``--set`` asks for: other arguments of the training's DataLoader.

They act in this process and, by ``RecordingSettings``, in those below it.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feedline.profiler.session.hooks import Hooks
from feedline.profiler.store.manifest import OVERRIDES_HOOK

if TYPE_CHECKING:
    from feedline.profiler.taps.loader_override import LoaderOverride

#: Module whose import is awaited -> the module of a loader, and its name.
_LOADERS = {
    "torch": ("torch.utils.data", "DataLoader"),
    "torchdata.stateful_dataloader.stateful_dataloader": (
        "torchdata.stateful_dataloader.stateful_dataloader",
        "StatefulDataLoader",
    ),
}


class Overrides:
    """Changes of a training (session.Changes).

    Args:
        settings, made_at, strict: as of LoaderOverride.
    """

    def __init__(
        self, settings: Mapping[str, Any], made_at: str = "", strict: bool = False
    ) -> None:
        self.settings, self.made_at, self.strict = dict(settings), made_at, strict
        self._override: LoaderOverride | None = None
        self._patched: set[str] = set()

    @property
    def text(self) -> str:
        """``num_workers=4,in_order=False``."""
        return ",".join(f"{name}={value}" for name, value in self.settings.items())

    @property
    def failed(self) -> dict[str, str]:
        """Why it did not act."""
        if self._override is None:
            return {f"--set {self.text}": "the program never imported torch"}
        applied, why = self._override.outcome()
        return {} if applied else {f"--set {self.text}": why}

    def setup(self) -> dict[str, object]:
        return {"loader_arguments": self.text}

    def attach(self, hooks: Hooks) -> None:
        """Act once torch is imported, until ``hooks`` are undone.

        A second recording in this process is told what was done before it.
        """
        for awaited, (module, name) in _LOADERS.items():
            hooks.when_imported(awaited, functools.partial(self._arrived, hooks, module, name))

    def _arrived(self, hooks: Hooks, module: str, name: str) -> None:
        from feedline.profiler.taps.loader_override import LoaderOverride
        from feedline.profiler.taps.patch import Patches

        if self._override is None:
            self._override = LoaderOverride(
                self.settings, self.made_at, lambda *_: None, self.strict
            )
        self._override.report_to(functools.partial(hooks.report, OVERRIDES_HOOK))
        if module in self._patched:  # before the process was recorded
            return
        patches = Patches()
        self._override.attach(getattr(importlib.import_module(module), name), patches)
        self._patched.add(module)

        def undo() -> None:
            patches.undo()
            self._patched.discard(module)

        hooks.add_undo(undo)
