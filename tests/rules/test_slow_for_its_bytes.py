from dataclasses import replace

import pytest
from rules.made_up import without_workers

from feedline.analysis.diagnose import diagnose
from feedline.analysis.facts import Facts
from feedline.analysis.rules.slow_for_its_bytes import check


def spinning(collate: tuple[float, float, float] = (2.0, 2.0, 0.0), **changes: object) -> Facts:
    """Collating 160 kB takes this long; with its helper threads the process uses twice the CPU."""
    crowded = {"used_cpus": 0.7, "others": 1.3, "effective_cpus": 2.0, "main_runqueue_share": 0.4, "process_cpu_s": 12.6e-3}
    facts = without_workers(**(crowded | {"sample": {"collate": collate}} | changes))
    costs = facts.workers.per_sample
    costs = costs | {"collate": replace(costs["collate"], bytes=160e3)}
    return replace(facts, workers=replace(facts.workers, per_sample=costs))


def test_a_collate_that_spins_is_the_first_finding_and_names_threads_and_neighbors():
    finding = diagnose(spinning())[0]

    assert finding.cause == "slow_for_its_bytes"
    assert "collate takes 4.00 ms per sample to copy 160 kB" in finding.says and "other programs 1.30" in finding.says
    assert "torch.set_num_threads(1)" in finding.fix and "OMP_NUM_THREADS=1" in finding.fix
    assert finding.cost_s == pytest.approx(32 * (4e-3 - 100e-6) + 98e-3)  # at most: forward, backward and optimizer spin as well


def test_threads_that_have_a_cpu_each_beside_other_programs_are_left():
    assert "set_num_threads(6)" in check(spinning(effective_cpus=8.0)).fix


@pytest.mark.parametrize(
    "facts",
    [
        spinning((0.9, 0.9, 0.0)),  # 9 times as long as its bytes
        spinning((2.0, 0.2, 0.0)),  # nothing that the CPUs are to blame for
        spinning(process_cpu_s=6.5e-3),  # one thread
        spinning(settings={"collate": "padded"}),  # which may compute
        spinning(process_cpu_s=None),
    ],
)
def test_what_the_figures_do_not_show_is_not_said(facts):
    assert check(facts) is None
