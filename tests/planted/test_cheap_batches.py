"""A step of a millisecond on tensors in memory: what a batch costs on its way from a worker is more than what it costs to make."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "cheap_batches.py"
CPUS = 2
ABOUT_WORKERS = {"too_few_workers", "fewer_workers"}
ABOUT_THE_QUEUE = {"custom_collate", "objects_in_queue"}


@pytest.fixture
def causes(warm_python, tmp_path):
    """Run the program with these arguments under feedline; the causes that it finds, first one first."""

    def run(*arguments: str) -> list[str]:
        out = tmp_path / "report.json"
        options = ("-q", "-o", tmp_path / "run", "--json", out)
        ended = warm_python.run("-m", "feedline", "run", *options, PROGRAM, *arguments, folder=tmp_path, cpus=CPUS)
        assert ended.returncode == 0, ended.stderr[-2000:]
        return [finding["cause"] for finding in json.loads(out.read_text())["findings"]]

    return run


def test_no_workers_are_advised_where_they_would_make_the_step_longer(causes):
    assert not ABOUT_WORKERS & set(causes("healthy"))


def test_the_time_of_the_queue_is_not_taken_for_a_copy_of_four_kilobytes(causes):
    found = causes()

    assert found and not {"too_few_workers", *ABOUT_THE_QUEUE} & set(found)


@pytest.mark.quiet
def test_the_first_finding_is_that_workers_cost_more_than_they_spare(causes):
    assert causes()[0] == "fewer_workers"


@pytest.mark.quiet
def test_without_workers_the_first_finding_is_that_batches_are_made_one_by_one(causes):
    assert causes("healthy")[0] == "made_one_by_one"
