import pytest
from rules.made_up import made_up_facts, waiting
from text.breath import advised, said

from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.model import Traffic
from feedline.analysis.rules.input.cold_storage import _check

BLOCKED = {"read": (0.3, 0.0, 7.2)}  # 60 % of the sample
COLD = Traffic(read_chars=110e3, read_calls=3.0, disk_bytes=100e3, major_faults=0.0)


def test_samples_blocked_on_the_disk_are_a_finding():
    finding = _check(waiting(60.0, sample=BLOCKED, traffic=COLD))

    assert (finding.rule_id, finding.severity) == ("cold_storage", Severity.HIGH)
    assert finding.cost_s == pytest.approx(60e-3 * 0.6)
    assert (
        finding.message
        == "samples are blocked 60 % of their time, and 100 kB of each come from the disk"
    )
    seen = _check(
        waiting(
            60.0,
            sample=BLOCKED,
            traffic=COLD,
            maker={"blocked_by": {"file": 1.0}, "blocked_looks": 50},
        )
    )
    assert (
        seen.message
        == "60 % of the time per sample is spent waiting for the disk to deliver 100 kB"
    )
    assert {e.id: e.value for e in finding.evidence}["disk_bytes_per_s"] == pytest.approx(
        100e3 * 32 / 0.1609, rel=0.01
    )


def test_memory_maps_show_as_page_faults():
    mapped = Traffic(read_chars=0.0, read_calls=0.0, disk_bytes=100e3, major_faults=25.0)

    assert "through page faults" in said(_check(waiting(sample=BLOCKED, traffic=mapped)))


@pytest.mark.parametrize("disk_bytes", [None, 4000.0, 0.2 * 110e3])
def test_it_is_silent_where_little_comes_from_the_disk(disk_bytes):
    assert _check(waiting(sample=BLOCKED, traffic=Traffic(110e3, 3.0, disk_bytes, 0.0))) is None


def test_it_is_silent_where_the_disk_keeps_up():
    assert (
        _check(waiting(sample={"read": (0.3, 0.0, 2.0)}, traffic=COLD)) is None
    )  # 29 % of the sample


def test_a_healthy_training_may_read_from_the_disk():
    assert _check(made_up_facts(sample=BLOCKED, traffic=COLD)) is None


def test_its_workers_are_as_many_as_fill_the_cpus_beside_their_waits():
    quiet = {
        "effective_cpus": 2.0,
        "used_cpus": 0.6,
        "settings": {"num_workers": 2},
        "maker": {"processes": 2},
    }
    stages = {"forward": 1.0, "backward": 2.0, "optimizer": 1.0, "copy": 0.0, "other": 0.0}
    facts = made_up_facts(
        **quiet,
        stages=stages,
        waits={"handover": 40.0, "starved": 1.0},
        sample={"decode": (0.3, 0.0, 7.0), "augment": (0.1, 0, 0)},
        traffic=COLD,
    )

    # a sample of 8.7 ms takes 1.7 ms of CPU: 10.2 workers fill two CPUs, and four each are advised
    fix = "Set num_workers=8 (now 2): workers that wait for the disk need no CPU."
    assert _check(facts).fix == fix
    assert _check(facts).fix_more[0].startswith("If the disk does not deliver")
    assert advised(_check(facts)).endswith(" in order.")


def test_it_asks_for_no_workers_that_the_cpus_cannot_run():
    full = made_up_facts(
        effective_cpus=2.0,
        used_cpus=1.5,
        settings={"num_workers": 12},
        maker={"processes": 12},
        waits={"starved": 40.0},
        sample=BLOCKED,
        traffic=COLD,
    )

    assert "num_workers" not in _check(full).fix
