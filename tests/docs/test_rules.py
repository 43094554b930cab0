"""Every rule has a short page in docs/rules, which begins with what the rule declares."""

from pathlib import Path

import pytest
from docs.pages import ROOT
from report_docs import publish

from feedline.analysis.rules import BY_ID

FOLDER = ROOT / "docs" / "rules"
WORDS = 200  # of a page above its details
PARTS = ("- **Seen.** ", "- **Fix.** ", "- **How to check.** ")


def page(rule_id: str) -> Path:
    return FOLDER / f"{rule_id}.md"


def test_every_rule_has_a_page():
    assert len(BY_ID) > 20
    assert [rule_id for rule_id in BY_ID if not page(rule_id).exists()] == []


@pytest.mark.parametrize("rule_id", BY_ID)
def test_a_page_declares_what_its_rule_declares(rule_id):
    text = page(rule_id).read_text()

    assert text.startswith(f"# {rule_id}\n")
    assert publish.renew_between(text, publish.declared(BY_ID[rule_id])) == text, (
        "scripts/docs-fields"
    )


@pytest.mark.parametrize("rule_id", [*BY_ID, "no_batch", "standstill"])
def test_a_page_says_in_few_words_what_is_seen_what_to_change_and_how_to_check_it(rule_id):
    above = page(rule_id).read_text().partition("\n## Details\n")[0]

    places = [above.index(part) for part in PARTS]
    assert places == sorted(places)
    assert len(above.split()) <= WORDS


def test_the_index_lists_every_rule_with_the_first_sentence_of_its_page():
    text = (FOLDER / "index.md").read_text()

    assert publish.renew_between(text, publish.rule_index(FOLDER)) == text, "scripts/docs-fields"
    assert [rule_id for rule_id in BY_ID if f"[{rule_id}]({rule_id}.md)" not in text] == []


def test_what_a_rule_declares_is_said_in_words():
    workers, network = map(publish.declared, (BY_ID["too_few_workers"], BY_ID["slow_network"]))

    assert "| a setting of the loader | nothing |" in workers
    assert "| hardware | how fast the network should be |" in network
