"""What torch keeps of its own compilations: which function, how often, and what had changed."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, torch
from feedline.profiler.taps.recompiled import compiled

assert compiled() == {}

def by_length(x):
    return (x * 2).sum()

def by_number(x, scale):
    return (x * scale).sum()

def once(x):
    return x.sum()

def by_secret(x, word):
    return x.sum() if word == "hunter2" else x.mean()

compile = lambda function: torch.compile(function, backend="eager", dynamic=False)
lengths, numbers, single, secret = map(compile, (by_length, by_number, once, by_secret))
for n in range(3, 15):
    lengths(torch.zeros(n))
for n in range(4):
    numbers(torch.zeros(2), n)
    single(torch.zeros(2))
for word in ("hunter1", "hunter2"):
    secret(torch.zeros(2), word)
print(json.dumps(compiled()))
"""


RATE = """
import json, torch
from feedline.profiler.taps.recompiled import compiled

weight = torch.nn.Parameter(torch.zeros(2))
optimizer = torch.optim.SGD([weight], lr=1e-5)

def update():
    optimizer.step()

update = torch.compile(update, backend="eager")
for step in range(4):
    weight.grad = torch.ones(2)
    update()
    optimizer.param_groups[0]["lr"] += 1e-5
print(json.dumps(compiled()))
"""


@pytest.mark.long
def test_a_rate_that_an_optimizer_has_in_its_options_is_named(tmp_path):
    (tmp_path / "train.py").write_text(RATE)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    causes = [cause for one in json.loads(done.stdout)["compiled"] for cause in one["causes"]]
    (rates,) = [cause for cause in causes if cause["name"] == "lr"]
    assert rates["kind"] == "number" and 1e-5 in rates["values"]


def test_functions_that_were_compiled_again_are_described_without_texts(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    functions = {each["function"]: each for each in json.loads(done.stdout)["compiled"]}
    lengths, numbers = functions["by_length"], functions["by_number"]
    assert lengths == {
        "function": "by_length",
        "place": "train.py:7",
        "times": 8,
        "gave_up": True,
        "causes": [
            {"kind": "size", "name": "x", "values": [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]}
        ],
    }
    assert numbers["times"] == 4 and not numbers["gave_up"]
    assert numbers["causes"] == [{"kind": "number", "name": "scale", "values": [0.0, 1.0, 2.0]}]
    assert "once" not in functions
    assert functions["by_secret"]["causes"] == [{"kind": "other", "name": "", "values": []}]
    assert "hunter" not in done.stdout


BREAKS = """
import json, torch
from feedline.profiler.taps.recompiled import compiled

def breaks(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    word = "hunter2"
    print(word, file=open("/dev/null", "w"))
    return y * y.mean().item()

function = torch.compile(breaks, backend="eager")
function(torch.ones(4))
print(json.dumps(compiled()))
"""


@pytest.mark.long
def test_lines_at_which_graphs_end_are_told_with_torchs_reason(tmp_path):
    (tmp_path / "train.py").write_text(BREAKS)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    told = json.loads(done.stdout)["graph_breaks"]

    reasons = {each["place"]: each["reason"] for each in told}
    assert reasons["train.py:7"] == "Data-dependent branching"
    assert "item()" in reasons["train.py:11"]
    assert {each["function"].removeprefix("torch_dynamo_resume_in_") for each in told} >= {"breaks"}
    assert "hunter" not in done.stdout and all(each["times"] >= 1 for each in told)
