"""A GPU that idles while the host launches its work, from what the host took for the stages and
what the GPU worked.
"""

import os
from dataclasses import replace

import pytest
from rules.made_up import made_up_facts
from text.breath import said
from user_code.made_stacks import process, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Updated
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.rules.input import compute_bound
from feedline.analysis.rules.loop.gpu_waits import _check
from feedline.analysis.traces.launching import GpuWork

ADAM = Updated("Adam", 200, 12_810_000, fused=False)


def facts(busy_ms, **more):
    """Steps of 101 ms, 99 ms of which the host takes for the model, the backward pass, the update
    and the copy.
    """
    found = made_up_facts(**more)
    return replace(
        found,
        step=replace(found.step, gpu_work=GpuWork(busy_ms / 1000, 400, busy_ms / 1000 / 400, 5)),
    )


def test_what_the_host_takes_beyond_the_gpus_work_is_time_that_the_gpu_idles():
    finding = _check(facts(busy_ms=30))

    assert finding.severity is Severity.HIGH
    assert finding.cost_s == pytest.approx(0.069)
    assert "idle for at least 69.0 ms (68 %) of each step" in finding.message
    assert "a step launches 400 kernels, which take 75.0 µs each on average" in finding.more
    assert "the GPU is busy for only 30.0 ms" in said(finding)


def test_the_word_that_the_input_is_not_the_bottleneck_is_left_out():
    assert [finding.rule_id for finding in diagnose(facts(busy_ms=30))] == ["gpu_waits"]


def test_time_outside_the_stages_that_launch_work_is_not_the_hosts_launching():
    assert _check(facts(busy_ms=85, stages={"other": 100.0})) is None


@pytest.mark.parametrize("busy_ms", [80, 99, 300])
def test_a_gpu_that_works_nearly_all_of_the_step_does_not_wait(busy_ms):
    assert _check(facts(busy_ms)) is None


def test_without_a_window_nothing_is_said():
    assert _check(made_up_facts()) is None


@pytest.mark.parametrize(
    ("updated", "words"),
    [
        (None, "CUDA graphs, fused optimizers (fused=True), larger batches."),
        (ADAM, "CUDA graphs, fused optimizers (fused=True), larger batches."),
        (replace(ADAM, foreach=True), "fused optimizers (fused=True, without foreach), larger"),
        (replace(ADAM, fused=True), "CUDA graphs, larger batches."),
        (replace(ADAM, sparse=1), "CUDA graphs, larger batches."),
        (replace(ADAM, kind="LBFGS"), "CUDA graphs, larger batches."),
    ],
)
def test_a_fused_optimizer_is_advised_only_where_it_is_new_and_possible(updated, words):
    assert words in _check(facts(busy_ms=80, stages={"forward": 40.0}, updated=updated)).fix


def test_a_training_that_compiled_in_its_first_step_is_not_told_to_compile():
    """The mean step, which leaves the first out, has the stage with no time."""
    assert "torch.compile, " in _check(facts(busy_ms=80, stages={"forward": 40.0})).fix
    compiled = _check(facts(busy_ms=80, stages={"forward": 40.0, "compile": 0.0}))
    assert "torch.compile, " not in compiled.fix


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("total += loss.item()", "Keep losses on the GPU"),
        ("torch.cuda.synchronize()", "Remove synchronize()"),
        ("total += loss.detach()", ""),
    ],
)
def test_only_a_call_that_is_seen_is_told_to_wait_for_the_gpu(tmp_path, line, told):
    (tmp_path / "train.py").write_text(f"def main():\n    {line}\n")
    os.utime(tmp_path / "train.py", (1e9, 1e9))
    seen = process("main", stack([(str(tmp_path / "train.py"), 2, "main")], 60))
    code = SampledCode.of([training(), seen], SourceLines(2e9))

    advice = " ".join(_check(replace(facts(busy_ms=30), code=code)).fix_more)

    assert "Avoid" not in advice
    assert ("train.py:2 waits for the GPU" in advice and told in advice) == bool(told)
    assert ("such as loss.item()?" in advice) != bool(told)


def test_of_several_ranks_nothing_is_said():
    assert _check(facts(busy_ms=30, comm=object())) is None


@pytest.mark.parametrize(
    ("busy_ms", "words"),
    [
        (
            90,
            "not input-bound: the GPU's work takes 89 % of each step, the input 0.9 %, so the input needs no change",
        ),
        (300, "not input-bound: the GPU needs 300 ms for each step, and the input takes 0.9 %"),
    ],
)
def test_where_the_input_is_not_the_bottleneck_the_gpus_work_is_told_and_not_how_long_launching_it_took(
    busy_ms, words
):
    assert compute_bound.check(facts(busy_ms)).message == words
