"""A step of a millisecond on tensors in memory: what a batch costs on its way from a worker is more
than what it costs to make.
"""

import json
from pathlib import Path

import pytest
from planted.own import own

PROGRAM = Path(__file__).parent / "programs" / "cheap_batches.py"
CPUS = 2
ABOUT_WORKERS = {"too_few_workers", "fewer_workers"}
ABOUT_THE_QUEUE = {"custom_collate", "objects_in_queue"}


@pytest.fixture
def causes(warm_python, tmp_path):
    """Run the program with these arguments under feedline; the causes that it finds, first one
    first.
    """

    def run(*arguments: str) -> list[str]:
        out = tmp_path / "report.json"
        options = ("-q", "-o", tmp_path / "run", "--json", out)
        ended = warm_python.run(
            "-m", "feedline", "run", *options, PROGRAM, *arguments, folder=tmp_path, cpus=CPUS
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        return [finding["cause"] for finding in own(json.loads(out.read_text())["findings"])]

    return run


@pytest.mark.quiet
def test_the_first_finding_is_that_workers_cost_more_than_they_spare_and_the_queue_is_not_blamed(
    causes,
):
    found = causes()

    assert found[0] == "fewer_workers"
    assert not {"too_few_workers", *ABOUT_THE_QUEUE} & set(found)


@pytest.mark.quiet
def test_without_workers_batches_are_made_one_by_one_and_none_are_advised_that_would_make_the_step_longer(
    causes,
):
    found = causes("healthy")

    assert found[0] == "made_one_by_one"
    assert not ABOUT_WORKERS & set(found)
