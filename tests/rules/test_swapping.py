from dataclasses import replace

from rules.made_up import waiting

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.model import Traffic
from feedline.analysis.rules.input.swapping import _check

BLOCKED = {"dataset": (0.5, 0, 20.0)}
FAULTS = Traffic(read_chars=0.0, read_calls=0.0, disk_bytes=400e3, major_faults=100.0)


def swapping(bytes_per_s: float | None) -> RuleInputs:
    """Samples are blocked in page faults that read 400 kB each, at 200 samples per second: 80 MB/s."""
    return waiting(
        sample=BLOCKED,
        traffic=FAULTS,
        maker={"blocked_by": {"page fault": 1.0}, "blocked_looks": 50},
        swapped_in=bytes_per_s,
    )


def test_memory_that_comes_back_from_swap_is_not_taken_for_cold_files():
    found = {finding.rule_id: finding for finding in diagnose(swapping(90e6))}

    assert "swapping (90.0 MB/s)" in found["swapping"].message
    assert "Use less memory" in found["swapping"].fix
    assert "cold_storage" not in found


def test_memory_that_a_control_group_limits_is_not_told_as_the_machines():
    limited = _check(replace(swapping(90e6), full_limit_bytes=600e6))
    free = _check(swapping(90e6))

    assert limited.more == ["the memory of its control group, 600 MB, is full"]
    assert limited.fix.endswith("or raise the control group's memory limit.")
    assert free.more == [] and free.fix.endswith("or add memory.")


def test_swap_in_compressed_memory_takes_a_cpu_and_blocks_nobody():
    facts = waiting(
        sample={"dataset": (20.0, 0, 0.5)},
        traffic=replace(FAULTS, system_s=18e-3, minor_faults=500.0),
        swapped_in=90e6,
    )
    first = diagnose(facts)[0]

    assert first.rule_id == "swapping" and "75 % of their time" in first.message
    assert "slow_for_its_bytes" not in {finding.rule_id for finding in diagnose(facts)}
    assert diagnose(replace(facts, swapped_in=None))[0].rule_id == "slow_for_its_bytes"


def test_cold_files_on_a_machine_that_swaps_a_little_stay_cold_files():
    for rate in (None, 0.0, 2e6):
        facts = swapping(rate)
        assert _check(facts) is None
        assert "cold_storage" in {finding.rule_id for finding in diagnose(facts)}
