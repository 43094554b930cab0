"""Every finding can be read in one breath: its message and its fix have 22 words at most, each
further sentence 30.

Stored runs and traces are read in tests/golden.
"""

import pytest
from hypothesis import given, settings
from rules.any_facts import any_facts
from rules.test_advice_fits import CASES, finding_of
from text.breath import long_sentences

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.rules import INPUT, LOOP, MACHINE


@pytest.mark.parametrize("rule_id", CASES)
def test_the_finding_of_each_rule_is_short(rule_id):
    there, missing = (
        [finding_of(rule_id, case[side]) for case in CASES[rule_id]] for side in (1, 2)
    )

    assert there
    for finding in filter(None, [*there, *missing]):
        assert not long_sentences(finding)


@settings(deadline=None, max_examples=250)
@given(any_facts())
def test_findings_are_short_whatever_the_facts_are(facts):
    alone = [rule.check(facts) for rule in (*INPUT, *MACHINE, *LOOP)]

    for finding in filter(None, [*alone, *diagnose(facts)]):
        assert not long_sentences(finding)
