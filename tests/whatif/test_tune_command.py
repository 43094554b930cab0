"""``feedline tune``: the advice, its table and figure, and the same as JSON."""

import json
import os
import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from whatif.closed_form import ClosedForm

from feedline.__main__ import main
from feedline.analysis.predict.limits import CPUS, STEP, NextLimit
from feedline.analysis.predict.search import Limits, Memory, Search, Searcher, Tuning
from feedline.analysis.report.figures.throughput import throughput_by_workers
from feedline.cli.parser import Parser
from feedline.cli.tune import TuneCommand, _byte_count
from feedline.cli.tune import text as tune_text
from feedline.cli.whatif.prediction import Replayable

MOST_S = 30  # of a search, on a machine that does other things too


@pytest.fixture(scope="module")
def tuned(demo, tmp_path_factory) -> SimpleNamespace:
    """What the command prints of the demonstration, and the files that it writes."""
    folder, printed = tmp_path_factory.mktemp("tuned"), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setenv("COLUMNS", "80")
        code = main(
            [
                "tune",
                str(demo),
                "-o",
                str(folder / "tune.html"),
                "--json",
                str(folder / "tune.json"),
            ]
        )
    page = (folder / "tune.html").read_text()
    return SimpleNamespace(
        code=code,
        text=printed.getvalue(),
        page=page,
        json=json.loads((folder / "tune.json").read_text()),
    )


def test_it_begins_with_the_advice_its_prediction_and_the_line_to_change(tuned):
    assert tuned.code == 0
    advice = re.search(
        r"^Set num_workers=2, persistent_workers=True: 81\.0 -> (\d+) samples/s\s+\([\d.]+ to "
        r"[\d.]+\)\.\nChange  (.*)\n",
        tuned.text,
    )
    assert advice is not None, tuned.text
    verify = re.search(
        r"^Verify  feedline verify \S+ --set (\S+) -- SCRIPT ARGS$", tuned.text, re.M
    )
    assert verify and verify[1] == "num_workers=2,persistent_workers=true"
    assert advice[2].startswith(
        "DataLoader(..., num_workers=2, persistent_workers=True)  # now num_workers=1, "
        "persistent_workers=False, "
    )
    assert advice[2].endswith(
        "examples/train_imagefolder.py:27; persistent_workers=True only if the program does not "
        "change the dataset between epochs"
    )


def test_the_tables_fit_into_80_columns_and_say_what_the_json_says(tuned):
    found = tuned.json
    lines = [
        line for line in tuned.text.splitlines() if not line.startswith(("Change", "Verify", "  "))
    ]
    assert max(map(len, lines)) <= 80
    assert [one["settings"]["num_workers"] for one in found["by_workers"]] == [0, 1, 2, 3, 4]
    assert found["best"]["settings"]["num_workers"] == 2 and found["refused"] is None
    assert found["best"]["predicted"]["from"] == pytest.approx(81.0, abs=0.1)
    assert f"{found['best']['predicted']['to']:.0f}" in tuned.text
    assert "  1 worker (now 81.0)  " in tuned.text, "the bar is of one that stays between epochs"
    assert 0 < found["took_s"] < MOST_S and found["tried"] >= 10


def test_memory_of_workers_is_bounded_by_what_the_processes_took(tuned):
    found = tuned.json

    assert 10e6 < found["memory"]["worker_bytes"] < 2e9
    two = found["best"]["memory_bytes"]
    assert two == pytest.approx(
        2 * found["memory"]["worker_bytes"] + 4 * found["memory"]["batch_bytes"]
    )
    assert found["limits"]["memory_bytes"] > two


def test_the_page_has_the_figure_and_loads_nothing(tuned):
    assert "<svg" in tuned.page and "http" not in tuned.page.replace("http-equiv", "").replace(
        "http://www.w3.org", ""
    )
    assert 'data-tip="1 worker, measured: 81.0 samples/s"' in tuned.page
    assert tuned.page.count('class="ring"') == 5
    assert "DataLoader(..., num_workers=2, persistent_workers=True)" in tuned.page


def test_the_memory_of_a_control_group_is_the_limit_where_it_has_less():
    def available(**gauges):
        made = [SimpleNamespace(name=name, values=values) for name, values in gauges.items()]
        return Replayable(None, made, None, None)._available()

    machine = {"memory/available": [400e9, 380e9]}
    group = {"cgroup/memory": [4e9, 9e9], "cgroup/memory_limit": [16e9, 16e9]}

    assert available(**machine) == 380e9
    assert available(**machine, **group) == 7e9
    assert available() is None


@pytest.mark.long
def test_limits_of_the_command_line_hold(demo, capsys):
    assert main(["tune", str(demo), "--max-workers", "1", "--json", "-"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (
        max(candidate["settings"]["num_workers"] for candidate in [*one["by_workers"], *one["few"]])
        == 1
    )

    assert (
        main(
            [
                "tune",
                str(demo),
                "--memory",
                "1GB",
                "--cores",
                "8",
                "--max-workers",
                "4",
                "--json",
                "-",
            ]
        )
        == 0
    )
    small = json.loads(capsys.readouterr().out)
    assert small["left_out"] == 3 and small["best"]["settings"]["num_workers"] == 2
    assert small["limits"]["cpus"] == 8.0 and small["limits"]["memory_bytes"] == 1e9


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["--max-workers", "-1"],
            2,
            "argument --max-workers: expected a whole number from 0 to 4,096",
        ),
        (["--cores", "0"], 2, "argument --cores: expected a number above 0"),
        (
            ["--memory", "8"],
            2,
            "argument --memory: expected a size with its unit, such as 8GB or 512MB, got '8'",
        ),
        (["--memory", "-1GB"], 2, "--memory needs a value: --memory SIZE"),
        (["-o", "tune.png"], 73, "tune.png: the result is written as a page: name it tune.html"),
        (["-o", "there.html"], 73, "there.html already exists"),
        (["-o", "no/tune.html"], 73, "the folder no does not exist"),
    ],
)
def test_nonsense_is_refused_before_anything_is_read(
    words, code, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("there.html").write_text("mine")
    try:
        ended = main(["tune", "nowhere", *words])
    except SystemExit as error:
        ended = error.code

    assert ended == code and message in capsys.readouterr().err
    assert os.listdir() == ["there.html"] and Path("there.html").read_text() == "mine"


def test_a_run_that_cannot_be_replayed_is_refused_in_text_and_json(ddp, tmp_path, capsys):
    assert main(["tune", str(tmp_path / "nowhere")]) == 66
    capsys.readouterr()

    assert main(["tune", str(ddp), "-o", str(tmp_path / "tune.html")]) == 1
    assert capsys.readouterr().out.startswith(
        "No prediction: a step lasts as long as that of the slowest rank"
    )
    assert not (tmp_path / "tune.html").exists()
    assert main(["tune", str(ddp), "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["refused"]["reason"] == "several_ranks" and "best" not in found


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("8GB", 8e9),
        ("512 MB", 512e6),
        ("1.5kB", 1500.0),
        ("2GiB", 2.0 * 2**30),
        ("100B", 100.0),
        ("1KB", 1000.0),
    ],
)
def test_sizes_have_units(text, nbytes):
    assert _byte_count(text) == nbytes


def searched(predict: ClosedForm, **now: object) -> Search:
    settings = {
        "num_workers": 1,
        "prefetch_factor": 2,
        "in_order": True,
        "persistent_workers": False,
        **now,
    }
    found = Searcher(predict, settings, 1, Limits(12), Memory(1e8, 1e6)).search()
    assert isinstance(found, Search)
    return found


def test_the_figure_marks_the_advice_and_the_measured_point():
    drawn = str(throughput_by_workers(searched(ClosedForm())))

    assert 'data-tip="4 workers, predicted: 100 samples/s (99.0 to 101), the advice"' in drawn
    assert 'data-tip="1 worker, measured: 30.0 samples/s"' in drawn
    assert drawn.count("the advice") == 1 and drawn.count('class="band"') == 1


def test_a_figure_of_one_number_of_workers_can_be_drawn():
    found = Searcher(ClosedForm(), {"num_workers": 0}, 1, Limits(0), Memory(None, None)).search()
    assert isinstance(found, Search)

    assert "no workers, measured" in str(throughput_by_workers(found))


def test_what_is_faster_out_of_order_is_told_with_what_it_costs():
    found = searched(ClosedForm(order_gain=1.2))
    limits = Limits(12, shared_bytes=1e9)
    lines = list(tune_text._why_not_more(Tuning(found, limits, took_s=1.0)))

    assert found.limit == NextLimit(STEP, 100.0)
    assert lines[0] == "More than 4 workers would not help: the rest of the step is then the limit."
    assert lines[1].startswith(
        "in_order=False would give 120 samples/s (119 to 121). It is not advised: the order of batches"
    )


def test_workers_that_memory_forbids_are_not_said_to_be_of_no_help():
    limits, memory = Limits(4, shared_bytes=64e6), Memory(1e8, 40e6)
    found = Searcher(ClosedForm(), {"num_workers": 0}, 1, limits, memory).search()
    assert isinstance(found, Search)

    said = " ".join(tune_text._why_not_more(Tuning(found, limits, took_s=1.0)))

    assert "would not help" not in said and "with workers, throughput would be about" in said
    assert "may not fit into 64.0 MB of /dev/shm" in said


def test_settings_that_are_the_best_already_are_kept():
    assert tune_text._conclusion(searched(ClosedForm(), num_workers=4), Limits(12)) == (
        "Keep num_workers=4, prefetch_factor=2, in_order=True, persistent_workers=False: no other "
        "settings within the limits would be more "
        "than 2 % faster."
    )


def test_advice_to_be_slower_says_what_forbids_the_present_settings():
    def advice(limits: Limits, workers: int) -> str:
        now = {"num_workers": workers, "prefetch_factor": 2}
        found = Searcher(ClosedForm(), now, 1, limits, Memory(1e8, 1e6)).search()
        assert isinstance(found, Search)
        return tune_text._conclusion(found, limits)

    assert advice(Limits(12, memory_bytes=1e3), 1).startswith(
        "Set num_workers=0, because 1 worker may not fit into memory: 30.0 -> 25.0 samples/s"
    )
    assert advice(Limits(12, memory_bytes=2.5e8), 3).startswith(
        "Set num_workers=2, because 3 workers may not fit into memory: "
    )
    assert advice(Limits(1), 3).startswith(
        "Set num_workers=1, because --max-workers allows no more: "
    )
    assert "because" not in advice(Limits(12), 9)


def test_the_page_says_under_which_conditions_the_advice_holds(tuned):
    condition = "Other programs used 1.5 of 2 CPUs, and none was free."
    tuning = Tuning(searched(ClosedForm()), Limits(12), remarks=(condition,))

    assert f"</h1>\n<p>{condition}</p>" in tune_text.render(tuning)
    assert "</h1>\n<p>Change" in tuned.page


def test_its_help_names_its_defaults():
    parser = Parser(prog="feedline tune")
    TuneCommand().prepare_parser(parser)

    assert "2 per CPU, at least 4" in " ".join(parser.format_help().split())


def test_where_the_search_ends_nothing_is_said_of_more_workers():
    """Three and four are each faster than the number before, and full CPUs are what would help
    most.
    """
    found = searched(ClosedForm(per_worker=10.0, on_cpus=45.0))
    ended = replace(
        found, limit=NextLimit(CPUS, 90.0), best=replace(found.best, settings={"num_workers": 4})
    )

    said, *_ = tune_text._why_not_more(Tuning(ended, Limits(4)))
    assert (
        said
        == "The search ended at 4 workers; all CPUs are busy. With more CPUs, throughput would be "
        "about 90.0 samples/s."
    )


def test_the_interval_of_the_measured_rate_is_told_where_it_is_wide(tuned):
    low, high = tuned.json["measured_interval"]

    assert (round(low, 1), round(high)) == (65.4, 106)
    assert (
        "Intervals are for a run like this one; without any change, another may reach 65.4 to 106 "
        "samples/s." in " ".join(tuned.text.split())
    )


def test_how_many_settings_it_replays_and_how_long_that_takes_is_said_before(demo, capsys):
    assert main(["tune", str(demo), "--max-workers", "2"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"replaying up to \d+ settings takes up to about [\d.]+ \w+", said)

    assert main(["tune", str(demo), "--max-workers", "2", "-q"]) == 0
    assert capsys.readouterr().err == ""
