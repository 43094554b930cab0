"""``printable``: what comes out is never obeyed and always seen; what is harmless comes out as it
went in.
"""

import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from text.hostile import BIDI, C1, CLEAR, CLIPBOARD, NAME, UNSEEN

from feedline.analysis.ledger.finding import Severity
from feedline.profiler.printable import _MAX_MARKS, _PICTOGRAPHS, printable, printable_in

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
SHAPELESS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
#: Letters, marks, symbols, controls and what lies between them: all of Unicode, but what harms more
#: often than chance would have it.
texts = st.text(
    st.characters()
    | st.characters(categories=HIDDEN)
    | st.characters(categories=["Mn", "Me"])
    | st.sampled_from(f"\u200d\ufe0f\ufe0e\U000e0100👩💻❤🏽ae1\\{SHAPELESS}\n\t")
)


def joins(text: str, at: int) -> bool:
    """Whether the character there is a joiner between two emoji, with a color or a selector before
    it at most.
    """
    before, after = text[:at].rstrip("\ufe0f\ufe0e"), text[at + 1 : at + 2]
    pictographs = [
        bool(c) and any(low <= ord(c) <= high for low, high in _PICTOGRAPHS)
        for c in (before[-1:], after)
    ]
    return text[at] == "\u200d" and (
        all(pictographs) or (pictographs[1] and unicodedata.category(before[-1:]) in ("Mn", "Me"))
    )


@given(texts, st.booleans())
@example("e" + 40 * "\u0301", False)
@example("👩\u200d\u200d💻", False)
def test_nothing_that_is_obeyed_or_unseen_comes_out(text: str, lines: bool) -> None:
    out = printable(text, lines)

    unsafe = [
        c
        for at, c in enumerate(out)
        if unicodedata.category(c) in HIDDEN and not joins(out, at) and not (lines and c in "\n\t")
    ]
    assert not unsafe and not set(out) & set(SHAPELESS)
    assert not any(ord(c) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(c) <= 0xFDEF for c in out)
    out.encode("utf-8")


@given(texts, st.booleans())
def test_it_says_the_same_again(text: str, lines: bool) -> None:
    assert printable(printable(text, lines), lines) == printable(text, lines)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters=SHAPELESS)))
def test_letters_figures_punctuation_symbols_and_spaces_stay(text: str) -> None:
    assert printable(text) == text


@given(texts)
def test_marks_do_not_pile_up(text: str) -> None:
    run = longest = 0
    for c in printable(text):
        run = run + 1 if unicodedata.category(c) in ("Mn", "Me") else 0
        longest = max(longest, run)
    assert longest <= _MAX_MARKS


@pytest.mark.parametrize(
    "text",
    ["plain", "naïve – µs × 12 %", "résumé", "re\u0301sume\u0301", "日本語", "葛\U000e0100城市", "שָׁלוֹם", "مرحبا", "नमस्ते", "ที่นี่",
     "tiếng Việt", "👩‍💻 👩🏽‍🚀 ❤️‍🔥 🏳️‍🌈 👨‍👩‍👧‍👦 1️⃣ 🇩🇪", "C:\\new", "\u00a0"],
)  # fmt: skip
def test_people_s_own_words_stay(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CLIPBOARD, r"\x1b]52;c;ZXZpbA==\x07"),
        (CLEAR + C1 + "\x7f", r"\x1b[2J\x9b2J\x7f"),
        (BIDI + UNSEEN, r"\u202egnp.\u200b\ufeff\u2066"),
        ("\u2028\u2029\udcff\uffff\ufdd0", r"\u2028\u2029\udcff\uffff\ufdd0"),
        ("\U000e0041\U000e007f\U0010fffe", r"\U000e0041\U000e007f\U0010fffe"),
        ("a\u200db\u200cc\u00add", r"a\u200db\u200cc\xadd"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("a\ufe0f\ufe0fb", "a\ufe0f\\ufe0fb"),
    ],
)
def test_the_rest_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_stay_where_they_are_wanted() -> None:
    assert printable("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


@dataclass(frozen=True)
class Made:
    name: str
    parts: dict[str, tuple[str, float]]
    severity: Severity
    rows: list[object]


def test_everything_in_a_report_is_made_printable_and_the_harmless_is_not_copied() -> None:
    harmless = Made("a", {"b": ("c", 1.0)}, Severity.HIGH, [None, {"d": "é"}])

    assert printable_in(harmless) is harmless
    assert printable_in(Made(NAME, {NAME: (NAME, 1.0)}, Severity.HIGH, [{"d": NAME}])) == Made(
        printable(NAME),
        {printable(NAME): (printable(NAME), 1.0)},
        Severity.HIGH,
        [{"d": printable(NAME)}],
    )


def test_two_names_that_look_alike_afterwards_stay_two() -> None:
    made = printable_in({"\x1b": 1.0, "\\x1b": 2.0, "c": 3.0})

    assert list(made.values()) == [1.0, 2.0, 3.0]
    assert len(made) == 3 and "\\x1b" in made
