"""docs/architecture.md names the modules of `feedline run` in the order in which they are entered,
and not too many of them.
"""

import ast
import json
import re
import subprocess
import sys
from functools import cache

import pytest
from docs.pages import ROOT, page

MOST = 25
MODULE = re.compile(r"`((?:feedline|profiler|analysis|pipelines|convergence)/[\w/]+(?:\.py|/))`")
#: Where the report's process begins; what is before it happens in the training's, or in its
#: workers.
FIRST_OF_REPORT = 8
TO_ADD = r"(^|/|_)my_?[a-z]"  # in names of files that somebody is to add
#: Names in the code of a page that are not to be found: those that somebody is to add, and examples.
MADE_UP = re.compile(r"(test_)?my_\w+|(test_)?mylib_?|torchaudio_|advice_of_|sample_rate")
UNDERSCORED = re.compile(r"(?<![\w$])(?=\w*[^\W_])\w*_\w*")
OF_WORKERS = ("profiler/taps/worker.py", "profiler/taps/fetch.py")

TRAINING = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(64, 4), batch_size=4):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
#: Runs a command and writes down which files of the repository were entered, in that order. By
#: sys.setprofile: the recorder uses settrace.
WALK = """
import json, subprocess, sys
subprocess.run = lambda *_, **__: None  # the report at the end of a run: it is walked apart
root, to, *words = sys.argv[1:]
seen = {}
def enter(frame, event, _):
    path = frame.f_code.co_filename
    own = frame.f_code.co_flags & 1 and frame.f_code.co_name[0] != "<"  # not the body of a module or class, nor a comprehension in one
    if event == "call" and own and path.startswith(root):
        seen.setdefault(path[len(root) + 1 :], None)
sys.setprofile(enter)
try:
    from feedline.__main__ import main
    main(words)
finally:
    sys.setprofile(None)
    with open(to, "w") as file:
        json.dump(list(seen), file)
"""


def steps() -> list[list[str]]:
    """Modules and folders that each step names."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("in ten steps")[1].split("\n## ")[0]
    return [MODULE.findall(step) for step in re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]]


def test_there_are_ten_steps_and_few_modules():
    named = {module for step in steps() for module in step if module.endswith(".py")}

    assert len(steps()) == 10
    assert len(named) <= MOST


@pytest.mark.parametrize("name", ["architecture.md", "contributing.md"])
def test_every_file_that_is_named_exists(name):
    named = {
        span
        for span in page(ROOT / "docs" / name).spans()
        if re.fullmatch(r"[\w.]+(/[\w.]+)+/?", span)
    }

    assert len(named) > 20
    assert (
        sorted(span for span in named if not re.search(TO_ADD, span) and not (ROOT / span).exists())
        == []
    )


@pytest.mark.parametrize("name", ["architecture.md", "contributing.md"])
def test_every_name_with_an_underscore_exists(name):
    named = {
        word
        for span in page(ROOT / "docs" / name).spans()
        for word in UNDERSCORED.findall(span)
        if not MADE_UP.fullmatch(word)
    }

    assert len(named) > 20
    assert sorted(named - names_in_the_repository()) == []


@cache
def names_in_the_repository() -> set[str]:
    """What its code defines or mentions, and its files and folders without their ends."""
    found: set[str] = set()
    for folder in ("feedline", "profiler", "analysis", "pipelines", "convergence", "tests"):
        for path in (ROOT / folder).rglob("*"):
            found.add(path.name.partition(".")[0])
            if path.suffix == ".py":
                for node in ast.walk(ast.parse(path.read_text())):
                    known = (getattr(node, field, None) for field in ("id", "attr", "name", "arg"))
                    found.update(word for word in known if isinstance(word, str))
    return found | {path.stem for path in (ROOT / "benchmarks").glob("*.py")}


@pytest.mark.long
def test_a_run_enters_them_in_this_order(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    for name, words in {
        "run": ["run", "-q", "-o", "run", "train.py"],
        "report": ["report", "run", "--finish"],
    }.items():
        command = [sys.executable, "-c", WALK, str(ROOT), str(tmp_path / f"{name}.json"), *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    for name, wanted in {
        "run": steps()[: FIRST_OF_REPORT - 1],
        "report": steps()[FIRST_OF_REPORT - 1 :],
    }.items():
        entered = json.loads((tmp_path / f"{name}.json").read_text())
        order = {module: number for number, module in enumerate(entered)}
        named = [
            [module for module in step if module.endswith(".py") and module not in OF_WORKERS]
            for step in wanted
        ]

        assert [module for step in named for module in step if module not in order] == []
        firsts = [[order[module] for module in step] for step in named]
        assert all(max(before) < min(after) for before, after in zip(firsts, firsts[1:])), [
            sorted(zip(a, b)) for a, b in zip(firsts, named)
        ]
