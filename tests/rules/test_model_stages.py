"""What takes the model's own stages: stacks that are kept, forwards that are repeated, float64, and
loops in Python over a dimension of a tensor.
"""

import ast
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rules.made_up import made_up_facts
from user_code.made_stacks import BACKWARD, FORWARD, LOOP, PYTHON, TORCH, stack, training

from feedline.analysis.ledger.calls_per_step import PER_STEP
from feedline.analysis.ledger.finding import Change, CostKind, Refused, Severity
from feedline.analysis.measure.clues import OneByOne
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.step_model import Flop
from feedline.analysis.rules.loop import (
    anomaly_detection,
    call_in_model,
    double_precision,
    loop_in_model,
    recomputed_forward,
)

CALL = [*LOOP[:-1], ("train.py", 71, "main"), *FORWARD]
BACK = [*LOOP[:-1], ("train.py", 72, "main"), *BACKWARD]
KEPT = [
    *CALL,
    ("net.py", 12, "forward"),
    (TORCH + "fx/traceback.py", 503, "format_stack"),
    (PYTHON + "traceback.py", 227, "extract_stack"),
]
CHECKPOINT = (TORCH + "utils/checkpoint.py", 1657, "recompute_fn")
REPEATED = [*BACK, CHECKPOINT, *FORWARD, ("net.py", 12, "forward")]
SLOW = Flop(1e6, 2e6, 32.0, "float32")  # of a step whose forward takes 30 ms


def facts_of(*stacks, source=None, **given):
    facts = made_up_facts(stages={"copy": 0.0}, **given)
    return replace(facts, code=SampledCode.of([training(*stacks)], source))


def test_stacks_that_anomaly_detection_keeps_are_weighed_by_their_part_of_forward():
    finding = anomaly_detection._check(facts_of(stack(KEPT, 300)))

    assert finding.severity is Severity.HIGH
    assert finding.cost_s == pytest.approx(0.75 * 30e-3)  # 300 of 400 samples of 30 ms
    assert "set_detect_anomaly" in finding.fix


def test_a_training_that_keeps_no_stacks_is_not_said_to():
    assert (
        anomaly_detection._check(facts_of(stack([*CALL, ("net.py", 12, "forward")], 300))) is None
    )


def test_stacks_that_compiling_asks_for_are_no_anomaly_detection():
    compiling = [*CALL, (TORCH + "_dynamo/convert_frame.py", 300, "compile"), KEPT[-2]]

    assert anomaly_detection._check(facts_of(stack(compiling, 300), stack(KEPT, 300))) is None


def test_a_forward_that_the_backward_pass_repeats_is_weighed_and_predicted():
    facts = facts_of(stack(REPEATED, 100))

    finding, change = recomputed_forward._check(facts), recomputed_forward._change(facts)

    assert finding.cost_s == pytest.approx(20e-3)  # 100 of 300 samples of 60 ms
    assert isinstance(change, Change)
    assert change.stages["backward"].cpu == pytest.approx(2 / 3)
    assert finding.condition == "only if memory allows"


def test_a_forward_under_checkpoint_is_no_repetition():
    once = [*CALL, ("net.py", 20, "forward"), CHECKPOINT, *FORWARD, ("net.py", 12, "forward")]
    facts = facts_of(stack(once, 300))

    assert recomputed_forward._check(facts) is None
    assert isinstance(recomputed_forward._change(facts), Refused)


def test_what_is_repeated_on_a_gpu_is_not_judged_by_the_host():
    facts = replace(made_up_facts(), code=SampledCode.of([training(stack(REPEATED, 100))]))

    assert recomputed_forward._check(facts) is None


@pytest.mark.parametrize(("dtype", "told"), [("float64", True), ("float32", False), ("", False)])
def test_a_model_of_float64_is_told_of(dtype, told):
    facts = facts_of()
    facts = replace(facts, step=replace(facts.step, flop=replace(SLOW, computed_in=dtype)))

    finding = double_precision._check(facts)

    assert (finding is not None) is told
    if finding:
        assert finding.cost_s == pytest.approx(45e-3)  # half of 90 ms


def test_float64_that_a_gpu_computes_weighs_what_it_takes_there():
    facts = made_up_facts(stages={"forward": 1.0, "backward": 1.0, "other": 88.0})
    step = replace(facts.step, flop=replace(SLOW, computed_in="float64"))
    launched, timed = (replace(step, gpu_stages=of) for of in (None, {"backward": 0.06}))

    assert double_precision._check(replace(facts, step=launched)) is None
    assert double_precision._check(replace(facts, step=timed)).cost_s == pytest.approx(30e-3)


def test_a_slow_call_inside_the_model_is_named_with_its_line_and_predicted():
    logs = [*CALL, ("net.py", 12, "hook"), (PYTHON + "logging/__init__.py", 1489, "info")]
    facts = facts_of(stack(logs, 300))

    finding, change = call_in_model._check(facts), call_in_model._change(facts)
    left = next(call.left for call in PER_STEP if call.name == "logging")

    assert finding.place == "net.py:12" and finding.fix == "Log every 50 steps or so."
    assert call_in_model._free(facts).stages["forward"].cpu == pytest.approx(0.25)
    assert change.stages["forward"].cpu == pytest.approx(0.25 + 0.75 * left)
    assert finding.cost_s == pytest.approx(0.75 * 30e-3 * (1 - left))  # what the fix spares
    assert call_in_model._check(facts_of(stack([*CALL, ("net.py", 12, "hook")], 300))) is None
    norm = [*CALL, ("net.py", 12, "forward"), (TORCH + "functional.py", 1500, "norm")]
    assert call_in_model._check(facts_of(stack(norm, 300))) is None


RECURRENT = """
class Net(nn.Module):
    def forward(self, x):
        for now in x.unbind(1):
            state = torch.tanh(now + self.recall(state))
        return self.recall(state)
"""


@pytest.mark.parametrize(
    ("line", "of", "place"),
    [
        (5, ("get_parametrized",), "net.py:5"),
        (5, ("get_parametrized", "get_cached_parametrization"), None),
        (6, ("get_parametrized",), None),  # once in each pass, as it has to be
        (5, (), None),
    ],
)
def test_a_parametrized_weight_that_a_loop_computes_again_is_named(tmp_path, line, of, place):
    (tmp_path / "net.py").write_text(RECURRENT)
    os.utime(tmp_path / "net.py", (1e9, 1e9))
    inside = [(TORCH + "nn/utils/parametrize.py", 440, name) for name in of]
    module = (TORCH + "nn/modules/linear.py", 134, "forward")
    used = [*CALL, (str(tmp_path / "net.py"), line, "forward"), module, *inside]
    facts = facts_of(stack(used, 300), source=SourceLines(2e9))

    finding = call_in_model._check(facts)

    assert (finding is not None) is (place is not None)
    if finding:
        assert finding.place.endswith(place) and "parametrize.cached()" in finding.fix
        assert finding.cost_kind is CostKind.AT_LEAST


def _computed(tmp_path, text, line, *below):
    """The finding of a model in whose forward a line takes most."""
    (tmp_path / "net.py").write_text(text)
    os.utime(tmp_path / "net.py", (1e9, 1e9))
    used = [*CALL, (str(tmp_path / "net.py"), line, "forward"), *below]
    return call_in_model._check(facts_of(stack(used, 300), source=SourceLines(2e9)))


@pytest.mark.parametrize(
    ("called", "told"),
    [
        ("y, _ = self.look(x, x, x)", True),
        ("y = x + self.look(x, x, x)[0]", True),
        ("y, weights = self.look(x, x, x)", False),
        ("y, _ = self.look(x, x, x, need_weights=False)", False),
    ],
)
def test_attention_whose_weights_nobody_uses_is_named(tmp_path, called, told):
    text = f"class Net(nn.Module):\n    def forward(self, x):\n        {called}\n        return y\n"
    inside = (TORCH + "nn/functional.py", 6100, "multi_head_attention_forward")

    finding = _computed(tmp_path, text, 3, inside)

    assert (finding is not None) is told
    of_torch = (TORCH + "nn/modules/transformer.py", 970, "_sa_block")
    assert _computed(tmp_path, text, 3, of_torch, inside) is None, "it asks for no weights"
    if finding:
        assert finding.place.endswith("net.py:3") and "need_weights=False" in finding.fix
        assert finding.cost_kind is CostKind.AT_LEAST  # backward goes through it too


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("a, b = x[:, None], y[None]", "return (a - b).pow(2).sum(-1)"), False),
        (("a = x[:, None]", "return (a - y).pow(2).sum(-1)"), True),
        (("far = x.unsqueeze(1)", "return ((far - y) ** 2).sum(dim=-1)"), True),
        (("y = self.head(x)", "return ((y - x) ** 2).sum(1).mean()"), False),  # no pairs
    ],
)
def test_differences_of_all_pairs_are_named(tmp_path, lines, told):
    body = "\n        ".join(lines)
    text = f"class Net(nn.Module):\n    def forward(self, x, y):\n        {body}\n"

    finding = _computed(tmp_path, text, 4)

    assert (finding is not None) is told
    if finding:
        assert finding.place.endswith("net.py:4") and "torch.cdist" in finding.fix


NET = """
class Net(nn.Module):
    def forward(self, x):
        batch, steps, _ = x.shape
        for t in range(steps):
            h = self.cell(x[:, t], h)
        for i in range(len(self.layers)):
            h = self.layers[i](h)
        for k in range(h.shape[1]):
            layer = self.heads[k]
            y = layer(h[:, k])
        return h
        for word in words:
            seen[word] += 1
"""


def looped(tmp_path: Path, line: int, flop: Flop | None = SLOW):
    (tmp_path / "net.py").write_text(NET)
    os.utime(tmp_path / "net.py", (1e9, 1e9))
    inside = stack([*CALL, (str(tmp_path / "net.py"), line, "forward")], 300)
    facts = facts_of(inside, source=SourceLines(2e9))
    return replace(facts, step=replace(facts.step, flop=flop))


def test_a_loop_over_a_dimension_is_named_by_its_line(tmp_path):
    finding = loop_in_model._check(looped(tmp_path, 6))

    assert finding.place.endswith("net.py:5")
    assert finding.cost_s == pytest.approx(0.75 * 30e-3)


@pytest.mark.parametrize("line", [8, 11, 12])
def test_loops_over_modules_and_other_lines_are_not_told_of(tmp_path, line):
    assert loop_in_model._check(looped(tmp_path, line)) is None


@pytest.mark.parametrize("flop", [None, Flop(1e9, 2e9, 32.0, "float32")])
def test_a_loop_whose_products_may_take_the_time_is_not_told_of(tmp_path, flop):
    assert loop_in_model._check(looped(tmp_path, 6, flop)) is None


def test_a_file_that_is_no_python_has_no_loops(tmp_path):
    with pytest.raises(SyntaxError):
        ast.parse("for in")
    (tmp_path / "net.py").write_text("def forward(self, x):\n for in\n")
    os.utime(tmp_path / "net.py", (1e9, 1e9))
    inside = stack([*CALL, (str(tmp_path / "net.py"), 2, "forward")], 300)
    facts = facts_of(inside, source=SourceLines(2e9))

    assert loop_in_model._check(replace(facts, step=replace(facts.step, flop=SLOW))) is None


@pytest.mark.parametrize(("flop", "told"), [(SLOW, True), (None, False)])
def test_a_model_that_is_called_for_each_sample_is_told_to_take_the_batch(flop, told):
    facts = replace(facts_of(), one_by_one=OneByOne(32, 32, 24e-3, "train.py:20"))

    finding = loop_in_model._check(replace(facts, step=replace(facts.step, flop=flop)))

    assert (finding is not None) is told
    if finding:
        assert finding.message.startswith("the model is called 32 times in each step")
        assert finding.place == "train.py:20" and finding.fix.startswith("Call the model once")
        assert finding.cost_s == pytest.approx(24e-3 * 31 / 32)


PLAIN = """
def score(guesses, truths):
    right = 0
    for guess, truth in zip(guesses, truths):
        right += sum(a == b for a, b in zip(guess, truth))
    return right

class Net(nn.Module):
    def forward(self, x):
        self.score = score(x.tolist(), self.truths)
        for block in self.blocks:
            x = block(x)
        return torch.stack([torch.relu(part) for part in x])

def balance(k, u, times):
    for _ in range(times):
        v = (k.transpose(1, 2) @ u[..., None]).squeeze(-1).reciprocal()
        u = (k @ v[..., None]).squeeze(-1).reciprocal()
    return u, v

def scan(x, w, r, h):
    for t in range(20):
        h = x[:, t] + h * r
    return h

def shares(rows):
    return [np.exp(row).sum() for row in rows]
"""


@pytest.mark.parametrize(
    ("below", "place"),
    [
        ([("net.py", 10, "forward"), ("net.py", 5, "score")], "net.py:4"),
        ([("net.py", 12, "forward"), *FORWARD, ("block.py", 3, "forward")], ""),
        ([("net.py", 13, "forward")], ""),
        ([("net.py", 10, "forward"), ("net.py", 6, "score")], ""),
        ([("net.py", 10, "forward"), ("net.py", 27, "shares")], "net.py:27"),
        ([("net.py", 10, "forward"), ("net.py", 17, "balance")], ""),
        ([("net.py", 10, "forward"), ("net.py", 23, "scan")], ""),
    ],
    ids=[
        "loop",
        "modules",
        "torch",
        "no loop",
        "arrays",
        "products of tensors",
        "columns of a tensor",
    ],
)
def test_a_loop_inside_the_model_that_is_not_of_tensors_is_named(tmp_path, below, place):
    (tmp_path / "net.py").write_text(PLAIN)
    os.utime(tmp_path / "net.py", (1e9, 1e9))
    frames = [(str(tmp_path / file) if file == "net.py" else file, *more) for file, *more in below]
    facts = facts_of(stack([*CALL, *frames], 300), source=SourceLines(2e9))

    finding = loop_in_model._check(facts)

    assert ("" if finding is None else Path(finding.place).name) == place
    if finding is not None:
        assert finding.message.startswith(
            f"{below[-1][2]}() goes through a Python loop inside the model"
        )
        assert finding.cost_s == pytest.approx(0.75 * 30e-3)
