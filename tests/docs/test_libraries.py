"""docs/recording.md lists the libraries that are timed inside a sample."""

from docs.pages import ROOT
from report_docs import publish

PATH = ROOT / "docs" / "recording.md"


def test_the_list_of_libraries_is_that_of_the_code():
    text = PATH.read_text(encoding="utf-8")

    assert text == publish.renew_between(text, publish.libraries()), "renew it: scripts/docs-fields"


def test_a_library_that_is_missing_is_noticed():
    text = PATH.read_text(encoding="utf-8").replace("| h5py |", "| h4py |")

    assert text != publish.renew_between(text, publish.libraries())
