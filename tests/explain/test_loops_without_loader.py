"""An evaluation of tensors in memory, or a rollout, is no part of a step; what each step asks of a
teacher is.
"""

import time

import pytest
import torch
from measure.made_up_records import MadeUp

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.store.trainings import open_run


def trained(main, at):
    """An update of 60 ns."""
    main.forward(at, at + 20).backward(at + 25, at + 50).update(at + 50, at + 60)
    return main


def test_a_loop_that_infers_without_a_loader_is_evaluation():
    main = trained(trained(MadeUp(), 0), 100)
    for call in range(5):
        main.forward(200 + 20 * call, 210 + 20 * call, grad=False)
    trained(main, 300)
    steps = steps_of(main.process())

    assert steps.boundaries.evaluation.tolist() == [[200, 290]]
    assert steps.wall.tolist() == [60, 100, 110]
    assert steps.stages["forward"].tolist() == [20, 20, 20]


def test_a_rollout_before_several_updates_is_no_forward_of_theirs():
    main = MadeUp()
    for rollout in range(2):
        at = 1000 * rollout
        for call in range(8):
            main.forward(at + 20 * call, at + 10 + 20 * call, grad=False)
        for update in range(4):
            trained(main, at + 200 + 100 * update)
    steps = steps_of(main.process())

    assert steps.boundaries.evaluation.tolist() == [[0, 150], [1000, 1150]]
    assert steps.stages["forward"].tolist() == [20] * 8


def test_a_teacher_that_every_step_asks_twice_is_part_of_it():
    main = MadeUp()
    for step in range(4):
        at = 100 * step
        main.forward(at, at + 10, grad=False).forward(at + 12, at + 22, grad=False)
        trained(main, at + 30)
    steps = steps_of(main.process())

    assert len(steps.boundaries.evaluation) == 0
    assert steps.stages["forward"].tolist() == [40] * 4


def test_a_program_that_only_infers_does_not_evaluate():
    main = MadeUp()
    for batch in range(4):
        main.next(100 * batch, 100 * batch + 10, batch).forward(
            100 * batch + 10, 100 * batch + 60, grad=False
        )
    steps = steps_of(main.process())

    assert steps is None or steps.boundaries.by == "loader"


class Learns(torch.nn.Linear):
    """A model that computes its loss itself, and returns it as nanoGPT and transformers do."""

    def __init__(self, returns):
        super().__init__(8, 4)
        self.returns = returns

    def forward(self, images):
        scores = super().forward(images)
        return self.returns(scores, scores.square().mean())


@pytest.mark.parametrize(
    ("returns", "loss"),
    [
        (lambda scores, loss: (scores, loss), lambda found: found[1]),
        (lambda scores, loss: {"logits": scores, "loss": loss}, lambda found: found["loss"]),
        (lambda scores, loss: loss, lambda found: found),
    ],
    ids=["tuple", "dict", "loss"],
)
def test_a_batch_that_is_fetched_before_backward_is_not_taken_for_the_loss(tmp_path, returns, loss):
    def get_batch():
        time.sleep(0.005)
        return torch.randn(4, 8)

    with feedline.record(tmp_path / "run", strict=True):
        model = Learns(returns)
        optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.01), get_batch()
        for _ in range(12):
            found = loss(model(batch))
            batch = get_batch()
            found.backward()
            optimizer.step()
    report = recorded_report(open_run(tmp_path / "run"))

    assert report.step.stages.get("loss", 0.0) < 0.002
    assert report.step.stages["input"] + report.step.stages["other"] > 0.005
    cause = report.verdict.cause
    assert "get_batch " in cause.lower() and "each batch in the main thread" in cause
    assert report.findings[0].place.partition(":")[0].endswith("test_loops_without_loader.py")
