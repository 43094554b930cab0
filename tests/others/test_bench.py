"""The bench for programs of others: what it says of a program whose truth is known."""

import json
from dataclasses import replace

import pytest
from programs_of_others.bench import Bench, advised
from programs_of_others.judge import (
    DOUBTFUL,
    FALSE,
    TRUE,
    UNKNOWN,
    Facts,
    Said,
    Tried,
    counts_are_true,
    judge,
)
from programs_of_others.program import Program
from programs_of_others.run import line
from programs_of_others.table import page
from programs_of_others.timers import ByHand, read

#: 2 epochs of 5 batches of 4; each sample sleeps, so that most of the step is input. It evaluates
#: after each epoch.
SLOW = """\
import time

import torch


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.rand(8), index % 2


model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = torch.utils.data.DataLoader(Slow(), 4)
evaluation = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(6, 8)), 2)
for epoch in range(2):
    for inputs, labels in training:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        print("step")
    with torch.no_grad():
        for (inputs,) in evaluation:
            model(inputs)
"""
PROGRAM = Program(
    "slow",
    "somebody/slow",
    "",
    "train.py",
    ((10, 40),),
    "2 epochs of 5 batches of 4",
    printed="^step",
)


@pytest.fixture
def bench(tmp_path):
    """With one repository of one program."""
    (tmp_path / "checkouts" / "somebody" / "slow").mkdir(parents=True)
    (tmp_path / "checkouts" / "somebody" / "slow" / "train.py").write_text(SLOW)
    (tmp_path / "work").mkdir()
    return Bench(tmp_path / "work", tmp_path / "checkouts")


@pytest.mark.long
def test_a_program_that_sleeps_for_its_samples_is_counted_and_judged(bench):
    measured = bench.run(PROGRAM)

    assert measured.problem == ""
    assert measured.exact and measured.true == ((10, 40),)
    assert (measured.timed.updates, measured.timed.loaded) == (10, 40)
    assert measured.timed.input_share > 0.8
    assert measured.timed.step_s == pytest.approx(measured.timed.parts["next"], rel=0.3)
    assert measured.verdict in (TRUE, UNKNOWN), line(measured)
    assert "**1 programs: steps and samples are right in 1" in page([measured])


@pytest.mark.long
def test_counts_that_a_plain_run_does_not_have_are_a_problem_of_the_manifest(bench):
    measured = bench.run(replace(PROGRAM, trainings=((11, 44),)))

    assert measured.problem.startswith("10 updates by hand")
    assert "- slow: 10 updates" in page([measured])


def test_what_is_missing_is_named(bench):
    elsewhere = bench.run(replace(PROGRAM, name="gone", source="nobody/gone"))
    modules = bench.run(replace(PROGRAM, name="bare", needs=("no_such_module",)))

    assert elsewhere.problem == "no nobody/gone/"
    assert modules.problem == "not installed: no_such_module"
    assert "- gone: no nobody/gone/" in page([elsewhere, modules])


@pytest.mark.parametrize(
    ("steps", "samples", "right"),
    [(10, 40, True), (10, None, True), (10, 41, False), (11, 40, False), (11, None, False)],
)
def test_unknown_samples_are_not_wrong(steps, samples, right):
    assert (
        counts_are_true(
            [replace(said("compute_bound", 0.0), steps=steps, samples=samples)], ((10, 40),)
        )
        is right
    )
    assert counts_are_true(
        [replace(said("compute_bound", 0.0), steps=steps, samples=samples)], ((10, None),)
    ) is (steps == 10)


def facts(share, busy=0.5, others=0.0, tried=None):
    return Facts(
        ByHand(10, 40, 0.1, {"next": 0.1 * share, "rest": 0.1 - 0.1 * share}), busy, others, tried
    )


def said(rule_id, share, verdict="Input-bound."):
    return Said(10, 40, verdict, (rule_id,), {}, share, 0.1)


@pytest.mark.parametrize(
    ("rule_id", "share", "by_hand", "judgement"),
    [
        ("compute_bound", 0.01, facts(0.02), TRUE),
        ("compute_bound", 0.01, facts(0.5), FALSE),
        ("compute_bound", 0.04, facts(0.1), DOUBTFUL),
        ("borderline_input", 0.05, facts(0.06), TRUE),
        ("borderline_input", 0.05, facts(0.01), DOUBTFUL),
        ("borderline_input", 0.05, facts(0.3), FALSE),
        ("input_not_seen", 0.0, facts(0.5), UNKNOWN),
        ("augmentation_bound", 0.3, facts(0.25), TRUE),
        ("augmentation_bound", 0.6, facts(0.1), DOUBTFUL),
        ("augmentation_bound", 0.3, facts(0.01), FALSE),
        ("small_files", 0.3, facts(0.3), FALSE),
        ("cpu_saturated", 0.3, facts(0.3), FALSE),
        ("cpu_saturated", 0.3, facts(0.3, busy=0.95), TRUE),
        ("busy_neighbors", 0.3, facts(0.3, others=1.5), TRUE),
        ("busy_neighbors", 0.3, facts(0.3), FALSE),
        ("too_few_workers", 0.3, facts(0.3, tried=Tried("num_workers=1", 0.6)), TRUE),
        ("too_few_workers", 0.3, facts(0.3, tried=Tried("num_workers=1", 2.0)), FALSE),
    ],
)
def test_a_verdict_is_judged_by_the_timers(rule_id, share, by_hand, judgement):
    assert judge(PROGRAM, said(rule_id, share), by_hand)[0] == judgement


def test_a_share_above_all_is_false():
    verdict = said(
        "augmentation_bound",
        0.3,
        "Input-bound: augmentation takes 132.2 % of the CPU time of a sample.",
    )

    assert judge(PROGRAM, verdict, facts(0.3)) == (FALSE, "a share of 132.2 %")


def test_an_advice_without_workers_takes_what_needs_some_along():
    assert advised({"num_workers": 3}) == {"num_workers": 3}
    assert advised({"num_workers": 0}) == {
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
    }


@pytest.mark.parametrize(("others_known", "judgement"), [(True, TRUE), (False, UNKNOWN)])
def test_an_unexplained_wait_is_no_verdict_where_nobody_sampled_who_uses_the_cpus(
    others_known, judgement
):
    unexplained = replace(said("input_bound_unexplained", 0.3, "x"), others_known=others_known)

    assert judge(PROGRAM, unexplained, facts(0.3))[0] == judgement


@pytest.mark.parametrize("evaluates", ["eval", "forward"])  # with gradients, for nothing
def test_evaluation_on_the_training_loader_is_evaluation_by_hand(tmp_path, evaluates):
    spans = []

    def add(kind, took, who=0, size=0):
        begin = spans[-1][2] if spans else 1000
        spans.append((kind, begin, begin + took, took, who, size))

    add("start", 10, 1)  # a sanity check before the first step
    add(evaluates, 20)
    for _ in range(3):
        for kinds in (("forward", "backward", "update"), (evaluates,)):
            add("start", 5)
            for _ in range(2):
                add("next", 5, 0, 4)
                for kind in kinds:
                    add(kind, 10)
    (tmp_path / "1.json").write_text(json.dumps({"spans": spans}))

    (by_hand,) = read(tmp_path)

    # of each epoch: 75 ns train, 35 ns evaluate; the mean step leaves the first one out
    evaluated = 30 + 3 * 35
    assert by_hand.evaluation_share == pytest.approx(evaluated / (3 * 75 - 40 + evaluated))
    assert by_hand.loaded == 3 * 2 * 4
