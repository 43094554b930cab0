"""The hooks' own tests, as `feedline env` runs them."""

import numpy
import pytest

from feedline.profiler.session import selftest
from feedline.profiler.taps.operations import LIBRARIES
from feedline.profiler.taps.operations.library import UNTAPPED, Library

TAPPED = [library for library in LIBRARIES if library not in UNTAPPED]


@pytest.mark.parametrize("library", TAPPED, ids=[library.name for library in TAPPED])
def test_the_hook_of_an_installed_library_works(taps, library):
    if not selftest._installed(library.module):
        pytest.skip(f"{library.name} is not installed")
    result = selftest._try_library(library, taps)

    if "image operators do not load" in result.message:
        pytest.skip(f"{result.message}; scripts/python-matrix runs it with a full torchvision")
    assert result.works, result.message


@pytest.mark.parametrize("library", TAPPED, ids=[library.name for library in TAPPED])
def test_a_selftest_fails_when_its_hook_is_not_attached(library):
    if not selftest._installed(library.module):
        pytest.skip(f"{library.name} is not installed")
    selftest._try_library(library, {})  # imports it

    assert library.selftest()


def test_all_selftests_run_by_themselves_and_leave_nothing_behind():
    before = numpy.load

    results = {result.name: result for result in selftest._library_selftests()}

    assert set(results) == {
        library.name for library in TAPPED if selftest._installed(library.module)
    }
    assert [
        result
        for result in results.values()
        if not (result.works or "image operators do not load" in result.message)
    ] == []
    assert numpy.load is before


def test_a_library_that_cannot_be_imported_is_said_to_be_so(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('no such operator')")
    monkeypatch.syspath_prepend(tmp_path)
    library = Library("broken", "broken_library", "", lambda tap, module: None, lambda: None)

    assert selftest._try_library(library, {})[:3] == (
        "broken",
        False,
        "cannot be imported: RuntimeError: no such operator",
    )
