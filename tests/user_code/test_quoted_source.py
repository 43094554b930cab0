"""Lines of the program in HTML: only when asked for, only if unchanged, never in the run folder."""

import os
import re

import pytest
from user_code.made_stacks import BACKWARD, FETCHING, LOOP
from user_code.with_stacks import WORKER, run_with

from feedline.__main__ import main

TEXT = "def load(path):\n    x = read('AKIAABCDEFGHIJKLMNOP')\n    return [x for _ in range(9)]\n"
SEEN = [
    ("main", [*LOOP, *BACKWARD], 8),
    (WORKER, [*FETCHING, ("data.py", 2, "load")], 6),
    (WORKER, [*FETCHING, ("data.py", 3, "load")], 2),
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text(TEXT)
    os.utime(tmp_path / "data.py", (1, 1))
    return run_with(SEEN, tmp_path / "run")


def page(run, *options: str) -> str:
    file = run.parent / "page.html"
    assert main(["report", "-q", "-f", "-o", str(file), *options, str(run)]) == 0
    return file.read_text()


def test_lines_are_quoted_with_their_shares_and_tokens_masked(run):
    said = page(run, "--with-source")

    rows = re.findall(r'<tr class="source"><th scope="row"><code>(.*?)</code></th>(.*?)</tr>', said)
    assert [text for text, _ in rows] == [
        "x = read(&#39;***&#39;)",
        "return [x for _ in range(9)]",
    ]
    assert "data.py:2" in rows[0][1] and "75" in rows[0][1]
    assert "This page quotes lines of the program" in said


def test_no_line_is_quoted_unasked(run):
    assert "range(9)" not in page(run)
    assert main(["report", "-q", str(run)]) == 0
    assert not any(b"range(9)" in file.read_bytes() for file in run.rglob("*") if file.is_file())


def test_no_line_of_a_file_that_was_changed_since_is_quoted(run):
    file = run.parent / "data.py"
    file.write_text(TEXT.replace("range(9)", "range(8)"))
    os.utime(file, (2, 2))

    assert "range(" not in page(run, "--with-source")


@pytest.mark.parametrize("options", [(), ("-o", "run/x.html"), ("-o", "x.json"), ("--html",)])
def test_source_goes_into_no_other_file(options, run, capsys):
    assert main(["report", "-q", "--with-source", *options, str(run)]) == 2
    assert "--with-source" in capsys.readouterr().err
    assert not list(run.glob("*.html"))
