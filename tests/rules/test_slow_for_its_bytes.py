from dataclasses import replace

import pytest
from rules.made_up import waiting, without_workers
from text.breath import advised, said

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.model import Moved, Traffic
from feedline.analysis.rules.input.slow_for_its_bytes import _change, _check


def spinning(
    collate: tuple[float, float, float] = (2.0, 2.0, 0.0), **changes: object
) -> RuleInputs:
    """Collating 160 kB takes this long; with its helper threads the process uses twice the CPU."""
    crowded = {
        "used_cpus": 0.7,
        "others": 1.3,
        "effective_cpus": 2.0,
        "main_runqueue_share": 0.4,
        "process_cpu_s": 12.6e-3,
    }
    facts = without_workers(**(crowded | {"sample": {"collate": collate}} | changes))
    costs = facts.workers.per_sample
    costs = costs | {"collate": replace(costs["collate"], bytes=160e3)}
    return replace(facts, workers=replace(facts.workers, per_sample=costs))


def test_a_collate_that_spins_is_the_first_finding_and_names_threads_and_neighbors():
    finding = diagnose(spinning())[0]

    assert finding.rule_id == "slow_for_its_bytes"
    assert (
        finding.message.startswith("collate takes 4.00 ms per sample: its thread")
        and "it should take less than 100 µs" in finding.more
        and "that is to copy 160 kB" in finding.more
        and "other programs use 1.30" in said(finding)
    )
    assert "torch.set_num_threads(1)" in finding.fix and "OMP_NUM_THREADS=1" in advised(finding)
    assert finding.cost_s == pytest.approx(
        32 * (4e-3 - 100e-6) + 98e-3
    )  # at most: forward, backward and optimizer spin as well


def test_threads_that_have_a_cpu_each_beside_other_programs_are_left():
    assert "set_num_threads(6)" in _check(spinning(effective_cpus=8.0)).fix


@pytest.mark.parametrize(
    "facts",
    [
        spinning((0.4, 0.5, 0.0)),  # 9 times as long as its bytes
        spinning(
            (0.25, 3.0, 0.0)
        ),  # it waits for a CPU, and computes no longer than its bytes explain
        spinning(settings={"collate": "padded"}),  # which may compute
    ],
)
def test_what_the_figures_do_not_show_is_not_said(facts):
    assert _check(facts) is None


@pytest.mark.parametrize(
    "facts",
    [
        spinning((2.0, 0.2, 0.0)),  # nothing that the CPUs are to blame for
        spinning(process_cpu_s=6.5e-3),  # one thread
        spinning(process_cpu_s=None),
    ],
)
def test_where_no_figure_shows_the_cause_it_is_unknown(facts):
    assert "the cause is unknown" in _check(facts).more


def test_threads_are_named_where_the_scheduler_lets_them_spin_only_a_little():
    finding = diagnose(spinning((0.76, 2.3, 0.25)))[
        0
    ]  # measured beside two busy loops; with one thread 0.05 ms on a CPU

    assert finding.rule_id == "slow_for_its_bytes" and "set_num_threads(1)" in finding.fix


def test_a_decoder_whose_helper_threads_lack_a_cpu_is_told_to_use_one_thread():
    decode, looks = (1.0, 0.5, 30.0), {"blocked_by": {"lock": 1.0}, "blocked_looks": 40}
    facts = waiting(
        sample={"decode": decode},
        operations={"decode/PIL.AVIF": 31.5},
        maker=looks,
        process_cpu_s=12e-3,
    )

    found = {finding.rule_id: finding for finding in diagnose(facts)}

    assert "its thread waits while helper threads" in said(found["slow_for_its_bytes"])
    assert "DEFAULT_MAX_THREADS = 1" in found["slow_for_its_bytes"].fix
    assert (
        "decode_bound" not in found and "blocked" not in found
    )  # the program did not make that lock


@pytest.mark.parametrize("pageable", [1.0, 0.0])
def test_a_copy_to_the_device_is_slow_by_the_devices_clock_and_pageable_memory_is_why(pageable):
    facts = waiting(moved={"copy": Moved(2.0, 20e6, None, pageable)})
    facts = replace(facts, step=replace(facts.step, gpu_stages={"copy": 0.2}))

    finding = _check(facts)

    if pageable:
        assert (
            "that is to move 20.0 MB to the device" in finding.more
            and "pin_memory=True" in advised(finding)
        )
    else:
        assert finding is None  # from pinned memory: what else it is, is not known


def test_page_faults_are_the_cause_only_where_their_pages_are_ten_times_the_bytes():
    def faulting(faults: float) -> RuleInputs:
        return waiting(
            sample={"dataset": (30.0, 0.0, 0.0)},
            traffic=Traffic(100e3, 1.0, 0.0, 0.0, minor_faults=faults, system_s=25e-3),
        )

    assert "8,000 page faults" in said(_check(faulting(8000.0)))
    assert _check(faulting(200.0)) is None


def test_page_faults_that_bring_pages_from_the_disk_are_not_of_new_memory():
    traffic = Traffic(100e3, 1.0, 0.0, 9000.0, minor_faults=8000.0, system_s=25e-3)

    assert _check(waiting(sample={"dataset": (30.0, 0.0, 0.0)}, traffic=traffic)) is None


def test_of_a_long_pickle_objects_in_queue_speaks_alone():
    def sending(pickle_bytes: float) -> RuleInputs:
        moved = {"transport": Moved(1.0, pickle_bytes, 0.2, 0.0)}
        return waiting(
            stages={"transport": 250.0},
            loader={"pickle_bytes": pickle_bytes, "flags": ["objects"]},
            moved=moved,
        )

    assert "600 kB of Python objects are pickled and unpickled" in _check(sending(600e3)).message
    assert [finding.rule_id for finding in diagnose(sending(38e6))][0] == "objects_in_queue"
    assert _check(sending(38e6)) is None


@pytest.mark.parametrize("operation", ["decode/webdataset.Decoder", "decode/LoadImage"])
def test_decoding_that_does_not_tell_its_pixels_is_not_compared(operation):
    assert (
        _check(waiting(sample={"decode": (90.0, 0.0, 0.0)}, operations={operation: 90.0})) is None
    )
    assert _check(
        waiting(sample={"decode": (90.0, 0.0, 0.0)}, operations={"decode/cv2.imdecode": 90.0})
    )


def test_images_that_become_jpegs_are_predicted_to_take_what_jpegs_usually_take():
    facts = waiting(
        sample={"decode": (40.0, 0.0, 0.0)},
        maker={"decoded_pixels": 100_000.0},
        operations={"decode/PIL.JPEG2000": 40.0},
    )
    finding = _check(facts)

    assert "it should take less than 1.35 ms as a JPEG" in finding.more
    assert _change(facts).stages["decode"].cpu == pytest.approx((80e-6 + 100_000 * 5e-9) / 40e-3)
