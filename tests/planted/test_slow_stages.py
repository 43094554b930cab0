"""Stages that take ten times what their bytes or pixels should: the first finding names the stage
and why.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data
from truth import one_number
from warm_python import WarmPython

PROGRAM = Path(__file__).parent / "programs" / "slow_stages.py"

#: fault -> stage, why, fix.
FAULTS = {
    "format": (
        "decode takes",
        "PIL.JPEG2000, whose format is slow to decode",
        "Convert the images once to JPEG",
    ),
    "pickled": (
        "read takes",
        "the cause is unknown\nnumpy.load accounts for 100 % of that time",
        "py-spy",
    ),
    "scratch_array": (
        "the operating system takes",
        "page faults, for new",
        "Allocate large work arrays once",
    ),
    "objects": ("transport takes", "of Python objects", "a few tensors"),
}


SLOW = ("format", "pickled", "scratch_array")


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[pytest.mark.long] * (one in SLOW)) for one in FAULTS]
)
def test_the_stage_is_named_with_why_it_takes_so_long_and_its_fix_is_faster(
    warm_python, fault, tmp_path
):
    stage, why, fix = FAULTS[fault]

    slow, fixed = (
        recorded(warm_python, tmp_path, fault),
        recorded(warm_python, tmp_path, fault, "healthy"),
    )

    first = slow["findings"][0]
    assert first["cause"] == "slow_for_its_bytes", slow["verdict"]
    advice = " ".join([first["fix"], *first["fix_more"]])
    said = "\n".join([first["says"], *first["more"]])
    assert first["says"].startswith(stage) and why in said, first
    assert fix in advice, first
    assert "slow_for_its_bytes" not in [finding["cause"] for finding in fixed["findings"]]
    assert fixed["step"]["mean_s"] < 0.5 * slow["step"]["mean_s"]


def recorded(warm_python: WarmPython, folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of a run of the program."""
    photo, out = Image.fromarray(data.astronaut()[:256, :256]), folder / "report.json"
    for name in ("photo.jpg", "photo.jp2"):
        photo.save(folder / name)
    np.save(folder / "plain.npy", np.zeros(20_000, np.float32))
    np.save(
        folder / "objects.npy",
        np.array([Path(f"frames/{number}.jpg") for number in range(4000)], object),
    )
    command = (
        "-m",
        "feedline",
        "run",
        "-q",
        "-f",
        "-o",
        folder / "run",
        "--json",
        out,
        PROGRAM,
        arguments[0],
        folder,
        *arguments[1:],
    )
    ended = warm_python.run(*command, folder=folder, cpus=2)
    assert ended.returncode == 0, ended.stderr[-2000:]
    one_number.check_run(folder / "run")
    report: dict[str, Any] = json.loads(out.read_text())
    return report
