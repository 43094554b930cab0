"""Rounds, their order, what counts as time, and what becomes of a failure."""

import os

import torch

from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    MeasuredRate,
    ProbePlan,
    TimedPass,
    Workload,
    as_ceiling,
    measure_in_turns,
    on_one_core,
)

ONCE = ProbePlan(rounds=3, seconds=0.0)


def test_the_order_of_the_things_compared_turns_round_every_round():
    calls = []
    works = {name: Workload(lambda name=name: calls.append(name) or 1) for name in "abc"}

    measure_in_turns(works, ONCE)

    assert "".join(calls) == "cba" + "abc" + "cba" + "abc"  # the first does not count


def test_rate_spread_and_cpu_are_those_of_the_rounds(fake_clock):
    walls = iter([9.0, 2.0, 1.0, 4.0])

    found = measure_in_turns(
        {"a": Workload(lambda: fake_clock.spend(next(walls), 0.5) or 8)}, ONCE
    )["a"]

    assert (found.value, found.low, found.high) == (4.0, 2.0, 8.0)
    assert found.cpu_s == 0.5 / 8


def test_preparing_a_pass_is_not_timed(fake_clock):
    work = Workload(
        lambda: fake_clock.spend(1.0, 1.0) or 10, prepare=lambda: fake_clock.spend(100.0, 100.0)
    )

    assert measure_in_turns({"a": work}, ONCE)["a"] == MeasuredRate((10.0, 10.0, 10.0), 0.1)


def test_a_round_repeats_short_passes_until_it_is_long_enough(fake_clock):
    passes = []

    measure_in_turns(
        {"a": Workload(lambda: passes.append(1) or fake_clock.spend(0.1) or 1)},
        ProbePlan(rounds=1, seconds=0.35),
    )

    assert len(passes) == 1 + 4


def test_a_pass_may_bring_its_own_time(fake_clock):
    found = measure_in_turns(
        {"a": Workload(lambda: fake_clock.spend(50.0) or TimedPass(10, 2.0, 1.0))}, ONCE
    )["a"]

    assert (found.value, found.cpu_s) == (5.0, 0.1)


def test_one_that_fails_drops_out_and_the_others_go_on(fake_clock):
    calls = []

    def fails() -> int:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("no more\nand a second line")
        return 1

    found = measure_in_turns(
        {"bad": Workload(fails), "good": Workload(lambda: fake_clock.spend(1.0) or 3)}, ONCE
    )

    assert found["bad"] == "ValueError: no more"
    assert found["good"].value == 3.0
    assert len(calls) == 2


def test_a_refusal_is_its_own_text_and_a_ceiling_without_a_value():
    def refuses() -> int:
        raise CannotMeasure("there is no such thing here")

    made = as_ceiling(
        "decode/none", measure_in_turns({"a": Workload(refuses)}, ONCE)["a"], per="core"
    )

    assert (made.part, made.value, made.why) == ("decode", None, "there is no such thing here")


def test_one_core_keeps_the_thread_on_one_core_and_puts_all_back():
    import cv2

    before = os.sched_getaffinity(0), torch.get_num_threads(), cv2.getNumThreads()

    with on_one_core():
        inside = len(os.sched_getaffinity(0)), torch.get_num_threads(), cv2.getNumThreads()

    assert inside == (1, 1, 1)
    assert (os.sched_getaffinity(0), torch.get_num_threads(), cv2.getNumThreads()) == before
