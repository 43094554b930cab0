"""NVIDIA GPUs. Where there is none, the real pynvml is what makes the source absent. The
arithmetic, the choice of devices and the description are tested against a hand-written pynvml,
which proves nothing about NVML itself; the test at the end wants a real GPU."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from feedline.profiler import message
from feedline.profiler.message import id_of
from feedline.profiler.samplers import nvml
from feedline.profiler.samplers.nvml import NvmlGpus, _visible_gpus


class NVMLError(Exception):
    pass


class MadeUpNvml:
    """Two GPUs of a made-up machine: as much of pynvml as is called, under its names."""

    NVMLError = NVMLError
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES, NVML_CLOCK_SM, NVML_NVLINK_MAX_LINKS = (
        0,
        1,
        1,
        18,
    )

    def __init__(self, reasons: int = 0, unsupported: tuple[str, ...] = ()) -> None:
        self.reasons, self.unsupported = reasons, unsupported
        for name in unsupported:
            setattr(self, name, self._refuse)

    def _refuse(self, *_: Any) -> Any:
        raise NVMLError("Not Supported")

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def nvmlDeviceGetUUID(self, gpu: str) -> str:
        return f"GPU-{'ab'[int(gpu[-1])]}000-1111"

    def nvmlDeviceGetUtilizationRates(self, gpu: str) -> Any:
        return SimpleNamespace(gpu=40, memory=25)

    def nvmlDeviceGetMemoryInfo(self, gpu: str) -> Any:
        return SimpleNamespace(total=80 << 30, used=6 << 30)

    def nvmlDeviceGetPcieThroughput(self, gpu: str, counter: int) -> int:
        return {0: 1_000, 1: 12_000_000}[counter]

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:
        return 350_500

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: str) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, gpu: str, clock: int) -> int:
        return {1: 1980}[clock]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: str) -> int:
        return self.reasons

    def nvmlSystemGetDriverVersion(self) -> str:
        return "999.1"

    def nvmlDeviceGetName(self, gpu: str) -> str:
        return "Made-up GPU"

    def nvmlDeviceGetPciInfo(self, gpu: str) -> Any:
        return SimpleNamespace(busId=f"00000000:0{gpu[-1]}:00.0".encode())

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: str) -> int:
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: str) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: str) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: str) -> int:
        return 16

    def nvmlDeviceGetNvLinkState(self, gpu: str, link: int) -> int:
        if link >= 3:
            raise NVMLError("Invalid Argument")
        return int(link != 1)

    def nvmlDeviceGetNvLinkVersion(self, gpu: str, link: int) -> int:
        return 4

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: str, link: int) -> Any:
        other = {"0": "1", "1": "0"}[gpu[-1]] if link == 0 else "9"
        return SimpleNamespace(busId=f"00000000:0{other}:00.0".encode())

    def nvmlDeviceGetTopologyCommonAncestor(self, one: str, other: str) -> int:
        return 30

    def nvmlDeviceGetP2PStatus(self, one: str, other: str, index: int) -> int:
        return {0: 0, 1: 0, 2: 5}[index]


@pytest.fixture(autouse=True)
def no_choice_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def a_gpu_is_here() -> bool:
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetCount() > 0
    except pynvml.NVMLError:
        return False


@pytest.mark.skipif(a_gpu_is_here(), reason="this machine has a GPU")
def test_without_a_gpu_the_source_is_absent_with_nvmls_reason() -> None:
    why = NvmlGpus().probe()

    assert why is not None
    assert why.startswith("nvmlInit: ") or why == "NVML finds no GPU"
    assert id_of(why) in (message.NO_NVML, message.NO_GPU)


def test_without_the_package_the_source_is_absent_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)

    why = NvmlGpus().probe()

    assert why is not None and "pip install nvidia-ml-py" in why


def test_made_up_readings_are_converted_to_the_units_that_are_named() -> None:
    source = NvmlGpus(MadeUpNvml())
    assert source.probe() is None

    read = {
        name.removeprefix("gpu1/"): (value, source.units[name])
        for name, value in source.read().items()
        if name.startswith("gpu1/")
    }

    assert read == {
        "sm": (0.4, "1"),
        "memory_busy": (0.25, "1"),
        "memory": (6 << 30, "B"),
        "pcie_rx": (12e9, "B/s"),
        "pcie_tx": (1e6, "B/s"),
        "power": (350.5, "W"),
        "sm_clock": (1.98e9, "Hz"),
        "throttled_power": (0.0, "1"),
        "throttled_thermal": (0.0, "1"),
        "throttled_other": (0.0, "1"),
    }


@pytest.mark.parametrize(
    ("bit", "gauge"),
    [
        ("nvmlClocksEventReasonSwPowerCap", "throttled_power"),
        ("nvmlClocksEventReasonHwPowerBrakeSlowdown", "throttled_power"),
        ("nvmlClocksEventReasonSwThermalSlowdown", "throttled_thermal"),
        ("nvmlClocksEventReasonHwThermalSlowdown", "throttled_thermal"),
        ("nvmlClocksEventReasonHwSlowdown", "throttled_other"),
        ("nvmlClocksEventReasonSyncBoost", "throttled_other"),
        ("nvmlClocksEventReasonDisplayClockSetting", "throttled_other"),
        ("nvmlClocksEventReasonGpuIdle", None),
        ("nvmlClocksEventReasonApplicationsClocksSetting", None),
    ],
)
def test_each_reason_to_lower_the_clock_goes_to_its_gauge(bit: str, gauge: str | None) -> None:
    source = NvmlGpus(MadeUpNvml(reasons=getattr(pynvml, bit)))
    assert source.probe() is None

    held_down = {name for name, value in source.read().items() if "throttled" in name and value}

    assert held_down == ({f"gpu0/{gauge}", f"gpu1/{gauge}"} if gauge else set())


def test_a_driver_that_knows_only_the_old_name_of_the_reasons_is_asked_by_it() -> None:
    nvml = MadeUpNvml(unsupported=("nvmlDeviceGetCurrentClocksEventReasons",))
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 0x20  # type: ignore[attr-defined]
    source = NvmlGpus(nvml)

    assert source.probe() is None
    assert source.read()["gpu0/throttled_thermal"] == 1.0


def test_what_a_gpu_does_not_support_is_named_and_the_rest_is_read() -> None:
    source = NvmlGpus(MadeUpNvml(unsupported=("nvmlDeviceGetPcieThroughput",)))

    assert source.probe() is None

    assert source.missing == {
        f"gpu{gpu}/pcie_{way}": "NVMLError: Not Supported" for gpu in (0, 1) for way in ("rx", "tx")
    }
    assert "gpu0/sm" in source.read() and "gpu0/pcie_rx" not in source.read()


def test_gpus_without_any_gauge_make_the_source_absent() -> None:
    everything = tuple(
        name for name in dir(MadeUpNvml) if name.startswith("nvmlDeviceGet") and name not in KEPT
    )

    why = NvmlGpus(MadeUpNvml(unsupported=everything)).probe()

    assert why is not None and "Not Supported" in why


KEPT = ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("0,7,1", [0]),
        ("GPU-b000", [1]),
        ("", []),
        ("-1", []),
        ("MIG-5f1e", [0, 1]),
    ],
)
def test_cuda_visible_devices_chooses_as_cuda_does(visible: str | None, chosen: list[int]) -> None:
    assert _visible_gpus(MadeUpNvml(), visible) == chosen


@pytest.mark.parametrize(("visible", "count"), [(None, 2), ("1", 1), ("-1", 0)])
def test_the_gpus_that_a_program_may_use_are_counted(
    visible: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_import_nvml", MadeUpNvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert nvml.visible_gpu_count() == count


def test_hiding_every_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    why = NvmlGpus(MadeUpNvml()).probe()

    assert why == "CUDA_VISIBLE_DEVICES=-1 leaves no GPU" and id_of(why) == message.NO_GPU


def test_a_machine_without_nvml_is_told_from_one_whose_nvml_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):

        def fails(code: int = code) -> None:
            raise pynvml.NVMLError(code)

        monkeypatch.setattr(pynvml, "nvmlInit", fails)
        found.append(id_of(NvmlGpus(pynvml).probe() or ""))

    assert found == [message.NO_NVML, ""]


def test_the_description_has_pcie_nvlink_and_peer_to_peer_and_fits_into_json() -> None:
    source = NvmlGpus(MadeUpNvml())
    assert source.probe() is None

    facts = json.loads(json.dumps(source.describe()))

    assert facts["gpu_driver"] == "999.1"
    assert facts["gpus"][0] == {
        "index": 0,
        "name": "Made-up GPU",
        "memory_bytes": 80 << 30,
        "pci_address": "00000000:00:00.0",
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "power_limit_w": 700.0,
        "nvlinks": [{"link": 0, "version": 4, "to": 1}, {"link": 2, "version": 4, "to": "other"}],
    }
    assert facts["gpu_links"] == [
        {
            "between": [0, 1],
            "path": "one PCIe host bridge",
            "peer_to_peer": {"read": True, "write": True, "nvlink": False},
        }
    ]


def test_a_fact_that_nvml_does_not_tell_is_none_and_costs_no_other() -> None:
    unsupported = (
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetP2PStatus",
    )
    source = NvmlGpus(MadeUpNvml(unsupported=unsupported))
    assert source.probe() is None

    facts: Any = source.describe()

    assert facts["gpus"][0]["pcie_width_max"] is None
    assert facts["gpus"][0]["nvlinks"] == []
    assert facts["gpu_links"][0]["peer_to_peer"] == {"read": None, "write": None, "nvlink": None}
    assert facts["gpus"][0]["name"] == "Made-up GPU"


def test_every_name_that_is_used_exists_in_the_real_pynvml() -> None:
    used = [name for name in dir(MadeUpNvml) if name.startswith(("nvml", "NVML"))]

    assert [name for name in used if not hasattr(pynvml, name)] == []


@pytest.mark.gpu
@pytest.mark.skipif(not a_gpu_is_here(), reason="this machine has no NVIDIA GPU")
def test_a_real_gpu_gives_plausible_readings() -> None:
    source = NvmlGpus()
    assert source.probe() is None
    time.sleep(0.1)

    read = source.read()
    facts: Any = source.describe()

    index = facts["gpus"][0]["index"]
    assert 0 <= read[f"gpu{index}/sm"] <= 1
    assert 0 < read[f"gpu{index}/memory"] <= facts["gpus"][0]["memory_bytes"]
    assert facts["gpus"][0]["name"]
    json.dumps(facts)
