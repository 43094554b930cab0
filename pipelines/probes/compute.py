"""Compute of the device: matrix products by data type, and the user's model on a cached batch.

MFU (model FLOP utilization) is the FLOP of forward and backward a second over the device's peak, as
in Chowdhery et al., PaLM, 2022, appendix B, but with the FLOP as torch.utils.flop_counter counts
them (matrix products, convolutions, attention).

Peaks are those of the makers, dense (no sparsity), each with its source page. Where a data sheet
gives only the figure with 2:4 sparsity, the dense one is half of it, as the sheets say in a
footnote.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    MeasuredRate,
    Subject,
    Workload,
    as_ceiling,
    error_reason,
    measure_in_turns,
)
from feedline.pipelines.probes.training_step import Step, cached_batch
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.taps.flops import allows_tf32

_TFLOPS = 1e12
_A100 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE = "https://resources.nvidia.com/en-us-gpu-resources/h100-datasheet-24306"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_B200 = "https://www.nvidia.com/en-us/data-center/hgx/"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/"
_A10 = "https://www.nvidia.com/en-us/data-center/products/a10-gpu/"
_T4 = "https://www.nvidia.com/en-us/data-center/tesla-t4/"
_V100 = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_GA102 = (
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
# A pattern for torch.cuda.get_device_name(), the page, and TFLOP/s: float32 without and with TF32,
# bfloat16, float16. 0: there is none, or the page gives none. The first pattern that fits counts,
# so that the special cases of a name come before it.
_GPU_PEAKS: list[tuple[str, str, tuple[float, float, float, float]]] = [
    (r"\bB200\b", _B200, (0, 1100, 2250, 2250)),
    (r"\bH200 NVL\b", _H200, (60, 417.5, 835.5, 835.5)),
    (r"\bH200\b", _H200, (67, 494.5, 989.5, 989.5)),
    (r"\bH100 PCIe\b", _H100_PCIE, (51, 378, 756.5, 756.5)),
    (r"\bH100 NVL\b", _H100, (60, 417.5, 835.5, 835.5)),
    (r"\bH100\b", _H100, (67, 494.5, 989.5, 989.5)),
    (r"\bA100\b", _A100, (19.5, 156, 312, 312)),
    (r"\bL40S\b", _L40S, (91.6, 183, 362.05, 362.05)),
    (r"\bL4\b", _L4, (30.3, 60, 121, 121)),
    (r"\bA10\b", _A10, (31.2, 62.5, 125, 125)),
    (r"\bT4\b", _T4, (8.1, 0, 0, 65)),
    (r"\bV100-PCIE\b", _V100, (14, 0, 0, 112)),
    (r"\bV100-SXM", _V100, (15.7, 0, 0, 125)),
    (r"\bRTX 4090$", _ADA, (82.6, 82.6, 165.2, 165.2)),
    (r"\bRTX 3090$", _GA102, (35.6, 35.6, 71, 71)),
]
_COLUMN = {"float32": 0, "bfloat16": 2, "float16": 3}
#: Name of a maker's figure -> data type, and whether products may use TF32.
_SPECIFIED = {
    "float32": ("float32", False),
    "tf32": ("float32", True),
    "bfloat16": ("bfloat16", False),
    "float16": ("float16", False),
}
_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_MATRIX_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_MIN_PRODUCT_S = 0.02  # a product that takes this long hides what its launch costs
_MATRIX_SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
_SOURCE = "torch.mm, 2 n^3 FLOP a product"
#: Names of MIG slices ("... MIG 1g.5gb") and of virtual GPUs ("GRID A100-10C"): parts of a GPU.
_PART_OF_A_GPU = re.compile(r" MIG |-\d+[ABCQ]\b")


class _Peak(NamedTuple):
    """Peak compute of a GPU.

    Attributes:
        flops: FLOP/s; None: this GPU or this type of number is not in the table, or it is a part
            of a GPU.
        source: the maker's page.
    """

    flops: float | None
    source: str


def _gpu_peak(name: str, dtype: str, tf32: bool = False) -> _Peak:
    """Look up the peak of a GPU.

    Args:
        name: as torch.cuda.get_device_name() gives it.
        dtype: float32, bfloat16 or float16.
        tf32: whether torch may use TF32 for float32 products
            (torch.backends.cuda.matmul.allow_tf32).
    """
    if _PART_OF_A_GPU.search(name):  # the peak is of all of it
        return _Peak(None, "")
    for pattern, page, figures in _GPU_PEAKS:
        if re.search(pattern, name):
            column = 1 if dtype == "float32" and tf32 and figures[1] else _COLUMN.get(dtype)
            figure = figures[column] if column is not None else 0
            return _Peak(figure * _TFLOPS if figure else None, page)
    return _Peak(None, "")


def _matmul_workload(dtype: torch.dtype, device: str) -> tuple[Workload, int]:
    """Multiply square matrices, the smallest that keep the device busy for long enough.

    Returns:
        The work, whose unit is FLOP (2 n^3 a product), and n.

    Raises:
        CannotMeasure: the result is wrong.
        RuntimeError: torch cannot multiply these.
    """
    for size in _MATRIX_SIZES:
        work = _matrix_product(size, dtype, device)
        # who else uses the machine makes it longer, never shorter
        took = min(_seconds(work) for _ in range(3))
        if took >= _MIN_PRODUCT_S:
            break
    return work, size


def _matrix_product(size: int, dtype: torch.dtype, device: str) -> Workload:
    """Multiply two matrices, checked: all ones times all ones is ``size`` everywhere."""
    dice = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=dice).to(device, dtype) for _ in range(2))
    out = torch.empty(size, size, dtype=dtype, device=device)
    row = (left[0].double() @ right.double()).float().cpu()
    torch.mm(left, right, out=out)
    if not torch.allclose(out[0].float().cpu(), row, rtol=0.05, atol=0.05 * size**0.5):
        raise CannotMeasure(f"the product of two {dtype} matrices of {size} x {size} is wrong")

    def run() -> int:
        torch.mm(left, right, out=out)
        if device != "cpu":
            torch.cuda.synchronize()
        return 2 * size**3

    return Workload(run)


def _seconds(work: Workload) -> float:
    start = time.perf_counter()
    work.run()
    return time.perf_counter() - start


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure peaks of the device, and parts and the whole of the model's training step.

    In samples/s. ``settings`` of compute/model: flop_per_sample (forward and backward), mfu,
    peak_flops, peak_source, dtype.
    """
    products, works = _products(subject.device)
    step, why, made_of = _step(subject)
    if step is not None:
        works |= {f"compute/{name}": work for name, work in step.works().items()}
    rates = measure_in_turns(works, subject.plan)
    specified = list(_specified(subject.device))
    yield from specified
    for name, about in products.items():
        outcome = rates[name] if name in works else str(about["why"])
        yield as_ceiling(name, outcome, unit="FLOP/s", per="device", source=_SOURCE, settings=about)
    if step is None:
        yield as_ceiling("compute/model", why, per="device")
        return
    reference = _peak(_computed_in(step), specified, products, rates)
    yield _model(step, rates["compute/model"], reference, made_of)
    for part in ("forward", "backward", "optimizer"):
        settings: dict[str, object] = {"phase": part, "batch_size": len(step)}
        yield as_ceiling(
            f"compute/{part}",
            rates[f"compute/{part}"],
            per="device",
            source=f"{part} alone; {made_of}",
            settings=settings,
        )


def _computed_in(step: Step) -> str:
    """Return what the model mostly computes in.

    That is its data type, or TF32 where torch may use that for its products or convolutions.
    """
    convolves = any(isinstance(part, _CONVOLUTIONS) for part in step.model.modules())
    if (
        step.dtype == "float32"
        and step.batch.is_cuda
        and (allows_tf32(convolves=False) or convolves and allows_tf32(convolves=True))
    ):
        return "tf32"
    return step.dtype


def _flop_per_sample(step: Step) -> float | None:
    """Count the FLOP of forward and backward for one sample.

    None if the counter knows none of the model's operators.
    """
    step.optimizer.zero_grad()
    counter = FlopCounterMode(display=False)
    with counter:
        step.forward().backward()
    return counter.get_total_flops() / len(step) or None


def _step(subject: Subject) -> tuple[Step | None, str, str]:
    """Return the user's training step, or None; why; and what the batch is made of."""
    if subject.model is None:
        return None, "no model was given: name it with --model module:name", ""
    batch, made_of = cached_batch(subject)
    try:
        return Step.of(subject.model, batch, subject.device), "", made_of
    except Exception as error:
        return None, error_reason(error), made_of


def _products(device: str) -> tuple[dict[str, dict[str, object]], dict[str, Workload]]:
    """Return by name the settings of every matrix product, and those that can be done."""
    about: dict[str, dict[str, object]] = {}
    works = {}
    for name, dtype in _MATRIX_DTYPES.items():
        settings: dict[str, object] = {
            "dtype": name,
            "threads": torch.get_num_threads(),
            "device": device,
        }
        if device != "cpu":
            settings["tf32"] = allows_tf32(convolves=False)
        try:
            works[f"compute/matmul {name}"], settings["n"] = _matmul_workload(dtype, device)
        except (RuntimeError, CannotMeasure) as error:
            settings["why"] = error_reason(error)
        about[f"compute/matmul {name}"] = settings
    return about, works


def _specified(device: str) -> Iterator[Ceiling]:
    """Yield what the maker of the GPU says it computes."""
    if device == "cpu":
        return
    name = torch.cuda.get_device_name(device)
    for arithmetic, (dtype, tf32) in _SPECIFIED.items():
        figure = _gpu_peak(name, dtype, tf32)
        settings: dict[str, object] = {"dtype": dtype, "device": name, "tf32": tf32}
        why = "" if figure.flops else _why_no_peak(name, arithmetic)
        about: dict[str, Any] = {
            "unit": "FLOP/s",
            "per": "device",
            "source": figure.source,
            "settings": settings,
            "why": why,
        }
        yield Ceiling(f"compute/specified {arithmetic}", "compute", figure.flops, **about)


def _why_no_peak(name: str, arithmetic: str) -> str:
    """Say why the peak of a GPU is not known."""
    if _PART_OF_A_GPU.search(name):
        return f"{name} is a part of a GPU, and its maker gives the peak of the whole"
    return f"{name} with {arithmetic} is not in the table (pipelines/probes/compute.py)"


def _peak(
    arithmetic: str,
    specified: list[Ceiling],
    products: dict[str, dict[str, object]],
    rates: dict[str, MeasuredRate | str],
) -> tuple[float | None, str]:
    """Return the figure that MFU is a share of, and its source.

    It is the maker's, else the best round of the product measured beside the model.
    """
    for ceiling in specified:
        if ceiling.name == f"compute/specified {arithmetic}" and ceiling.value:
            return ceiling.value, ceiling.source
    dtype, tf32 = _SPECIFIED.get(arithmetic, (arithmetic, False))
    name = f"compute/matmul {dtype}"
    measured = rates.get(name)
    if isinstance(measured, MeasuredRate) and bool(products[name].get("tf32")) == tf32:
        return measured.high, f"measured here, the best round: {name}, n = {products[name]['n']}"
    return None, ""


def _model(
    step: Step, outcome: MeasuredRate | str, reference: tuple[float | None, str], made_of: str
) -> Ceiling:
    try:
        flop = _flop_per_sample(step)
    except Exception as error:
        flop, made_of = None, f"{made_of}; FLOP could not be counted ({error_reason(error)})"
    settings: dict[str, object] = {
        "phase": "all",
        "batch_size": len(step),
        "batch": list(step.batch.shape),
        "dtype": step.dtype,
        "device": str(step.batch.device),
    }
    ceiling = as_ceiling(
        "compute/model",
        outcome,
        per="device",
        source=f"a cached batch of {len(step)}: {made_of}; SGD",
        settings=settings,
    )
    if flop is None:
        return ceiling
    settings |= {"flop_per_sample": flop, "peak_flops": reference[0], "peak_source": reference[1]}
    if ceiling.value and reference[0]:
        settings["mfu"] = flop * ceiling.value / reference[0]
    return replace(ceiling, settings=settings)
