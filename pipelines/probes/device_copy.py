"""Copying within main memory; with a GPU also pinning a batch and copying it, by size.

The GPU gets it from pinned and from pageable memory.
"""

from collections.abc import Iterator
from functools import partial

import torch

from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    Subject,
    TimedPass,
    Workload,
    as_ceiling,
    measure_in_turns,
)
from feedline.profiler.ceilings import Ceiling

_MEBIBYTE = 1 << 20
_SIZES = (_MEBIBYTE, 8 * _MEBIBYTE, 32 * _MEBIBYTE, 128 * _MEBIBYTE)
_MEMORY_BYTES = 256 * _MEBIBYTE  # far above any cache
_WITHOUT_GPU = "needs a CUDA device, and there is none"


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure copies in main memory; with a GPU also pinning and copying to it. B/s."""
    source = (
        f"torch's copy_ of {_MEMORY_BYTES // _MEBIBYTE} MiB, all cores; bytes copied, not "
        f"bytes moved (twice as many)"
    )
    rates = measure_in_turns({"memory/copy": _memory_copy(_MEMORY_BYTES)}, subject.plan)
    yield as_ceiling(
        "memory/copy",
        rates["memory/copy"],
        unit="B/s",
        source=source,
        settings={"bytes": _MEMORY_BYTES},
    )
    if not torch.cuda.is_available():
        for part in ("pin", "copy"):
            yield as_ceiling(
                part, _WITHOUT_GPU, unit="B/s", per="device" if part == "copy" else "machine"
            )
        return
    works: dict[str, Workload] = {}
    for size in _SIZES:
        works[f"pin/{size // _MEBIBYTE} MiB"] = Workload(
            partial(_pinned, torch.zeros(size, dtype=torch.uint8))
        )
        for pinned in (True, False):
            works[f"copy/{'pinned' if pinned else 'pageable'} {size // _MEBIBYTE} MiB"] = (
                _copy_work(size, pinned)
            )
    measured = measure_in_turns(works, subject.plan)
    for name, rate in measured.items():
        size = int(name.split()[-2].rpartition("/")[2]) * _MEBIBYTE
        source = (
            "Tensor.pin_memory"
            if name.startswith("pin")
            else "Tensor.copy_ to the GPU, non_blocking, timed by CUDA events"
        )
        settings: dict[str, object] = {"bytes": size, "pinned": "pageable" not in name}
        yield as_ceiling(
            name,
            rate,
            unit="B/s",
            per="machine" if name.startswith("pin") else "device",
            source=source,
            settings=settings,
        )


def _memory_copy(size: int) -> Workload:
    """Copy one tensor to another in main memory."""
    source = torch.arange(size // 8, dtype=torch.int64)
    target = torch.zeros(size // 8, dtype=torch.int64)

    def run() -> int:
        target.copy_(source)
        if target[-1] != source[-1]:
            raise CannotMeasure("copy_ did not copy")
        return size

    return Workload(run)


def _pinned(source: torch.Tensor) -> int:
    """Copy to pinned memory.

    Torch's allocator gives back what an earlier batch had, as it does in a training once it is
    going.
    """
    batch = source.pin_memory()
    if not batch.is_pinned():
        raise CannotMeasure("pin_memory gave memory that is not pinned")
    return source.numel()


def _copy_work(size: int, pinned: bool) -> Workload:
    held: list[torch.Tensor] = []

    def prepare() -> None:
        if not held:
            batch = torch.randint(
                0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
            )
            held.extend(
                [
                    batch.pin_memory() if pinned else batch,
                    torch.empty(size, dtype=torch.uint8, device="cuda"),
                ]
            )
            held[1].copy_(held[0])
            if not torch.equal(held[0], held[1].cpu()):
                raise CannotMeasure("the data on the GPU is not what was sent")

    def run() -> TimedPass:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        held[1].copy_(held[0], non_blocking=True)
        end.record()
        end.synchronize()
        return TimedPass(size, start.elapsed_time(end) * 1e-3, 0.0)

    return Workload(run, prepare)
