"""Reports of the stored runs: no number moves, and a text that changes shows how."""

import gzip
import io
import json
import shutil
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden.pinned import Pinned
from golden.record import RUNS, STORED
from golden.visible import visible_text
from text.breath import long_sentences, of_report

from feedline.__main__ import main


@dataclass(frozen=True)
class Told:
    """What ``feedline report`` says of a run.

    Attributes:
        numbers: its JSON, with sums over its trace.
        terminal: the short report, then all of it.
        page: the text of its HTML; of several trainings, of each.
    """

    name: str
    numbers: dict[str, Any]
    terminal: str
    page: str


@pytest.fixture(scope="module", params=STORED)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    name, place = request.param, tmp_path_factory.mktemp("golden")
    shutil.copytree(RUNS / name, place / name)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as short:
        patch.chdir(place)
        assert main(["report", name, "--json", "report.json"]) == 0
        assert main(["report", name, "-q", "-o", "full.txt"]) == 0
    numbers = json.loads((place / "report.json").read_text())
    numbers["trace"] = {
        str(path.parent.relative_to(place)): sums(path)
        for path in sorted(place.rglob("trace.json.gz"))
    }
    pages = [visible_text(path.read_text()) for path in sorted(place.rglob("report.html"))]
    return Told(
        name, numbers, f"{short.getvalue()}\n{(place / 'full.txt').read_text()}", "\n".join(pages)
    )


def sums(trace: Path) -> dict[str, dict[str, float]]:
    """Of each thread of a trace for Perfetto, how many events of each kind it has, and how long
    they take together, us.
    """
    events: Counter[str] = Counter()
    length: Counter[str] = Counter()
    for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]:
        kind = f"{event['pid']}/{event.get('tid', '')} {event['ph']}"
        events[kind] += 1
        length[kind] += event.get("dur", 0)
    return {kind: {"events": events[kind], "us": length[kind]} for kind in sorted(events)}


def test_no_number_of_a_report_moves(told: Told, pinned: Pinned) -> None:
    pinned.numbers(told.name, told.numbers)


def test_the_terminal_reads_as_it_did(told: Told, pinned: Pinned) -> None:
    pinned.text(f"{told.name}.terminal", told.terminal)


def test_each_finding_can_be_read_in_one_breath(told: Told) -> None:
    assert not [problem for one in of_report(told.numbers) for problem in long_sentences(one)]


def test_all_of_the_report_names_every_stage_operation_and_loader(told: Told) -> None:
    text = "".join(told.terminal.split())  # a long name is folded

    assert [name for name in named(told.numbers) if "".join(name.split()) not in text] == []


def named(numbers: Any) -> set[str]:
    """Names in a report, or in those of several trainings: stages, also the program's own,
    operations in samples, and loaders.
    """
    if isinstance(numbers, list):
        return set().union(*map(named, numbers))
    if not isinstance(numbers, dict):
        return set()
    found = set().union(*map(named, numbers.values()))
    if "operations" in numbers:
        found |= {operation["name"] for operation in numbers["operations"]}
    if "verdict" in numbers and numbers.get("step"):
        found |= set(numbers["step"]["stages"]) | {loader["name"] for loader in numbers["loaders"]}
    return found


def test_the_page_reads_as_it_did(told: Told, pinned: Pinned) -> None:
    pinned.text(f"{told.name}.html", told.page)
