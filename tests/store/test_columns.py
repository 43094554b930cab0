"""A stage's columns are read by their meaning, and no other way in the analysis."""

import ast
from pathlib import Path

import numpy as np
import pytest

from feedline.profiler.events import Stage
from feedline.profiler.store.record_columns import (
    _MEANINGS,
    RECORD_DTYPE,
    _dtype_of,
    last_sign,
    summed,
    totals,
    view,
)

ANALYSIS = Path(__file__).parents[2] / "analysis"
ELSEWHERE = {"trace.py"}  # writes every record, whatever its stage, for Perfetto


def traffic(*disk_bytes: int) -> np.ndarray:
    records = np.zeros(len(disk_bytes), RECORD_DTYPE)
    records["stage"], records["cpu"] = Stage.TRAFFIC, disk_bytes
    return records


def test_a_view_has_the_stages_own_names_and_no_other_for_the_same_column():
    records = traffic(3, 4)
    seen = view(records, Stage.TRAFFIC)

    assert seen["disk_bytes"].tolist() == [3, 4] and np.shares_memory(seen, records)
    with pytest.raises(ValueError, match="no field of name cpu"):
        seen["cpu"]


def test_sums_of_records_and_sums_that_were_kept_have_the_same_names_and_leave_out_what_was_not_measured():
    records = view(traffic(3, -1, 4), Stage.TRAFFIC)

    assert summed(records, Stage.TRAFFIC)["disk_bytes"] == 7
    assert summed(records, Stage.TRAFFIC) == totals(
        Stage.TRAFFIC, np.array([3, 0, 7, 0, 0, 0, 0, 0])
    )


@pytest.mark.parametrize("stage", _MEANINGS, ids=lambda stage: stage.name)
def test_names_of_one_stage_are_of_columns_that_exist_and_differ(stage):
    assert set(_MEANINGS[stage]) <= set(RECORD_DTYPE.names)
    assert len(set(_dtype_of(stage).names)) == len(RECORD_DTYPE.names)
    assert _dtype_of(stage).itemsize == RECORD_DTYPE.itemsize


def test_the_analysis_reads_no_column_whose_meaning_depends_on_the_stage():
    raw = [
        f"{path.relative_to(ANALYSIS)}:{node.lineno}"
        for path in ANALYSIS.rglob("*.py")
        if path.name not in ELSEWHERE
        and any(word in path.read_text() for word in ("extra", "totals"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "extra"
        or isinstance(node, ast.Attribute)
        and node.attr == "totals"
    ]

    assert not raw


def test_the_last_sign_takes_no_mark_of_a_sample_for_a_duration():
    """A mark is 40 bits of a hash: up to 18 minutes."""
    records = np.zeros(3, RECORD_DTYPE)
    records["stage"] = Stage.FETCH, Stage.MARKS, Stage.FETCH
    records["start"], records["wall"] = (100, 140, 150), (20, 1 << 40, -1)

    assert last_sign(records) == 150
    assert last_sign(records[:1]) == 120
    assert last_sign(records[:0]) == 0
