from dataclasses import replace

import numpy as np
import pytest
from rules.made_up import made_up_facts
from user_code.made_stacks import (
    BACKWARD,
    COLLATING,
    FEEDLINE,
    FETCHING,
    FORWARD,
    IDLE,
    LIBRARIES,
    LOOP,
    PYTHON,
    STEP,
    TORCH,
    WAIT,
    process,
    stack,
    training,
)

from feedline.analysis.ledger.table import step_rows
from feedline.analysis.measure.code_places import called, origin, program_frames, standing
from feedline.analysis.measure.code_tree import SampledCode, Weight, functions_of, share_of
from feedline.analysis.measure.step_model import OwnCode, OwnFunction
from feedline.analysis.measure.user_code import (
    looked_or_sampled,
    loop_code,
    main_weight,
    user_code,
)
from feedline.profiler.store.sampled_stacks import StackFrame


def frames(*given):
    return tuple(StackFrame(*one) for one in given)


def names(chain):
    return [(frame.function, frame.line) for frame in chain]


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("train.py", ""),
        ("/home/a/project/models/net.py", ""),
        ("***/train.py", ""),
        (TORCH + "nn/modules/module.py", "torch"),
        ("site-packages/pandas/core/frame.py", "pandas"),
        ("/usr/lib/python3/dist-packages/yaml.py", "yaml"),
        (PYTHON + "json/decoder.py", "python"),
        ("python3.11/json/decoder.py", "python"),
        ("<frozen runpy>", "python"),
        (FEEDLINE + "taps/fetch.py", "feedline"),
        ("profiler/taps/fetch.py", "feedline"),
        ("site-packages/feedline/profiler/clock.py", "feedline"),
        ("site-packages/feedline/cli/program.py", "feedline"),
        ("profiler/clock.py (feedline; passed by like importlib._bootstrap)", "feedline"),
        ("profiler/train.py", ""),
        ("project/profiler/store/disk.py", ""),
        ("a tap (feedline; passed by like importlib._bootstrap)", "feedline"),
        ("/home/a/profiler/plots.py", ""),
    ],
)
def test_a_file_belongs_to_the_program_or_to_a_library(file, owner):
    assert origin(file).owner == owner


def test_library_frames_belong_to_the_line_of_the_program_that_called_them():
    found = program_frames(
        frames(
            ("data.py", 20, "__getitem__"),
            (LIBRARIES + "pandas/core/indexing.py", 9, "__getitem__"),
            (LIBRARIES + "pandas/core/frame.py", 8, "apply"),
            ("data.py", 31, "parse"),
            (PYTHON + "json/__init__.py", 300, "loads"),
        )
    )

    assert names(found) == [("__getitem__", 20), ("parse", 31)]
    assert called(found[0].below) == "pandas.DataFrame.iloc"
    assert called(found[1].below) == "json.loads"


def test_code_that_a_library_writes_as_text_belongs_to_the_line_that_calls_it():
    managers = PYTHON + "multiprocessing/managers.py"
    found = program_frames(
        frames(
            ("data.py", 20, "__getitem__"),
            ("<string>", 2, "__getitem__"),
            (managers, 9, "_callmethod"),
        )
    )

    assert names(found) == [("__getitem__", 20)]
    assert found[0].below[-1].function == "_callmethod"


def test_recursion_counts_once_as_its_deepest_call():
    found = program_frames(
        frames(("a.py", 1, "walk"), ("a.py", 9, "visit"), ("a.py", 2, "walk"), ("b.py", 3, "leaf"))
    )

    assert names(found) == [("walk", 2), ("leaf", 3)]


def test_comprehensions_are_their_function_and_lambdas_their_line():
    found = program_frames(
        frames(("a.py", 4, "pad"), ("a.py", 5, "<listcomp>"), ("a.py", 7, "<lambda>"))
    )

    assert names(found) == [("pad", 5), ("lambda of line 7", 7)]


def test_without_code_of_the_program_a_library_that_is_no_framework_counts():
    inside = frames(
        (TORCH + "a.py", 1, "f"),
        (LIBRARIES + "trainer/engine.py", 2, "fit"),
        (LIBRARIES + "trainer/engine.py", 3, "log"),
    )

    assert names(program_frames(inside)) == [("fit", 2)]
    assert program_frames(inside[:1]) == []


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([*FETCHING, ("data.py", 1, "__getitem__"), *FORWARD], "dataset"),
        ([*COLLATING, ("data.py", 1, "pad")], "collate"),
        (IDLE, "idle"),
        ([*LOOP, *FORWARD, ("net.py", 3, "forward"), *FORWARD], "forward"),
        ([*LOOP, *BACKWARD], "backward"),
        ([*LOOP, *BACKWARD, *FORWARD], "backward"),
        ([*LOOP, *STEP, ("train.py", 9, "closure"), *FORWARD], "forward"),
        ([*LOOP, *STEP, ("train.py", 9, "closure")], "optimizer"),
        ([*LOOP, *WAIT], "wait"),
        ([*LOOP, (TORCH + "serialization.py", 9, "save")], "checkpoint"),
        (LOOP, "other"),
    ],
)
def test_frames_of_torch_and_feedline_tell_the_place(given, place):
    assert standing(frames(*given)).place == place


def test_shares_are_of_making_a_sample_without_idling():
    slow = [*FETCHING, ("data.py", 20, "__getitem__"), ("data.py", 88, "tokenize")]
    code = SampledCode.of(
        [
            process(
                "worker",
                stack(slow, 60),
                stack([*FETCHING, ("data.py", 21, "__getitem__")], 20),
                stack([*COLLATING, ("data.py", 41, "pad")], 20),
                stack(IDLE, 400),
            ),
            training(),
        ]
    )

    told = {(one.place, one.function): one for one in user_code(code, 0.1, 0.4).functions}

    assert told["dataset", "tokenize"].share == pytest.approx(0.6)
    assert told["dataset", "tokenize"].low < 0.55 and told["dataset", "tokenize"].high > 0.65
    assert told["dataset", "tokenize"].seconds_per_step == pytest.approx(0.24)
    assert told["dataset", "tokenize"].caller == "__getitem__ (data.py:20)"
    assert told["dataset", "__getitem__"].own_share == pytest.approx(0.2)
    assert told["collate", "pad"].share == pytest.approx(0.2)


def test_what_the_recording_itself_takes_is_no_part_of_making_a_sample():
    clock = [*FETCHING, (FEEDLINE + "taps/fetch.py", 432, "__getitem__")]
    code = SampledCode.of(
        [
            process(
                "worker",
                stack([*FETCHING, ("data.py", 20, "__getitem__")], 50),
                stack([*clock, (FEEDLINE + "clock.py", 163, "now")], 50),
                stack([*clock, (FEEDLINE + "clock.py", 163, "now"), (PYTHON + "os.py", 1, "x")], 9),
            )
        ]
    )

    assert code.making.seconds == pytest.approx(0.5)
    assert code.places["worker", "recording"].weight.seconds == pytest.approx(0.59)


def test_the_interval_of_a_share_is_wilsons():
    whole = Weight(1.0, 100 * 0.01**2)

    share, low, high = share_of(0.5, whole)

    assert share == 0.5
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))


def test_where_threads_wait_for_cpus_intervals_are_wider():
    """Half of the time waiting: four times the variance, twice the width, the same samples."""
    seen = [process("main", stack([*LOOP, ("train.py", 5, "log")], 400), stack(LOOP, 400))]
    free, queued = SampledCode.of(seen), SampledCode.of(seen, queued={"main": 0.5})

    ends = [share_of(4.0, main_weight(code)) for code in (free, queued)]
    widths = [high - low for _, low, high in ends]

    assert widths[1] / widths[0] == pytest.approx(2.0, rel=0.01)
    assert main_weight(queued).number == main_weight(free).number
    assert SampledCode.of(seen, queued={"main": 1.0}).spread["main"] == pytest.approx(1 / 0.4**2)


def test_samples_of_unequal_weight_count_as_fewer():
    even, uneven = Weight(), Weight()
    for stack_ in (stack(LOOP, 50), stack(LOOP, 50)):
        even.add(stack_)
    uneven.add(stack(LOOP, 90))
    uneven.seconds += 1.0  # one sample that stands for a second
    uneven.squares += 1.0

    assert even.number == pytest.approx(100)
    assert uneven.number < 5


def test_the_loops_own_lines_and_calls_are_told_apart():
    log = [*LOOP[:-1], ("train.py", 80, "main"), ("log.py", 12, "record")]
    code = SampledCode.of([training(stack(log, 30), stack(LOOP, 10))])

    own = loop_code(code, {"other": 0.04})

    assert code.loop == ("train.py", "main")
    assert [(one.name, pytest.approx(one.s)) for one in own.functions] == [
        ("record (log.py:12)", 0.03),
        ("line 70 of main (train.py:70)", 0.01),
    ]


def test_a_function_that_reads_a_loader_and_only_infers_is_evaluation():
    validate = [*LOOP[:-1], ("train.py", 60, "main"), ("train.py", 30, "validate")]
    code = SampledCode.of(
        [
            training(
                stack([*validate, *FORWARD], 50),
                stack([*validate, *WAIT], 50),
                stack([*validate, ("metrics.py", 5, "f1")], 100),
                stack([*LOOP, *WAIT], 50),
            )
        ]
    )

    assert code.places["main", "evaluation"].weight.seconds == pytest.approx(2.0)
    assert code.places["main", "forward"].weight.seconds == pytest.approx(1.0)


def test_what_a_program_does_while_it_only_infers_is_evaluation_whatever_it_is():
    """By the moments of samples: of ten in score(), four lie between two evaluations."""
    scored = stack([*LOOP, ("score.py", 8, "score")], 10)
    scored = replace(scored, moments=(110, 120, 130, 220, 230, 240, 250, 510, 520, 530))
    evaluation = np.array([[100, 200], [500, 600]], np.int64)

    code = SampledCode.of([training(scored)], evaluation=evaluation)

    tree = code.places["main", "evaluation"]
    assert tree.weight.seconds == pytest.approx(0.06)
    assert [node.place for node in tree.root.calls.values()] == ["score.py:8"]
    assert code.places["main", "other"].weight.seconds == pytest.approx(0.04)


def test_a_sampler_that_asks_the_model_is_no_evaluation():
    """It mines hard samples: torch asks it for indices, and it infers for that."""
    asked = [*LOOP, (TORCH + "utils/data/dataloader.py", 740, "_next_index")]
    mines = [*asked, ("hard.py", 12, "__iter__")]
    code = SampledCode.of([training(stack(mines, 50), stack([*mines, *FORWARD], 50))])

    assert ("main", "evaluation") not in code.places
    assert code.places["main", "sampler"].weight.seconds == pytest.approx(0.5)


def test_what_happens_before_and_after_the_loop_does_not_count():
    early = stack([*FETCHING, ("data.py", 3, "__getitem__")], 50, phase="start")

    assert SampledCode.of([process("worker", early)]) is None


def test_functions_inside_of_a_stage_are_rows_below_it_and_the_lines_that_call_it_are_not():
    net = [*LOOP, *FORWARD, ("net.py", 9, "forward")]
    code = SampledCode.of([training(stack(net, 100), stack([*LOOP, *WAIT], 50))])

    assert functions_of(code, "forward", "main") == [("forward", "net.py:9", pytest.approx(0.5))]
    assert functions_of(code, "backward", "main") == []
    assert functions_of(code, "wait", "main") == []


def test_the_step_closes_with_functions_inside_of_its_stages():
    net = [*LOOP, *FORWARD, ("net.py", 9, "forward")]
    code = SampledCode.of([training(stack(net, 100), stack([*LOOP, *WAIT], 50))])
    step = made_up_facts(stages={"forward": 30.0}).step

    rows = step_rows(step, code=code)

    assert sum(row.s for row in rows) == pytest.approx(step.mean_s)
    assert next(row.s for row in rows if row.where == "forward/user/forward") == pytest.approx(
        0.015
    )


def own(name, share, looks):
    """The loop's own code, of which one function takes this share."""
    return OwnCode(0.1, looks, [OwnFunction(name, share * 0.1, 0.0, 0.1, "")])


@pytest.mark.parametrize(
    ("timed", "sampled", "believed"),
    [
        ("lines 153 to 155 (train.py)", "draw (train.py:107)", True),
        ("draw (train.py:105)", "draw (train.py:107)", False),
        ("Log.draw (train.py:105)", "draw (train.py:107)", False),
        ("lines 153 to 155 (train.py)", "line 154 of main (train.py:154)", False),
        ("lines 153 to 155 (train.py)", "line 174 of main (train.py:174)", True),
    ],
)
def test_samples_are_believed_where_what_takes_most_could_not_be_timed(timed, sampled, believed):
    looked, seen = own(timed, 0.4, 9), own(sampled, 0.9, 200)

    assert looked_or_sampled(looked, seen).looks == (seen if believed else looked).looks


def test_samples_are_believed_where_they_show_surely_more_than_was_timed():
    seen = own("draw (train.py:107)", 0.9, 200)
    seen = replace(seen, functions=[replace(seen.functions[0], low_s=0.08)])
    looked = own("draw (train.py:105)", 0.1, 9)
    short = replace(looked, functions=[replace(looked.functions[0], high_s=0.02)])

    assert looked_or_sampled(short, seen) is seen and looked_or_sampled(looked, seen) == looked


def test_samples_are_believed_where_most_lies_in_a_few_long_steps_that_were_not_looked_at():
    looked, seen = own("lines 3 to 5 (train.py)", 0.2, 9), own("line 9 of f (train.py:9)", 0.9, 10)
    half = replace(looked, few_s=0.6 * looked.s)

    assert looked_or_sampled(half, seen) is seen and looked_or_sampled(half, None) is half
    assert (
        looked_or_sampled(replace(half, few_s=0.3 * looked.s), seen).functions == looked.functions
    )


@pytest.mark.parametrize(
    ("timed", "line", "named"),
    [
        ("lines 153 to 155 (train.py)", "line 154 of main (train.py:154)", True),
        ("lines 153 to 155 (train.py)", "line 154 (train.py)", True),
        ("lines 153 to 155 (train.py)", "line 156 (train.py)", False),
        ("lines 153 to 155 (train.py)", "line 154 (other.py)", False),
        ("lines 197 to 183 of the next pass (train.py)", "line 201 (train.py)", True),
        ("lines 197 to 183 of the next pass (train.py)", "line 190 (train.py)", False),
        ("the loop around line 83 (train.py)", "line 144 (train.py)", True),
        ("draw (train.py:105)", "line 154 (train.py)", False),
    ],
)
def test_lines_that_were_timed_together_are_named_by_the_one_that_takes_most(timed, line, named):
    (told,) = looked_or_sampled(own(timed, 0.4, 9), own(line, 0.45, 100)).functions

    assert told.name == (line if named else timed) and told.s == pytest.approx(0.04)
    for seen in (own(line, 0.1, 100), own(line, 0.45, 10)):  # half of it is another line; too few
        assert looked_or_sampled(own(timed, 0.4, 9), seen).functions[0].name == timed


def test_each_line_names_one_stretch_and_the_narrowest():
    looked = OwnCode(
        0.1,
        9,
        [
            OwnFunction("the loop around line 3 (a.py)", 0.04, 0.0, 0.1, ""),
            OwnFunction("lines 3 to 9 (a.py)", 0.04, 0.0, 0.1, ""),
        ],
    )

    assert [
        one.name for one in looked_or_sampled(looked, own("line 5 (a.py)", 0.4, 99)).functions
    ] == [
        "the loop around line 3 (a.py)",
        "line 5 (a.py)",
    ]


def test_few_samples_or_no_function_that_takes_most_are_not_believed():
    looked = own("lines 3 to 5 (train.py)", 0.4, 9)

    assert looked_or_sampled(looked, own("draw (train.py:9)", 0.9, 20)) == looked
    assert looked_or_sampled(looked, own("draw (train.py:9)", 0.3, 200)) == looked
    assert looked_or_sampled(None, looked) is looked and looked_or_sampled(looked, None) is looked


def test_samples_in_an_evaluation_are_none_of_the_step():
    """Also of one without a loader, such as generation, and in the loop's own function."""
    generating = [*LOOP, ("gpt.py", 9, "generate"), *FORWARD]
    both = replace(stack(generating, 4), moments=(5, 15, 25, 35))
    evaluation = np.array([[10, 20], [30, 40]])

    code = SampledCode.of([training(both)], evaluation=evaluation)

    assert code.places["main", "evaluation"].weight.seconds == pytest.approx(0.02)
    assert [child.function for child in code.places["main", "evaluation"].root.calls.values()] == [
        "generate"
    ]
    assert code.places["main", "forward"].weight.seconds == pytest.approx(1.0 + 0.02)
    assert SampledCode.of([training(both)]).places["main", "forward"].weight.seconds == (
        pytest.approx(1.04)
    )


def test_what_makes_batches_without_a_loader_is_no_code_of_the_loop():
    """get_batch() of a language model, which the stage of the input is about."""
    make = [*LOOP[:-1], ("train.py", 80, "main"), ("train.py", 42, "get_batch")]
    stacks = [training(stack([*make, ("train.py", 43, "<listcomp>")], 90), stack(LOOP, 10))]
    code = SampledCode.of(stacks, makers=frozenset(["get_batch"]))

    own = loop_code(code, {"other": 0.01})

    assert [(one.name, one.s) for one in own.functions] == [
        ("line 70 of main (train.py:70)", pytest.approx(0.01))
    ]
    shown = user_code(code, 0.1, None).functions
    assert [one.function for one in shown if one.place == "input"] == ["get_batch"]


def test_a_line_that_calls_the_loop_of_a_library_says_nothing_of_what_the_loop_does():
    """A trainer's learn(), called by a line of a module, calls updates as well."""
    learn = [LOOP[0], ("train.py", 292, "<module>"), (LIBRARIES + "sb3/a2c.py", 9, "learn")]
    code = SampledCode.of(
        [
            process(
                "main",
                stack([*learn, *FORWARD], 100),
                stack([*learn, *BACKWARD], 100),
                stack([*learn, *STEP], 100),
                stack([*learn, (LIBRARIES + "sb3/env.py", 5, "step")], 100),
            )
        ]
    )

    assert loop_code(code, {"other": 0.04}).functions == []


def test_a_line_of_a_module_is_called_so_once():
    at = [LOOP[0], ("train.py", 70, "<module>")]
    code = SampledCode.of(
        [
            process(
                "main",
                stack([LOOP[0], ("train.py", 70, "<module>"), *FORWARD], 100),
                stack([*at, (PYTHON + "copy.py", 128, "deepcopy")], 100),
            )
        ]
    )

    assert [one.name for one in loop_code(code, {"other": 0.04}).functions] == [
        "line 70 (train.py)"
    ]


def test_stacks_of_steps_in_which_caches_warm_up_are_not_of_the_mean_step():
    """A first update imports torch's compiler: the mean step has no such stage."""
    imports = [*LOOP, (TORCH + "_dynamo/convert_frame.py", 7, "convert")]
    first = replace(stack(imports, 10), moments=tuple(range(100, 110)))

    code = SampledCode.of([training(first)], evaluation=np.zeros((0, 2), np.int64), since=200)

    assert ("main", "compile") not in code.places
    early = SampledCode.of([training(first)], evaluation=np.zeros((0, 2), np.int64), since=105)
    assert early.places["main", "compile"].weight.seconds == pytest.approx(0.05)


def test_code_of_the_loop_that_takes_no_time_is_not_divided():
    code = SampledCode.of([training(stack(LOOP, 20))])

    assert loop_code(code, {"other": 0.0}) is None
