"""A verdict on a call that is known to be slow says why it is."""

import pytest
from rules.advice_runs import CHUNK, in_code

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.verdict import verdict

WHY = "HDF5 reads whole chunks to get a part of them"


@pytest.mark.parametrize(("below", "told"), [((CHUNK,), True), ((), False)])
def test_the_verdict_says_why_a_known_call_is_slow(below, told):
    facts = in_code("crop", 9, *below)

    said = verdict(diagnose(facts), facts)

    assert (WHY in said.cause) == told
    assert said.place == "data.py:9"
