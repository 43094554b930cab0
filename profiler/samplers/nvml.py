"""NVIDIA GPUs, through NVML (the package nvidia-ml-py, imported as ``pynvml``).

Written against NVIDIA's NVML API reference; tests/samplers/ runs its arithmetic against a made-up
pynvml.
"""

import ctypes
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from feedline.profiler import masks, message
from feedline.profiler.masks import is_plain
from feedline.profiler.message import Message
from feedline.profiler.samplers.source import GaugeSource, reason_of

_NVML_LIBRARY = "libnvidia-ml.so.1"  # the driver's, which pynvml loads
_LIBRARY_NOT_FOUND = 12  # nvml.h, NVML_ERROR_LIBRARY_NOT_FOUND

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h). Left out, as nothing is wrong: 1 idle, 2
# clocks set by an administrator.
_THROTTLE_POWER = 0x04 | 0x80  # software power cap, hardware power brake
_THROTTLE_THERMAL = 0x20 | 0x40  # software and hardware thermal slowdown
_THROTTLE_OTHER = 0x08 | 0x10 | 0x100  # hardware slowdown of any cause, sync boost, display clock


@dataclass(frozen=True)
class _Reading:
    """Gauges of one GPU that a single call provides.

    It has name -> unit, and how to read them from (pynvml, device handle).
    """

    units: dict[str, str]
    take: Callable[[Any, Any], tuple[float, ...]]


def _utilization(nvml: Any, gpu: Any) -> tuple[float, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return rates.gpu / 100, rates.memory / 100


def _memory(nvml: Any, gpu: Any) -> tuple[float, ...]:
    return (float(nvml.nvmlDeviceGetMemoryInfo(gpu).used),)


def _pcie(nvml: Any, gpu: Any) -> tuple[float, ...]:
    rx, tx = (
        nvml.nvmlDeviceGetPcieThroughput(gpu, which)
        for which in (nvml.NVML_PCIE_UTIL_RX_BYTES, nvml.NVML_PCIE_UTIL_TX_BYTES)
    )
    return rx * 1e3, tx * 1e3


def _power(nvml: Any, gpu: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,)


def _clock(nvml: Any, gpu: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,)


def _throttling(nvml: Any, gpu: Any) -> tuple[float, ...]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    except (AttributeError, nvml.NVMLError):  # its name before driver 535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    return tuple(
        float(bool(bits & mask)) for mask in (_THROTTLE_POWER, _THROTTLE_THERMAL, _THROTTLE_OTHER)
    )


_READINGS = (
    _Reading({"sm": "1", "memory_busy": "1"}, _utilization),
    _Reading({"memory": "B"}, _memory),
    _Reading({"pcie_rx": "B/s", "pcie_tx": "B/s"}, _pcie),
    _Reading({"power": "W"}, _power),
    _Reading({"sm_clock": "Hz"}, _clock),
    _Reading(
        {"throttled_power": "1", "throttled_thermal": "1", "throttled_other": "1"}, _throttling
    ),
)


class NvmlGpus(GaugeSource):
    """Gauges ``gpuN/...``, N as in nvidia-smi, of the GPUs in CUDA_VISIBLE_DEVICES.

    sm, memory_busy: share of the driver's last sample period (1/6 to 1 s) in which any kernel ran,
        or memory was read or written. One small kernel at a time is enough for 1.0.
    pcie_rx, pcie_tx: as the GPU sees them, over 20 ms just before (NVML waits that long for each).
    throttled_...: 1.0 while the clock is held down, so the mean is the share of samples.
    """

    name = "gpu"

    def __init__(self, nvml: Any = None) -> None:
        super().__init__()
        self._why = ""
        # here, not in the thread: a fork during an import leaves the child with its lock, held for
        # ever
        try:
            self._nvml = nvml or _import_nvml()
        except OSError:
            # as pynvml says it
            self._why = Message("nvmlInit: NVML Shared Library Not Found", message.NO_NVML)
        except Exception as error:
            self._why = (
                f"the package nvidia-ml-py cannot be imported ({masks.error(error)}): pip "
                f"install nvidia-ml-py"
            )
        self._gpus: dict[int, Any] = {}
        self._taken: list[tuple[int, _Reading]] = []

    def prepare(self) -> str | None:
        if self._why:
            return self._why
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            why = f"nvmlInit: {masks.text(str(error))}"
            return (
                Message(why, message.NO_NVML)
                if getattr(error, "value", None) == _LIBRARY_NOT_FOUND
                else why
            )
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        for index in _visible_gpus(nvml, visible):
            self._gpus[index] = nvml.nvmlDeviceGetHandleByIndex(index)
        if not self._gpus:
            if visible is None:
                return Message("NVML finds no GPU", message.NO_GPU)
            return Message(
                f"CUDA_VISIBLE_DEVICES={visible if is_plain(visible) else masks.MASK} leaves no "
                f"GPU",
                message.NO_GPU,
            )
        for index, gpu in self._gpus.items():
            for reading in _READINGS:
                self._try(index, gpu, reading)
        return None if self._taken else "; ".join(self.missing.values())

    def read(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for index, reading in self._taken:
            names = (f"gpu{index}/{name}" for name in reading.units)
            values.update(zip(names, reading.take(self._nvml, self._gpus[index]), strict=True))
        return values

    def describe(self) -> dict[str, object]:
        return _describe_gpus(self._nvml, self._gpus)

    def _try(self, index: int, gpu: Any, reading: _Reading) -> None:
        try:
            reading.take(self._nvml, gpu)
        except Exception as error:  # NVMLError_NotSupported on MIG slices, vGPUs and some cards
            self.missing.update({f"gpu{index}/{name}": reason_of(error) for name in reading.units})
            return
        self._taken.append((index, reading))
        self.units.update({f"gpu{index}/{name}": unit for name, unit in reading.units.items()})


def visible_gpu_count() -> int:
    """Return the number of GPUs that CUDA_VISIBLE_DEVICES leaves; 0 without NVML."""
    with suppress(Exception):
        nvml = _import_nvml()
        nvml.nvmlInit()
        return len(_visible_gpus(nvml, os.environ.get("CUDA_VISIBLE_DEVICES")))
    return 0


def _visible_gpus(nvml: Any, visible: str | None) -> list[int]:
    """Return NVML's numbers of the GPUs that CUDA_VISIBLE_DEVICES lists.

    It lists them by number or by (the beginning of) a UUID. It is all of them when it is not set or
    lists MIG slices, for which NVML has no utilization. As CUDA does, it stops at the first entry
    that names no GPU. Numbers are taken as PCI order; on machines with unlike GPUs CUDA counts the
    fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    everything = list(range(nvml.nvmlDeviceGetCount()))
    if visible is None or visible.strip().startswith("MIG-"):
        return everything
    chosen: list[int] = []
    for entry in visible.split(","):
        entry = entry.strip()
        if entry.isdecimal():
            match = int(entry) if int(entry) in everything else None
        else:
            uuids = (nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in everything)
            match = next(
                (i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)), None
            )
        if match is None:
            break
        chosen.append(match)
    return chosen


def _import_nvml() -> Any:
    if "pynvml" not in sys.modules:
        ctypes.CDLL(_NVML_LIBRARY)  # without it, the package's import of 15 ms would be for nothing
    with warnings.catch_warnings():
        # another package of that name warns at import that it is deprecated
        warnings.simplefilter("ignore")
        import pynvml
    return pynvml


#: nvmlGpuTopologyLevel_t (nvml.h): the closest thing that two GPUs share on the PCIe tree.
_PATHS = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "between NUMA nodes",
}

#: nvmlGpuP2PCapsIndex_t (nvml.h). By number: pynvml 13.615 defines NVML_P2P_CAPS_INDEX_READ as a
#: tuple.
_PEER_TO_PEER = {"read": 0, "write": 1, "nvlink": 2}
_P2P_OK = 0


def _describe_gpus(nvml: Any, gpus: dict[int, Any]) -> dict[str, object]:
    """Return name, memory, PCIe and NVLink of each GPU, and the connection between each pair.

    Args:
        nvml: the module pynvml, initialized.
        gpus: NVML's number -> device handle.

    Returns:
        ``gpu_driver``; ``gpus``: a list of dicts; ``gpu_links``: dicts with ``between`` (two
        numbers), ``path``, ``peer_to_peer``. What NVML does not tell is None. Nothing in it
        identifies the machine (no UUID, no serial number).
    """
    by_address = {_address(nvml, gpu): index for index, gpu in gpus.items()}
    return {
        "gpu_driver": _ask(nvml.nvmlSystemGetDriverVersion),
        "gpus": [_describe(nvml, index, gpu, by_address) for index, gpu in gpus.items()],
        "gpu_links": [_link(nvml, gpus, a, b) for a, b in combinations(gpus, 2)],
    }


def _describe(
    nvml: Any, index: int, gpu: Any, by_address: dict[str | None, int]
) -> dict[str, object]:
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
    limit = _ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
    return {
        "index": index,
        "name": _text(_ask(nvml.nvmlDeviceGetName, gpu)),
        "memory_bytes": memory.total if memory else None,
        "pci_address": _address(nvml, gpu),
        "pcie_generation": _ask(
            nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu
        ),  # falls while the GPU is idle; the largest is the next line
        "pcie_generation_max": _ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
        "pcie_width": _ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
        "pcie_width_max": _ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        "power_limit_w": limit / 1e3 if limit is not None else None,
        "nvlinks": _nvlinks(nvml, gpu, by_address),
    }


def _nvlinks(nvml: Any, gpu: Any, by_address: dict[str | None, int]) -> list[dict[str, object]]:
    """Return the active NVLinks.

    ``to``: the GPU's number at the other end, or "other" (an NVSwitch, a CPU, a GPU that is not
    visible).
    """
    links: list[dict[str, object]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _ask(nvml.nvmlDeviceGetNvLinkState, gpu, link)
        if state is None:  # past the last link, or a GPU without
            break
        if state:
            peer = _ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu, link)
            to: object = by_address.get(_text(peer.busId), "other") if peer else None
            links.append(
                {
                    "link": link,
                    "version": _ask(nvml.nvmlDeviceGetNvLinkVersion, gpu, link),
                    "to": to,
                }
            )
    return links


def _link(nvml: Any, gpus: dict[int, Any], a: int, b: int) -> dict[str, object]:
    level = _ask(nvml.nvmlDeviceGetTopologyCommonAncestor, gpus[a], gpus[b])
    status = {
        name: _ask(nvml.nvmlDeviceGetP2PStatus, gpus[a], gpus[b], index)
        for name, index in _PEER_TO_PEER.items()
    }
    return {
        "between": [a, b],
        "path": _PATHS.get(level) if level is not None else None,
        "peer_to_peer": {
            name: None if value is None else value == _P2P_OK for name, value in status.items()
        },
    }


def _address(nvml: Any, gpu: Any) -> str | None:
    info = _ask(nvml.nvmlDeviceGetPciInfo, gpu)
    return _text(info.busId) if info else None


def _ask(question: Callable[..., Any], *about: Any) -> Any:
    """Return the answer, or None where this GPU or driver has none.

    A fact that is missing must not cost the others.
    """
    try:
        return question(*about)
    except Exception:
        return None


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
