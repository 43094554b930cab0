"""Some of the faults of benchmarks/fault_suite.py, shortened; and how the suite judges."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from faults import bench, files, judge
from faults.bench import Gain, Recorded, Said, Timed
from faults.cases import FAULTS, WELL, Fault, Side
from faults.conditions import Unavailable, place
from faults.judge import Judged
from faults.results import OfFault, Results
from planted.own import own
from truth import one_number

SHORT = {fault.name: fault for fault in FAULTS if fault.short}
#: Each has another of the same part of a training beside it, which takes less.
LONG = (
    "arrays_in_the_queue",
    "graphs_kept",
    "log_flushed",
    "recompiled_lengths",
    "shuffle_buffer",
    "tars_not_split",
)


@pytest.fixture(scope="session")
def cache(made_once):
    """The files of the shortened faults."""
    kinds = {kind for fault in SHORT.values() for kind in fault.files}
    return made_once(
        "fault_files", lambda folder: [files.of(kind, folder) for kind in sorted(kinds)]
    )


def recorded(warm_python, fault: Fault, side: Side, cache: Path, folder: Path) -> Recorded:
    """What feedline says of one of the twins."""
    out = folder / "report.json"
    with place(side.conditions, cache) as where:
        arguments = shlex.split(f"{side.arguments} {fault.short}".format(**where.words))
        command = (
            "-m",
            "feedline",
            "run",
            "-q",
            "-o",
            folder / "run",
            "--json",
            out,
            bench.PROGRAMS / fault.program,
            *arguments,
        )
        ended = warm_python.run(*command, folder=folder, cpus=bench.CPUS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    one_number.check_run(folder / "run")
    report = json.loads(out.read_text())
    return bench.recorded(report | {"findings": own(report["findings"])}, None)


@pytest.mark.quiet
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in SHORT]
)
def test_the_first_finding_names_the_planted_fault(warm_python, name, cache, tmp_path):
    fault = SHORT[name]

    found = recorded(warm_python, fault, fault.fault, cache, tmp_path)

    assert Judged(name, fault.expected, fault.names, found).first, found.verdict


@pytest.mark.quiet
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "no_workers" else [pytest.mark.long])
        for name in SHORT
    ],
)
def test_the_twin_is_free_of_the_fault(warm_python, name, cache, tmp_path):
    fault = SHORT[name]

    found = recorded(warm_python, fault, fault.twin, cache, tmp_path)

    assert not any(
        finding.rule_id in fault.expected
        and re.search(fault.names, f"{finding.message}. {finding.fix}")
        for finding in found.findings
    ), found.verdict


@pytest.mark.long
@pytest.mark.quiet
def test_swap_because_of_a_control_groups_limit_is_not_told_as_the_machines(tmp_path):
    swap = next(fault for fault in FAULTS if fault.name == "swap")
    try:
        found = bench.record(swap, swap.fault, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))

    swapping = next(one for one in found.findings if one.rule_id == "swapping")
    assert swapping.fix.endswith("or raise the control group's memory limit.")


def finding(rule_id: str, message: str = "", severity: str = "high", **more: object) -> Said:
    return Said(rule_id, severity, message, "", 0.01, **more)


def run(*findings: Said) -> Recorded:
    return Recorded("", 0.1, list(findings), [], None)


def test_the_right_rule_for_another_reason_is_not_right():
    lock = Judged("lock", ("blocked",), "lock", run(finding("blocked", "waiting for the network")))

    assert not lock.first and not lock.among
    assert replace(lock, recorded=run(finding("blocked", "waiting for a lock"))).first


def test_a_cause_is_among_the_first_three_that_ask_for_a_change():
    aside, others = (
        finding("small_files", severity="info"),
        [finding("decode_bound"), finding("cpu_saturated")],
    )

    third = Judged("cold", ("cold_storage",), "", run(*others, aside, finding("cold_storage")))
    fourth = replace(third, recorded=run(*others, finding("blocked"), finding("cold_storage")))

    assert third.among and not third.first
    assert not fourth.among


def test_a_prediction_is_compared_as_a_ratio_with_runs_side_by_side():
    told = finding(
        "decode_bound", predicted={"from": 100.0, "to": 210.0, "low": 180.0, "high": 240.0}
    )
    pairs = [(Timed(50.0, 0.1, 0.5), Timed(100.0, 0.1, 0.5))]  # the machine was slower by then

    found = judge.predictions(
        [Judged("decode", ("decode_bound",), "", run(told), gain=Gain({}, pairs))]
    )

    assert found.inside == 1 and found.predicted and found.predicted.median == pytest.approx(0.05)
    assert found.at_most and found.at_most.median == pytest.approx(abs(1 / 0.9 / 2 - 1))
    assert not found.refused


def test_recall_and_precision_of_a_rule():
    right = Judged("decode", ("decode_bound",), "", run(finding("decode_bound")))
    wrong = Judged("lock", ("blocked",), "", run(finding("decode_bound"), finding("blocked")))

    of = {
        one.rule_id: one
        for one in judge.rules([right, wrong], {"well": [run(finding("decode_bound"))]})
    }

    assert (of["decode_bound"].planted, of["decode_bound"].found) == (1, 1)
    assert (of["decode_bound"].said, of["decode_bound"].right) == (3, 1)
    assert (of["blocked"].planted, of["blocked"].found, of["blocked"].among) == (1, 0, 1)


def test_what_was_measured_is_read_again_as_it_was(tmp_path):
    timed = Timed(1.0, 2.0, 0.5)
    results = Results(
        {
            "lock": OfFault(
                [run(finding("blocked"))], [], [Gain({"num_workers": 3}, [(timed, timed)])]
            )
        },
        {"gan": [run()]},
    )

    results.write(tmp_path / "kept.json")

    assert Results.read(tmp_path / "kept.json") == results


def test_every_rule_of_a_recorded_run_has_a_planted_fault():
    from feedline.analysis.rules import CROSS_RANK, INPUT, MACHINE

    assert {rule.rule_id for rule in [*INPUT, *MACHINE, *CROSS_RANK]} <= {
        rule_id for fault in FAULTS for rule_id in fault.expected
    }
    assert len(FAULTS) >= 30 and len(WELL) >= 10
