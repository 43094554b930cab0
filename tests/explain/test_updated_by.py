"""What the optimizers of a step update."""

import numpy as np
import pytest

from feedline.analysis.explain.run_facts import updated_by
from feedline.profiler.events import Stage


class Main:
    """Records of updates, by the numbers of their optimizers, of which one in so many is kept."""

    def __init__(self, numbers, stride=1):
        self.numbers, self.stride = np.array(numbers, [("number", np.int32)]), stride

    def of(self, stage):
        assert stage is Stage.OPTIMIZER
        return self.numbers

    def total(self, stage):
        assert stage is Stage.OPTIMIZER
        return {"records": len(self.numbers) * self.stride}


def adam(tensors, elements, kind="Adam", **group):
    return {"kind": kind, "groups": [{"tensors": tensors, "elements": elements, **group}]}


def updated(*listed, numbers, steps=40, stride=1):
    main = Main([(number,) for number in numbers], stride)
    return updated_by({"optimizers": list(listed)}, main, steps)


def test_optimizers_of_one_kind_that_all_update_in_each_step_are_one():
    found = updated(adam(18, 1000), adam(6, 200), numbers=[0, 1] * 40)

    assert (found.kind, found.tensors, found.elements, found.groups) == ("Adam", 24, 1200, 2)
    assert not found.fused


def test_of_a_long_run_the_updates_that_were_kept_stand_for_all():
    found = updated(adam(18, 1000), adam(6, 200), numbers=[0, 1] * 10, stride=4)

    assert found is not None and found.tensors == 24


@pytest.mark.parametrize(
    ("other", "numbers"),
    [
        (adam(6, 200), [0] * 20 + [1] * 20),  # folds, one after the other
        (adam(6, 200), [0] * 40 + [1] * 8),  # a critic five times per update of its generator
        (adam(6, 200, "SGD"), [0, 1] * 40),
    ],
    ids=["in turns", "seldom", "another kind"],
)
def test_those_that_a_step_may_be_without_are_not_known(other, numbers):
    assert updated(adam(18, 1000), other, numbers=numbers) is None


def test_sparse_gradients_and_foreach_are_of_any_group():
    found = updated(adam(18, 1000, foreach=True), adam(6, 200, sparse=2), numbers=[0, 1] * 40)

    assert (found.foreach, found.sparse) == (True, 2)


def test_recordings_of_before_these_were_recorded_are_read():
    found = updated(adam(18, 1000), numbers=[0] * 40)

    assert (found.foreach, found.sparse, found.step, found.updates_as) == (False, 0, None, "Adam")


@pytest.mark.parametrize(
    ("recorded", "step"),
    [
        ({"module": "torch.optim.adam", "step": "Adam"}, "Adam"),
        ({"module": "train", "step": "Adam"}, "Adam"),
        ({"module": "train", "step": ""}, ""),
        ({"module": "torch.optim.adam"}, "Adam"),  # before it was recorded
        ({"module": "galore_torch.adamw"}, ""),
    ],
)
def test_whose_update_an_optimizer_makes_is_known_by_its_step_or_its_module(recorded, step):
    assert updated(adam(18, 1000) | recorded, numbers=[0] * 40).step == step


def test_one_optimizer_is_known_however_many_of_its_updates_were_recorded():
    assert updated(adam(18, 1000), numbers=[0] * 5).tensors == 18
