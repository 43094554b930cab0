"""Outputs on the pages are put there by `scripts/docs --record`, can be made again from what their
page says, and are those of today.
"""

import html
import importlib.util
import io
import json
import re
import shlex
import shutil
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from docs.pages import ROOT
from PIL import Image

from feedline.__main__ import main

TEXT = """\
```console
$ python examples/photos.py data/x --count 3
$ feedline run -o runs/x train.py data/x
```

<!-- output of `feedline report runs/x`, from "Mean" to "sum", from "Fix" to "Fix" -->
```text
old
```
"""
PRINTED = "x · 3 s\nMean step\nwait 1\nsum 2\nmore\n  Fix  do it\nGain 3\n"
LARGEST = 200_000  # bytes of a kept run: the repository stays small


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_outputs", ROOT / "scripts" / "docs_outputs.py"
    )
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


outputs = module()
PAGES = [outputs.Page(path, path.read_text()) for path in outputs.PAGES]
SHOWN = [(page, found) for page in PAGES for found in outputs.OUTPUT.findall(page.text)]
KEPT = sorted(path.name for path in outputs.RECORDED.glob("*/"))
OF_KEPT = [
    (page, found)
    for page, found in SHOWN
    if found[1] in [f"feedline report runs/{name}" for name in KEPT]
]
#: Of other commands that only read kept runs.
READING = [
    (page, found)
    for page, found in SHOWN
    if (page, found) not in OF_KEPT
    and not outputs.made_by(found[1])
    and (runs := outputs.RUN.findall(found[1]))
    and {Path(run).name for run in runs} <= set(KEPT)
]
#: Kept run -> picture, of those that show one.
PICTURES = sorted(
    {
        (Path(command).name, (page.path.parent / name).resolve())
        for page in PAGES
        for command, name in outputs.PICTURE.findall(page.text)
        if command in [f"feedline report runs/{kept}" for kept in KEPT]
    }
)
#: What the gallery shows of each kept run.
GALLERY = {
    "demo": "too_few_workers",
    "decode-bound": "decode_bound",
    "cold-storage": "cold_storage",
    "ddp": "late_rank",
    "healthy": "compute_bound",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "outputs.Workshop":
    """A workshop with nothing in it, where commands print ``PRINTED`` and make nothing."""
    made = outputs.Workshop(tmp_path)
    made.done = []
    monkeypatch.setattr(
        made, "perform", lambda command, colors=False: made.done.append(command) or PRINTED
    )
    return made


def test_every_output_is_there_and_was_not_cut_out_of_another():
    empty = [
        f"{page.path.name}: {command}"
        for page, (_, command, _, text, _) in SHOWN
        if not text.strip()
    ]

    assert SHOWN
    assert empty == []


def test_every_run_on_a_page_is_made_by_a_command_of_that_page():
    for page in PAGES:
        for run in page.reads():
            assert page.makes(run)


def test_a_run_is_made_by_one_command_whichever_page_shows_it():
    makes = {(run, page.makes(run)) for page in PAGES for run in page.reads()}

    assert len(makes) == len(dict(makes)) > 5


def test_every_kept_run_is_shown_and_small():
    assert set(KEPT) <= {run.removeprefix("runs/") for page in PAGES for run in page.reads()}
    sizes = {
        name: sum(
            path.stat().st_size for path in (outputs.RECORDED / name).rglob("*") if path.is_file()
        )
        for name in KEPT
    }
    assert len(KEPT) >= 5 and max(sizes.values()) < LARGEST


def test_every_picture_is_made_by_a_command():
    asked = {
        (page.path.parent / name).resolve()
        for page in PAGES
        for _, name in outputs.PICTURE.findall(page.text)
    }
    drawn_by_hand = {ROOT / "docs" / "pictures" / "architecture.svg"}

    assert asked | drawn_by_hand == set((ROOT / "docs" / "pictures").iterdir())


@dataclass(frozen=True)
class Told:
    """What ``feedline report`` prints of a run, its findings and its verdict."""

    text: str
    findings: list[dict[str, Any]]
    verdict: str


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What feedline says today of each kept run."""
    place, told = tmp_path_factory.mktemp("recorded"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("COLUMNS", str(outputs.COLUMNS))
        for name in KEPT:
            shutil.copytree(outputs.RECORDED / name, place / "runs" / name)
            with redirect_stdout(io.StringIO()) as printed:
                assert main(["report", f"runs/{name}"]) == 0
            made = json.loads((place / "runs" / name / "report.json").read_text())
            told[name] = Told(printed.getvalue(), made["findings"], made["verdict"]["limit"])
    return told


@pytest.mark.parametrize(
    ("page", "shown"),
    OF_KEPT,
    ids=[f"{page.path.stem}-{found[1].split('/')[-1]}" for page, found in OF_KEPT],
)
def test_a_page_shows_what_feedline_says_today(page, shown, reports):
    _, command, parts, text, _ = shown

    assert outputs.cut(reports[Path(command).name].text, parts) == text, "scripts/docs --record"


@pytest.mark.parametrize(
    ("run", "picture"), PICTURES, ids=[picture.name for _, picture in PICTURES]
)
def test_a_picture_shows_what_feedline_says_today(run, picture, reports):
    if picture.suffix == ".svg":
        shown = f"$ feedline report runs/{run} {reports[run].text}"
        assert "".join(drawn_text(picture).split()) == "".join(shown.split()), (
            "scripts/docs --record"
        )
    else:
        assert Image.open(picture).text[outputs.SHOWS] == reports[run].verdict, (
            "scripts/docs --record"
        )


def drawn_text(picture: Path) -> str:
    """The text of a drawn terminal: the command above it, then line by line."""
    title, *drawn = re.findall(r"<text ([^>]*)>(.*?)</text>", picture.read_text())
    places = [
        tuple(float(re.search(rf'\b{axis}="([\d.]+)"', about)[1]) for axis in "yx")
        for about, _ in drawn
    ]
    lines = [text for _, (_, text) in sorted(zip(places, drawn, strict=True))]
    return html.unescape(" ".join([title[1], *lines]))


def test_the_demo_is_predicted_the_same_wherever_it_is_shown(reports):
    predicted = reports["demo"].findings[0]["predicted"]
    rates = f"{predicted['from']:.1f} -> {predicted['to']:.0f} samples/s ("
    texts = [page.text for page in PAGES] + [(ROOT / "README.md").read_text()]
    texts += [
        drawn_text(picture) if picture.suffix == ".svg" else Image.open(picture).text[outputs.SHOWS]
        for _, picture in PICTURES
    ]

    said = [
        " ".join(found.split())
        for text in texts
        for found in re.findall(re.escape(rates) + r"[^)]*\)", " ".join(text.split()))
    ]

    assert len(said) >= 3 and len(set(said)) == 1, said


@pytest.mark.parametrize(
    ("page", "shown"), READING, ids=[f"{page.path.stem}-{found[1]}" for page, found in READING]
)
def test_a_page_shows_what_a_command_says_today_of_kept_runs(
    page, shown, tmp_path, monkeypatch, capsys
):
    _, command, parts, text, _ = shown
    for run in outputs.RUN.findall(command):
        shutil.copytree(outputs.RECORDED / Path(run).name, tmp_path / run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(outputs.COLUMNS))

    assert main(shlex.split(command)[1:]) == 0

    assert without_times(outputs.cut(capsys.readouterr().out, parts)) == without_times(text), (
        "scripts/docs --record"
    )


def without_times(text: str) -> str:
    """A text without how long something took, which also decides where its lines end."""
    return re.sub(r" in [\d.]+ m?s,", " in ...,", " ".join(text.split()))


@pytest.mark.parametrize("name", GALLERY)
def test_a_report_in_the_gallery_says_what_the_gallery_shows_it_for(name, reports):
    assert reports[name].findings[0]["cause"] == GALLERY[name], (
        "scripts/docs --gallery, on a machine that does nothing else"
    )


def test_a_page_gets_the_lines_that_it_asks_for_and_what_they_need_is_made_first(shop):
    new = outputs.renew(outputs.Page(ROOT / "docs" / "page.md", TEXT), shop)

    assert shop.done == [
        "python examples/photos.py data/x --count 3",
        "feedline run -o runs/x train.py data/x",
        "feedline report runs/x",
    ]
    assert new == TEXT.replace("old\n", "Mean step\nwait 1\nsum 2\n…\n  Fix  do it\n")


def test_a_kept_run_is_read_and_not_made(shop):
    (shop.folder / "runs" / "x").mkdir(parents=True)
    shop.kept.add("runs/x")
    made = TEXT.replace(
        'feedline report runs/x`, from "Mean" to "sum", from "Fix" to "Fix"',
        "feedline run -o runs/x train.py data/x`",
    )

    outputs.renew(outputs.Page(ROOT / "docs" / "page.md", TEXT), shop)
    assert shop.done == ["feedline report runs/x"]
    assert outputs.renew(outputs.Page(ROOT / "docs" / "page.md", made), shop) == made
    assert shop.done == ["feedline report runs/x"]


def test_what_cannot_be_run_here_stays_as_it_is_and_is_named(tmp_path, capsys):
    text = TEXT.replace("feedline run -o runs/x", "feedline ingest -o runs/x").replace(
        "train.py data/x", "no.gz"
    )
    page = outputs.Page(ROOT / "docs" / "page.md", text)

    assert outputs.renew(page, outputs.Workshop(tmp_path)) == page.text
    assert "stays as it is" in capsys.readouterr().err


def test_a_terminal_is_drawn_with_fonts_of_the_reader():
    picture = outputs.draw("\x1b[1mbold\x1b[0m text", "feedline report runs/x")

    assert "bold" in picture and "feedline&#160;report&#160;runs/x" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace(
        "https://www.textualize.io", ""
    )


def test_predictions_comparisons_and_advice_on_the_pages_are_among_what_is_checked():
    commands = {found[1].split(" runs/")[0] for _, found in READING}

    assert commands == {
        "feedline whatif",
        "feedline tune",
        "feedline diff",
        "feedline converge advise",
    }
