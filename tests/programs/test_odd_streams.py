"""Streams that break off, end at once or yield what is no tensor behave as without feedline."""

import json

import pytest
from programs.conftest import ENVIRONMENT, SOURCES


@pytest.mark.parametrize("workers", [0, 2])
def test_odd_streams_behave_as_without_feedline_and_are_counted(tmp_path, warm_python, workers):
    script, report = [str(SOURCES / "odd_streams.py"), str(workers)], tmp_path / "report.json"
    feedline = ["-m", "feedline", "run", "-q", "-o", str(tmp_path / "run"), "--json", str(report)]

    plain, recorded = (
        warm_python.run(*command, folder=tmp_path, environment=ENVIRONMENT)
        for command in (script, [*feedline, *script])
    )

    assert recorded.stdout == plain.stdout
    assert (plain.returncode, recorded.returncode) == (0, 0)
    told = json.loads(report.read_text())
    loaders = {loader["settings"]["dataset"]: loader for loader in told["loaders"]}
    assert loaders["LongerThanItSays"]["samples"] == 24
    assert workers or loaders["ShorterThanItSays"]["samples"] == 8
