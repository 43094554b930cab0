"""The line that adds to what outlives a step or a sample, from source."""

import pytest

from feedline.analysis.measure.growing_lines import (
    line_of_hooks,
    line_of_loop,
    line_of_samples,
    line_of_updates,
    lines_of_loop,
)
from feedline.analysis.measure.source_lines import SourceLines, called_in

LOOP = """
def train(model, loader, history):
    kept, bounded, by_name, total = [], deque(maxlen=100), {{}}, 0.0
    for epoch in range(9):
        parts = []
        for step, (x, y) in enumerate(loader):
            fresh = []
            out = model(x)
            loss = cross_entropy(out, y)
            {line}
            fresh.append(out)
        {after}
"""


def of_loop(folder, line="pass", after="pass", each_step=True):
    (folder / "train.py").write_text(LOOP.format(line=line, after=after))
    place = line_of_loop("train.py:8", SourceLines(1e12, [folder]), each_step)
    return int(place.rpartition(":")[2] or 0)


@pytest.mark.parametrize(
    "line",
    [
        "kept.append(x)",
        "self.kept.append((step, x))",
        "kept += [x]",
        "by_name[step] = x",
        "history = torch.cat([history, out])",
        "kept = kept + [x]",
        "if step % 10 == 0: kept.extend(x)",
        "parts.append(x)",
    ],
)
def test_a_line_of_the_loop_that_adds_to_what_outlives_a_step(tmp_path, line):
    assert of_loop(tmp_path, line) == 10


@pytest.mark.parametrize(
    "line",
    [
        "pass",
        "bounded.append(x)",
        "kept.append(loss.item())",
        "kept.append((step, float(loss)))",
        "total += loss.item()",
        "kept.append(x); kept.clear()",
        "kept.append(x); kept = kept[-10:]",
        "kept.append(x); del kept[:-10]",
        "kept.append(x); kept.pop(0)",
        "x[0] = out",
        "kept.append(x)\n            history.append(y)",
    ],
)
def test_a_line_that_does_not_or_one_of_several(tmp_path, line):
    assert of_loop(tmp_path, line) == 0


def test_what_grows_with_epochs_is_outside_the_loop_of_steps(tmp_path):
    given = {"line": "parts.append(x)", "after": "kept.append(parts)"}

    assert of_loop(tmp_path, **given, each_step=False) == 12
    assert of_loop(tmp_path, **given) == 10


DATA = """
import functools

class Rows:
    def __init__(self):
        self.kept, self.seen = {{}}, []

    def __getitem__(self, index):
        row = self.read(index)
        {line}
        return row

    @functools.lru_cache({size})
    def read(self, index):
        return make(index)

    def never(self):
        self.seen.append(1j)

def collate(rows):
    {in_collate}
    return rows
"""


def of_samples(folder, line="pass", size="maxsize=8", in_collate="pass", collate="default"):
    source = DATA.format(line=line, size=size, in_collate=in_collate)
    (folder / "data.py").write_text(source)
    place = line_of_samples("data.py:8", collate, SourceLines(1e12, [folder]))
    return int(place.rpartition(":")[2] or 0)


def test_a_line_of_the_data_set_that_adds_to_what_outlives_a_sample(tmp_path):
    assert of_samples(tmp_path) == 0
    assert of_samples(tmp_path, "self.kept[index] = row") == 10
    assert of_samples(tmp_path, "self.seen.append(row)") == 10
    assert of_samples(tmp_path, "row[0] = index") == 0


def test_a_cache_without_a_limit_is_a_line_as_well(tmp_path):
    assert of_samples(tmp_path, size="maxsize=None") == 14
    assert of_samples(tmp_path, size="None") == 14


def test_collate_counts_where_the_loader_has_it(tmp_path):
    assert of_samples(tmp_path, in_collate="SEEN.append(rows)", collate="collate") == 21
    assert of_samples(tmp_path, in_collate="SEEN.append(rows)") == 0


@pytest.mark.parametrize("place", ["", "train.py", "gone.py:5"])
def test_without_source_no_line_is_told(place):
    source = SourceLines(1e12)

    assert line_of_loop(place, source) == "" and line_of_samples(place, "default", source) == ""


HOOKS = """
class Activity:
    def __init__(self, model):
        self.seen = []
        model.register_forward_hook(self.{name})

    def note(self, layer, inputs, output):
        self.seen.append(output)

    def share(self):
        {after}
"""


@pytest.mark.parametrize(
    ("name", "after", "line"),
    [("note", "return len(self.seen)", 8), ("note", "self.seen.clear()", 0), ("show", "pass", 0)],
)
def test_a_hook_that_adds_to_what_nothing_empties(tmp_path, name, after, line):
    (tmp_path / "net.py").write_text(HOOKS.format(name=name, after=after))

    place = line_of_hooks("net.py", SourceLines(1e12, [tmp_path]))

    assert int(place.rpartition(":")[2] or 0) == line


UPDATES = """from metrics import {made}

model = Model()
metric = {made}()
while True:
    for rows, labels in loader:
        guess = model(rows)
        {update}
    {after}
"""


@pytest.mark.parametrize(
    ("made", "update", "after", "line"),
    [
        ("Order", "metric.update(guess, labels)", "pass", 8),
        ("Order", "metric.update(target=labels)", "print(metric.compute())", 8),
        ("Order", "metric.update(guess, labels)", "metric.reset()", 0),
        ("Order", "metric.update(guess, labels)", "metric = Order()", 0),
        ("Order", "metric.update(model)", "pass", 0),
        ("Order", "metric.update(len(labels))", "pass", 0),
        ("Order", "metric.update(1)", "pass", 0),
        ("Order", "metric.show(guess)", "pass", 0),
    ],
)
def test_an_object_of_another_module_that_is_given_what_each_step_computes(
    tmp_path, made, update, after, line
):
    (tmp_path / "train.py").write_text(UPDATES.format(made=made, update=update, after=after))

    place = line_of_updates("train.py", SourceLines(1e12, [tmp_path]))

    assert int(place.rpartition(":")[2] or 0) == line


def test_an_object_of_the_programs_own_does_not_count(tmp_path):
    own = "class Order: ...\nmetric = Order()\nfor x in rows:\n    metric.update(x)\n"
    (tmp_path / "train.py").write_text(own)

    assert line_of_updates("train.py", SourceLines(1e12, [tmp_path])) == ""


def test_several_lines_are_all_told_in_order(tmp_path):
    both = LOOP.format(line="kept.append(x)\n            history.append(y)", after="pass")
    (tmp_path / "train.py").write_text(both)
    source = SourceLines(1e12, [tmp_path])

    assert lines_of_loop("train.py:8", source) == ["train.py:10", "train.py:11"]
    assert line_of_loop("train.py:8", source) == ""


@pytest.mark.parametrize(
    ("line", "called"),
    [
        ("left, _ = torch.linalg.svd(gradient)", "torch.linalg.svd"),
        ("self.write(x)", "self.write"),
        ("return torch.linalg.qr(x)", "torch.linalg.qr"),
        ("p.data = p.data - lr * m / (torch.sqrt(v) + eps)", ""),
        ("g = len(xs) * g @ g.T", ""),
        ("y = scale(slow(x))", ""),
        ("for p in reversed(params): pass", ""),
        ("handlers[0](x)", ""),
    ],
)
def test_only_a_statement_that_is_one_call_says_what_takes_its_time(line, called):
    assert called_in(f"def step(self):\n    {line}\n", 2) == called
