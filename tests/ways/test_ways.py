"""However a training is started, feedline sees all of its processes, and changes none.
docs/ways-to-start.md lists the ways.
"""

import os
from pathlib import Path

import pytest
from ways.bench import LIMIT_S, Bench, differences
from ways.page import row, slug
from ways.table import WAYS

#: A folder for the rows of the page (tests/ways/page.py).
ROWS = os.environ.get("WAYS_ROWS")


def parameter(way):
    return pytest.param(way, id=way.name, marks=[] if way.quick else [pytest.mark.long])


@pytest.mark.timeout(2 * LIMIT_S + 100)
@pytest.mark.parametrize("way", [parameter(way) for way in WAYS])
def test_every_rank_of_every_training_is_seen(way, tmp_path, warm_python):
    if way.missing:
        pytest.skip(f"not installed: {', '.join(way.missing)}")

    both = Bench(tmp_path, warm_python).run(way)

    if ROWS:
        (Path(ROWS) / slug(way)).write_text(row(way, both))
    found = differences(way, both)
    assert not found, "\n\n".join([*found, both.feedline.err[-3000:]])
