"""What the program's source says of a line."""

import pytest

from feedline.analysis.measure.source_lines import with_class

SOURCE = """class Flights:
    def __getitem__(self, index):
        return Flight(index)


class Flight:
    def __init__(self, index):
        self.index = index

    def place(self):
        return self.index


def __getitem__(index):
    return index
"""


@pytest.mark.parametrize(
    ("line", "function", "named"),
    [
        (3, "__getitem__", "Flights.__getitem__"),
        (8, "__init__", "Flight.__init__"),
        (11, "place", "place"),  # its own name says enough
        (15, "__getitem__", "__getitem__"),
        (30, "__init__", "__init__"),  # the file has changed
    ],
)
def test_a_special_method_is_named_with_its_class(line, function, named):
    assert with_class(SOURCE, line, function) == named


def test_a_file_that_cannot_be_read_gives_no_class():
    assert with_class("", 3, "__getitem__") == "__getitem__"
    assert with_class("class Broken(:\n", 1, "__init__") == "__init__"
