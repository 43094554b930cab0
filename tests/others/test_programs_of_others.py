"""feedline counts as programs of others do, and says nothing of them that timers made by hand
contradict.

PROGRAMS_OF_OTHERS names a folder with checkouts, as OWNER/NAME; there is no copy of the programs
here. With it, scripts/test runs the quick ones, and scripts/test-long the others.
"""

import os
from pathlib import Path

import pytest
from programs_of_others.bench import LIMIT_S, Bench
from programs_of_others.judge import FALSE
from programs_of_others.manifest import PROGRAMS, QUICK
from programs_of_others.table import row

FOLDER = Path(os.environ.get("PROGRAMS_OF_OTHERS") or os.devnull)

pytestmark = [
    pytest.mark.timeout(2 * LIMIT_S + 100),
    pytest.mark.skipif(
        not FOLDER.is_dir(), reason="PROGRAMS_OF_OTHERS names no folder with checkouts"
    ),
]


def parameters(quick):
    """All of them, or an only one to be skipped."""
    chosen = [
        pytest.param(program, id=program.name)
        for program in PROGRAMS
        if (program.name in QUICK) is quick
    ]
    return chosen if FOLDER.is_dir() else chosen[:1]


def check(program, folder):
    if missing := program.missing(FOLDER):
        pytest.skip(missing)

    measured = Bench(folder, FOLDER).run(program)

    assert not measured.problem
    assert measured.exact, row(measured)
    assert measured.verdict != FALSE, f"{row(measured)}\n{measured.main.verdict}"


@pytest.mark.parametrize("program", parameters(quick=True))
def test_a_quick_one_is_counted_exactly_and_told_nothing_false(program, tmp_path):
    check(program, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("program", parameters(quick=False))
def test_one_is_counted_exactly_and_told_nothing_false(program, tmp_path):
    check(program, tmp_path)
