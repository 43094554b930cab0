"""Peak compute of the device: a matrix product per data type."""

import time

import torch

from feedline.pipelines.probes.measure import Refused, Work

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LONG_ENOUGH_S = 0.02  # a product that takes this long hides what its launch costs
SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)


def matmul(dtype: torch.dtype, device: str) -> tuple[Work, int]:
    """Square matrices, the smallest of ``SIZES`` that keeps the device busy for long enough.

    Returns:
        The work, whose unit is FLOP (2 n^3 a product), and n.

    Raises:
        Refused: the result is wrong. RuntimeError: torch cannot multiply these.
    """
    for size in SIZES:
        work = product(size, dtype, device)
        took = min(_seconds(work) for _ in range(3))  # who else uses the machine makes it longer, never shorter
        if took >= LONG_ENOUGH_S:
            break
    return work, size


def product(size: int, dtype: torch.dtype, device: str) -> Work:
    """One product of two matrices, checked: all ones times all ones is ``size`` everywhere."""
    dice = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=dice).to(device, dtype) for _ in range(2))
    out = torch.empty(size, size, dtype=dtype, device=device)
    row = (left[0].double() @ right.double()).float().cpu()
    torch.mm(left, right, out=out)
    if not torch.allclose(out[0].float().cpu(), row, rtol=0.05, atol=0.05 * size**0.5):
        raise Refused(f"the product of two {dtype} matrices of {size} x {size} is wrong")

    def run() -> int:
        torch.mm(left, right, out=out)
        if device != "cpu":
            torch.cuda.synchronize()
        return 2 * size**3

    return Work(run)


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work.run()
    return time.perf_counter() - start
