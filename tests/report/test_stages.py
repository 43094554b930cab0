"""The one table of stages, and what is said of them elsewhere."""

import re
from pathlib import Path

from feedline.analysis.measure.stages import (
    INPUT_STAGES,
    MAKING_STAGES,
    SAMPLE_STAGES,
    STAGES,
    STEP_STAGES,
)

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"


def test_every_stage_of_a_step_is_explained_and_no_other():
    table = PAGE.read_text().partition("## What a stage is")[2].partition("\n## ")[0]
    named = {
        name
        for line in table.splitlines()
        if line.startswith("| ")
        for name in re.findall(r"`(\w+)`", line.split(" | ")[0])
    }

    assert named == set(STEP_STAGES) - {"other"}


def test_names_and_records_occur_once_and_other_is_the_last():
    assert len({spec.name for spec in STAGES}) == len(STAGES)
    records = [spec.record for spec in STAGES if spec.record is not None]
    assert len(set(records)) == len(records) and STEP_STAGES[-1] == "other"


def test_making_a_batch_is_input_whether_workers_do_it_or_the_main_process():
    assert set(MAKING_STAGES) < set(INPUT_STAGES) and set(SAMPLE_STAGES) - set(MAKING_STAGES) == {
        "transport"
    }
