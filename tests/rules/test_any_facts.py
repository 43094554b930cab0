"""What holds for every run, however little of it could be measured."""

import math
import re

from hypothesis import given, settings
from rules.any_facts import any_facts
from rules.said import verdict

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import SHARE, CostKind, Severity


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_at_most_three_findings_ask_for_a_change_and_come_first(facts):
    infos = [finding.severity is Severity.INFO for finding in diagnose(facts)]

    assert infos.count(False) <= 3
    assert infos == sorted(infos)


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_every_finding_can_be_shown(facts):
    findings = diagnose(facts)

    assert findings
    for finding in findings:
        assert finding.message and finding.how_to_check and finding.evidence
        assert finding.fix or finding.severity is Severity.INFO
        assert finding.cost_s >= 0 and all(
            math.isfinite(evidence.value) for evidence in finding.evidence
        )
        assert all(
            (evidence.unit == SHARE) == ("share" in evidence.id)
            for evidence in finding.evidence
            if evidence.id != "fetch_cv"
        )
        assert len({(evidence.id, evidence.of) for evidence in finding.evidence}) == len(
            finding.evidence
        )
        assert all(re.fullmatch(r"[a-z0-9_]+", evidence.id) for evidence in finding.evidence)
    assert verdict(findings, facts)


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_no_more_is_said_to_be_possible_only_where_the_gpu_allows_no_more(facts):
    """Times of the host change with the rate, and rare stalls may lie between the recorded steps:
    what follows from them is an estimate.
    """
    for finding in diagnose(facts):
        if re.search(
            r"at most|upper bound|can be saved",
            f"{finding.message} {finding.fix}",
        ):
            assert finding.cost_kind is CostKind.BOUND or finding.rule_id == "input_not_seen"
        assert (finding.cost_kind is CostKind.UNKNOWN) == (finding.cost_s == 0)


@settings(deadline=None, max_examples=60)
@given(any_facts())
def test_no_finding_contradicts_another(facts):
    found = diagnose(facts)
    causes = {finding.rule_id for finding in found}

    assert len(causes) == len(found)
    assert not {"too_few_workers", "cpu_saturated"} <= causes
    assert not {"custom_collate", "objects_in_queue"} <= causes
    if stated := causes & {"compute_bound", "borderline_input", "input_not_seen"}:
        assert len(stated) == 1
        asking = {finding.rule_id for finding in found if finding.fix}
        assert asking - stated <= {"busy_neighbors", "same_samples", "killed_worker"}
