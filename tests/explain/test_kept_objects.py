"""The line that keeps something of each sample or step, as the program's source tells it."""

import os
from pathlib import Path

import pytest

from feedline.analysis.measure.kept_objects import adding_line, caching_line
from feedline.analysis.measure.source_lines import SourceLines

DATA = """
class Rows(Dataset):
    def __init__(self):
        self.seen = {}
        self.seen[0] = 1

    def __getitem__(self, index):
        row = self.read(index)
        KEEP
        return row

    def read(self, index):
        rows = []
        rows.append(index)
        return rows
"""
LOOP = """
def train(loader):
    history = []
    for batch in loader:
        loss = model(batch)
        loss.backward()
        KEEP

def other():
    names = []
    for name in range(3):
        names.append(name)
"""


def told(tmp_path: Path, text: str, keep: str, line, *place: str) -> str:
    (tmp_path / "a.py").write_text(text.replace("KEEP", keep))
    os.utime(tmp_path / "a.py", (1e9, 1e9))
    found = line(*place, SourceLines(2e9, [tmp_path]))
    return found.rpartition("/")[2]


@pytest.mark.parametrize(
    ("keep", "line"),
    [
        ("self.seen[index] = row", "a.py:9"),
        ("self.seen.append(row)", "a.py:9"),
        ("pass", ""),
        ("self.seen[index] = row; self.x.add(row)", "a.py:9"),
    ],
)
def test_the_line_of_a_dataset_that_keeps_samples(keep, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert told(tmp_path, DATA, keep, caching_line, "Rows.__getitem__ (a.py:7)") == line


@pytest.mark.parametrize(
    ("above", "line"),
    [
        ("@functools.lru_cache(maxsize=None)\ndef load(i): ...\n", "a.py:1"),
        ("load = functools.lru_cache(maxsize=4)(read)\n", ""),
        ("load = lru_cache(maxsize=None)(read)\n", "a.py:1"),
        ("@functools.cache\ndef load(i): ...\n@cache\ndef more(i): ...\n", ""),
    ],
)
def test_a_cache_without_a_limit_is_the_line(above, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    at = 7 + above.count("\n")

    assert (
        told(tmp_path, above + DATA, "pass", caching_line, f"Rows.__getitem__ (a.py:{at})") == line
    )


@pytest.mark.parametrize(
    ("keep", "line"),
    [
        ("history.append(loss.item())", "a.py:7"),
        ("pass", ""),
        ("history.append(1)\n        other[0] = 2", ""),
        ("parts = []\n        parts.append(loss)", ""),
        ("bar.update(1)", ""),
    ],
)
def test_the_line_of_a_loop_that_keeps_something_of_each_step(keep, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert told(tmp_path, LOOP, keep, adding_line, "a.py", "train") == line


def test_a_file_that_has_changed_has_no_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(LOOP)

    assert adding_line("a.py", "train", SourceLines(1e9, [tmp_path])) == ""
