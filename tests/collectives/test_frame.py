"""``feedline.load(RUN).collectives`` of two ranks agrees with the report."""

import numpy as np
import pytest

from feedline.analysis.report.loaded import LoadedRun
from feedline.analysis.report.run_frames import COLLECTIVES
from feedline.profiler.store.trainings import open_run

KIND = ["operation", "bytes", "group_size", "backend"]


@pytest.fixture(scope="module")
def run(two):
    return LoadedRun(open_run(two[0].run))  # all of its trainings as one


def test_collectives_are_those_of_the_report(run):
    rows = run.collectives
    assert set(rows["rank"]) == {0, 1}
    assert set(rows.groupby("collective")["rank"].nunique()) <= {1, 2}

    of_kind = dict(list(rows.groupby(KIND)))
    compared = 0
    for kind in run.report.comm.collectives:
        found = of_kind[kind.name, kind.bytes, kind.n, kind.backend]
        assert found["collective"].nunique() == kind.count
        longest = found[found["wait_s"].notna()].groupby("collective")["transfer_s"].max()
        if found["group"].nunique() == 1 and kind.transfer_s is not None:
            assert np.median(longest[longest > 0]) == pytest.approx(kind.transfer_s)
            compared += 1
    assert compared > 0


def test_parts_of_a_collective_are_within_it(run):
    rows = run.collectives.dropna(subset=["wall_s", "wait_s"])

    assert len(rows) > 0
    assert (
        (rows["wait_s"] >= 0).all()
        and (rows["queue_s"] >= 0).all()
        and (rows["transfer_s"] >= 0).all()
    )
    assert (rows["wait_s"] + rows["queue_s"] + rows["transfer_s"] <= rows["wall_s"] + 1e-9).all()


def test_a_collective_in_a_step_began_in_it(run):
    of_step = run.collectives.dropna(subset=["step"]).merge(
        run.steps, on=["rank", "step"], suffixes=("", "_step")
    )

    assert len(of_step) == run.collectives["step"].notna().sum() > 0
    assert (of_step["start_s"] >= of_step["start_s_step"]).all()


def test_the_frame_has_the_columns_that_are_documented(run):
    assert list(run.collectives.columns) == [column.name for column in COLLECTIVES.columns]
    for column in COLLECTIVES.columns:
        found = run.collectives[column.name]
        assert column.kind == "text" or column.dtype == str(found.dtype), column.name
        assert column.missing or not found.isna().any(), (
            f"{column.name} is missing, and nothing says when"
        )
