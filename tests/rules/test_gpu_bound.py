"""A GPU that has so much to do that it is the limit: what is said of the input then, and of float32
products without tensor cores.
"""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.step_model import Flop
from feedline.analysis.rules.input import gpu_bound
from feedline.analysis.rules.loop import float32_products
from feedline.analysis.traces.launching import GpuWork


def facts(busy, products=0.0, computed_in="float32", ranks=1, **more):
    """A training whose GPU works this share of the step, that share of it on products in float32."""
    found = made_up_facts(**more)
    mean_s = found.step.mean_s
    work = GpuWork(busy * mean_s, 400, busy * mean_s / 400, 5, ranks, products * mean_s)
    return replace(
        found, step=replace(found.step, gpu_work=work, flop=Flop(1e12, 2e12, 32.0, computed_in))
    )


WAITS = {"waits": {"in_transit": 7.0}}  # 6 % of the step, which no rule explains


def test_a_wait_that_no_rule_explains_is_not_the_limit_where_the_gpu_works_all_the_time():
    found = diagnose(facts(busy=0.96, **WAITS))

    assert [finding.rule_id for finding in found] == ["gpu_bound"]
    assert found[0].message == "the GPU is the limit: it is busy for 104 ms of each 108 ms step"
    assert found[0].more == [
        "the input takes 7.3 % of the step, but a faster one would save at most 4.0 %"
    ]
    assert found[0].cost_s == pytest.approx(0.04 * 0.1079)


@pytest.mark.parametrize(("busy", "ranks"), [(0.94, 1), (0.96, 2)])
def test_a_gpu_that_idles_or_waits_for_others_may_be_fed_faster(busy, ranks):
    assert gpu_bound.check(facts(busy, ranks=ranks, **WAITS)) is None
    assert [finding.rule_id for finding in diagnose(facts(busy, ranks=ranks, **WAITS))] == [
        "input_bound_unexplained"
    ]


def test_a_gpu_that_is_behind_its_host_leaves_nothing_to_save():
    finding = gpu_bound.check(facts(busy=1.5, **WAITS))

    assert finding.cost_s == 0.0
    assert finding.more[0].endswith("a faster one would save nothing")


def test_a_training_that_compiled_before_its_first_step_is_not_told_to_compile():
    given = facts(busy=0.96, **WAITS)
    assert "torch.compile" in gpu_bound.check(given).fix

    run = LedgerTable(
        "run", 9.0, [LedgerRow("start/compile", 5.0), LedgerRow("steps/forward", 4.0)]
    )
    ledger = Ledger(LedgerTable("step", given.step.mean_s), run)
    assert "torch.compile" not in gpu_bound.check(replace(given, ledger=ledger)).fix


def test_products_without_tensor_cores_are_what_to_change_first():
    given = facts(busy=0.9, products=0.6)
    first, *others = diagnose(given)

    assert (first.rule_id, first.severity, first.cost_s) == (
        "float32_products",
        Severity.HIGH,
        pytest.approx(0.6 * given.step.mean_s),
    )
    assert not others  # what holds the run back is known
    assert verdict([first], given).startswith(
        "GPU-bound: The GPU spends 60.5 ms of each 101 ms step on float32 matrix products"
    )


@pytest.mark.parametrize(
    "given",
    [
        facts(busy=0.7, products=0.6),  # the host or the input is the limit
        facts(busy=0.9, products=0.04),
        facts(busy=0.9, products=0.6, computed_in="tf32"),
        facts(busy=0.9, products=0.6, computed_in=""),
        facts(busy=0.9, products=0.6, ranks=2),
        made_up_facts(),
    ],
    ids=[
        "gpu idles",
        "few products",
        "tf32 is allowed",
        "arithmetic unknown",
        "several ranks",
        "no window",
    ],
)
def test_otherwise_nothing_is_said_of_them(given):
    assert float32_products._check(given) is None
