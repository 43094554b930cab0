"""The GPUs and their interconnect, queried once for the manifest."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

#: nvmlGpuTopologyLevel_t (nvml.h): the closest thing that two GPUs share on the PCIe tree.
_PATHS = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "between NUMA nodes",
}

#: nvmlGpuP2PCapsIndex_t (nvml.h). By number: pynvml 13.615 defines NVML_P2P_CAPS_INDEX_READ as a tuple.
_PEER_TO_PEER = {"read": 0, "write": 1, "nvlink": 2}
_P2P_OK = 0


def describe_gpus(nvml: Any, gpus: dict[int, Any]) -> dict[str, object]:
    """Name, memory, PCIe and NVLink of each GPU, and the connection between each pair.

    Args:
        nvml: the module pynvml, initialized.
        gpus: NVML's number -> device handle.

    Returns:
        ``gpu_driver``; ``gpus``: a list of dicts; ``gpu_links``: dicts with ``between`` (two numbers), ``path``, ``peer_to_peer``.
        What NVML does not tell is None. Nothing in it identifies the machine (no UUID, no serial number).
    """
    by_address = {_address(nvml, gpu): index for index, gpu in gpus.items()}
    return {
        "gpu_driver": _ask(nvml.nvmlSystemGetDriverVersion),
        "gpus": [_describe(nvml, index, gpu, by_address) for index, gpu in gpus.items()],
        "gpu_links": [_link(nvml, gpus, a, b) for a, b in combinations(gpus, 2)],
    }


def _describe(nvml: Any, index: int, gpu: Any, by_address: dict[str | None, int]) -> dict[str, object]:
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
    limit = _ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)
    return {
        "index": index,
        "name": _text(_ask(nvml.nvmlDeviceGetName, gpu)),
        "memory_bytes": memory.total if memory else None,
        "pci_address": _address(nvml, gpu),
        "pcie_generation": _ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu),  # falls while the GPU is idle; the largest is the next line
        "pcie_generation_max": _ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
        "pcie_width": _ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
        "pcie_width_max": _ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        "power_limit_w": limit / 1e3 if limit is not None else None,
        "nvlinks": _nvlinks(nvml, gpu, by_address),
    }


def _nvlinks(nvml: Any, gpu: Any, by_address: dict[str | None, int]) -> list[dict[str, object]]:
    """The active NVLinks. ``to``: the GPU's number at the other end, or "other" (an NVSwitch, a CPU, a GPU that is not visible)."""
    links: list[dict[str, object]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _ask(nvml.nvmlDeviceGetNvLinkState, gpu, link)
        if state is None:  # past the last link, or a GPU without
            break
        if state:
            peer = _ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu, link)
            to: object = by_address.get(_text(peer.busId), "other") if peer else None
            links.append({"link": link, "version": _ask(nvml.nvmlDeviceGetNvLinkVersion, gpu, link), "to": to})
    return links


def _link(nvml: Any, gpus: dict[int, Any], a: int, b: int) -> dict[str, object]:
    level = _ask(nvml.nvmlDeviceGetTopologyCommonAncestor, gpus[a], gpus[b])
    status = {name: _ask(nvml.nvmlDeviceGetP2PStatus, gpus[a], gpus[b], index) for name, index in _PEER_TO_PEER.items()}
    return {
        "between": [a, b],
        "path": _PATHS.get(level) if level is not None else None,
        "peer_to_peer": {name: None if value is None else value == _P2P_OK for name, value in status.items()},
    }


def _address(nvml: Any, gpu: Any) -> str | None:
    info = _ask(nvml.nvmlDeviceGetPciInfo, gpu)
    return _text(info.busId) if info else None


def _ask(question: Callable[..., Any], *about: Any) -> Any:
    """The answer, or None where this GPU or driver has none: a fact that is missing must not cost the others."""
    try:
        return question(*about)
    except Exception:
        return None


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
