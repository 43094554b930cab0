"""``feedline report RUN -o FILE`` of several trainings: one file with the overview and the report
of each.
"""

import json
import os
import re
from pathlib import Path

import pytest
from report.browser import Browser

from feedline.__main__ import main

SWEEP = Path(__file__).parent / "programs" / "sweep.py"
PROCESSES = """
import os, torch
from torch.utils.data import DataLoader, TensorDataset

def train(batches):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(4 * batches, 4)), batch_size=4):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

pid = os.fork()
train(20 if pid else 30)
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module", params=["one after the other in one process", "in two processes"])
def several(request, tmp_path_factory, warm_python):
    """A folder with a run of several trainings, of which no report was written; and the steps of
    each.
    """
    folder = tmp_path_factory.mktemp("several")
    (folder / "processes.py").write_text(PROCESSES)
    program, steps = (
        (SWEEP, [20, 60]) if "one process" in request.param else ("processes.py", [20, 30])
    )
    done = warm_python.run(
        "-m",
        "feedline",
        "run",
        "-q",
        "-o",
        "run",
        program,
        folder=folder,
        environment={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for page in [*(folder / "run").rglob("report.*"), *(folder / "run").rglob("trace.json.gz")]:
        page.unlink()
    return folder, steps


def report(capsys, monkeypatch, folder, *options):
    """Exit code and what was said."""
    monkeypatch.chdir(folder)
    code = main(["report", "run", "-f", *options])
    said = capsys.readouterr()
    return code, (said.out + said.err).split("\n")[0]


def test_json_has_the_overview_and_each_report(several, capsys, monkeypatch):
    folder, steps = several
    assert report(capsys, monkeypatch, folder, "-o", "all.json", "--json", "also.json") == (
        0,
        "Written  all.json",
    )

    found = json.loads((folder / "all.json").read_text())
    assert (
        [row["steps"] for row in found["trainings"]]
        == [own["throughput"]["steps"] for own in found["reports"]]
        == steps
    )
    assert json.loads((folder / "also.json").read_text())["reports"] == found["reports"]
    assert not list((folder / "run").rglob("report.*"))


def test_a_file_elsewhere_names_no_folder_that_the_run_lies_in(
    several, capsys, monkeypatch, tmp_path
):
    folder, _ = several
    for name in ("shared.json", "shared.html"):
        assert report(capsys, monkeypatch, folder, "-o", str(tmp_path / name))[0] == 0
        assert folder.name not in (tmp_path / name).read_text()

    found = json.loads((tmp_path / "shared.json").read_text())
    for row in found["trainings"]:
        assert re.fullmatch(r"(parts/\d|training-\d)/report\.html", row["report"])


def test_text_has_the_overview_and_each_report(several, capsys, monkeypatch):
    folder, steps = several
    assert report(capsys, monkeypatch, folder, "-o", "all.txt") == (0, "Written  all.txt")

    overview, *texts = re.split(
        r"^=+\nTraining \S+\n", (folder / "all.txt").read_text(), flags=re.MULTILINE
    )
    assert (
        overview.startswith(f"run · {len(steps)} training runs") and "report.html" not in overview
    )
    assert [int(re.findall(r"^(\d+) updates", text, re.MULTILINE)[0]) for text in texts] == steps


def test_markdown_has_the_first_screen_of_each_report(several, capsys, monkeypatch):
    folder, steps = several
    assert report(capsys, monkeypatch, folder, "-o", "all.md") == (0, "Written  all.md")

    assert main(["report", "run", "--format", "markdown"]) == 0
    written = (folder / "all.md").read_text()
    assert capsys.readouterr().out == written
    assert f"run · {len(steps)} training runs" in written


def test_a_browser_shows_the_overview_with_a_link_to_each_report_in_the_same_page(
    several, capsys, monkeypatch, browser: Browser
):
    folder, steps = several
    assert report(capsys, monkeypatch, folder, "-o", "all.html") == (0, "Written  all.html")

    browser.driver.get((folder / "all.html").as_uri())
    links = browser.js(
        "return [...document.querySelectorAll('main table a')].map(link => "
        "link.getAttribute('href'))"
    )
    shown = []
    for frame in [
        browser.js("return document.querySelector(arguments[0] + ' iframe')", link)
        for link in links
    ]:
        browser.driver.switch_to.frame(frame)
        shown.append(browser.js("return document.querySelector('main').innerText"))
        browser.driver.switch_to.default_content()

    assert len(shown) == len(steps)
    assert [int(re.findall(r"Recorded\s+(\d+)\s+steps", text)[0]) for text in shown] == steps
    assert browser.complaints() == []


def test_each_training_can_be_named_and_has_a_page_that_the_overview_links_to(
    several, capsys, monkeypatch
):
    folder, steps = several
    assert report(capsys, monkeypatch, folder)[0] == 0

    links = re.findall(r'<a href="([^"]+)"', (folder / "run" / "report.html").read_text())
    assert len(links) == len(steps)
    for link, made in zip(links, steps, strict=True):
        page = folder / "run" / link
        assert json.loads(page.with_suffix(".json").read_text())["throughput"]["steps"] == made
        assert main(["report", str(page.parent), "-f", "-o", "one.json"]) == 0
        assert json.loads((folder / "one.json").read_text())["throughput"]["steps"] == made


def test_a_trace_is_that_of_one_process_and_the_error_names_them(several, capsys, monkeypatch):
    folder, _ = several
    code, said = report(capsys, monkeypatch, folder, "-o", "all.trace.json.gz")

    if not (folder / "run" / "training-1").exists():
        assert code == 0 and (folder / "all.trace.json.gz").exists()
        return
    assert (code, said) == (
        66,
        "feedline: run holds 2 training runs: name one of them, run/training-0 or run/training-1",
    )
    for name in ("training-0", "training-1"):
        assert main(["report", f"run/{name}", "-o", f"{name}.trace.json.gz"]) == 0
