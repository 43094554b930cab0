"""What some tests need that a machine may lack; each says what is missing."""

import os
from pathlib import Path

import pytest

from feedline.cli.verify import write_guard

LANDLOCK = pytest.mark.skipif(
    write_guard.version() < 3, reason="Landlock is off, or older than Linux 6.2"
)
GLIBC = pytest.mark.skipif(
    "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="malloc is not glibc's"
)

#: Real traces are not part of the repository: they lie beside the checkout.
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


def real_traces(pattern: str) -> list[Path]:
    """Return the real traces of this name; where there are none, skip the test."""
    paths = sorted(TRACES.glob(pattern))
    if not paths:
        pytest.skip(f"{pattern} is not in {TRACES}: real traces are not part of the repository")
    return paths
