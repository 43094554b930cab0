"""Every sentence of the catalogue, with the smallest, usual and largest values of its slots."""

import importlib
import pkgutil
import re

import pytest

import feedline.analysis
from feedline.analysis.text.sentences import COUNT, MAX_BRACKETS, MAX_WORDS, PERCENT, Sentence

#: What reads as translated, or has to be read twice.
BANNED = (
    r"\ba (step|sample|rank)\b(?= (takes|costs))",
    r"\bis no \w",
    r"\bso many\b",
    r"\banew\b",
    r"\btold apart\b",
    r"\bnobody\b",
    r"\bmend\b",
    r";",
    r"\([^)]*\(",
)


def sentences() -> list[Sentence]:
    for module in pkgutil.walk_packages(feedline.analysis.__path__, "feedline.analysis."):
        importlib.import_module(module.name)
    return Sentence.catalogue


@pytest.mark.parametrize("said", sentences(), ids=lambda said: said.template[:60])
def test_a_sentence_can_be_read_in_one_breath(said: Sentence) -> None:
    for text in said.examples():
        assert len(text.split()) <= MAX_WORDS, text
        assert len(re.findall(r"(?<!\S)\(", text)) <= MAX_BRACKETS, text  # not those of calls
        assert not (bad := [pattern for pattern in BANNED if re.search(pattern, text)]), (text, bad)


@pytest.mark.parametrize("said", sentences(), ids=lambda said: said.template[:60])
def test_a_sentence_has_two_figures_at_most(said: Sentence) -> None:
    figures = [
        name for name, slot in said.slots.items() if isinstance(slot.examples[0], (int, float))
    ]
    assert len(figures) <= 2


def test_a_template_names_its_slots() -> None:
    with pytest.raises(ValueError, match="has the slots"):
        Sentence("{share} of the step", other=PERCENT)


def test_a_value_without_a_slot_is_refused() -> None:
    waits = Sentence("{steps} steps", steps=COUNT)
    Sentence.catalogue.remove(waits)
    assert waits(steps=1200) == "1,200 steps"
    with pytest.raises(TypeError, match="no slot"):
        waits(steps=1, share=0.5)
