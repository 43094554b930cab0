"""``feedline.load``: what it opens, what it refuses, and that its report is the one of ``feedline
report``.
"""

import html
import json
import shutil
import subprocess
import sys

import pytest
from frames.conftest import BATCH, in_memory, train
from traces.kineto_made import kineto

import feedline
from feedline.__main__ import main
from feedline.analysis.ranks.ingest_traces import ingest
from feedline.analysis.ranks.many.rank_pool import here
from feedline.analysis.report import json_report
from feedline.profiler.errors import OutputError, RunDamaged, RunNotFound, SchemaTooNew


@pytest.mark.parametrize("name", ["mine", "short", "nothing"])
def test_the_report_is_the_one_that_feedline_report_writes(name, request, tmp_path):
    path = request.getfixturevalue(name)
    assert main(["report", str(path), "-q", "--json", str(tmp_path / "report.json")]) == 0

    assert json.loads(json_report.render(feedline.load(path).report)) == json.loads(
        (tmp_path / "report.json").read_text()
    )


def test_a_run_shows_its_verdict(mine):
    run = feedline.load(str(mine))

    assert str(run.report.verdict) in repr(run) and repr(run).startswith("<feedline run mine · ")
    assert (
        run._repr_html_().startswith("<iframe ") and html.escape(run.to_html()) in run._repr_html_()
    )


def test_the_html_report_is_returned_or_written(mine, tmp_path):
    run = feedline.load(mine)

    text = run.to_html()
    assert text is not None and text.startswith("<!doctype html>")
    assert run.to_html(tmp_path / "report.html") is None
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    with pytest.raises(
        OutputError, match=r"already exists: pass another path, or overwrite=True to replace it$"
    ):
        run.to_html(tmp_path / "report.html")
    run.to_html(str(tmp_path / "report.html"), overwrite=True)


def test_loading_writes_nothing_into_the_run_folder(mine):
    before = sorted(mine.rglob("*"))
    run = feedline.load(mine)
    assert run.report and len(run.steps) and repr(run)

    assert sorted(mine.rglob("*")) == before


def test_pandas_comes_with_the_first_frame_and_torch_never(mine):
    program = (
        "import sys, feedline\n"
        f"run = feedline.load({str(mine)!r})\n"
        "run.report, repr(run), run.to_html()\n"
        "assert not {'pandas', 'torch'} & sys.modules.keys()\n"
        "run.steps, run.samples, run.collectives, run.gauges, run.findings\n"
        "assert 'pandas' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_that_is_being_recorded(tmp_path):
    with feedline.record(tmp_path / "run", strict=True):
        train(in_memory(6))
        run = feedline.load(tmp_path / "run")

        assert len(run.steps) == run.report.throughput.steps == 6
        assert run.report.run.state == "live"
    assert feedline.load(tmp_path / "run").report.run.state == "finished"


def newer(path):
    manifest = path / "rank0" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema_version": 99}))


def without_records(path):
    shutil.rmtree(path / "rank0" / "segments", ignore_errors=True)
    for file in path.glob("rank0/*.parquet"):
        file.unlink()


REFUSED = {
    "missing": (shutil.rmtree, "", RunNotFound),
    "a file": (lambda path: None, "rank0/manifest.json", RunNotFound),
    "no run": (lambda path: None, "rank0", RunNotFound),
    "newer": (newer, "", SchemaTooNew),
    "no records": (without_records, "", RunDamaged),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_refused_as_on_the_command_line(
    case, mine, tmp_path, capsys, monkeypatch
):
    spoil, place, kind = REFUSED[case]
    path = shutil.copytree(mine, tmp_path / "run")
    spoil(path)

    with pytest.raises(kind) as refused:
        feedline.load(path / place)

    monkeypatch.delenv("FEEDLINE_TRACEBACK")
    assert main(["report", str(path / place)]) == refused.value.exit_code
    assert f"feedline: {refused.value}" in capsys.readouterr().err
    assert isinstance(refused.value, feedline.FeedlineError)


def test_of_several_trainings_one_has_to_be_named(sweep):
    with pytest.raises(
        RunNotFound,
        match=rf"holds 2 training runs: load one of them \({sweep}/parts/1, {sweep}/parts/2\), or "
        rf"all with",
    ):
        feedline.load(sweep)
    with pytest.raises(RunNotFound, match="has no training 3: it holds 2 training runs"):
        feedline.load(sweep, training=3)

    by_number, by_path = feedline.load(sweep, training=2), feedline.load(sweep / "parts" / "2")
    assert by_number.name == by_path.name == "sweep (training 2 of 2)"
    assert by_number.path == by_path.path == sweep / "parts" / "2"
    assert by_number.report.throughput.samples == by_path.report.throughput.samples == 7 * BATCH


def test_of_trainings_in_several_processes_one_has_to_be_named(mine, short, tmp_path):
    path = shutil.copytree(mine, tmp_path / "run")
    shutil.copytree(short, path / "training-1")

    with pytest.raises(
        RunNotFound,
        match=rf"holds 2 training runs: load one of them \({path}/training-0, {path}/training-1\)",
    ):
        feedline.load(path)
    assert len(feedline.load(path / "training-1").steps) == len(feedline.load(short).steps)
    assert len(feedline.load(path / "training-0").steps) == len(feedline.load(mine).steps)
    assert [run.name for run in feedline.load_all(path)] == ["training-0", "training-1"]


def test_traces_have_a_report_and_findings_and_refuse_frames_of_records(tmp_path):
    with here() as pool:
        ingest(
            [
                kineto(tmp_path / f"rank{rank}.json.gz", rank=rank, late_us=2000 * rank)
                for rank in range(2)
            ],
            tmp_path / "run",
            pool,
        )

    run = feedline.load(tmp_path / "run")

    assert set(run.report.ranks) == {"0", "1"} and run.report.traces is not None
    assert (
        run.findings["cause"].tolist() == [finding.rule_id for finding in run.report.findings] != []
    )
    assert str(run.report.verdict) in repr(run) and 'id="traces"' in run.to_html()
    for name in ("steps", "samples", "collectives", "gauges", "stages"):
        with pytest.raises(
            feedline.FeedlineError, match=r"holds traces that another tool made: .* Use \.report"
        ):
            getattr(run, name)


def test_a_rank_that_cannot_be_read_is_left_out_and_named(mine, tmp_path):
    path = shutil.copytree(mine, tmp_path / "run")
    shutil.copytree(path / "rank0", path / "rank1")
    without_records(path)

    run = feedline.load(path)

    assert set(run.steps["rank"]) == set(run.samples["rank"]) == {1}
    assert any(note.startswith("rank 0: ") for note in run.report.notes)
