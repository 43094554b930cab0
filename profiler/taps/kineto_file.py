"""Masks the trace of a torch.profiler window: the machine's name, and folders in names and in the file itself."""

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from feedline.profiler import masks

_OF_THE_MACHINE = re.compile(r'("(?:host_name|traceName)"\s*:\s*")[^"]*')
_LEVEL = 6  # of gzip


def pack(exported: Path, to: BinaryIO) -> None:
    """Compress what ``export_chrome_trace`` wrote, line by line.

    Raises:
        OSError: no room.
    """
    with exported.open(encoding="utf-8", errors="surrogateescape") as lines, gzip.GzipFile("", "wb", _LEVEL, to, 0) as packed:
        packed.writelines(line.encode("utf-8", "surrogateescape") for line in _masked(lines))


def _masked(lines: Iterable[str]) -> Iterator[str]:
    """The lines, masked where they may contain a path or a name that the program gave; few lines of a trace do."""
    for line in lines:
        if '"host_name"' in line or '"traceName"' in line:
            line = _OF_THE_MACHINE.sub(rf"\1{masks.MASK}", line)
        elif "/" in line or '"name"' in line and "::" not in line:
            line = masks.text(line)
        yield line
