"""No advice about what is not there: each fix with a run in which what it takes for granted is
there, and one in which it is not.
"""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from rules.advice_of_input import OF_INPUT
from rules.advice_of_the_loop import OF_THE_LOOP
from rules.any_facts import any_facts
from text.breath import advised

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.rules import BY_ID, CROSS_RANK, DATA, INPUT, LOOP, MACHINE, TRACE

#: Rule -> words of its fix, a run that has what they take for granted, and one that has not: then
#: it is silent, or says something else.
CASES = {**OF_INPUT, **OF_THE_LOOP}


def finding_of(rule_id: str, facts: RuleInputs) -> Finding | None:
    """What a run is told by one rule; of those that speak where no other does, what the engine
    tells by them.
    """
    rule = BY_ID[rule_id]
    if rule in (*INPUT, *MACHINE, *LOOP):
        return rule.check(facts)
    return next((finding for finding in diagnose(facts) if finding.rule_id == rule_id), None)


@pytest.mark.parametrize(
    ("rule_id", "words", "there", "missing"),
    [(rule_id, *case) for rule_id, cases in CASES.items() for case in cases],
)
def test_a_fix_takes_for_granted_only_what_the_run_has(rule_id, words, there, missing):
    finding, other = finding_of(rule_id, there), finding_of(rule_id, missing)

    assert finding is not None and words in advised(finding)
    assert other is None or words not in advised(other)
    assert other is None or (other.fix and other.how_to_check)


def test_every_rule_about_a_recorded_run_has_such_a_pair():
    elsewhere = {rule.rule_id for rule in (*CROSS_RANK, *TRACE)} - {
        "input_not_seen"
    }  # tests/ranks, tests/traces

    assert set(CASES) == set(BY_ID) - elsewhere - {"compute_bound"}  # which advises nothing


def decodes(facts: RuleInputs) -> bool:
    staged = "decode" in facts.costs or "decode" in facts.step.stages
    return staged or facts.decodes_images or operations(facts, "decode/")


def images(facts: RuleInputs) -> bool:
    return facts.decodes_images or operations(facts, "decode/cv2.VideoCapture")


def operations(facts: RuleInputs, start: str) -> bool:
    return facts.workers is not None and any(
        f"{one.stage}/{one.name}".startswith(start) for one in facts.workers.operations
    )


#: What advice speaks of -> what a run must have for it.
TAKES_FOR_GRANTED: dict[str, Callable[[RuleInputs], bool]] = {
    r"decod": decodes,
    r"\bimages?\b|JPEG|[Pp]ixel|\bcrop": images,
    r"\btransforms?\b": lambda facts: (
        "augment" in facts.costs or "augment" in facts.step.stages or operations(facts, "augment/")
    ),
    r"\bGPU\b|the device|DALI|CUDA": lambda facts: facts.on_gpu,
    r"cv2\.": lambda facts: operations(facts, "decode/cv2.") or operations(facts, "augment/cv2."),
    r"chunks": lambda facts: operations(facts, "read/h5py.") or operations(facts, "read/zarr."),
    r"MALLOC_": lambda facts: bool(facts.glibc),
    r"num_workers=(?!1\b)[1-9]": lambda facts: facts.may_be_split and facts.shards != 1,
    r"(?<!not set )persistent_workers=True": lambda facts: not facts.dataset_changes,
    r"replacement=True": lambda facts: not facts.setting("replacement"),
    r"iterable dataset": lambda facts: facts.is_stream,
    r"^Train for": lambda facts: not facts.failed,
}


@settings(max_examples=250)
@given(any_facts())
def test_no_rule_advises_what_is_not_there(facts):
    alone = [
        finding
        for rule in (*INPUT, *DATA, *MACHINE, *LOOP)
        if (finding := rule.check(facts)) is not None
    ]
    for finding in [*alone, *diagnose(facts)]:
        advice = re.sub(r"# now .*", "", advised(finding))
        for words, there in TAKES_FOR_GRANTED.items():
            assert not re.search(words, advice, re.MULTILINE) or there(facts), (
                finding.rule_id,
                words,
                advice,
            )
        assert facts.may_be_split or finding.settings.get("num_workers", 0) <= 1
        now = int(facts.setting("num_workers", 0) or 0)
        assert finding.settings.get("num_workers", 0) <= max(now, facts.shards or 1024)
        assert (
            not facts.dataset_changes
            or "persistent_workers" not in finding.settings
            or not finding.settings["persistent_workers"]
        )
