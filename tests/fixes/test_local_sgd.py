"""Local SGD on two ranks, with ghost batch norm and recalibration there (two_ranks.py, launched
once).
"""

import json
from pathlib import Path

import pytest
import torch

from feedline.convergence.fixes import FIXES
from feedline.convergence.fixes.local_sgd import local_sgd

LOCAL_SGD = next(fix for fix in FIXES if fix.name == "local_sgd")


@pytest.fixture(scope="module")
def found(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("two_ranks.py")
    running = [
        warm_python.start(program, folder / f"{rank}.json", rank, folder / "meeting", folder=folder)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], errors
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    return first


def test_an_exchange_after_every_update_is_the_exchange_of_gradients(found):
    assert found["every_step_is_the_exchange_of_gradients"] < 1e-12


@pytest.mark.parametrize("what", ["state", "momentum"])
def test_weights_running_statistics_and_momentum_are_equal_after_an_exchange_and_apart_between(
    found, what
):
    equal = [far == 0 for far in found["buffers_and_momentum"][what]]

    assert equal == [True, False, False, True, False, False, True]


def test_running_statistics_stay_each_ranks_own_where_that_is_asked_for(found):
    assert found["without_buffers"]["parameters"] == 0
    assert found["without_buffers"]["buffers"] > 0


def test_post_local_sgd_exchanges_gradients_first(found):
    assert [far < 1e-12 for far in found["post_local"]["far"]] == [
        True,
        True,
        True,
        True,
        False,
        True,
        False,
    ]


def test_post_local_sgd_resumes_as_if_nothing_had_been(found):
    assert found["post_local"]["resumed"] < 1e-12


def test_ghost_batch_norm_counts_its_ghosts_in_distributed_data_parallel(found):
    assert found["post_local"]["ghosts"] == [True, 21]


def test_step_hooks_run_around_the_update_and_its_exchange(found):
    assert found["hooks_and_schedulers"]["exchanged"] == [True, False]


def test_a_warm_up_and_a_scheduler_work_on_it(found):
    assert found["hooks_and_schedulers"]["factors"] == pytest.approx([0.25, 0.5])


def test_loading_a_state_leaves_its_groups_those_of_the_optimizer_inside(found):
    assert found["hooks_and_schedulers"]["groups"]


def test_what_cannot_be_is_refused(found):
    buffers, plain, averager = found["refusals"]

    assert "make it with broadcast_buffers=False" in buffers
    assert "wrap the model in DistributedDataParallel, or set after=0" in plain
    assert "torch's periodic or hierarchical one" in averager


def test_recalibrated_on_two_ranks_the_statistics_are_those_of_all_samples(found):
    assert found["recalibrated"] < 1e-9


def test_without_ranks_it_says_what_it_needs():
    net = torch.nn.Linear(2, 2)

    with pytest.raises(ValueError, match="call torch.distributed.init_process_group first"):
        local_sgd(net, torch.optim.SGD(net.parameters(), 0.1), 4)


def test_it_cannot_be_attached_and_says_its_lines():
    assert LOCAL_SGD.attach is None
    assert "local_sgd(model, optimizer, period=4, after=500)" in LOCAL_SGD.lines(
        LOCAL_SGD.parse("4:after=500")
    )
    assert "local_sgd(model, optimizer, period=4)" in LOCAL_SGD.lines(LOCAL_SGD.parse("4"))


@pytest.mark.parametrize(
    "text", ["", "0", "2.5", "x", "4:after=-1", "4:after=1.5", "4:before=2", "4:5"]
)
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="expected 4"):
        LOCAL_SGD.parse(text)
