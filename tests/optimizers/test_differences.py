"""The page about other libraries is what they do."""

from pathlib import Path

from optimizers.differences import ENTRIES, SMALL, WARM_UP, page
from optimizers.problems import made

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "optimizer-differences.md"


def test_the_page_says_what_the_libraries_do_now():
    assert PAGE.read_text() == page()


def test_ours_do_not_differ():
    for entries in ENTRIES.values():
        assert entries[0].library == "feedline"
        assert entries[0].furthest([made(6, 4, seed=1)], WARM_UP, decay=0.1) < SMALL
