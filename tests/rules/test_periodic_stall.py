"""Every nth step takes longer: what is said of it, and when it is the model's own work."""

from dataclasses import replace

from rules.made_up import made_up_facts
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.measure.step_model import OwnCode, OwnFunction, PeriodicStall
from feedline.analysis.rules.loop import own_code, periodic_stall
from feedline.analysis.traces.launching import GpuWork

STALL = PeriodicStall(
    60, 9, 0.8, 0.8 / 60, {"other": 0.8 / 60}, "flush", "train.py:31", 0.97, looks=40
)


def given(stall=STALL, **stages):
    found = made_up_facts(stages={"other": 20.0, "copy": 0.0, **stages})
    return replace(found, step=replace(found.step, periodic=stall))


def test_a_stall_is_told_with_its_period_and_its_line():
    facts = given()

    finding = periodic_stall._check(facts)

    assert finding.message == (
        "every 60 steps, one step takes 800 ms longer: 11 % of all step time"
    )
    assert finding.more[0] == "97 % of that is in flush()"
    assert (finding.place, finding.severity.value) == ("train.py:31", "low")
    assert verdict(diagnose(facts), facts).startswith(
        "Partly bound by periodic work: Every 60 steps, one step takes 800 ms longer"
    )
    assert list(diagnose(facts)[0].claims) == ["other/periodic"]


def test_without_a_line_it_says_so():
    finding = periodic_stall._check(given(replace(STALL, function="", place="", place_share=0.0)))

    assert "which line of the program takes it is not known" in finding.more
    assert finding.fix.startswith("Look for what the program does only every 60 steps")


def test_more_work_of_the_model_is_no_mistake():
    stall = replace(STALL, stages={"backward": 0.8 / 60}, library="torch.backward")
    finding = periodic_stall._check(given(stall))

    assert finding.severity.value == "info" and finding.cost_s == 0 and not finding.fix
    assert periodic_stall._check(given(replace(stall, library="wandb.watch"))).fix


def test_where_no_function_is_known_to_run_only_then_none_loses_its_time():
    """Nor does the whole: a part would be larger than it."""
    functions = [OwnFunction("log (train.py:30)", 0.0128, 0.01, 0.015, "")]
    facts = given(replace(STALL, function="", place="", place_share=0.0))
    with_own = replace(facts, step=replace(facts.step, own_code=OwnCode(0.0145, 40, functions)))

    assert own_code._check(with_own).message.endswith("14.5 ms per step, 12.8 ms of it in log()")


def test_the_programs_own_code_is_told_without_it():
    functions = [OwnFunction("flush (train.py:30)", 0.0128, 0.01, 0.015, "")]
    facts = given()
    with_own = replace(facts, step=replace(facts.step, own_code=OwnCode(0.0145, 40, functions)))

    assert own_code._check(with_own) is None
    assert own_code._check(replace(with_own, step=replace(with_own.step, periodic=None)))


def test_nothing_is_said_without_a_period():
    assert periodic_stall._check(made_up_facts()) is None


def busy(share):
    """A GPU that works this share of each step."""
    facts = given(copy=1.0)
    work = GpuWork(share * facts.step.mean_s, 100.0, 1e-5, 4)
    return replace(facts, step=replace(facts.step, gpu_work=work))


def test_a_step_that_may_wait_for_the_gpu_is_not_blamed():
    """Reading the loss every 60 steps waits for all that was queued since the last time."""
    for facts in (given(copy=1.0), busy(0.95)):
        finding = periodic_stall._check(facts)
        assert finding.severity.value == "info" and finding.cost_s == 0
        assert finding.more[-1].startswith("on a GPU, such a step may wait")

    assert periodic_stall._check(busy(0.5)).severity.value == "low"
