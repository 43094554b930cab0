"""The stages as NVTX ranges in the domain ``feedline``, for Nsight Systems and other NVTX tools.

A tap holds what ``ranges()`` returned. Without a tool that is None, a range costs one ``is None`` check, and nvtx is not even imported.

A tool is a library that NVTX loads once per process, at the first call, from the path in NVTX_INJECTION64_PATH; none can be attached later.
What that means for loader workers (tests/nvtx/test_nvtx_in_workers.py):

spawn, forkserver  The environment is inherited and the worker loads the tool for itself.
fork               A tool that the parent had loaded is inherited as it was: its callbacks run in the worker, its threads do not. One that
                   the parent had not loaded is loaded by the worker. Nsight Systems needs ``--trace-fork-before-exec=true`` to see either
                   (NVIDIA's forum; not run here, there was no Nsight Systems).

NVTX nests ranges per thread and domain: push and pop in the same thread.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from feedline.profiler import masks
from feedline.profiler.events import Stage

_DOMAIN = "feedline"
_INJECTION = "NVTX_INJECTION64_PATH" if sys.maxsize > 2**32 else "NVTX_INJECTION32_PATH"
# NVTX keeps every name for the life of the process; a program that makes up names without end gets
# "other" after these
_MAX_NAMES = 4096

#: The range of each stage.
NAMES: dict[Stage, str] = {stage: stage.name.lower() for stage in Stage if stage is not Stage.NAME}


class NvtxRanges:
    """Pushes and pops ranges of one domain, from any thread. Unpickling it calls ``ranges()``."""

    def __init__(self, domain: Any) -> None:
        self._named = _Attributes(domain)
        self._mine = _PerThread(domain)
        self._push: Callable[[Any], None] = domain.push_range
        #: Ends the range of this thread that was pushed last.
        self.pop: Callable[[], None] = domain.pop_range

    def push(self, name: str, payload: int | None = None) -> None:
        """Begin a range.

        Args:
            name: a stage of ``NAMES``, or a user's own.
            payload: a number that the tool shows with the range: bytes, where a stage has bytes.
                Left out where it does not fit in int64.
        """
        if payload is None:
            self._push(self._named[name])
            return
        attributes = self._mine.named[name]
        try:
            attributes.payload = int(payload)
        except (OverflowError, TypeError, ValueError):
            attributes = self._named[name]
        self._push(attributes)

    def __reduce__(self) -> tuple[Callable[[], "NvtxRanges | None"], tuple[()]]:
        return ranges, ()


def listening() -> bool:
    """Return whether an NVTX tool listens to this process, from the environment alone.

    It is cheap, and imports nothing. NVTX_DISABLE means no.
    """
    return bool(os.environ.get(_INJECTION)) and not os.environ.get("NVTX_DISABLE")


def ranges() -> NvtxRanges | None:
    """Return the ranges of the domain ``feedline``.

    None: no tool listens, it cannot be loaded, or the package nvtx is missing.
    """
    attached = _attach()
    return attached if isinstance(attached, NvtxRanges) else None


def _why_not_listening() -> str | None:
    """Say why ``ranges()`` is None, for ``feedline env``; None if there are ranges."""
    attached = _attach()
    return attached if isinstance(attached, str) else None


def _attach() -> NvtxRanges | str:
    if os.environ.get("NVTX_DISABLE"):
        return "NVTX_DISABLE is set"
    if not listening():
        return f"no NVTX tool listens ({_INJECTION} is not set)"
    try:
        import nvtx
    except Exception as error:
        return (
            f"an NVTX tool listens, but the package nvtx cannot be imported "
            f"({masks.error(error)}): pip install nvtx"
        )
    try:
        domain = nvtx.get_domain(_DOMAIN)
        # nvtx gives a domain without attributes when no tool was loaded; it says so in no other
        # way.
        if domain.get_event_attributes("next") is None:
            return (
                f"NVTX could not load the tool at {_INJECTION}={masks.path(os.environ[_INJECTION])}"
            )
        return NvtxRanges(domain)
    except Exception as error:
        return (
            f"this version of nvtx lacks what is needed ({masks.error(error)}): pip install -U nvtx"
        )


class _Attributes(dict[str, Any]):
    """Name -> EventAttributes, created on first use."""

    def __init__(self, domain: Any) -> None:
        super().__init__()
        self._make = domain.get_event_attributes

    def __missing__(self, name: str) -> Any:
        if len(self) >= _MAX_NAMES:
            return self["other"] if "other" in self else self._keep("other")
        return self._keep(name)

    def _keep(self, name: str) -> Any:
        # A file name can hold what UTF-8 cannot; nvtx would raise.
        attributes = self[name] = self._make(name.encode(errors="backslashreplace").decode())
        return attributes


class _PerThread(threading.local):
    """EventAttributes per thread.

    Another thread could change the payload between setting and pushing.
    """

    def __init__(self, domain: Any) -> None:
        self.named = _Attributes(domain)
