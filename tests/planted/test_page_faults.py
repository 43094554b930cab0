"""A real training on large photographs, with malloc as it is and with the variables that
``page_faults`` names.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import bench, files
from needs import GLIBC

from feedline.analysis.explain.reports_of_run import recorded_report, training_input
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.rules.input import page_faults
from feedline.profiler.store.trainings import open_run

NAMES = "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"
TRAINING = bench.PROGRAMS / "images.py"


def recorded(folder: Path, photos: Path, **environment: str) -> RuleInputs:
    words = [TRAINING, photos, "--size", "1024", "--steps", "60", "--workers", "2"]
    subprocess.run(
        [sys.executable, "-m", "feedline", "run", "-q", "-o", folder, *words],
        env={**os.environ, **environment},
        check=True,
    )
    found = training_input(open_run(folder))
    assert found is not None
    return found.facts


@pytest.mark.long
@pytest.mark.quiet
@GLIBC
def test_the_variables_that_it_names_end_the_page_faults(tmp_path, made_once, monkeypatch):
    photos = files.of("huge", made_once("huge_files", lambda folder: files.of("huge", folder)))
    before = recorded(tmp_path / "before", photos)
    with monkeypatch.context() as patched:
        patched.setattr(
            page_faults, "_MIN_SHARE", 0.05
        )  # on some processors, these faults take 14 % of a sample's CPU time
        found = recorded_report(open_run(tmp_path / "before")).findings
        (finding,) = (one for one in found if one.rule_id == "page_faults")

    assert tuple(finding.environment) == NAMES
    assert before.glibc >= (2, 17) and before.traffic.minor_faults * 4096 > 3e6

    after = recorded(tmp_path / "after", photos, **finding.environment)

    assert after.traffic.minor_faults < before.traffic.minor_faults / 2, (
        "what is left: batches in new shared memory"
    )
    # what a fault takes differs, from one run to the next
    assert after.traffic.system_s < 0.75 * before.traffic.system_s
    assert "page_faults" not in [
        one.rule_id for one in recorded_report(open_run(tmp_path / "after")).findings
    ]
