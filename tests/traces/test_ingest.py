"""Traces become a run folder: whole or not at all, each file judged by itself."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from traces.kineto_made import EPOCH_US, STEP_US, kineto
from traces.nsight.made_up import export, kernel

from feedline.__main__ import main
from feedline.analysis.ranks.ingest_traces import ingest
from feedline.analysis.ranks.many.rank_pool import dask, here, local
from feedline.analysis.traces import folder
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.profiler.errors import OutputError, RankCollision, RunDamaged, TraceDamaged
from feedline.profiler.store.manifest import Manifest


@pytest.fixture
def two(tmp_path) -> list[str]:
    """Traces of two ranks, as a training would leave them."""
    return [
        kineto(tmp_path / f"rank{rank}.json.gz", rank=rank, late_us=2000 * rank)
        for rank in range(2)
    ]


def ingested(paths, run, **more):
    with here() as pool:
        return ingest(paths, run, pool, **more)


def test_a_trace_in_a_run_folder_is_the_trace(two, tmp_path):
    ingested(two, tmp_path / "run")
    kept, read = folder.read(tmp_path / "run" / "rank1"), read_kineto(two[1])

    assert np.array_equal(kept.events, read.events)
    assert {name: value for name, value in vars(kept).items() if name != "events"} == {
        name: value for name, value in vars(read).items() if name != "events"
    }


def test_processes_find_what_one_finds(two, tmp_path):
    ingested(two, tmp_path / "one")
    with local(2) as pool:
        ingest(two, tmp_path / "many", pool)

    for rank in range(2):
        one, many = (folder.read(tmp_path / run / f"rank{rank}").events for run in ("one", "many"))
        assert np.array_equal(one, many)


def test_a_file_that_cannot_be_read_is_named_and_the_others_go_on(two, tmp_path, capsys):
    (tmp_path / "broken.json").write_text("this is no trace")
    code = main(["ingest", *two, str(tmp_path / "broken.json"), "-o", str(tmp_path / "run")])
    told = capsys.readouterr()

    assert code == TraceDamaged.exit_code
    assert "broken.json" in told.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert list(report["ranks"]) == ["0", "1"]
    assert any("broken.json" in note for note in report["notes"])


def test_a_file_of_impossible_numbers_is_named_and_leaves_nothing_that_cannot_be_read(
    two, tmp_path, capsys
):
    broken = json.loads(gzip.decompress(Path(two[1]).read_bytes()))
    for event in broken["traceEvents"]:
        if "Seq" in event.get("args", {}):
            event["args"]["Seq"] = 1 << 60
    (tmp_path / "broken.json").write_text(json.dumps(broken))

    done = ingested([two[0], str(tmp_path / "broken.json")], tmp_path / "run")

    (why,) = done.problems.values()
    assert "broken.json contains impossible numbers (`collectives` " in why
    assert list(done.ranks) == [0] and len(folder.read(tmp_path / "run" / "rank0").events)


def test_two_files_of_one_rank_are_an_error_and_leave_no_folder(tmp_path):
    paths = [kineto(tmp_path / f"{name}.json", rank=3) for name in "ab"]

    with pytest.raises(
        RankCollision,
        match="rank 3 appears twice, in .*a.json and .*b.json: pass --rank FILE=N for one of them",
    ):
        ingested(paths, tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_the_argument_parts_two_files_of_one_rank(tmp_path, capsys):
    paths = [
        kineto(tmp_path / f"{name}.json", rank=3, late_us=late) for late, name in enumerate("ab")
    ]
    code = main(
        [
            "ingest",
            *paths,
            "-o",
            str(tmp_path / "run"),
            "-q",
            "--rank",
            "a.json=0",
            "--rank",
            f"{paths[1]}=1",
        ]
    )

    assert code == 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".feedline",
        "rank0",
        "rank1",
    ]


def test_the_argument_numbers_all_ranks_of_a_file_from_its_own(tmp_path):
    us = 1000
    paths = [
        export(
            tmp_path / f"node{node}.sqlite",
            {
                "CUPTI_ACTIVITY_KIND_KERNEL": [
                    kernel(5 * us, 9 * us, pid=pid, device=device)
                    for device, pid in enumerate((10, 20))
                ]
            },
            {1: "gemm"},
        )
        for node in range(2)
    ]

    with pytest.raises(RankCollision, match="rank 0 appears twice"):
        ingested(paths, tmp_path / "run")
    made = ingested(paths, tmp_path / "run", given={"node1.sqlite": 2})

    assert made.ranks == {0: paths[0], 1: paths[0], 2: paths[1], 3: paths[1]}
    notes = [Manifest.read(tmp_path / "run" / f"rank{rank}").notes for rank in range(4)]
    assert ["numbered from 0" in " ".join(one) for one in notes] == [True, True, False, False]


def test_an_interrupted_ingest_leaves_no_folder(two, tmp_path):
    def interrupted(what: str, done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingested(two, tmp_path / "run", tell=interrupted)
    assert not [path for path in tmp_path.iterdir() if "run" in path.name]


def test_nothing_readable_is_an_error_with_every_files_reason_at_hand(tmp_path):
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')

    with pytest.raises(TraceDamaged, match="empty.json contains no event"):
        ingested([str(tmp_path / "empty.json")], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_older_run_is_kept_unless_asked(two, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["ingest", two[0], "-o", str(run), "-q"]) == 0

    assert main(["ingest", *two, "-o", str(run), "-q"]) == 73
    assert "already exists" in capsys.readouterr().err
    assert not (run / "rank1").exists()
    assert main(["ingest", *two, "-o", str(run), "-q", "-f"]) == 0
    assert (run / "rank1").exists()


def test_the_report_of_other_traces_is_never_shown_as_theirs(tmp_path, capsys):
    for name, late_us in (("a", 0), ("b", 90_000)):
        (tmp_path / name).mkdir()
        kineto(tmp_path / name / "trace.json", rank=0, late_us=late_us)
    run = tmp_path / "run"
    assert main(["ingest", str(tmp_path / "a" / "trace.json"), "-o", str(run), "-q"]) == 0

    assert main(["ingest", str(tmp_path / "b" / "trace.json"), "-o", str(run)]) == 73

    shown = capsys.readouterr()
    assert shown.out == "" and "already exists" in shown.err
    assert not (run / "report.json").exists()


def test_a_rank_argument_without_a_number_is_told(two, tmp_path, capsys):
    assert main(["ingest", two[0], "--rank", "rank0.json.gz", "-o", str(tmp_path / "run")]) == 2
    assert "expected FILE=N" in capsys.readouterr().err


def test_a_trace_file_that_was_cut_off_in_the_run_folder_is_named(two, tmp_path):
    ingested(two, tmp_path / "run")
    file = tmp_path / "run" / "rank0" / "trace.parquet"
    file.write_bytes(file.read_bytes()[:-200])

    with pytest.raises(RunDamaged, match="trace.parquet cannot be read .*: ingest the trace again"):
        folder.read(file.parent)


def test_the_report_has_budget_device_and_input_of_each_rank(two, tmp_path, capsys):
    assert (
        main(["ingest", *two, "-o", str(tmp_path / "run"), "--json", str(tmp_path / "out.json")])
        == 0
    )
    report = json.loads((tmp_path / "out.json").read_text())

    for rank in ("0", "1"):
        own = report["ranks"][rank]
        assert sum(own["budget"].values()) == pytest.approx(1, abs=1e-12)
        assert own["gpu"]["idle_pct"] + own["gpu"]["compute_pct"] + own["gpu"][
            "other_pct"
        ] == pytest.approx(100)
        assert own["input"]["stall_pct"] > 5
        assert own["input"]["speedup_ceiling"] > 1.05
    assert report["step"]["boundary"] == "profiler_step"
    assert sum(report["step"]["stages"].values()) == pytest.approx(report["step"]["mean_s"])
    assert "input_stall" in [finding["cause"] for finding in report["findings"]]
    assert "\nAlso    make the input faster" in capsys.readouterr().out


def test_shares_among_the_evidence_of_a_trace_are_percentages(two, tmp_path, capsys):
    main(["ingest", *two, "-o", str(tmp_path / "run"), "-q"])
    main(["report", str(tmp_path / "run"), "--full"])
    said = capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    report = json.loads((tmp_path / "run" / "report.json").read_text())

    stall = next(
        one
        for finding in report["findings"]
        for one in finding["evidence"]
        if one["id"] == "input_share"
    )
    assert stall["unit"] == "share" and 0 < stall["value"] < 1
    assert f"input stall: {100 * stall['value']:.1f} %\n" in said
    assert f'input stall</th><td class="n">{100 * stall["value"]:.1f} %</td>' in page


def test_a_trace_without_an_annotation_of_a_loader_abstains(tmp_path, capsys):
    path = kineto(tmp_path / "t.json", rank=0, loader=False)
    assert (
        main(
            [
                "ingest",
                path,
                "-o",
                str(tmp_path / "run"),
                "-q",
                "--json",
                str(tmp_path / "out.json"),
            ]
        )
        == 0
    )
    report = json.loads((tmp_path / "out.json").read_text())

    assert report["ranks"]["0"]["input"]["stall_pct"] is None
    assert "has no DataLoader range" in report["ranks"]["0"]["input"]["reasons"]["stall_pct"]
    assert "input_not_seen" in [finding["cause"] for finding in report["findings"]]


def test_a_late_rank_of_traces_without_steps_is_late_in_the_trace(two, tmp_path, capsys):
    paths = []
    for rank, whole in enumerate(two):
        told = json.loads(gzip.decompress(Path(whole).read_bytes()))
        told["traceEvents"] = [
            event
            for event in told["traceEvents"]
            if event["ts"] < EPOCH_US + STEP_US and "ProfilerStep" not in event["name"]
        ]
        paths.append(str(tmp_path / f"bare{rank}.json"))
        Path(paths[-1]).write_text(json.dumps(told))

    main(["ingest", *paths, "-o", str(tmp_path / "run"), "--json", str(tmp_path / "out.json")])
    report = json.loads((tmp_path / "out.json").read_text())

    assert any("waited for rank 1 in the trace; it came last" in one for one in report["notes"])
    (found,) = [one for one in report["findings"] if one["cause"] == "late_rank"]
    assert "the trace has no steps that would tell whether" in found["more"][0]
    assert "only step" not in " ".join(found["more"])


def test_the_html_report_of_traces_holds_their_tables(two, tmp_path, capsys):
    main(["ingest", *two, "-o", str(tmp_path / "run")])
    page = (tmp_path / "run" / "report.html").read_text()

    for words in ("Device and input of each rank", "gemm_kernel", "HtoD", "rank1.json.gz"):
        assert words in page
    assert "No loader was seen" not in page


def test_a_zip_bomb_is_refused_by_the_limit(tmp_path, capsys):
    event = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},'
    with gzip.open(tmp_path / "bomb.json.gz", "wb") as file:
        file.write(b'{"traceEvents":[')
        for _ in range(40):
            file.write(event * 5000)
        file.write(event[:-1] + b"]}")

    assert (
        main(
            [
                "ingest",
                str(tmp_path / "bomb.json.gz"),
                "-o",
                str(tmp_path / "run"),
                "--max-events",
                "1000",
            ]
        )
        == 65
    )
    assert "--max-events" in capsys.readouterr().err
    assert Path(tmp_path / "run").exists() is False


def test_a_dask_cluster_makes_the_same_run(two, tmp_path):
    import distributed

    ingested(two, tmp_path / "one")
    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": None,
        "protocol": "tcp",
    }
    with distributed.LocalCluster(**settings) as cluster, dask(cluster.scheduler_address) as pool:
        ingest(two, tmp_path / "many", pool)

    for rank in range(2):
        one, many = (folder.read(tmp_path / run / f"rank{rank}").events for run in ("one", "many"))
        assert np.array_equal(one, many)


def test_the_comparison_of_recorded_ranks_names_the_command_for_traces(tmp_path, capsys):
    traces = [kineto(tmp_path / f"rank{rank}.json", rank=rank) for rank in range(2)]
    assert main(["ingest", *traces, "-o", str(tmp_path / "run"), "-q"]) == 0

    assert main(["report", "--by-rank", str(tmp_path / "run")]) == 2

    said = " ".join(capsys.readouterr().err.split())
    assert f"was made of traces: `feedline report {tmp_path}/run` compares their ranks" in said


def test_no_trace_can_be_drawn_of_traces_and_that_is_said(two, tmp_path, capsys):
    run, drawn = tmp_path / "run", tmp_path / "drawn.trace.json.gz"
    assert main(["ingest", *two, "-o", str(run), "-q"]) == 0

    assert main(["report", str(run), "-o", str(drawn)]) == OutputError.exit_code
    assert "was made of traces, so open those" in capsys.readouterr().err
    assert not drawn.exists()
