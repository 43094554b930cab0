"""Outputs on the pages are put there by `scripts/docs --record`, and can be made again from what their page says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from docs.pages import ROOT

TEXT = """\
```console
$ feedline run -o runs/x train.py
```

<!-- output of `feedline report runs/x`, from "Mean" to "sum", from "Fix" to "Fix" -->
```text
old
```
"""
PRINTED = "x · 3 s\nMean step\nwait 1\nsum 2\nmore\n  Fix  do it\nGain 3\n"


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_outputs", ROOT / "scripts" / "docs_outputs.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


outputs = module()
PAGES = [outputs.Page(path, path.read_text()) for path in outputs.PAGES]
SHOWN = [(page, found) for page in PAGES for found in outputs.OUTPUT.findall(page.text)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without runs, where commands print ``PRINTED``."""
    monkeypatch.setattr(outputs, "ROOT", tmp_path)
    monkeypatch.setattr(outputs, "KEPT", tmp_path / "runs" / "docs")
    return tmp_path


def test_every_output_is_there_and_was_not_cut_out_of_another():
    empty = [f"{page.path.name}: {command}" for page, (_, command, _, text, _) in SHOWN if not text.strip()]

    assert SHOWN
    assert empty == []


def test_every_run_on_a_page_is_made_by_a_command_of_that_page():
    for page, (_, command, *_) in SHOWN:
        for run in outputs.RUN.findall(command):
            assert f"-o {run}" in command or page.makes(run)


def test_every_picture_is_made_by_a_command():
    asked = {(page.path.parent / name).resolve() for page in PAGES for _, name in outputs.PICTURE.findall(page.text)}
    drawn_by_hand = {ROOT / "docs" / "pictures" / "architecture.svg"}

    assert asked | drawn_by_hand == set((ROOT / "docs" / "pictures").iterdir())


def test_a_page_gets_the_lines_that_it_asks_for_and_the_run_is_made_first(folder, monkeypatch):
    done = []
    monkeypatch.setattr(outputs, "perform", lambda command, colors=False: done.append(command) or PRINTED)
    new = outputs.renewed(outputs.Page(folder / "page.md", TEXT))

    assert done == ["feedline run -o runs/x train.py", "feedline report runs/x"]
    assert new == TEXT.replace("old\n", "Mean step\nwait 1\nsum 2\n…\n  Fix  do it\n")


def test_what_cannot_be_run_here_stays_as_it_is_and_is_named(folder, capsys):
    page = outputs.Page(
        folder / "page.md", TEXT.replace("feedline run -o runs/x", "feedline ingest -o runs/x").replace("train.py", "no.gz")
    )

    assert outputs.renewed(page) == page.text
    assert "stays as it is" in capsys.readouterr().err


def test_a_terminal_is_drawn_with_fonts_of_the_reader(folder):
    picture = outputs.drawn("\x1b[1mbold\x1b[0m text", "feedline report runs/x")

    assert "bold" in picture and "feedline&#160;report&#160;runs/x" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
