"""Samples per second of a training."""

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.pace import throughput_of
from feedline.analysis.measure.steps import steps_of


def trained(main, at):
    """An update, 60 ns after its start."""
    main.forward(at + 20, at + 30).backward(at + 35, at + 50).update(at + 50, at + 60)


@pytest.mark.parametrize(("each", "per_step"), [(True, 64), (False, None)])
def test_steps_that_all_train_on_one_batch_have_no_samples_per_second(each, per_step):
    """A batch that holds all data and is taken before the first step is no 64 samples / 20."""
    main = MadeUp()
    for step in range(20):
        if each or step == 0:
            main.next(100 * step, 100 * step + 10, samples=64)
        trained(main, 100 * step)
    process = main.process()

    found = throughput_of(process, steps_of(process))

    assert found.batch_size == per_step and (found.samples_per_s is None) is not each
    assert found.steps == 20 and found.steps_per_s
