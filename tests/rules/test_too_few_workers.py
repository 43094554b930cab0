from dataclasses import replace

import pytest
from rules.made_up import SAMPLE, made_up_facts, waiting, without_workers

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.rules.input.too_few_workers import _check
from feedline.analysis.traces.launching import GpuWork

SLOW = {
    "dataset": (12.7, 0.0, 0.0)
}  # 17 ms a sample, 544 ms a batch: four workers make one every 136 ms, the step uses one every 100


def test_no_workers_cost_the_making_of_a_batch_less_what_receiving_it_takes():
    finding = _check(without_workers(batch_tensors=2.0))

    assert (finding.rule_id, finding.severity) == ("too_few_workers", Severity.HIGH)
    assert finding.cost_s == pytest.approx(32 * 4.8e-3 - 0.4e-3 - 4.8e6 * 0.2e-9, abs=1e-5)
    assert finding.message.startswith("the main process makes every batch itself")
    assert "154 ms of each 254 ms step" in finding.message


def test_batches_that_are_cheaper_to_make_than_to_receive_need_no_workers():
    cheap = {
        "sample": dict.fromkeys(SAMPLE, (0.003, 0.0, 0.0)),
        "loader": {"batch_bytes": 4096.0},
        "batch_tensors": 2.0,
    }
    step = {"forward": 0.3, "backward": 0.4, "optimizer": 0.1, "other": 0.0, "copy": 0.0}

    assert (
        _check(without_workers(stages=step, **cheap)) is None
    )  # 480 us a batch: at most 1.8 ms from a worker


def test_receiving_a_batch_is_named_where_it_was_not_measured():
    evidence = {(e.id, e.of): e.value for e in _check(without_workers(batch_tensors=2.0)).evidence}

    least, most = (evidence["receiving_s", end] for end in ("lower", "upper"))
    assert 0.2e-3 < least < most < 6e-3


def test_no_workers_asks_for_as_many_as_keep_pace_with_the_step():
    assert "num_workers=2" in _check(without_workers()).fix  # ceil(1.15 * 154 / 100)


def test_workers_that_make_batches_slower_than_the_step_uses_them_are_too_few():
    finding = _check(waiting(36.0, sample=SLOW, maker={"idle_share": 0.01}))

    assert finding.cost_s == pytest.approx(544e-3 / 4 - 100.4e-3, abs=1e-3)
    assert {e.id: e.value for e in finding.evidence}["batch_s"] == pytest.approx(0.544)
    assert "num_workers=7" in finding.fix  # ceil(1.15 * 544 / 100)


def test_batches_that_leave_late_because_their_worker_makes_the_next_one_need_more_workers():
    late = _check(waiting(36.0, sample=SLOW, waits={"handover": 36.0}))

    assert late.cost_s == pytest.approx(_check(waiting(36.0, sample=SLOW)).cost_s)
    assert (
        _check(waiting(36.0, waits={"handover": 36.0})) is None
    )  # 154 ms a batch: four workers keep pace, so something else is late


def test_workers_in_phase_find_batches_ready_and_are_too_few_all_the_same():
    assert _check(waiting(36.0, sample=SLOW, ready_share=0.75))


def test_workers_that_could_keep_pace_are_enough_however_long_the_wait():
    assert _check(waiting(36.0)) is None


def test_a_lack_below_five_percent_of_the_step_is_not_spoken_of():
    nearly = {
        "dataset": (8.8, 0.0, 0.0)
    }  # 419 ms a batch: 104.8 ms from four workers for a step of 100.4

    assert _check(waiting(20.0, sample=nearly)) is None


def test_gradient_accumulation_takes_several_batches_a_step():
    quarter = waiting(36.0, sample=SLOW, maker={"batches": 800, "fetch_mean_s": 0.136})

    assert _check(quarter).cost_s == pytest.approx(136e-3 - 100.4e-3, abs=1e-3)


@pytest.mark.parametrize("full", [{"used_cpus": 6.5}, {"sample": {"dataset": (9.0, 3.7, 0.0)}}])
def test_it_is_silent_where_the_cpus_are_full(full):
    assert _check(waiting(36.0, **{"sample": SLOW, **full})) is None


def test_no_workers_on_one_full_cpu_cannot_be_helped_by_workers():
    assert _check(without_workers(effective_cpus=1.0)) is None


def test_no_workers_on_one_cpu_are_helped_where_samples_are_mostly_blocked():
    finding = _check(
        without_workers(effective_cpus=1.0, used_cpus=0.6, sample={"read": (0.3, 0.0, 20.0)})
    )

    assert finding.severity is Severity.HIGH


def test_the_cpus_cap_the_advice():
    finding = _check(without_workers(effective_cpus=2.0, sample={"dataset": (40.0, 0.0, 0.0)}))

    assert "num_workers=2" in finding.fix


def test_a_loader_without_the_setting_is_left_alone():
    facts = waiting(36.0, sample=SLOW, maker={"processes": 0})
    facts.loader.settings.pop("num_workers")

    assert _check(facts) is None


def test_a_healthy_training_has_enough():
    assert _check(made_up_facts()) is None


def test_workers_are_asked_for_as_far_as_other_programs_leave_cpus():
    finding = _check(
        without_workers(
            effective_cpus=4.0, others=2.5, used_cpus=1.0, sample={"dataset": (9.0, 0.0, 0.0)}
        )
    )

    assert finding.fix == "DataLoader(..., num_workers=2)  # now 0"
    assert finding.more[-2:] == [
        "this training uses 1.00 of 4 CPUs, other programs use 2.50",
        "0.500 CPUs are free",
    ]


def test_passes_of_a_few_batches_need_no_workers_for_the_first_of_each_is_waited_for_all_the_same():
    few, many = (without_workers(epochs=epochs) for epochs in (200, 4))  # of 200 steps

    assert _check(few) is None
    assert _check(many).settings == {"num_workers": 2, "persistent_workers": True}
    assert _check(many).fix.startswith("DataLoader(..., num_workers=2, persistent_workers=True)")


def test_workers_that_each_pass_starts_again_must_gain_more_than_their_start():
    kept, again, rare = (
        without_workers(epochs=epochs, loader={"objects": made})
        for epochs, made in ((100, 1), (200, 200), (4, 4))
    )

    assert _check(kept).settings == {"num_workers": 2, "persistent_workers": True}
    assert _check(again) is None
    assert _check(rare).settings == {"num_workers": 2}


def test_workers_of_a_single_pass_need_not_be_kept():
    assert _check(without_workers()).settings == {"num_workers": 2}


def on_a_gpu(facts, ms):
    """The same, with a GPU that works this long per step while the host waits for batches."""
    return replace(
        facts, step=replace(facts.step, gpu_work=GpuWork(ms / 1000, 400, ms / 1000 / 400, 5))
    )


def test_more_workers_gain_what_the_gpu_does_not_need_anyway():
    finding = _check(on_a_gpu(waiting(36.0, sample=SLOW, maker={"idle_share": 0.01}), 120))

    assert finding.cost_s == pytest.approx(544e-3 / 4 - 120e-3, abs=1e-3)
    assert (
        finding.message
        == "4 workers cannot keep up: making a step's batches takes 136 ms, the GPU's work 120 ms"
    )
    assert "num_workers=6" in finding.fix  # ceil(1.15 * 544 / 120)


def test_workers_that_keep_pace_with_the_gpu_are_enough():
    assert _check(on_a_gpu(waiting(36.0, sample=SLOW, maker={"idle_share": 0.01}), 135)) is None


def test_a_gpu_that_is_faster_than_its_host_changes_nothing():
    alone = waiting(36.0, sample=SLOW, maker={"idle_share": 0.01})

    assert _check(on_a_gpu(alone, 90)).cost_s == _check(alone).cost_s
    assert "the rest of the step 100 ms" in _check(on_a_gpu(alone, 90)).message
