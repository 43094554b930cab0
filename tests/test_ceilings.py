"""A file of ceilings."""

import pytest

from feedline.profiler.ceilings import CEILINGS_FILE, Ceiling, Ceilings
from feedline.profiler.errors import CeilingsDamaged, OutputError, SchemaTooNew

MEASURED = Ceilings(
    [Ceiling("read/cold", "read", 98.5, 90.0, 101.0, cpu_s=1e-4, settings={"cache": "cold"})],
    {"cpu": "x"},
    cores=2.0,
)


def test_what_is_written_is_read(tmp_path):
    MEASURED.write(tmp_path / CEILINGS_FILE)

    assert Ceilings.read(tmp_path / CEILINGS_FILE) == MEASURED
    assert [path.name for path in tmp_path.iterdir()] == [CEILINGS_FILE]


def test_several_are_joined_and_the_first_that_has_a_figure_gives_it():
    compared = Ceilings(
        [Ceiling("loader/a", "loader", 3.0)], {"cpu": "y"}, sample_bytes=7.0, cores=4.0, notes=["n"]
    )

    both = Ceilings.joined([MEASURED, compared])

    assert [one.name for one in both.ceilings] == ["read/cold", "loader/a"]
    assert (both.machine, both.cores, both.sample_bytes, both.peak_flops, both.notes) == (
        {"cpu": "x"},
        2.0,
        7.0,
        None,
        ["n"],
    )


@pytest.mark.parametrize("place", ["missing/c.json", "file/c.json", "folder"])
def test_a_place_that_cannot_be_written_is_an_output_error_and_nothing_is_left(place, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(OutputError, match="name another file"):
        MEASURED.write(tmp_path / place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


ONE = '{"schema_version": 1, "ceilings": '


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{}", '{"schema_version": 1}', ONE + "[3]}", ONE + "null}"]
)
def test_what_is_no_file_of_ceilings_says_how_to_make_one(text, tmp_path):
    if text is not None:
        (tmp_path / CEILINGS_FILE).write_text(text)

    with pytest.raises(CeilingsDamaged, match="feedline probe -o ceilings.json"):
        Ceilings.read(tmp_path / CEILINGS_FILE)


def test_a_newer_schema_is_refused(tmp_path):
    (tmp_path / CEILINGS_FILE).write_text('{"schema_version": 99, "ceilings": [], "more": 1}')

    with pytest.raises(SchemaTooNew, match="update feedline"):
        Ceilings.read(tmp_path / CEILINGS_FILE)
