"""Run folders that somebody cut, emptied or scribbled on: shown as far as they go, or refused in
words; never a traceback.
"""

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.conftest import Workshop
from warm_python import WarmPython

from feedline.__main__ import main
from feedline.analysis import report as reports
from feedline.analysis.explain import reports_of_run
from feedline.analysis.explain.model import Report
from feedline.analysis.report import perfetto_trace, terminal
from feedline.analysis.report.console import Console
from feedline.profiler.errors import FeedlineError
from feedline.profiler.store.trainings import open_run

UPDATES = 12
GOLDEN = Path(__file__).parents[1] / "golden" / "runs"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython) -> dict[str, Path]:
    """Two good run folders: of a run that ended, in Parquet; of one that was killed, in segments."""
    made = {}
    for name, ending in (("finished", "pass"), ("killed", "import os; os.kill(os.getpid(), 9)")):
        shop = Workshop(tmp_path_factory.mktemp(name), warm_python)
        script = shop.training()
        script.write_text(f"{script.read_text()}    {ending}\n")
        shop.recorded_warm(script, 4 * UPDATES // 2)
        made[name] = shop.run
    return made


@pytest.fixture(scope="module", params=["finished", "killed"])
def whole(request: pytest.FixtureRequest, runs: dict[str, Path]) -> Path:
    return runs[request.param]


@pytest.fixture
def killed(runs: dict[str, Path]) -> Path:
    return runs["killed"]


def files(run: Path) -> list[Path]:
    return sorted(path.relative_to(run) for path in run.glob("rank0/**/*") if path.is_file())


def look(run: Path) -> Report | FeedlineError:
    """Everything that ``feedline report`` makes of a run, or what it refuses with."""
    try:
        opened = open_run(run)
        report = reports_of_run.recorded_report(opened)
    except FeedlineError as error:
        return error
    terminal.show(report, Console(file=io.StringIO()))
    for name in ("report.html", "report.json"):
        reports.write(report, run / name)
    perfetto_trace.write(opened, run / "trace.json.gz")
    return report


def copies(whole: Path, folder: Path) -> Iterator[tuple[Path, Path]]:
    """(a fresh copy, a file in it), for each file."""
    for file in files(whole):
        copy = folder / "run"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        yield copy, copy / file


def check(seen: Report | FeedlineError, case: str) -> None:
    if isinstance(seen, FeedlineError):
        assert seen.exit_code in (65, 66, 76), case
        assert ":" in str(seen), case
    else:
        assert seen.throughput.steps <= UPDATES, case


def test_a_good_run_is_shown_whole(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")

    seen = look(tmp_path / "run")

    assert isinstance(seen, Report)
    assert (seen.throughput.steps, seen.workers.batches, seen.notes) == (
        UPDATES,
        UPDATES,
        seen.notes,
    )
    assert seen.run.state == (
        "finished" if (whole / "rank0" / "events.parquet").exists() else "cut"
    )


def cuts(size: int, how: str) -> set[int]:
    """Lengths to cut a file to: within its header, within a record of a segment, and short of its
    end.
    """
    few = {0, 8, 12288 + 64 * 3 + 17, size // 2, size - 1}
    return (few if how == "few" else few | {1, 4000, 8192 + 8, size // 3, size - 4096}) & set(
        range(size)
    )


@pytest.mark.parametrize("how", ["few", pytest.param("many", marks=pytest.mark.long)])
def test_files_that_were_cut(whole, tmp_path, how):
    for file in files(whole):
        size = (whole / file).stat().st_size
        for length in sorted(cuts(size, how)):
            copy = tmp_path / "run"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            os.truncate(copy / file, length)

            check(look(copy), f"{file} cut to {length} of {size} bytes")


def test_files_that_are_gone(whole, tmp_path):
    for copy, file in copies(whole, tmp_path):
        file.unlink()

        check(look(copy), f"without {file}")


def test_a_worker_that_was_cut_leaves_the_training_whole(killed, tmp_path):
    worker = [file for file in files(killed) if "worker" in file.name][0]
    copy = tmp_path / "run"
    shutil.copytree(killed, copy)
    os.truncate(copy / worker, 100)

    seen = look(copy)

    assert isinstance(seen, Report)
    assert seen.throughput.steps == UPDATES
    assert any(worker.name in note and "skipped" in note for note in seen.notes)


def test_steps_before_the_cut_are_still_there(killed, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(killed, copy)
    os.truncate(copy / "rank0" / "segments" / "main.seg", 12288 + 64 * 70)

    seen = look(copy)

    assert isinstance(seen, Report)
    assert 0 < seen.throughput.steps < UPDATES


def test_a_manifest_of_another_shape(whole, tmp_path):
    for number, text in enumerate(
        [
            "[]",
            "{}",
            "3",
            '{"schema_version": "x"}',
            '{"schema_version": 1}',
            '{"schema_version": 1, "loaders": 3, "hooks": [1]}',
        ]
    ):
        copy = tmp_path / str(number)
        shutil.copytree(whole, copy)
        (copy / "rank0" / "manifest.json").write_text(text)

        check(look(copy), text)


def test_a_newer_gauge_file_costs_the_gauges_only(whole, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(whole, copy)
    legend = copy / "rank0" / "gauges.json"
    legend.write_text(json.dumps({**json.loads(legend.read_text()), "schema_version": 99}))

    seen = look(copy)

    assert isinstance(seen, Report)
    assert seen.throughput.steps == UPDATES
    assert any("gauges" in note and "newer feedline" in note for note in seen.notes)


def test_a_rank_that_was_cut_is_left_out_of_the_report_and_of_the_trace(tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "ranks", run)
    cut = run / "rank1" / "events.parquet"
    cut.write_bytes(cut.read_bytes()[:2000])
    drawn = tmp_path / "drawn.trace.json"

    assert main(["report", str(run)]) == 0
    assert "rank 1: " in capsys.readouterr().err
    assert main(["report", str(run), "-o", str(drawn)]) == 0
    assert "rank 1" in capsys.readouterr().err
    assert '"rank 0' in drawn.read_text() and '"rank 1' not in drawn.read_text()
