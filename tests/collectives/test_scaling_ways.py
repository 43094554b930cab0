"""What ``feedline scale`` and ``feedline report --by-rank`` say of trainings that share no work,
and that both have a report's figures.
"""

import json
import time
from contextlib import suppress
from pathlib import Path

import pytest
from collectives.launching import LIMIT_S, free_ports, launch, say_what_went_wrong, start

from feedline.__main__ import main
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.profiler.errors import FeedlineError, NotJudged
from feedline.profiler.store.trainings import open_run

APART = "The 2 ranks did not train together"
CONCLUSIONS = {
    "ddp": "2 ranks reach ",
    "fsdp": "2 ranks reach ",
    "metrics": f"{APART}, so this is no scaling. No collective averaged gradients in their steps",
    "alone": f"{APART}, and each drew all 240 samples, so this is no scaling.",
    "whole": "Each of the 2 ranks draws all 240 samples per epoch, as with 1 rank, so more ranks "
    "do not shorten an epoch.",
    "first": "Of 2 ranks, only rank 0 trained; rank 1 made no step, so this is no scaling.",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, warm_python):
    """Way -> run folders of one rank and of two."""

    def record(way: str) -> list[Path]:
        folder = tmp_path_factory.mktemp(way)
        for ranks in (1, 2):
            say_what_went_wrong(
                launch(folder / str(ranks), "ways_to_scale.py", ranks, way, warm=warm_python)
            )
        return [folder / str(ranks) / "run" for ranks in (1, 2)]

    return record


SHORT = ("ddp", "alone")


@pytest.mark.parametrize(
    "way", [pytest.param(one, marks=[pytest.mark.long] * (one not in SHORT)) for one in CONCLUSIONS]
)
def test_ranks_that_share_no_work_have_no_efficiency(recorded, way, tmp_path, capsys):
    runs, out = recorded(way), tmp_path / "scale.json"

    code = main(["scale", *map(str, runs), "--predict", "4", "--json", str(out)])

    found, refused = json.loads(out.read_text()), way not in ("ddp", "fsdp")
    assert found["conclusion"].startswith(CONCLUSIONS[way])
    assert code == (NotJudged.exit_code if refused else 0)
    assert all((row["efficiency"] is None) == refused for row in found["rows"])
    assert ("scaling efficiency" in found["conclusion"]) != refused
    assert not refused or all(one["samples_per_s"] is None for one in found["predictions"])
    for run, row in zip(runs, found["rows"], strict=True):
        assert row["point"]["samples_per_s"] == pytest.approx(
            recorded_report(open_run(run)).throughput.of_all_ranks
        ), "one figure for one run"
    check_by_rank(runs[1], way, tmp_path / "ranks.json", capsys)


def check_by_rank(run: Path, way: str, out: Path, capsys) -> None:
    capsys.readouterr()
    assert main(["report", "--by-rank", str(run), "--json", str(out)]) == 0
    said, found = " ".join(capsys.readouterr().out.split()), json.loads(out.read_text())

    assert found["samples_per_s"] == pytest.approx(
        recorded_report(open_run(run)).throughput.of_all_ranks
    )
    assert ("The ranks did not train together" in said) == (way in ("metrics", "alone"))
    assert ("no collectives" in said) == (way in ("alone", "first"))


@pytest.mark.long
def test_a_rank_with_a_shorter_epoch_left_its_loop_and_the_other_waits_for_it(
    tmp_path, warm_python, capsys
):
    launch(tmp_path, "shorter_epoch.py", 2, warm=warm_python)

    notes = " ".join(recorded_report(open_run(tmp_path / "run")).notes)

    assert (
        "rank 1 left its loop after 17 batches of its last epoch; rank 0 waits for it in "
        "all_reduce " in notes
    )
    assert "rank 1 was killed or crashed after the end of an epoch" in notes
    assert "had ended or been killed" not in notes
    assert main(["report", "--by-rank", str(tmp_path / "run")]) == 0
    assert (
        "rank 1 left its loop after 17 batches of its last epoch, and was killed later"
        in " ".join(capsys.readouterr().out.split())
    )


@pytest.mark.long
def test_ranks_that_stand_still_are_told_while_they_live(tmp_path, warm_python):
    ports, notes, until = free_ports(), [], time.monotonic() + LIMIT_S / 2
    ranks = [
        start(tmp_path, "stands_still.py", rank, 2, (), warm_python, True, *ports)
        for rank in range(2)
    ]
    while not any("so far" in note for note in notes) and time.monotonic() < until:
        time.sleep(1)
        with suppress(FeedlineError):  # it is only beginning
            notes = recorded_report(open_run(tmp_path / "run")).notes
    for rank in ranks:
        rank.communicate(timeout=LIMIT_S)

    told = " ".join(notes)
    assert "1 collective that other ranks began was not begun by rank 1 so far" in told
    assert "begun by rank 0, has not ended so far" in told
    assert "so far" not in " ".join(recorded_report(open_run(tmp_path / "run")).notes)
