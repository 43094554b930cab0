import pytest
from rules.made_up import waiting

from feedline.analysis.rules.cpus import cpu_share_of, used_cpus


def test_a_machine_busier_than_our_cpus_says_nothing_about_them():
    assert used_cpus(waiting(used_cpus=30.0, process_cpu_s=5e-3)) == pytest.approx(5e-3 * 32 / 0.1609, rel=0.01)


def test_cpus_in_use_are_unknown_where_nothing_was_measured():
    assert used_cpus(waiting(used_cpus=None, maker={"per_sample": {}})) is None


def test_a_stage_that_did_not_occur_has_no_share():
    assert cpu_share_of(waiting(), "transport") == 0.0
