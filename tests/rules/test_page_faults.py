from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting, without_workers

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.view.page_faults import faults_share
from feedline.analysis.measure.model import Traffic, Workers
from feedline.analysis.rules.input.page_faults import _check

GLIBC = {"glibc": (2, 36)}
PHOTO = 1600 * 1200 * 3
MAPPED = Traffic(110e3, 3.0, 0.0, 0.0, minor_faults=3700.0, system_s=6.3e-3)
SLOW = {"sample": {"decode": (17.2, 0, 0)}}  # 20 ms per sample, 160 ms per batch in four workers


def decoding(facts: RuleInputs, nbytes: float = PHOTO) -> RuleInputs:
    """The same with images of so many bytes."""
    assert isinstance(facts.workers, Workers)
    costs = facts.workers.per_sample
    return replace(
        facts,
        workers=replace(
            facts.workers,
            per_sample={**costs, "decode": replace(costs["decode"], bytes=float(nbytes))},
        ),
    )


@pytest.mark.parametrize("made_up", [waiting, without_workers])
def test_page_faults_of_images_are_named(made_up):
    facts = decoding(made_up(traffic=MAPPED, **SLOW, **GLIBC))
    finding = _check(facts)

    share = (6.3 - 0.3) / 20  # without reading
    assert finding.severity is Severity.HIGH
    assert {one.id: one.value for one in finding.evidence}["faults_share"] == pytest.approx(share)
    assert finding.environment == {
        "MALLOC_MMAP_THRESHOLD_": "268435456",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
    }
    assert "15.2 MB of freed memory" in finding.message
    assert finding.condition.startswith("only if the machine has enough memory")
    assert "MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=268435456" in finding.fix


def test_it_goes_before_what_takes_the_cpu():
    facts = decoding(waiting(traffic=MAPPED, used_cpus=7.9, **SLOW, **GLIBC))
    ids = [finding.rule_id for finding in diagnose(facts)]

    assert ids.index("page_faults") < ids.index("decode_bound")


def test_an_older_glibc_gets_the_largest_value_that_it_takes():
    facts = decoding(waiting(traffic=MAPPED, **SLOW, glibc=(2, 31)))

    assert _check(facts).environment == {
        "MALLOC_MMAP_THRESHOLD_": "33554432",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
    }
    assert _check(decoding(facts, nbytes=48e6)) is None, (
        "it maps larger images, whatever it is told"
    )


@pytest.mark.parametrize(
    "why, changes",
    [
        ("another malloc", {"glibc": ()}),
        ("below 15 % of the CPU time", {"traffic": replace(MAPPED, system_s=3.2e-3)}),
        ("below 1 MB", {"traffic": replace(MAPPED, minor_faults=200.0)}),
        ("pages of a memory map", {"traffic": replace(MAPPED, minor_faults=20_000.0)}),
        ("not measured", {"traffic": Traffic(110e3, 3.0, 0.0, 0.0)}),
    ],
)
def test_it_is_silent(why, changes):
    assert _check(decoding(waiting(**{"traffic": MAPPED, **SLOW, **GLIBC, **changes}))) is None, why


def test_it_is_silent_about_what_is_not_decoded():
    assert _check(waiting(traffic=MAPPED, **SLOW, **GLIBC)) is None


def test_it_is_silent_where_nothing_waits():
    assert _check(decoding(made_up_facts(traffic=MAPPED, **SLOW, **GLIBC))) is None


def test_shared_memory_of_batches_is_not_malloc_s():
    """Pages into which workers collate are new for each batch, whatever malloc keeps."""
    facts = decoding(waiting(traffic=MAPPED, **SLOW, **GLIBC))
    costs = {
        **facts.workers.per_sample,
        "collate": replace(facts.costs["collate"], bytes=3000.0 * 4096),
    }
    shared = replace(facts, workers=replace(facts.workers, per_sample=costs))

    assert "shared" in shared.loader.flags
    assert faults_share(shared) == pytest.approx(faults_share(facts) * 700 / 3700)
    assert _check(shared) is None
