"""Compute of the device: matrix products by data type, and the user's model on a cached batch, with its FLOP and MFU.

MFU (model FLOP utilization) is the FLOP of forward and backward a second over the device's peak, as in Chowdhery et al., PaLM, 2022,
appendix B, but with the FLOP as torch.utils.flop_counter counts them (matrix products, convolutions, attention).
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from feedline.pipelines.probes import peaks
from feedline.pipelines.probes.measure import Measured, Refused, Work, ceiling, in_turns, reason
from feedline.pipelines.probes.subject import Subject
from feedline.pipelines.probes.training_step import Step, cached_batch
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.taps.flops import allows_tf32

#: Name of a maker's figure -> data type, and whether products may use TF32.
_SPECIFIED = {"float32": ("float32", False), "tf32": ("float32", True), "bfloat16": ("bfloat16", False), "float16": ("float16", False)}
_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_LONG_ENOUGH_S = 0.02  # a product that takes this long hides what its launch costs
SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
_SOURCE = "torch.mm, 2 n^3 FLOP a product"


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
        if took >= _LONG_ENOUGH_S:
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


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Peaks of the device, then forward, backward, optimizer and the complete step of the user's model; samples/s.

    ``settings`` of compute/model: flop_per_sample (forward and backward), mfu, peak_flops, peak_source, dtype.
    """
    products, works = _products(subject.device)
    step, why, made_of = _step(subject)
    if step is not None:
        works |= {f"compute/{name}": work for name, work in step.works().items()}
    found = in_turns(works, subject.plan)
    specified = list(_specified(subject.device))
    yield from specified
    for name, about in products.items():
        outcome = found[name] if name in works else str(about["why"])
        yield ceiling(name, outcome, unit="FLOP/s", per="device", source=_SOURCE, settings=about)
    if step is None:
        yield ceiling("compute/model", why, per="device")
        return
    reference = _peak(_computed_in(step), specified, products, found)
    yield _model(step, found["compute/model"], reference, made_of)
    for part in ("forward", "backward", "optimizer"):
        settings: dict[str, object] = {"phase": part, "batch_size": len(step)}
        yield ceiling(f"compute/{part}", found[f"compute/{part}"], per="device", source=f"{part} alone; {made_of}", settings=settings)


def _computed_in(step: Step) -> str:
    """What the model mostly computes in: its data type, or TF32 where torch may use that for its products or convolutions."""
    convolves = any(isinstance(part, _CONVOLUTIONS) for part in step.model.modules())
    if step.dtype == "float32" and step.batch.is_cuda and (allows_tf32(convolves=False) or convolves and allows_tf32(convolves=True)):
        return "tf32"
    return step.dtype


def flop_per_sample(step: Step) -> float | None:
    """FLOP of forward and backward for one sample; None if the counter knows none of the model's operators."""
    step.optimizer.zero_grad()
    counter = FlopCounterMode(display=False)
    with counter:
        step.forward().backward()
    return counter.get_total_flops() / len(step) or None


def _step(subject: Subject) -> tuple[Step | None, str, str]:
    """The user's training step; or None and why; and what the batch is made of."""
    if subject.model is None:
        return None, "no model was given: name it with --model module:name", ""
    batch, made_of = cached_batch(subject)
    try:
        return Step.of(subject.model, batch, subject.device), "", made_of
    except Exception as error:
        return None, reason(error), made_of


def _products(device: str) -> tuple[dict[str, dict[str, object]], dict[str, Work]]:
    """By name: settings of every matrix product, and those that can be done."""
    about: dict[str, dict[str, object]] = {}
    works = {}
    for name, dtype in _DTYPES.items():
        settings: dict[str, object] = {"dtype": name, "threads": torch.get_num_threads(), "device": device}
        if device != "cpu":
            settings["tf32"] = allows_tf32(convolves=False)
        try:
            works[f"compute/matmul {name}"], settings["n"] = matmul(dtype, device)
        except (RuntimeError, Refused) as error:
            settings["why"] = reason(error)
        about[f"compute/matmul {name}"] = settings
    return about, works


def _specified(device: str) -> Iterator[Ceiling]:
    """What the maker of the GPU says it computes."""
    if device == "cpu":
        return
    name = torch.cuda.get_device_name(device)
    for arithmetic, (dtype, tf32) in _SPECIFIED.items():
        figure = peaks.of(name, dtype, tf32)
        settings: dict[str, object] = {"dtype": dtype, "device": name, "tf32": tf32}
        why = "" if figure.flops else f"{name} with {arithmetic} is not in the table (pipelines/probes/peaks.py)"
        about: dict[str, Any] = {"unit": "FLOP/s", "per": "device", "source": figure.source, "settings": settings, "why": why}
        yield Ceiling(f"compute/specified {arithmetic}", "compute", figure.flops, **about)


def _peak(
    arithmetic: str, specified: list[Ceiling], products: dict[str, dict[str, object]], found: dict[str, Measured | str]
) -> tuple[float | None, str]:
    """The figure that MFU is a share of: the maker's, else the best round of the product measured beside the model. With its source."""
    for one in specified:
        if one.name == f"compute/specified {arithmetic}" and one.value:
            return one.value, one.source
    dtype, tf32 = _SPECIFIED.get(arithmetic, (arithmetic, False))
    name = f"compute/matmul {dtype}"
    measured = found.get(name)
    if isinstance(measured, Measured) and bool(products[name].get("tf32")) == tf32:
        return measured.high, f"measured here, the best round: {name}, n = {products[name]['n']}"
    return None, ""


def _model(step: Step, outcome: Measured | str, reference: tuple[float | None, str], made_of: str) -> Ceiling:
    try:
        flop = flop_per_sample(step)
    except Exception as error:
        flop, made_of = None, f"{made_of}; FLOP could not be counted ({reason(error)})"
    settings: dict[str, object] = {"phase": "all", "batch_size": len(step), "batch": list(step.batch.shape), "dtype": step.dtype}
    found = ceiling("compute/model", outcome, per="device", source=f"a cached batch of {len(step)}: {made_of}; SGD", settings=settings)
    if flop is None:
        return found
    settings |= {"flop_per_sample": flop, "peak_flops": reference[0], "peak_source": reference[1]}
    if found.value and reference[0]:
        settings["mfu"] = flop * found.value / reference[0]
    return replace(found, settings=settings)
