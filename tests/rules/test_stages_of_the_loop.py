"""Stages of the loop that take much of the step: compilation, checkpoints, the optimizer."""

import os
from dataclasses import replace

import pytest
from rules.made_up import made_up_facts
from rules.said import verdict
from text.breath import advised, said
from user_code.made_stacks import LOOP, STEP, TORCH, process, stack

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import CostKind
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Recompiled, Updated
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.step_model import GarbageCollection
from feedline.analysis.rules.loop import (
    checkpoint_time,
    garbage_collection,
    optimizer_time,
    recompilation,
)

SMALL = Updated("AdamW", 2000, 8000, fused=False)


def given(stage: str, ms: float, steps: float, trend: float | None = 1.0, **more) -> RuleInputs:
    """200 steps, of which this share has the stage: 100 ms and so many ms more in the mean step."""
    found = made_up_facts(stages={stage: ms}, **more)
    row = LedgerRow(stage, found.step.stages[stage], steps=steps, trend=trend)
    return replace(found, ledger=Ledger(LedgerTable("step", found.step.mean_s, [row]), None))


def test_compiling_in_many_steps_leads_the_verdict():
    facts = given("compile", 520.0, 35 / 199)

    finding = recompilation._check(facts)

    assert finding.severity.value == "high" and finding.cost_s == pytest.approx(0.52)
    assert (
        finding.message
        == "torch.compile compiled again in 35 of 199 steps, which takes 84 % of the step time"
    )
    assert verdict(diagnose(facts), facts).startswith(
        "Bound by compilation: torch.compile compiled again in 35 of 199 steps"
    )


def test_compiling_that_has_ended_is_said_to_have_ended():
    assert (
        "none of these steps is in the last third of the run"
        in recompilation._check(given("compile", 20.0, 8 / 199, trend=0.0)).more
    )


def test_compiling_at_the_start_does_not_stand_for_windows_that_a_long_run_forgot():
    """Of 16 times as many steps, those in which nothing was compiled were forgotten."""
    facts = given("compile", 520.0, 8 / 199)
    pace = replace(facts.throughput, steps=16 * 200)

    only_at_the_start = replace(facts, throughput=pace, compiling_s=0.52 * 200)
    finding = recompilation._check(only_at_the_start)

    assert " in 8 of 3,199 steps, which takes 5.2 % of the step time" in finding.message
    assert finding.cost_s == pytest.approx(0.52 / 16)
    going_on = replace(facts, throughput=pace, compiling_s=0.52 * 16 * 200)
    going_on = recompilation._check(going_on)
    assert " in 129 of 3,199 steps" in going_on.message


@pytest.mark.parametrize(
    ("kind", "values", "why", "fix"),
    [
        (
            "size",
            (3, 4, 5, 6, 7),
            "the size of `x` changes (3, 4, 5, 6, ...)",
            "Pad to a few lengths",
        ),
        ("number", (1.0,), "the number `x` changes (1)", "Pass x as a tensor"),
        ("dtype", (), "the dtype of `x` changes", "Run with TORCH_LOGS=recompiles"),
    ],
)
def test_what_changed_is_named_and_decides_the_fix(kind, values, why, fix):
    function = Recompiled("forward", "model.py:8", 8, True, kind, "x", values)
    facts = replace(given("compile", 520.0, 35 / 199), recompiled=(function,))

    finding = recompilation._check(facts)

    assert finding.message == (
        f"forward() is compiled again when {why.partition(' changes')[0]} changes, which takes "
        "84 % of the step time"
    )
    assert finding.more == [
        "in 35 of 199 steps something was compiled",
        f"forward() was compiled 8 times: {why}",
        "forward() then reached torch's limit of recompilations and runs uncompiled",
    ]
    assert finding.fix.startswith(fix) and finding.place == "model.py:8"


def test_a_function_that_settled_is_not_blamed_for_one_that_is_compiled_on_and_on():
    functions = (
        Recompiled("box_loss", "loss.py:3", 8, True, "other", "", ()),
        Recompiled("forward", "model.py:8", 2, False, "size", "x", (12, 64)),
    )

    finding = recompilation._check(replace(given("compile", 520.0, 35 / 199), recompiled=functions))

    assert finding.message.startswith("torch.compile compiled again in 35 of 199 steps")
    assert finding.more[0] == "box_loss() was compiled most often: 8 times"
    assert finding.fix.startswith("Run with TORCH_LOGS") and finding.place == "loss.py:3"


@pytest.mark.parametrize(
    "facts",
    [given("compile", 520.0, 2 / 199), given("compile", 4.0, 0.5)],
    ids=["warming up", "little"],
)
def test_nothing_is_said_of_warming_up_or_of_little(facts):
    assert recompilation._check(facts) is None


def test_checkpoints_say_how_long_one_takes_and_how_often_it_comes():
    facts = given("checkpoint", 15.6, 0.2)

    finding = checkpoint_time._check(facts)

    assert finding.message == "torch.save takes 13 % of the step time: 78.0 ms every 5 steps"
    assert finding.severity.value == "low" and finding.cost_s == pytest.approx(0.0156)
    assert verdict(diagnose(facts), facts).startswith(
        "Partly bound by checkpoints: torch.save takes 13 % of the step time"
    )


def test_a_checkpoint_that_is_far_larger_than_what_is_trained_is_told_to_leave_out_the_rest():
    facts = replace(given("checkpoint", 15.6, 0.2, updated=SMALL), saved_bytes=30e6)
    usual = replace(facts, saved_bytes=100e3)
    unknown = replace(facts, updated=None)

    finding = checkpoint_time._check(facts)

    assert finding.fix.startswith("Save only what a restart needs")
    assert "frozen parameters" in finding.fix and "Save less often" in finding.fix_more[-1]
    assert finding.more[0].startswith("a checkpoint has 30.0 MB: the parameters that are trained")
    assert all(
        checkpoint_time._check(one).fix.startswith("Save less often") for one in (usual, unknown)
    )


def test_the_whole_of_sharded_parameters_is_not_called_large_for_a_part():
    """Of parameters that FSDP shards, an optimizer has those of its rank."""
    facts = replace(given("checkpoint", 15.6, 0.2, updated=SMALL), saved_bytes=30e6)

    finding = checkpoint_time._check(replace(facts, sharded=True))

    assert finding.fix.startswith("Save less often") and not finding.more


@pytest.mark.parametrize(
    "facts",
    [given("checkpoint", 15.6, 1 / 200), given("checkpoint", 4.0, 0.2)],
    ids=["one", "little"],
)
def test_nothing_is_said_of_one_checkpoint_or_of_little(facts):
    assert checkpoint_time._check(facts) is None


def test_an_optimizer_that_goes_through_its_tensors_is_fused():
    facts = given("optimizer", 150.0, 1.0, updated=SMALL)

    finding = optimizer_time._check(facts)

    assert finding.message == "AdamW.step() takes 62 % of the 243 ms step"
    assert finding.more == ["it updates 2,000 tensors with 8,000 elements, one after the other"]
    assert "torch.optim.AdamW(..., fused=True)" in finding.fix
    assert finding.cost_s == pytest.approx(0.15 * (1 - 1 / 3.4))  # a fused update takes time, too
    assert finding.cost_kind is CostKind.ESTIMATED
    assert verdict(diagnose(facts), facts).startswith(
        "Bound by the optimizer: AdamW.step() takes 62 %"
    )


@pytest.mark.parametrize(
    ("tensors", "elements", "speedup"), [(4, 101_110, 2.2), (8, 101_110, 3.4), (1, 1 << 20, 3.4)]
)
def test_a_fused_update_of_few_tensors_gains_less(tensors, elements, speedup):
    """Of the four of a perceptron of 1,000, 100 and 10 it was 1.9 to 2.4 times as fast."""
    updated = replace(SMALL, kind="Adam", tensors=tensors, elements=elements)
    facts = given("optimizer", 50.0, 1.0, updated=updated)
    short = replace(facts, step=replace(facts.step, mean_s=4e-3, stages={"optimizer": 1.2e-3}))

    found = optimizer_time._check(short)

    assert found.cost_s == pytest.approx(1.2e-3 * (1 - 1 / speedup))


def test_an_update_that_cannot_take_that_long_holds_other_code():
    finding = optimizer_time._check(
        given("optimizer", 150.0, 1.0, updated=replace(SMALL, kind="SGD", tensors=4, elements=7000))
    )

    assert (
        "so other code runs inside it" in finding.more[-1]
        and "closure" in finding.fix
        and "fused" not in finding.fix
    )


@pytest.mark.parametrize("kind", ["LBFGS", "Muon", "Shampoo", "SOAP"])
@pytest.mark.parametrize("step", [None, ""])
def test_an_update_that_is_not_elementwise_may_take_that_long_by_itself(kind, step):
    updated = replace(SMALL, kind=kind, tensors=4, elements=7000, step=step)

    assert optimizer_time._check(given("optimizer", 150.0, 1.0, updated=updated)) is None


def test_an_optimizer_of_the_programs_with_a_step_of_its_own_is_no_elementwise_one():
    """GaLore calls its optimizer AdamW, too."""
    updated = replace(SMALL, tensors=4, elements=7000)
    facts = given("optimizer", 150.0, 1.0, updated=replace(updated, step=""))

    assert optimizer_time._check(facts) is None
    inherits = replace(updated, kind="Mine", step="Adam")
    found = optimizer_time._check(replace(facts, updated=inherits))
    assert "so other code runs inside it" in found.more[-1]


@pytest.mark.parametrize(("tensors", "fix"), [(1000, "fused=True"), (4, "")])
def test_an_update_in_which_no_code_of_the_program_is_seen_holds_no_other_code(tensors, fix):
    """Busy CPUs make it slow: 150 ms for 1,000 tensors are six times what they need."""
    updated = replace(SMALL, tensors=tensors, elements=7000)
    facts = given("optimizer", 150.0, 1.0, updated=updated)
    code = SampledCode.of([process("main", stack([*LOOP, *STEP], 100))])

    assert "closure" in optimizer_time._check(facts).fix
    found = optimizer_time._check(replace(facts, code=code))
    assert (found is not None and fix in found.fix) if fix else found is None


@pytest.mark.parametrize(
    ("line", "fix", "left"),
    [
        (
            "left, _, _ = torch.linalg.svd(gradient)",
            "Decompose matrices every 50 steps",
            1 - 0.98 * 0.75,
        ),
        ("part = slow(gradient)", "Call slow() less often there, or with less.", None),
        ("part = gradient * gradient", "Look at", None),
        ("part = scale(slow(gradient))", "Look at", None),
    ],
)
def test_the_line_that_takes_most_of_an_optimizer_of_the_program_is_named(
    tmp_path, line, fix, left
):
    (tmp_path / "rank.py").write_text(f"def step(self):\n    {line}\n    self.add(left)\n")
    os.utime(tmp_path / "rank.py", (1e9, 1e9))
    inside = [*LOOP, (TORCH + "optim/optimizer.py", 480, "wrapper")]
    seen = process(
        "main",
        stack([*inside, (str(tmp_path / "rank.py"), 2, "step")], 75),
        stack([*inside, (str(tmp_path / "rank.py"), 3, "step")], 25),
    )
    updated = replace(SMALL, kind="LowRank", tensors=4, elements=7000)
    facts = given("optimizer", 150.0, 1.0, updated=updated)

    finding = optimizer_time._check(replace(facts, code=SampledCode.of([seen], SourceLines(2e9))))

    assert finding.place.endswith("rank.py:2") and finding.fix.startswith(fix)
    assert "needs at most" not in said(finding), "what its update needs is not known"
    assert any("75 % of it is spent at" in sentence for sentence in finding.more)
    assert finding.cost_s == pytest.approx(0.15 * (0.75 if left is None else 1 - left))


@pytest.mark.parametrize(
    "updated",
    [replace(SMALL, fused=True), replace(SMALL, kind="Lion"), None],
    ids=["fused already", "no fused form", "not described"],
)
def test_nothing_is_said_where_nothing_is_known_to_be_faster(updated):
    assert optimizer_time._check(given("optimizer", 60.0, 1.0, updated=updated)) is None


def test_on_a_gpu_the_host_only_launches_the_update():
    facts = given("optimizer", 150.0, 1.0, updated=SMALL)

    assert (
        optimizer_time._check(
            replace(facts, step=replace(facts.step, gpu_stages={"optimizer": 0.001}))
        )
        is None
    )


def collecting(ms: float, **garbage) -> RuleInputs:
    """Collections of so many ms in "other" of the mean step, in each fifth step."""
    found = made_up_facts(stages={"other": ms + 1.0})
    of = GarbageCollection(
        **{
            "s": ms / 1e3,
            "stages": {"other": ms / 1e3},
            "steps_share": 0.2,
            "longest_s": ms / 100,
            "full_share": 0.95,
            "called_share": 0.0,
            "frozen": 0,
            **garbage,
        }
    )
    return replace(found, step=replace(found.step, garbage=of))


def test_collections_say_what_they_take_and_how_often_they_come():
    facts = collecting(40.0)

    finding = garbage_collection._check(facts)

    assert finding.message == (
        "Python's garbage collection takes 28 % of the step time: 200 ms about every 5 steps"
    )
    assert "gc.freeze()" in finding.fix and finding.cost_s == pytest.approx(0.04)
    assert verdict(diagnose(facts), facts).startswith("Bound by garbage collection: Python's")
    assert list(diagnose(facts)[0].claims) == ["other/gc"]


def test_collections_as_far_apart_as_each_other_are_not_said_about():
    """Nine in the 129 steps after the first are one in 14.3, though they come every 13."""
    finding = garbage_collection._check(collecting(40.0, steps_share=9 / 129, every_steps=13))

    assert finding.message.endswith(" every 13 steps") and "about" not in finding.message
    assert [one.value for one in finding.evidence if one.id == "collecting_every"] == [13.0]


def test_a_program_that_calls_gc_collect_is_shown_the_line():
    finding = garbage_collection._check(
        collecting(40.0, called_share=0.9, called_at="train.py:12", steps_share=1.0)
    )

    assert finding.message == (
        "calls to gc.collect() take 28 % of the step time: 40.0 ms in each step"
    )
    assert finding.place == "train.py:12" and finding.fix.startswith("Call gc.collect() rarely")


@pytest.mark.parametrize("garbage", [{"frozen": 70_000}, {"full_share": 0.1}])
def test_objects_of_each_step_cannot_be_frozen(garbage):
    assert "gc.freeze" not in garbage_collection._check(collecting(40.0, **garbage)).fix


@pytest.mark.parametrize(
    "facts",
    [
        collecting(4.0),
        collecting(40.0, stages={"wait": 0.04}),
        collecting(40.0, steps_share=1 / 200),
        made_up_facts(),
    ],
    ids=["little", "while it waits", "once", "none"],
)
def test_nothing_is_said_of_few_collections(facts):
    assert garbage_collection._check(facts) is None


TABLES = Updated("Adam", 5, 12_810_000, fused=False, embedded=12_800_000, rows=400_000)


def updating(updated, **loader):
    facts = made_up_facts(stages={"optimizer": 90.0}, loader=loader)
    return replace(facts, updated=updated)


def test_an_update_of_embeddings_of_which_a_batch_has_few_rows_is_told_to_be_sparse():
    finding = optimizer_time._check(updating(TABLES, batch_bytes=8 * 5120.0))

    assert "sparse=True" in finding.fix and finding.condition
    assert any("fused=True" in other for other in finding.fix_more)
    assert "a batch has about 5,120 of their 400,000 rows" in finding.more
    # numbers of fewer bytes, or rows that the loop draws itself, would make it more
    assert finding.cost_kind is CostKind.ESTIMATED
    lacking = 12.8 / 12.81 * (1 - 5120 / 400_000)
    assert finding.cost_s == pytest.approx(90e-3 * lacking)


@pytest.mark.parametrize(
    ("updated", "nbytes"),
    [
        (TABLES, 8 * 100_000.0),  # a batch may have a quarter of the rows
        (TABLES, None),
        (replace(TABLES, embedded=1_000_000), 8 * 5120.0),
    ],
)
def test_other_updates_are_not_told_to_be_sparse(updated, nbytes):
    finding = optimizer_time._check(updating(updated, batch_bytes=nbytes))

    assert "fused=True" in finding.fix and not finding.condition
    assert finding.cost_kind is CostKind.ESTIMATED  # a fused update takes some time, too


@pytest.mark.parametrize("fused", [True, False])
def test_a_batch_of_less_than_one_number_has_one_row(fused):
    """As with batches of one int32."""
    finding = optimizer_time._check(updating(replace(TABLES, fused=fused), batch_bytes=4.0))

    assert "sparse=True" in finding.fix and len(finding.fix_more) == (0 if fused else 1)
    assert "a batch has about 1 of their 400,000 rows" in finding.more and finding.condition


def test_an_update_of_complex_numbers_is_not_told_to_be_fused():
    """Torch raises an error: a fused update takes floating-point parameters only."""
    updated = Updated("Adam", 200, 12_810_000, fused=False, groups=200)

    with_complex = advised(optimizer_time._check(updating(replace(updated, complex=8))))

    assert "fused=True" in advised(optimizer_time._check(updating(updated)))
    assert "fused=True" not in with_complex


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
def test_an_update_by_sparse_gradients_is_not_told_to_be_fused(kind):
    """Torch raises an error: a fused update does not support them."""
    updated = Updated(kind, 200, 12_810_000, fused=False, sparse=8)

    assert optimizer_time._check(updating(updated)) is None
    of_groups = optimizer_time._check(updating(replace(updated, groups=200)))
    assert "fused=True" not in advised(of_groups)
    assert "one after the other" not in said(of_groups)
    assert any("8 of them by sparse gradients" in said for said in of_groups.more)


def test_a_row_may_be_updated_more_than_once_by_sparse_gradients():
    updated = Updated("SGD", 8, 7000, fused=False, sparse=8)

    assert optimizer_time._check(updating(updated)) is None


@pytest.mark.parametrize("foreach", [True, False])
def test_a_fused_update_is_one_without_foreach(foreach):
    finding = optimizer_time._check(updating(replace(SMALL, foreach=foreach)))

    call = "Create the optimizer with torch.optim.AdamW(..., fused=True)"
    assert finding.fix == f"{call}{', without foreach' if foreach else ''}."


def test_a_fused_update_is_the_other_way_than_a_sparse_embedding():
    finding = optimizer_time._check(updating(replace(TABLES, kind="SGD"), batch_bytes=8 * 5120.0))

    assert "sparse=True" in finding.fix
    assert finding.fix_more == [
        "Or keep it dense, and create the optimizer with torch.optim.SGD(..., fused=True)."
    ]


@pytest.mark.parametrize(("groups", "told"), [(1000, True), (4, False)])
def test_parameters_in_groups_of_their_own_are_told_to_be_merged(groups, told):
    finding = optimizer_time._check(updating(Updated("AdamW", 2000, 8000, True, groups=groups)))

    assert (finding is not None and "into one group" in finding.fix) == told
    if told:
        assert any("in 1,000 groups" in said for said in finding.more)
