"""``--set NAME=VALUE,...``: arguments of the DataLoader, and what else may be changed."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from feedline.cli.options import at_least, positive
from feedline.cli.parser import suggestion
from feedline.profiler.errors import ScriptError

Value = int | float | bool | str
_Known = Mapping[str, Callable[[str], Value]]  # name -> type of its value
MAX_WORKERS = 4096
WORKER_THREADS = "worker_threads"  # threads per library in each worker
_MAX_PREFETCHED = 4096  # batches per worker
_FOR_WORKERS = ("prefetch_factor", "persistent_workers")  # torch refuses them without workers


def _yes_or_no(text: str) -> bool:
    """Parse ``true`` or ``false``, in any case: as in Python, or in YAML."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected true or false, got {text[:40]!r}")
    return text.lower() == "true"


def _start_method(text: str) -> str:
    """Check how workers are started."""
    if text not in ("fork", "spawn", "forkserver"):
        raise argparse.ArgumentTypeError(f"expected fork, spawn or forkserver, got {text[:40]!r}")
    return text


#: Arguments of the DataLoader.
LOADER: _Known = {
    "num_workers": at_least(0, MAX_WORKERS),
    "prefetch_factor": at_least(1, _MAX_PREFETCHED),
    "in_order": _yes_or_no,
    "persistent_workers": _yes_or_no,
    "pin_memory": _yes_or_no,
    "batch_size": at_least(1),
}
#: What `run` and `verify` can change in a training that runs.
OVERRIDES: _Known = {
    **LOADER,
    "multiprocessing_context": _start_method,
    WORKER_THREADS: at_least(1, 1024),
}
#: The machine.
MACHINE: _Known = {"cores": positive}
#: What makes a sample. Its cost is measured before anything is predicted.
SAMPLE: _Known = {"decode": str, "image_size": at_least(1), "store": str, "device": str}


class _MergeSettings(argparse.Action):
    """Merges what several ``--set`` say; a name given twice is refused."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before: dict[str, Value] = getattr(namespace, self.dest)
        given: dict[str, Value] = values or self.const  # a flag has no value of its own
        for name in given:
            if name in before:
                raise argparse.ArgumentError(self, f"{name} is given twice")
        setattr(namespace, self.dest, {**before, **given})


def add_settings(group: argparse._ActionsContainer, known: _Known, text: str) -> None:
    """Add ``--set``, which may be repeated; ``args.settings`` is {name: value}, in the order given.

    Args:
        group: of options.
        known: names that the command takes.
        text: its help.
    """
    group.add_argument(
        "--set",
        dest="settings",
        type=_settings_of(known),
        action=_MergeSettings,
        default={},
        metavar="NAME=VALUE,...",
        help=text,
    )


def add_shortcuts(group: argparse._ActionsContainer) -> None:
    """Add ``--workers N`` and the like, which are settings of ``add_settings`` by shorter names."""
    for flag, name, metavar in (
        ("--workers", "num_workers", "N"),
        ("--prefetch", "prefetch_factor", "N"),
        ("--persistent", "persistent_workers", None),
    ):
        set_one = {"type": _setting(name)} if metavar else {"nargs": 0, "const": {name: True}}
        group.add_argument(
            flag,
            dest="settings",
            action=_MergeSettings,
            default={},
            metavar=metavar,
            help=f"short for --set {name}={metavar or 'true'}",
            **set_one,
        )


def _setting(name: str) -> Callable[[str], dict[str, Value]]:
    """Return a type for the value of a setting of the DataLoader."""
    return lambda text: {name: LOADER[name](text)}


def _settings_of(known: _Known) -> Callable[[str], dict[str, Value]]:
    """Return a type for ``num_workers=4,in_order=false``."""

    def settings(text: str) -> dict[str, Value]:
        settings_by_name: dict[str, Value] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            name, sign, value = (piece.strip() for piece in part.partition("="))
            if name not in known:
                names = ", ".join(known)
                raise argparse.ArgumentTypeError(
                    f"unknown setting {name[:40]!r}{suggestion(name, known)}; settings: {names}"
                )
            if not sign or not value:
                raise argparse.ArgumentTypeError(
                    f"expected NAME=VALUE, such as num_workers=4, got {part[:40]!r}"
                )
            if name in settings_by_name:
                raise argparse.ArgumentTypeError(f"{name} is given twice")
            try:
                settings_by_name[name] = known[name](value)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentTypeError(f"{name}: {error}") from None
        if not settings_by_name:
            raise argparse.ArgumentTypeError(
                f"expected NAME=VALUE, such as num_workers=4, got {text[:40]!r}"
            )
        return settings_by_name

    return settings


def refuse_impossible(given: Mapping[str, Value], now: Mapping[str, object]) -> None:
    """Check that the DataLoader would take these arguments.

    Args:
        given: by the user.
        now: settings of the loader as recorded.

    Raises:
        ScriptError: a setting of workers, without workers.
    """
    if given.get("num_workers", now.get("num_workers")) != 0:
        return
    for name in _FOR_WORKERS:
        if given.get(name):
            why = "num_workers=0" if "num_workers" in given else "this training has num_workers=0"
            raise ScriptError(
                f"--set {as_typed({name: given[name]})}: {why}, and {name} needs workers: add "
                f"num_workers=1 or more"
            )


def as_code(settings: Mapping[str, Value]) -> str:
    """Return ``num_workers=2, in_order=False``: as Python has it."""
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in settings.items()
    )


def as_typed(settings: Mapping[str, Value]) -> str:
    """Return ``num_workers=2,in_order=false``: as ``--set`` takes it."""
    return as_code(
        {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in settings.items()
        }
    ).replace(", ", ",")
