"""Faults planted into real trainings, each beside its healthy twin: the first finding names the
fault, and the twin is free of it.

More of them are in test_fault_suite.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from planted import photos
from planted.own import own
from truth import one_number
from warm_python import WarmPython

pytestmark = pytest.mark.quiet
PROGRAMS = Path(__file__).parent / "programs"
# more would make some faults none: then workers are what lacks, not the CPU that a decoder takes
CPUS = 2

#: program (the cause it is named after) -> width, height and number of its photographs.
FAULTS = {
    "oversize_images": (1500, 1200, 6),
    "heavy_augmentation": (160, 120, 24),
    "float32_on_host": (
        224,
        224,
        24,
    ),  # larger ones are also mapped anew for each sample: page_faults then goes first
    "straggler_in_order": (96, 80, 24),
    "epoch_restart": (96, 80, 24),
    "slow_sampler": (160, 120, 24),
}
CAUSES = {"heavy_augmentation": "augmentation_bound"}
#: Of the others, scripts/test has another fault of the same part of a training.
SHORT = ("straggler_in_order",)


@pytest.mark.parametrize(
    "program",
    [pytest.param(one, marks=[pytest.mark.long] * (one not in SHORT)) for one in FAULTS],
)
def test_the_first_finding_names_the_planted_fault(warm_python, program, tmp_path):
    found = findings(warm_python, program, FAULTS[program], tmp_path)

    assert found[0]["cause"] == CAUSES.get(program, program), summary(found)
    assert found[0]["severity"] in ("low", "high") and found[0]["evidence"] and found[0]["fix"]


@pytest.mark.long
@pytest.mark.parametrize("program", FAULTS)
def test_the_healthy_twin_is_free_of_the_fault(warm_python, program, tmp_path):
    size = (96, 80, 24) if program == "oversize_images" else FAULTS[program]

    assert CAUSES.get(program, program) not in causes(
        findings(warm_python, program, size, tmp_path, "healthy")
    )


def test_helper_threads_are_found_beside_the_full_cpus_that_they_fight_for(warm_python, tmp_path):
    assert "thread_oversubscription" in causes(
        findings(warm_python, "thread_oversubscription", (512, 384, 8), tmp_path)
    )


@pytest.mark.long
def test_one_thread_a_worker_is_no_oversubscription(warm_python, tmp_path):
    assert "thread_oversubscription" not in causes(
        findings(warm_python, "thread_oversubscription", (512, 384, 8), tmp_path, "healthy")
    )


def test_a_training_without_a_fault_is_compute_bound(warm_python, tmp_path):
    found = findings(warm_python, "compute_bound", (96, 80, 24), tmp_path)

    assert causes(found) == ["compute_bound"], summary(found)


def findings(
    warm_python: WarmPython,
    program: str,
    photographs: tuple[int, int, int],
    folder: Path,
    *args: str,
) -> list[dict[str, Any]]:
    """The findings of a run of this program on photographs of this width, height and number."""
    width, height, count = photographs
    files = photos.write(
        folder / "photos", width, height, count, quality=75 if program == "float32_on_host" else 90
    )
    out = folder / "report.json"
    options = ("-q", "-o", folder / "run", "--json", out)
    ended = warm_python.run(
        "-m",
        "feedline",
        "run",
        *options,
        PROGRAMS / f"{program}.py",
        files,
        *args,
        folder=folder,
        cpus=CPUS,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads(out.read_text())["findings"]
    assert found
    one_number.check_run(folder / "run")
    return own(found)


def causes(found: list[dict[str, Any]]) -> list[str]:
    return [finding["cause"] for finding in found]


def summary(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{finding['cause']} {finding['severity']} {finding['cost_s']} s: {finding['says']}"
        for finding in found
    )
