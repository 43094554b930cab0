"""Work for nothing that no stack shows: the first finding about the program names it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from truth import one_number
from warm_python import WarmPython

PROGRAM = Path(__file__).parent / "programs" / "needless_work.py"

#: fault -> its finding, a part of the line to change, of the fix.
FAULTS = {
    "dropped": ("dropped_graphs", "        loss = model(rows)", "Remove this call"),
    "padded": ("padded_batches", "", "its own longest row"),
    "denormal": ("denormal_numbers", "", "set_flush_denormal"),
}
#: Times: below it, this CPU computes with denormal numbers as fast as with others.
SLOWER = 1.5


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=[pytest.mark.long] * (one == "denormal")) for one in FAULTS]
)
def test_it_is_named_with_its_fix_and_not_in_a_training_without_it(warm_python, fault, tmp_path):
    cause, line, fix = FAULTS[fault]

    slow = recorded(warm_python, tmp_path, fault)
    fixed = recorded(warm_python, tmp_path, fault, "healthy")

    ratio = slow["step"]["mean_s"] / fixed["step"]["mean_s"]
    if fault == "denormal" and ratio < SLOWER:
        pytest.skip(f"steps with denormal numbers take {ratio:.2f} times as long here")
    found = {one["cause"]: one for one in slow["findings"]}
    assert cause in found, slow["verdict"]
    assert fix in found[cause]["fix"]
    assert cause not in [one["cause"] for one in fixed["findings"]]
    if line:
        number = int(found[cause]["place"].rpartition(":")[2])
        assert PROGRAM.read_text().splitlines()[number - 1] == line


def recorded(warm_python: WarmPython, folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of a run of the program."""
    out, program = folder / "report.json", folder / PROGRAM.name
    shutil.copyfile(PROGRAM, program)  # a report finds source below its run folder's parents
    command = ("-m", "feedline", "run", "-q", "-f", "-o", folder / "run", "--json", out)
    ended = warm_python.run(*command, program, *arguments, folder=folder, cpus=2)
    assert ended.returncode == 0, ended.stderr[-2000:]
    one_number.check_run(folder / "run")
    report: dict[str, Any] = json.loads(out.read_text())
    return report
