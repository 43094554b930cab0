"""Every finding can be read in one breath: its message and its fix have 22 words at most, each
further sentence 30.

Stored runs and traces are read in tests/golden.
"""

import pytest
from advisor.test_checks import PLANTED
from hypothesis import given, settings
from ranks.made_up import MB, Training, always
from ranks.test_findings import SAMPLES, facts_of
from rules.any_facts import any_facts
from rules.test_advice_fits import CASES, finding_of
from text.breath import long_sentences

from feedline.analysis.convergence import checks
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


@pytest.mark.parametrize("rule_id", PLANTED)
def test_a_mistake_in_the_set_up_is_said_shortly(rule_id):
    for finding in checks.run_checks(PLANTED[rule_id]()):
        assert not long_sentences(finding)


@pytest.mark.parametrize(
    "plan",
    [
        *(
            Training(late=always(3, range(30), phase, 52.0))
            for phase in ("wait", "forward", "optimizer", "other")
        ),
        Training(late=always(3, range(3), "other", 52.0), steps=3),
        Training(late={(step, step % 4): ("forward", 30.0) for step in range(30)}),
        Training(buckets=(MB, 40 * MB, 40 * MB)),
        Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9),
        Training(ranks=2, link=2e8),
    ],
)
def test_what_ranks_cost_each_other_is_said_shortly(plan):
    for finding in diagnose(facts_of(plan, costs=SAMPLES if plan.ranks > 3 else None)):
        assert not long_sentences(finding)


@settings(deadline=None, max_examples=250)
@given(any_facts())
def test_findings_are_short_whatever_the_facts_are(facts):
    alone = [rule.check(facts) for rule in (*INPUT, *MACHINE, *LOOP)]

    for finding in filter(None, [*alone, *diagnose(facts)]):
        assert not long_sentences(finding)
