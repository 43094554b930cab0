"""Runs in which nothing was recorded."""

import os
from pathlib import Path

from feedline.profiler.files.own_folders import LIST_NAME
from feedline.profiler.store.layout import SEGMENTS, main_segment, rank_folder
from feedline.profiler.store.processes import PROCESSES_FILE
from feedline.profiler.store.segment import RECORDS_AT


def is_empty(run: Path) -> bool:
    """Whether rank 0 has ended without a record, and no other process recorded into the run."""
    rank = rank_folder(run, 0)
    main = main_segment(rank)
    try:
        alone = set(os.listdir(run)) <= {LIST_NAME, rank.name, PROCESSES_FILE} and set(os.listdir(rank / SEGMENTS)) <= {
            LIST_NAME,
            main.name,
        }
        return alone and main.stat().st_size <= RECORDS_AT
    except OSError:
        return False
