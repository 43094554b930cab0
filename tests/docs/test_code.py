"""The Python in the documentation compiles, names what exists, and, where that is cheap, runs."""

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from docs.pages import PATHS, ROOT, Block, page
from report.made_up import report as made_up_report

import feedline
from feedline.__main__ import main
from feedline.analysis import report as reports
from feedline.analysis.measure.model import Gauge

BLOCKS = [
    (path, block)
    for path in PATHS
    for block in page(path).blocks()
    if block.kind in ("python", "py")
]


def named(path: Path, block: Block) -> str:
    return f"{path.relative_to(ROOT)}:{block.line}"


def missing(text: str) -> Iterator[str]:
    """Names of feedline that a program uses and that are not there."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "feedline"
        ):
            module = importlib.import_module(node.module)
            yield from (
                f"{node.module}.{alias.name}"
                for alias in node.names
                if not hasattr(module, alias.name)
            )
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "feedline"
        ):
            if node.attr not in feedline.__all__:
                yield f"feedline.{node.attr}"


def block_of(name: str, beginning: str) -> str:
    return next(
        block.text
        for path, block in BLOCKS
        if path.name == name and block.text.startswith(beginning)
    )


@pytest.mark.parametrize(("path", "block"), BLOCKS, ids=[named(*both) for both in BLOCKS])
def test_python_compiles_and_names_what_exists(path, block):
    compile(block.text, named(path, block), "exec")

    assert list(missing(block.text)) == []


def test_a_name_that_does_not_exist_is_found():
    text = (
        "import feedline\nfeedline.recrd('x')\nfeedline.record('x')\nfrom "
        "feedline.profiler.errors import Nothing, FeedlineError"
    )

    assert sorted(missing(text)) == ["feedline.profiler.errors.Nothing", "feedline.recrd"]


@pytest.mark.long
def test_the_profiler_writes_a_trace_that_ingest_reads(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(block_of("existing-trace.md", "import torch"))
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)

    trace = next(Path("traces").glob("*.json.gz"))
    assert (
        main(["ingest", str(trace), "-q", "--processes", "1", "-o", "out", "--json", "report.json"])
        == 0
    )
    assert json.loads(Path("report.json").read_text())["throughput"]["steps"] == 3


@pytest.mark.parametrize("healthy", [True, False])
def test_the_gate_for_ci_fails_what_it_should(healthy, tmp_path):
    gate, report, file = tmp_path / "gate.py", made_up_report(), tmp_path / "report.json"
    gate.write_text(block_of("ci.md", '"""gate.py'))
    loaders = [
        replace(loader, settings={"num_workers": 2, "persistent_workers": healthy})
        for loader in report.loaders
    ]
    used = [1e9, 2e9 if healthy else 5e9]
    memory = Gauge("memory/processes", "B", 2e9, min(used), max(used), [0.0, 1.0], used)
    reports.write(replace(report, loaders=loaders, gauges=[memory]), file)
    done = subprocess.run([sys.executable, str(gate), str(file)], capture_output=True, text=True)

    said = done.stderr.splitlines()
    if healthy:
        assert (done.returncode, said) == (0, [])
    else:
        assert done.returncode == 1 and said[0] == "the training needs 5.0 GB of memory"
        assert said[1:] == [
            f"{loader.name} restarts its workers in each epoch" for loader in loaders
        ]


def test_the_throughputs_on_the_page_about_scaling_give_a_prediction(capsys):
    lines = [
        line
        for line in page(ROOT / "docs" / "scaling.md").command_lines()
        if line[:3] == ["feedline", "scale", "--throughput"]
    ]

    assert main(lines[0][1:]) == 0
    assert "8 ranks" in capsys.readouterr().out
