"""Odd programs in odd environments end, print, train and leave files as they do without feedline.
docs/torture.md lists them.
"""

import importlib.util
import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from torture.both import Bench, differences
from torture.case import Case
from torture.matrix import row, says
from torture.table import CASES

#: A folder for the rows of the matrix, one file each (scripts/test-long --matrix).
ROWS = os.environ.get("TORTURE_ROWS")


def parameter(case: Case):
    marks = [] if case.quick else [pytest.mark.long]
    return pytest.param(case, id=case.name, marks=marks)


def skip_if_impossible(case: Case) -> None:
    missing = [module for module in case.needs if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if sys.version_info < case.python:
        pytest.skip(f"about Python {'.'.join(map(str, case.python))} and later")
    if case.mounts and os.geteuid():
        pytest.skip("the mounts of this case need root")


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_the_program_behaves_as_without_feedline(case, tmp_path, warm_python):
    skip_if_impossible(case)

    both = Bench(tmp_path, warm_python).run(case)

    if ROWS:
        name = case.name.replace("/", " ")
        (Path(ROWS) / f"{name}.json").write_text(json.dumps(asdict(row(case, both))))
    found = differences(case, both)
    assert not found, "\n\n".join(
        [found[0][:3000], *(text[:600] for text in found[1:]), *both.said]
    )


@pytest.mark.long
def test_the_page_lists_every_program():
    """Those that are about a later Python than the page was made with are not on it."""
    page = (Path(__file__).parents[2] / "docs" / "torture.md").read_text()
    made_with = tuple(map(int, re.search(r"Python (\d+)\.(\d+)", page).groups()))
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]

    assert listed == [case.name for case in CASES if case.python <= made_with]
    assert len({case.name for case in CASES}) == len(CASES) >= 100
    assert all(says(case) for case in CASES)
