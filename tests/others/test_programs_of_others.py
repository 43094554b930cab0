"""feedline counts as programs of others do, and says nothing of them that timers made by hand contradict.

PROGRAMS_OF_OTHERS names a folder with checkouts, as OWNER/NAME; there is no copy of the programs here. The quick ones are in scripts/test.
"""

import os
from pathlib import Path

import pytest
from programs_of_others.bench import LIMIT_S, Bench
from programs_of_others.judge import FALSE
from programs_of_others.manifest import PROGRAMS
from programs_of_others.table import row

FOLDER = os.environ.get("PROGRAMS_OF_OTHERS")
#: Programs that are here without a checkout run in any case.
HERE = [program for program in PROGRAMS if program.source.startswith("package:")]


def parameter(program):
    marks = [] if program.quick else [pytest.mark.long]
    if FOLDER is None and program not in HERE:
        marks.append(pytest.mark.skip(reason="PROGRAMS_OF_OTHERS names no folder with checkouts"))
    return pytest.param(program, id=program.name, marks=marks)


@pytest.mark.timeout(2 * LIMIT_S + 100)
@pytest.mark.parametrize("program", [parameter(program) for program in PROGRAMS])
def test_its_counts_are_exact_and_its_verdict_is_not_false(program, tmp_path):
    if missing := program.missing(Path(FOLDER) if FOLDER else None):
        pytest.skip(missing)

    measured = Bench(tmp_path, Path(FOLDER) if FOLDER else None).run(program)

    assert not measured.problem
    assert measured.exact, row(measured)
    assert measured.verdict != FALSE, f"{row(measured)}\n{measured.main.verdict}"
