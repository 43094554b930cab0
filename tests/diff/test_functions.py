"""Two runs compared by function: from their sampled stacks, beyond the intervals of these."""

import json
from dataclasses import replace

import pytest
from diff.made_up import changed as changed_by
from diff.made_up import quiet
from user_code.made_stacks import BACKWARD, FETCHING, LOOP, STEP
from user_code.with_stacks import RUN, WORKER, run_with

from feedline.__main__ import main
from feedline.analysis.diff.conclusion import _changed
from feedline.analysis.diff.diff_runs import diff
from feedline.analysis.diff.measures import compared_run
from feedline.analysis.diff.run_diff import Outcome, Quantity
from feedline.analysis.diff.side import Measure
from feedline.cli.diff.text import _cells

LOAD, PARSE = ("data.py", 20, "load"), ("data.py", 40, "parse")


def seen(parse: int, others: int = 12, log: int = 0, caller: int = 8):
    """Stacks of a stretch: of a worker in parse(), which load() calls, and in other functions."""
    return [
        (WORKER, [*FETCHING, LOAD, PARSE], parse),
        (WORKER, [*FETCHING, LOAD], caller),
        *((WORKER, [*FETCHING, ("data.py", 60 + at, f"f{at}")], others // 4) for at in range(4)),
        ("main", [*LOOP, *BACKWARD], 20),
        ("main", [*LOOP, *STEP], 10),
        ("main", [*LOOP, ("train.py", 9, "log")], log),
    ]


@pytest.fixture
def compared(tmp_path):
    """The comparison of two runs that differ by what was seen of them."""

    def compare(before, after, stretches: int = 40):
        sides = [
            [compared_run(run_with(side, tmp_path / name, stretches))]
            for name, side in (("a", before), ("b", after))
        ]
        return diff(*sides)

    return compare


def changed(told) -> dict[str, float]:
    """Functions that changed, with B / A."""
    return {
        one.name: one.measured
        for one in told.changed
        if one.group.startswith("code") and one.measured
    }


def test_the_function_whose_own_time_changed_is_named_and_not_its_caller(compared):
    told = compared(seen(4), seen(200))

    assert list(changed(told))[0] == "parse() in data.py"
    parse, load = (
        told.of("code_sample/parse() in data.py"),
        told.of("code_sample/load() in data.py"),
    )
    assert parse.low < parse.measured < parse.high
    assert parse.measured == pytest.approx((200 / 220) / (4 / 24), rel=0.02)
    assert parse.grew and not load.grew, "less of a sample is spent in the caller's own lines"


def test_the_conclusion_names_the_function_with_the_stage_that_changed(tmp_path):
    before = quiet(compared_run(run_with(seen(4), tmp_path / "a", 40)))
    after = quiet(compared_run(run_with(seen(200), tmp_path / "b", 40)))
    slower = changed_by(after, lambda one: 6.0 if one.id == "sample/dataset" else 1.0)

    told = diff([before], [slower])

    assert told.cause == "sample/dataset"
    assert "; parse() in data.py takes 5.45x as long" in told.conclusion


def test_what_two_runs_have_alike_has_not_changed(compared):
    assert changed(compared(seen(20), seen(20))) == {}


def test_a_change_within_the_intervals_is_none(compared):
    told = compared(seen(16, 16, caller=0), seen(20, 16, caller=0), stretches=2)

    assert told.of("code_sample/parse() in data.py") is not None
    assert changed(told) == {}


def test_of_a_few_stacks_no_function_is_new_or_gone(compared):
    told = compared(seen(0, 0, caller=8), seen(13, 0, caller=0), stretches=1)

    assert not [one.id for one in told.quantities if one.group == "code_sample"]


def test_what_only_one_run_has_enough_stacks_of_is_not_compared(tmp_path):
    few = compared_run(run_with(seen(0, 0, caller=8), tmp_path / "a", 1))
    many = compared_run(run_with(seen(200), tmp_path / "b", 40))

    for sides in (([few], [many]), ([many], [few])):
        told = diff(*sides)
        assert not [one.id for one in told.quantities if one.group == "code_sample"]


def test_a_function_that_is_new_is_told_with_the_place_it_has_in_the_step(compared):
    told = compared(seen(20), seen(20, log=60))

    new = told.of("code_step/log() in train.py")
    assert new.outcome == Outcome.CHANGED and not new.before and new.after > 0
    assert told.of("code_step/main() in train.py") is None, "the loop itself is told as stages"


def test_a_run_without_stacks_is_not_compared_by_function(tmp_path):
    before = compared_run(RUN)
    after = compared_run(run_with(seen(20), tmp_path / "b"))

    told = diff([before], [after])

    assert not [one for one in told.quantities if one.group.startswith("code")]


def test_text_has_at_most_three_functions_and_page_and_json_have_all(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_with(seen(200, 4), tmp_path / "a", 40)
    run_with(seen(4, 80), tmp_path / "b", 40)

    assert main(["diff", "a", "b", "--json", "diff.json", "-o", "diff.html"]) == 0

    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if " in data.py" in line]
    assert len(rows) == 3 and "parse() in data.py" in rows[0]
    assert "Functions per sample" in said
    told = json.loads((tmp_path / "diff.json").read_text())
    ids = [one["id"] for one in told["quantities"] if one["group"] == "code_sample"]
    assert len(ids) == 6
    page = (tmp_path / "diff.html").read_text()
    assert all(id.partition("/")[2] in page for id in ids)


@pytest.mark.parametrize(
    ("group", "name", "shown"),
    [
        ("code_sample", "char_ngrams() in data.py", "  char_ngrams() in data.py"),
        ("stage", "epoch_start", "  epoch start"),
    ],
)
def test_a_name_of_the_program_is_shown_as_it_is(group, name, shown):
    assert _cells(Quantity(f"{group}/{name}", group, name, "s", "wall", 1.0, 2.0))[0] == shown


@pytest.mark.parametrize(
    ("name", "before", "after", "says"),
    [
        ("augment", 0.5, None, "augment is no longer part of the step (500 ms -> 0 s per step)"),
        ("augment", None, 0.5, "augment is now part of the step (0 s -> 500 ms per step)"),
        ("checkpoint", 0.5, None, "checkpoint is gone (500 ms -> 0 s per step)"),
    ],
)
def test_what_makes_samples_is_not_gone_where_a_worker_may_do_it(name, before, after, says):
    moved = Quantity(f"stage/{name}", "stage", name, "s", "wall", before, after)

    assert _changed(moved, "step") == says


@pytest.mark.parametrize("gone", [False, True])
def test_a_function_of_a_few_percent_that_was_not_seen_in_one_run_may_still_be_there(
    tmp_path, gone
):
    """Less than 1 % is not told, and stacks of one moment are alike."""
    with_it = [
        (WORKER, [*FETCHING, LOAD], 58),
        (WORKER, [*FETCHING, LOAD, PARSE], 2),
        ("main", [*LOOP, *BACKWARD], 60),
    ]
    without = [(WORKER, [*FETCHING, LOAD], 60), with_it[2]]

    sides = {"a": with_it if gone else without, "b": without if gone else with_it}
    before, after = (
        quiet(compared_run(run_with(seen, tmp_path / name, 10))) for name, seen in sides.items()
    )
    told = diff([before], [after])

    assert told.of("code_sample/parse() in data.py").p > 0.1


def test_what_may_have_been_there_unseen_is_per_sample_where_steps_differ_in_size():
    measure = Measure(
        "code_step/log()", "code_step", "log()", "s", "wall", 0.06, 0.1, 0.0, "thread"
    )

    of_sample = replace(measure, unseen=0.002).divided(64)

    assert of_sample.absent().unseen == pytest.approx(0.002 / 64)
