"""What load beside a run explains of a change: the direction in which it changed, and never the
program's own work.
"""

from dataclasses import replace

import pytest
from diff.made_up import beside, changed, making, quiet, stored, taking, with_check

from feedline.analysis.diff.budget import Budget, check_budget
from feedline.analysis.diff.diff_runs import diff
from feedline.analysis.diff.run_diff import Outcome
from feedline.analysis.diff.side import Influence
from feedline.analysis.measure.model import Cpus
from feedline.cli.diff.text import _cells


@pytest.fixture(scope="module")
def loader():
    return quiet(stored("loader"))


@pytest.fixture(scope="module")
def slow(loader):
    """A slow Python function in the data set.

    Its samples want many more CPU seconds, and wait for more.
    """
    return making(taking(loader, 0.681, 0.441), cpu_s=25.3e-3, queued_s=30e-3)


@pytest.fixture(scope="module")
def repaired(loader):
    return making(taking(loader, 0.516, 0.0066), cpu_s=0.586e-3, queued_s=0.7e-3)


def waiting(run, factor):
    """The same run, whose main thread waited for a CPU so often that its stages took this many
    times as long.
    """
    return changed(
        run,
        lambda one: factor if one.kind == Influence.THREAD else 1.0,
        waiting=factor * (run.waiting or 1.0),
    )


def with_setting(run, **settings):
    loaders = [replace(one, settings={**one.settings, **settings}) for one in run.report.loaders]
    return replace(run, report=replace(run.report, loaders=loaders))


def of_step(limit, base, run):
    found = check_budget(
        Budget(than_base={"step": limit}, base=("base",)),
        run,
        [base],
        {"step": diff([base], [run], limit)},
    )
    return found[0].outcome, found[0].message


def test_more_load_does_not_explain_that_a_run_is_faster(slow, repaired):
    found = diff([beside(slow, 0.51)], [beside(waiting(repaired, 1.05), 0.99)])

    assert (
        found.of("step/mean").outcome == Outcome.CHANGED
        and found.of("stage/wait").outcome == Outcome.CHANGED
    )
    assert found.cause == "sample/dataset"
    assert found.conclusion.startswith("B is 32 % faster than A: ")
    assert "takes 0.02x as long per sample (25.3 ms -> 586 µs CPU" in found.conclusion
    assert "machine" not in found.conclusion


def test_a_larger_model_is_named_although_less_load_made_samples_cheaper(loader):
    short = changed(loader, lambda one: 0.2 if one.id == "step/mean" else 1.0)
    larger = changed(
        short,
        lambda one: (
            {"cpu": 1.4, "sample": 0.8}.get(one.group, 1.0)
            * (1.15 if one.id == "cpu/backward" else 1.0)
        ),
    )

    found = diff([beside(short, 0.9)], [beside(larger, 0.0)])

    assert found.cause == "cpu/backward"
    assert found.of("cpu/forward").outcome == Outcome.CHANGED
    assert found.of("sample/decode").outcome == Outcome.SAME


def test_less_load_does_not_explain_that_a_run_is_slower(slow, repaired):
    found = diff([beside(waiting(repaired, 1.05), 0.99)], [beside(slow, 0.51)])

    assert found.of("step/mean").outcome == Outcome.CHANGED
    assert found.cause == "sample/dataset" and "B is 24 % slower than A: " in found.conclusion
    assert "machine" not in found.conclusion


@pytest.mark.parametrize(
    ("loads", "outcome"),
    [((0.0, 0.9), Outcome.MACHINE), ((0.9, 0.0), Outcome.CHANGED), ((0.9, 0.9), Outcome.CHANGED)],
)
def test_waiting_for_a_cpu_is_explained_by_load_that_changed_that_way(loader, loads, outcome):
    slower = waiting(loader, 1.5)

    assert (
        diff([beside(loader, loads[0])], [beside(slower, loads[1])]).of("stage/backward").outcome
        == outcome
    )
    assert (
        diff([beside(slower, loads[1])], [beside(loader, loads[0])]).of("stage/backward").outcome
        == outcome
    )


@pytest.mark.parametrize(
    ("cpus", "outcome"), [((2.0, 1.0), Outcome.MACHINE), ((1.0, 2.0), Outcome.CHANGED)]
)
def test_fewer_cpus_make_a_run_slower_and_never_faster(loader, cpus, outcome):
    first, last = (
        replace(
            loader, report=replace(loader.report, cpus=Cpus(one, one, 2.0, 0.5, 0.0, one - 0.5))
        )
        for one in cpus
    )

    found = diff([first], [waiting(last, 1.5)])

    assert found.of("stage/backward").outcome == outcome
    assert ("it could use" in "".join(found.conclusion)) == (
        found.of("step/mean").outcome == Outcome.MACHINE
    )


def test_where_load_and_program_both_made_a_run_slower_their_shares_are_unknown(loader):
    before = beside(making(taking(loader, 0.300, 0.100), cpu_s=15e-3, queued_s=1e-3), 0.0)
    after = beside(
        waiting(making(taking(loader, 0.480, 0.260), cpu_s=25.3e-3, queued_s=80e-3), 2.0), 1.5
    )

    found = diff([before], [after])

    assert found.of("sample/dataset").outcome == Outcome.CHANGED
    assert found.of("step/mean").outcome == Outcome.EITHER
    assert (
        "how much of that is due to the machine is unknown" in found.conclusion
        and "explains it" not in found.conclusion
    )
    assert found.conclusion.startswith(
        "The dataset's own code takes 1.69x as long per sample (15.0 -> 25.3 ms CPU"
    )
    assert of_step(0.05, before, after)[0] == "unknown"


def test_time_whose_waiting_for_a_cpu_was_not_measured_is_unclear_where_load_rose(loader):
    """The queue is measured in forward and backward, but a thread that wakes up elsewhere waits,
    too.
    """
    longer = changed(waiting(loader, 1.2), lambda one: 3.0 if one.id == "stage/other" else 1.0)
    busier = changed(longer, lambda one: 1.5 if one.id == "step/cpu" else 1.0)
    before = taking(loader, 0.05, 0.0)

    for run, outcome in ((longer, Outcome.EITHER), (busier, Outcome.CHANGED)):
        found = diff([beside(before, 0.0)], [beside(taking(run, 0.08, 0.0), 0.9)])
        assert found.of("stage/other").outcome == outcome
    assert (
        diff([beside(before, 0.9)], [beside(taking(longer, 0.08, 0.0), 0.0)])
        .of("stage/other")
        .outcome
        == Outcome.CHANGED
    )


def test_a_setting_that_changed_beside_the_load_may_be_why(loader):
    before, after = (
        beside(loader, 0.0),
        with_setting(beside(waiting(loader, 1.5), 0.9), num_workers=7),
    )

    assert diff([before], [after]).of("stage/backward").outcome == Outcome.EITHER


def test_the_cpu_time_that_fell_is_named_where_load_made_the_run_slower(loader):
    before = beside(making(taking(loader, 0.300, 0.100), cpu_s=25.3e-3, queued_s=1e-3), 0.0)
    after = beside(
        waiting(making(taking(loader, 0.500, 0.280), cpu_s=0.586e-3, queued_s=60e-3), 2.0), 1.5
    )

    found = diff([before], [after])

    assert found.cause == "sample/dataset"
    assert found.conclusion.startswith("The dataset's own code takes 0.02x as long per sample")
    assert (
        "the machine explains it: the main thread waited" in found.conclusion
        and found.of("step/mean").outcome == Outcome.MACHINE
    )


def test_a_larger_model_is_no_slower_machine(loader):
    """Its own two stages agree with each other, and are known better than those of the samples."""
    unsure = {
        id: replace(one, error=0.1) if one.group == "sample" else one
        for id, one in loader.measures.items()
    }
    before = taking(replace(loader, measures=unsure), 0.030, 0.0)

    found = diff(
        [before], [changed(before, lambda one: 1.4 if one.name in ("forward", "backward") else 1.0)]
    )

    assert found.machine.speed == pytest.approx(1.0, abs=0.01)
    assert found.of("cpu/forward").outcome == found.of("cpu/backward").outcome == Outcome.CHANGED


def test_larger_images_are_no_slower_machine(loader):
    def larger(one):
        return (
            1.2
            if one.kind in (Influence.CPU, Influence.THREAD)
            or one.id in ("stage/wait", "step/mean", "work/output_pixels")
            else 1.0
        )

    found = diff([loader], [changed(loader, larger)])

    assert found.machine.speed is None and found.of("step/mean").outcome == Outcome.CHANGED


def test_files_that_were_in_the_page_cache_of_one_run_only_are_told_beside_the_wait_for_them(
    loader,
):
    def blocked(by, disk):
        times = {"sample/total": 1.0, "gauge/disk/read": disk}
        read = {
            f"blocked/{name}": replace(
                loader.measures["sample/total"],
                id=f"blocked/{name}",
                group="blocked",
                name=name,
                clock="blocked",
                kind="none",
            )
            for name in ("read", "total")
        }
        return changed(
            replace(loader, measures=loader.measures | read),
            lambda one: by if one.group == "blocked" else times.get(one.id, 1.0),
        )

    cached, cold = blocked(0.1, 0.01), blocked(1.0, 100.0)

    for before, after in ((cached, cold), (cold, cached)):
        found = diff([before], [after])
        assert found.cause == "blocked/read" and "page cache" in found.conclusion
    assert "page cache" not in diff([blocked(0.1, 1.0)], [blocked(1.0, 1.0)]).conclusion


def test_another_python_may_be_why_all_stages_took_longer(loader):
    def on(run, python):
        return replace(
            run,
            report=replace(run.report, run=replace(run.report.run, versions={"python": python})),
        )

    slower = changed(
        loader,
        lambda one: (
            1.2
            if one.kind in (Influence.CPU, Influence.THREAD)
            or one.id in ("stage/wait", "step/mean")
            else 1.0
        ),
    )

    same, other = (
        diff([on(loader, "3.12")], [on(slower, "3.12")]),
        diff([on(loader, "3.11")], [on(slower, "3.12")]),
    )

    assert (
        same.of("step/mean").outcome == Outcome.MACHINE
        and other.of("step/mean").outcome == Outcome.EITHER
    )
    assert (
        "python 3.11 -> 3.12 could also explain it" in other.conclusion
        and "the machine explains it" not in other.conclusion
    )
    assert of_step(0.05, on(loader, "3.11"), on(slower, "3.12"))[0] == "unknown"


def test_a_ratio_in_the_table_is_the_quotient_of_the_two_times_beside_it(loader):
    slower = diff([beside(loader, 0.0)], [beside(waiting(loader, 1.5), 0.9)])

    backward = slower.of("stage/backward")
    low, high = backward.measured_interval
    assert backward.ratio == pytest.approx(1.0) and low < 1.5 < high
    assert _cells(backward)[3:] == ["1.50", f"{low:.2f} to {high:.2f}", "machine"]


@pytest.mark.parametrize("rule_id", ["loss_exploded", "not_finite"])
def test_a_training_that_diverged_is_told_and_does_not_pass(loader, rule_id):
    lost = with_check(loader, rule_id, "the loss rose from at most 2.3 to 1.00e+33")
    budget = Budget(
        at_most={"step_mean_s": 1000.0},
        rules=(rule_id, "rate_at_top"),
        than_base={"step": 0.05},
        base=("base",),
    )

    for before, after, side in ((loader, lost, "B"), (lost, loader, "A")):
        assert (
            f"{side} diverged: the loss rose from at most 2.3 to 1.00e+33."
            in diff([before], [after]).conclusion
        )
    assert "diverged" not in diff([loader], [loader]).conclusion
    found = check_budget(budget, lost, [loader], {"step": diff([loader], [lost])})
    assert [one.outcome for one in found] == ["unknown", "exceeded", "passed", "unknown"]
    assert "the training diverged: the loss rose" in found[0].message
    against = check_budget(budget, loader, [lost], {"step": diff([lost], [loader])})
    assert [one.outcome for one in against] == ["passed", "passed", "passed", "unknown"]


def test_a_wait_that_was_removed_is_told_per_sample(loader):
    slept = replace(
        loader.measures["sample/total"],
        id="blocked/dataset",
        group="blocked",
        name="dataset",
        clock="blocked",
        kind="none",
        value=0.004,
    )
    sleeps = replace(loader, measures=loader.measures | {"blocked/dataset": slept})

    assert (
        "he dataset's own code is no longer blocked (4.00 ms -> 0 s blocked per sample)"
        in diff([sleeps], [loader]).conclusion
    )
    assert (
        "he dataset's own code is now blocked (0 s -> 4.00 ms blocked per sample)"
        in diff([loader], [sleeps]).conclusion
    )


def test_a_wait_that_the_step_hardly_has_is_not_told(loader):
    """A fiftieth of a sample that is blocked is a change of samples, and nothing of a step."""
    total, step = loader.measures["sample/total"], loader.measures["step/mean"]
    little = replace(
        total,
        id="blocked/dataset",
        group="blocked",
        name="dataset",
        clock="blocked",
        kind="none",
        value=0.03 * total.value,
    )
    slow = replace(step, value=1e3 * step.value)
    measures = loader.measures | {"step/mean": slow}
    blocked = replace(loader, measures=measures | {"blocked/dataset": little})

    found = diff([blocked], [replace(loader, measures=measures)])

    assert "blocked" not in found.conclusion
    assert found.of("blocked/dataset").outcome == Outcome.SAME
