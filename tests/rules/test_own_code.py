import os
from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from rules.said import verdict
from text.breath import advised, said
from user_code.made_stacks import FORWARD, LOOP, WAIT, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.next_limit import with_gains
from feedline.analysis.ledger.finding import CostKind, GainKind
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.step_model import GarbageCollection, OwnCode, OwnFunction, Sampled
from feedline.analysis.rules.loop import evaluation_time, own_code

MORE = ({}, {"pin_memory": True}, {"num_workers": 0})
STAGES = {"forward": 40.0, "backward": 30.0, "optimizer": 5.0, "other": 25.0}


def function(name: str, ms: float, mainly: str = "") -> OwnFunction:
    return OwnFunction(name, ms / 1e3, ms / 1.1e3, ms * 1.1 / 1e3, mainly)


def given(
    *functions: OwnFunction,
    whole_ms: float = 25.0,
    on_gpu: bool = False,
    evaluation_s: float = 0.0,
    evaluation=(),
):
    """A step of 100 ms, without a loader."""
    found = made_up_facts(stages=STAGES, waits={"starved": 0.0})
    step = replace(
        found.step,
        mean_s=0.1,
        stages={name: ms / 1e3 for name, ms in STAGES.items()},
        own_code=OwnCode(whole_ms / 1e3, 200, list(functions)),
        gpu_stages={"forward": 0.04} if on_gpu else None,
        evaluation_s=evaluation_s,
        evaluation_code=OwnCode(evaluation_s, 100, list(evaluation)) if evaluation else None,
    )
    return replace(
        found, step=step, loader=None, workers=None, throughput=replace(found.throughput, steps=100)
    )


def test_collections_of_garbage_are_no_time_of_the_code_in_which_they_happen():
    found = given(function("lines 30 to 41 (train.py)", 21.0), function("log (train.py:8)", 4.0))

    def collecting(ms: float):
        garbage = GarbageCollection(ms / 1e3, {"other": ms / 1e3}, 0.1, 0.1, 1.0, 1.0)
        return own_code._check(replace(found, step=replace(found.step, garbage=garbage)))

    assert own_code._check(found).cost_s == pytest.approx(0.025)
    assert collecting(5.0).cost_s == pytest.approx(0.020)
    assert collecting(15.0) is None  # what remains of the first is told by no figure
    # hardly any: the table's row of the function, which is not without it, has the same figure
    assert collecting(0.2).message == own_code._check(found).message


def test_what_lies_in_few_long_steps_is_told_and_in_no_functions_time():
    found = given(function("lines 30 to 41 (train.py)", 8.0))
    few = replace(found.step.own_code, few_s=0.015)
    finding = own_code._check(replace(found, step=replace(found.step, own_code=few)))

    assert "15.0 ms per step of it lies in a few long steps that were not observed" in said(finding)
    assert "few_s" in {one.id for one in finding.evidence}
    assert "few long" not in said(own_code._check(found))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("line 75 of train (train.py:75)", "train.py:75"),
        ("lines 30 to 41 (train.py)", "train.py:30"),
        ("lines 197 to 183 of the next pass (train.py)", "train.py:197"),
        ("the loop around line 83 (train.py)", "train.py:83"),
    ],
)
def test_lines_are_named_with_their_file_and_placed_at_the_first_of_them(name, place):
    finding = own_code._check(given(function(name, 14.0)))

    assert finding.place == place and name in finding.message


def test_the_library_that_a_line_calls_is_not_to_be_profiled():
    called = own_code._check(
        given(function("line 75 of train (train.py:75)", 14.0, "opacus.epsilon"))
    )
    alone = own_code._check(given(function("line 75 of train (train.py:75)", 14.0)))

    assert called.fix == (
        "Look at line 75 of train (train.py:75): opacus.epsilon(), which is called there, takes "
        "the time."
    )
    assert alone.fix.startswith("Leave out of line 75 of train (train.py:75) what not every step")


def test_the_functions_that_take_most_are_named_and_the_verdict_says_so():
    found = given(
        function("project (train.py:20)", 14.0, "scatter (ops.py:3)"),
        function("lines 30 to 41 (train.py)", 7.0),
        function("log (train.py:9)", 1.0),
    )

    finding = own_code._check(found)

    assert finding.severity.value == "high" and finding.cost_s == pytest.approx(0.021)
    assert finding.message.endswith("takes 25.0 ms per step, 14.0 ms of it in project()")
    assert finding.more[1:] == [
        "it takes 25 % of the 100 ms step",
        "project (train.py:20) takes 14.0 ms per step",
        "most of that is spent in scatter (ops.py:3)",
        "lines 30 to 41 (train.py) take 7.00 ms per step",
    ]
    assert finding.place == "train.py:20"
    assert verdict(diagnose(found), found).startswith(
        "Bound by the training loop: Code outside the model"
    )
    assert "Time project (train.py:20) with time.perf_counter()" in finding.how_to_check


def test_code_that_waits_is_not_advised_to_use_tensor_operations():
    """It takes 25 ms of each step in which all processes together compute for 5 ms."""
    loop = given(function("send (train.py:20)", 24.0))
    step = replace(loop.step, cpu_s=0.005)

    waits = own_code._check(replace(loop, step=step))
    computes = own_code._check(replace(loop, step=replace(step, cpu_s=0.02)))
    unknown = own_code._check(replace(loop, step=replace(step, cpu_s=None)))
    on_gpu = own_code._check(replace(loop, step=replace(step, gpu_stages={"forward": 0.04})))

    said_of_it = (
        "it waits for at least 20.0 ms of that: all processes together compute 5.00 ms per step"
    )
    assert said_of_it in waits.more
    assert "in a thread beside the training" in " ".join([waits.fix, *waits.fix_more])
    for other in (computes, unknown, on_gpu):
        assert "tensor operations" in " ".join([other.fix, *other.fix_more])
        assert not any("it waits" in sentence for sentence in other.more)


def test_nothing_is_said_of_a_loop_that_takes_little():
    assert own_code._check(given(function("project (train.py:20)", 5.4), whole_ms=19.0)) is None


def test_one_function_that_surely_takes_five_percent_is_told_however_little_the_rest_takes():
    finding = own_code._check(given(function("project (train.py:20)", 14.0), whole_ms=19.0))

    assert finding.severity.value == "low" and finding.cost_s == pytest.approx(0.014)


def test_nothing_is_said_where_little_of_it_is_named():
    """The rest may be what torch does around the calls that feedline records."""
    assert (
        own_code._check(
            given(function("project (train.py:20)", 4.5), function("log (train.py:9)", 2.9))
        )
        is None
    )


def test_nothing_is_said_of_a_training_of_less_than_a_second():
    found = given(function("project (train.py:20)", 14.0))

    assert own_code._check(replace(found, throughput=replace(found.throughput, steps=9))) is None


def test_on_a_gpu_it_is_information_because_a_function_may_wait_for_it():
    finding = own_code._check(given(function("log (train.py:9)", 24.0), on_gpu=True))

    assert finding.severity.value == "info"
    assert "waiting for the GPU is included" in finding.more


def test_evaluation_that_takes_more_than_the_steps_leads_the_verdict():
    found = given(
        function("log (train.py:9)", 1.0),
        evaluation_s=30.0,
        evaluation=[function("play (train.py:50)", 20_000.0)],
    )

    finding = evaluation_time._check(found)

    assert finding.severity.value == "high"
    assert finding.message.endswith("take 75 % of the time, 30.0 s in total")
    assert finding.more[1:] == [
        "they take 30.0 s in total, all steps together 10.0 s",
        "play (train.py:50) takes 20.0 s in total, outside the model",
    ]
    assert verdict(diagnose(found), found).startswith(
        "Bound by inference: Evaluation, rollouts or generation"
    )


def test_evaluation_of_a_third_of_the_run_is_information_and_of_a_tenth_nothing():
    assert evaluation_time._check(given(evaluation_s=5.0)).severity.value == "info"
    assert evaluation_time._check(given(evaluation_s=1.0)) is None


def _scored(tmp_path, line: str):
    """Evaluation of half of the run, in which a line takes most."""
    (tmp_path / "score.py").write_text(f"def score(model, loader):\n    {line}\n")
    os.utime(tmp_path / "score.py", (1e9, 1e9))
    inside = [*LOOP, (str(tmp_path / "score.py"), 2, "score")]
    seen = training(stack(inside, 100), stack([*inside, *FORWARD], 30), stack([*inside, *WAIT], 20))
    code = SampledCode.of([seen], SourceLines(2e9))
    return replace(given(evaluation_s=10.0), code=code)


def test_a_slow_call_in_evaluation_is_named_with_its_line_and_what_the_run_gains(tmp_path):
    found = _scored(tmp_path, "guesses.extend(model(batch).tolist())")

    finding = evaluation_time._check(found)

    assert finding.place.endswith("score.py:2")
    assert finding.fix == "Keep tensors in a list, and join them once, with torch.cat."
    assert finding.outside_s == pytest.approx(10.0 * 100 / 150)
    (told,) = with_gains([finding], found.throughput, found.step)
    rate = found.throughput.of_all_ranks
    assert told.gain.kind is GainKind.AT_MOST and told.gain.unit.endswith("of the whole run")
    assert told.gain.before == pytest.approx(rate / 2)
    assert told.gain.after == pytest.approx(rate * 10 / (20 - finding.outside_s))


def test_evaluation_without_such_a_call_says_where_most_of_it_is_spent(tmp_path):
    finding = evaluation_time._check(_scored(tmp_path, "total += held(model, batch)"))

    assert finding.fix.startswith("Call the model on larger batches")
    assert any("spent in score() at" in sentence for sentence in finding.more)
    assert {"line_share", "line_share_end"} <= {one.id for one in finding.evidence}


@pytest.mark.parametrize(("recording_ms", "told"), [(120.0, False), (20.0, True)])
def test_what_recording_may_have_left_is_no_code_of_the_program(recording_ms, told):
    found = given(function("lines 49 to 50 (train.py)", 24.0))
    sampled = Sampled(2700, 60, 6, {}, {}, recording_ms / 1e3)

    finding = own_code._check(replace(found, step=replace(found.step, sampled=sampled)))

    assert (finding is not None) is told


def test_code_that_waits_for_a_cpu_is_not_what_takes_the_time():
    found = given(function("log (train.py:9)", 9.0), whole_ms=30.0)

    assert own_code._check(replace(found, main_queued_share=0.4)) is None
    told = own_code._check(
        replace(given(function("log (train.py:9)", 44.0), whole_ms=45.0), main_queued_share=0.4)
    )
    assert told.cost_s == pytest.approx(0.044 * 0.6)
    assert (
        "about 40 % of this time is probably waiting for a CPU, which is not counted in the gain"
        in told.more
    )
    assert told.cost_kind is CostKind.AT_LEAST


def test_code_of_a_main_thread_that_has_its_cpu_counts_whole_however_long_samples_wait():
    crowded = made_up_facts(sample={"decode": (4.0, 4.0, 0.0)})
    assert crowded.runqueue_share > 0.3

    told = own_code._check(
        replace(
            given(function("log (train.py:9)", 24.0)),
            workers=crowded.workers,
            main_queued_share=0.0,
        )
    )

    assert told.cost_s == pytest.approx(0.024)
    assert "waiting for a CPU" not in said(told)


def test_freeing_large_batches_is_left_out_of_what_can_be_saved():
    lines = function("lines 30 to 41 (train.py)", 34.0)
    large = made_up_facts(loader={"batch_bytes": 37.7e6}).loader

    told = [
        own_code._check(
            replace(
                given(lines, whole_ms=35.0),
                loader=replace(large, settings={**large.settings, **more}),
            )
        )
        for more in MORE
    ]

    assert [
        "frees the previous batch (37.7 MB), which takes about 7.54 ms" in advised(one)
        for one in told
    ] == [True, False, False]
    assert [one.cost_s for one in told] == [
        pytest.approx(0.034 - 0.2e-9 * 37.7e6, rel=1e-3),
        0.034,
        0.034,
    ]


def test_a_loop_that_mostly_frees_large_batches_is_not_what_takes_the_time():
    large = made_up_facts(loader={"batch_bytes": 80e6}).loader

    assert (
        own_code._check(replace(given(function("lines 30 to 41 (train.py)", 24.0)), loader=large))
        is None
    )


def test_on_a_gpu_nothing_of_it_is_taken_for_waiting_for_a_cpu():
    told = own_code._check(
        replace(given(function("log (train.py:9)", 24.0), on_gpu=True), main_queued_share=0.9)
    )

    assert told.cost_s == pytest.approx(0.024)
    assert "waiting for a CPU" not in said(told)


def test_evaluation_says_how_long_one_takes_and_how_often_it_comes():
    found = given(evaluation_s=30.0)
    of = {"evaluations": 20, "evaluation_period": 5.0, "evaluation_place": "train.py:31"}
    step = replace(found.step, **of)

    finding = evaluation_time._check(replace(found, step=step))

    assert finding.message == (
        "evaluation, rollouts or generation take 75 % of the time: 1.50 s every 5 steps"
    )
    assert finding.place == "train.py:31"
    assert evaluation_time._check(found).message.endswith("75 % of the time, 30.0 s in total")
    of_a_loader = evaluation_time._check(replace(found, step=replace(step, evaluation_loads=True)))
    assert of_a_loader.message.startswith("evaluation takes 75 % of the time: 1.50 s every")


def test_evaluation_of_most_of_the_run_goes_before_what_takes_the_steps_long():
    slow = waiting(260.0)
    mostly = replace(slow, step=replace(slow.step, evaluation_s=4 * 200 * slow.step.mean_s))
    partly = replace(slow, step=replace(slow.step, evaluation_s=0.5 * 200 * slow.step.mean_s))

    assert diagnose(mostly)[0].rule_id == "evaluation_time"
    assert verdict(diagnose(mostly), mostly).startswith("Bound by inference: Evaluation, rollouts")
    assert diagnose(partly)[0].rule_id != "evaluation_time"


@pytest.mark.parametrize(
    ("wait_ms", "first"), [(260.0, "input_bound_unexplained"), (5.5, "evaluation_time")]
)
def test_evaluation_of_a_quarter_leads_only_where_no_cause_in_the_steps_costs_more(wait_ms, first):
    """One of two ranks evaluates for 26 % of the time, of which dividing it spares half."""
    slow = waiting(wait_ms, not_evaluating=1)
    step = replace(slow.step, evaluation_s=0.35 * slow.all_steps_s)

    findings = diagnose(replace(slow, step=step))

    assert findings[0].rule_id == first
    assert any(finding.rule_id == "evaluation_time" for finding in findings)


@pytest.mark.parametrize(
    ("idle", "says"), [(1, "the other rank does"), (3, "the other 3 ranks do")]
)
def test_what_a_single_rank_evaluates_is_to_be_divided_among_all(idle, says):
    finding = evaluation_time._check(replace(given(evaluation_s=5.0), not_evaluating=idle))

    assert any(text.startswith(f"{says} not evaluate") for text in map(str, finding.more))
    assert finding.severity.value != "info" and finding.fix.startswith("Give each rank a part")
    assert finding.outside_s == pytest.approx(5.0 * idle / (idle + 1))


@pytest.mark.parametrize(("queued", "told"), [(0.0, True), (0.38, False)])
def test_nothing_is_said_of_a_step_that_is_short_but_for_its_waiting_for_a_cpu(queued, told):
    found = given(function("lines 36 to 38 (train.py)", 1.4))
    throughput = replace(found.throughput, steps=1000)
    found = replace(found, throughput=throughput, step=replace(found.step, mean_s=0.0024))

    assert (own_code._check(replace(found, main_queued_share=queued)) is not None) is told


@pytest.mark.parametrize(("elsewhere", "name"), [(0, "found()"), (20, "score()")])
def test_evaluation_without_one_line_names_the_function_in_which_most_of_it_is(elsewhere, name):
    score = [*LOOP, ("score.py", 9, "score")]
    each = [*score, ("score.py", 20, "found")]
    parts = [("score.py", line, f"part_{line // 2}") for line in (2, 3, 4, 5)]
    lines = [stack([*each, part], 5) for part in parts]
    lines += [stack([*score, ("show.py", line, "show")], 5) for line in range(elsewhere // 5)]
    model = [stack([*score, *FORWARD], 1), stack([*score, *WAIT], 1)]
    code = SampledCode.of([training(*model, *lines)], SourceLines(2e9))

    finding = evaluation_time._check(replace(given(evaluation_s=30.0), code=code))

    assert f"spent in {name} at score.py" in " ".join(map(str, finding.more))


@pytest.mark.parametrize(
    ("ms", "names", "fix"),
    [
        (10.0, "log()", "Profile log() line by line"),
        (5.0, "elbo()", "Call elbo(), which is of an installed library"),
    ],
)
def test_the_verdict_names_what_the_fix_is_about(ms, names, fix):
    """A library's function that takes more is told only where the program's own is small."""
    library = function("elbo (site-packages/pyro/infer.py:80)", 12.0)

    found = own_code._check(given(library, function("log (train.py:8)", ms)))

    assert found.message.endswith(f"of it in {names}") and found.fix.startswith(fix)
