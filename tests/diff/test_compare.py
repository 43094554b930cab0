"""What a comparison says changed, and what it leaves to noise and to the machine."""

from dataclasses import replace

import pytest
from diff.made_up import beside, changed, quiet, stored

from feedline.analysis.diff.diff_runs import diff
from feedline.analysis.diff.run_diff import Outcome
from feedline.analysis.diff.side import Influence

RUNS = ("loader", "rests", "without-loader", "window", "ranks", "batch32", "gpu")


@pytest.fixture(scope="module")
def loader():
    return quiet(stored("loader"))


def slower_decode(run, factor):
    """Decode takes longer, and so do the sample, and the wait for it."""
    before = run.measures
    more = (factor - 1) * before["sample/decode"].value
    whole = 1 + more / before["sample/total"].value
    factors = {
        "sample/decode": factor,
        "sample/total": whole,
        "stage/wait": whole,
        "step/mean": whole,
    }
    return changed(run, lambda one: factors.get(one.id, 1.0))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_does_not_differ_from_itself(name):
    found = diff([stored(name)], [stored(name)])

    assert found.changed == []
    assert found.cause == ""
    assert found.settings == []
    assert {one.change for one in found.findings} <= {"stayed"}


def test_decoding_that_is_slower_is_named_with_both_times(loader):
    found = diff([loader], [slower_decode(loader, 1.2)])

    decode = found.of("sample/decode")
    assert found.cause == "sample/decode"
    assert decode.ratio == pytest.approx(1.2, abs=0.01)
    assert decode.low > 1.05 and decode.high < 1.35
    assert "ecode takes 1.2" in found.conclusion and "CPU" in found.conclusion


def test_decoding_of_larger_images_is_named_where_its_time_alone_does_not_tell(loader):
    """The other stages vary between the runs by as much as decoding grows; pixels are counted, so
    they leave no doubt.
    """
    noisy = changed(
        slower_decode(loader, 1.1),
        lambda one: {"sample/augment": 1.1, "sample/read": 0.85}.get(one.id, 1.0),
    )
    larger = changed(noisy, lambda one: 1.1 if one.id == "work/decoded_pixels" else 1.0)
    smaller = changed(noisy, lambda one: 0.9 if one.id == "work/decoded_pixels" else 1.0)

    assert [diff([loader], [run]).cause for run in (noisy, larger, smaller)] == [
        "stage/wait",
        "sample/decode",
        "stage/wait",
    ]


def test_a_backward_pass_that_is_a_tenth_slower_in_another_run_may_be_where_its_tensors_lie(loader):
    def slower(by: float):
        return changed(
            loader, lambda one: by if one.id in ("cpu/backward", "stage/backward") else 1.0
        )

    assert diff([loader], [slower(1.09)]).changed == []
    assert "stage/backward" in [one.id for one in diff([loader], [slower(1.3)]).changed]


def test_decoding_that_is_a_little_slower_is_less_than_counts(loader):
    assert diff([loader], [slower_decode(loader, 1.03)]).changed == []
    assert diff([loader], [slower_decode(loader, 1.2)], min_change=0.3).changed == []


def test_decoding_that_is_faster_is_named_too(loader):
    found = diff([loader], [slower_decode(loader, 0.8)])

    assert found.cause == "sample/decode"
    assert "0.80x" in found.conclusion


def test_a_machine_on_which_everything_is_slower_is_no_change(loader):
    slow = changed(
        loader,
        lambda one: (
            1.2
            if one.kind in (Influence.CPU, Influence.THREAD)
            or one.id in ("stage/wait", "step/mean", "sample/total")
            else 1.0
        ),
    )

    found = diff([loader], [slow])

    assert found.machine.speed == pytest.approx(1.2, abs=0.01)
    assert [one.id for one in found.changed] == []
    assert found.of("sample/decode").outcome == Outcome.MACHINE
    assert found.of("sample/decode").ratio == pytest.approx(1.0, abs=0.01)
    assert "all stages took 1.20x the CPU time" in found.conclusion


def test_decoding_is_named_although_the_machine_is_slower_too(loader):
    slow = changed(
        loader, lambda one: 1.15 if one.kind in (Influence.CPU, Influence.THREAD) else 1.0
    )

    found = diff([loader], [slower_decode(slow, 1.25)])

    assert found.cause == "sample/decode"
    assert found.of("sample/decode").ratio == pytest.approx(1.25, abs=0.02)
    assert found.of("sample/augment").outcome != Outcome.CHANGED


def test_a_change_at_equal_machine_speed_is_an_estimate_inside_its_interval(loader):
    """ "At least" was said of it, above the lower end."""
    slow = changed(
        loader, lambda one: 1.15 if one.kind in (Influence.CPU, Influence.THREAD) else 1.0
    )

    said = diff([loader], [slower_decode(slow, 2)]).conclusion

    assert "; about 35 % slower at equal machine speed (95 % interval -37 % to -33 %)" in said


def test_waiting_for_a_cpu_is_the_machines_where_other_programs_run(loader):
    queued = changed(
        loader,
        lambda one: 1.5 if one.kind == Influence.THREAD else 1.0,
        waiting=1.5 * (loader.waiting or 1.0),
    )

    found = diff([beside(loader, 0.0)], [beside(queued, 0.9)])

    assert found.of("stage/forward").outcome == Outcome.MACHINE
    assert found.changed == []


def test_waiting_for_a_cpu_is_a_change_where_no_other_program_runs(loader):
    queued = changed(
        loader,
        lambda one: 1.5 if one.kind == Influence.THREAD else 1.0,
        waiting=1.5 * (loader.waiting or 1.0),
    )

    found = diff([beside(loader, 0.0)], [beside(queued, 0.0)])

    assert found.of("stage/forward").outcome == Outcome.CHANGED


def test_several_runs_of_each_measure_how_runs_differ(loader):
    apart = [
        changed(loader, lambda one, by=by: by if one.id == "step/mean" else 1.0)
        for by in (0.8, 1.0, 1.2)
    ]
    close = [
        changed(loader, lambda one, by=by: by if one.id == "step/mean" else 1.0)
        for by in (0.99, 1.0, 1.01)
    ]
    slower = [changed(run, lambda one: 1.15 if one.id == "step/mean" else 1.0) for run in apart]
    slower_close = [
        changed(run, lambda one: 1.15 if one.id == "step/mean" else 1.0) for run in close
    ]

    assert diff(apart, slower).between == "measured"
    assert diff(apart, slower).of("step/mean").outcome != Outcome.CHANGED
    assert diff(close, slower_close).of("step/mean").outcome == Outcome.CHANGED


def test_several_runs_of_each_tell_a_slower_machine_from_one_that_varies(loader):
    def on(speeds):
        return [
            changed(loader, lambda one, by=by: by if one.kind == Influence.CPU else 1.0)
            for by in speeds
        ]

    varies = diff(on((0.97, 1.0, 1.03)), [slower_decode(run, 1.2) for run in on((0.98, 1.0, 1.03))])
    slower = diff(on((0.99, 1.0, 1.01)), on((1.19, 1.2, 1.21)))

    assert varies.cause == "sample/decode" and varies.of("sample/decode").machine == 1
    assert slower.of("sample/decode").outcome == Outcome.MACHINE and not [
        one for one in slower.changed if one.clock == "cpu"
    ]


def test_batches_of_another_size_are_compared_by_sample():
    found = diff([stored("batch32")], [stored("batch256")])

    assert found.per == "sample"
    assert found.machine.speed is None
    assert found.of("step/mean").before < stored("batch32").measures["step/mean"].value
    assert ("loader", "batch_size", "8", "64") in [
        (one.kind, one.name, one.before, one.after) for one in found.settings
    ]


def test_a_library_of_another_version_is_named_beside_its_stage(loader):
    old, new = ({"pillow": version, "python": "3.11.7"} for version in ("11.0", "10.4"))
    before = replace(
        loader, report=replace(loader.report, run=replace(loader.report.run, versions=old))
    )
    after = slower_decode(
        replace(
            loader, report=replace(loader.report, run=replace(loader.report.run, versions=new))
        ),
        1.2,
    )

    assert "pillow 11.0 -> 10.4" in diff([before], [after]).conclusion


def test_a_stage_that_is_new_is_told(loader):
    without = replace(
        loader, measures={id: one for id, one in loader.measures.items() if id != "stage/wait"}
    )

    found = diff([without], [loader])

    assert found.of("stage/wait").before is None
    assert found.of("stage/wait").ratio is None
    assert "aiting for data is new" in found.conclusion


def test_findings_that_come_and_go_are_listed(loader):
    fewer = replace(loader, report=replace(loader.report, findings=loader.report.findings[1:]))
    gone = loader.report.findings[0].rule_id

    assert [(one.rule_id, one.change) for one in diff([loader], [fewer]).findings][0] == (
        gone,
        "went",
    )
    assert [(one.rule_id, one.change) for one in diff([fewer], [loader]).findings][0] == (
        gone,
        "came",
    )


def test_a_finding_that_the_other_run_could_not_see_did_not_go(loader):
    short = stored("without-loader")

    changes = {one.rule_id: one.change for one in diff([loader], [short]).findings}

    assert changes["decode_bound"] == changes["oversize_images"] == "unjudged"
    assert "went" not in changes.values()


def test_a_run_that_was_killed_is_noted():
    found = diff([stored("killed")], [stored("killed")])

    assert any("was killed" in note for note in found.notes)


def test_an_interval_without_an_end_has_none(loader):
    fast = changed(loader, lambda one: 0.1 if one.id in ("step/mean", "stage/wait") else 1.0)
    unsure = replace(
        fast, measures={id: replace(one, error=1.0) for id, one in fast.measures.items()}
    )

    conclusion = diff([loader], [unsure]).conclusion

    assert "% or more)" in conclusion
    assert "-0 %" not in conclusion
