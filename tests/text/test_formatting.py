"""How names and figures are written."""

import pytest

from feedline.analysis.text.formatting import called, value


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("load", "load()"),
        ("Parsed.__getitem__", "Parsed.__getitem__()"),
        ("lambda of line 97", "lambda of line 97"),
        ("lines 30 to 41", "lines 30 to 41"),
        ("<listcomp>", "<listcomp>"),
    ],
)
def test_only_what_has_a_name_gets_brackets(name: str, written: str) -> None:
    assert called(name) == written


@pytest.mark.parametrize(
    ("count", "unit", "written"),
    [
        (1, "workers", "1 worker"),
        (1, "batches", "1 batch"),
        (1, "CPUs", "1 CPU"),
        (1, "copies", "1 copy"),
        (1, "processes", "1 process"),
        (1, "samples", "1 sample"),
        (2, "shards", "2 shards"),
        (1.5, "CPUs", "1.50 CPUs"),
        (1, "samples/s", "1.00 samples/s"),
        (1, "s", "1.00 s"),
        (470, "", "470"),
    ],
)
def test_one_of_something_is_singular(count: float, unit: str, written: str) -> None:
    assert value(count, unit) == written
