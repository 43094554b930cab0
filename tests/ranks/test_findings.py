"""From ranks to a report: who is blamed, and that the network is not."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks.made_up import MB, Training, always, messages, train, with_table
from rules.made_up import made_up_facts
from text.breath import advised, said
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from user_code.made_stacks import LOOP, TORCH, stack, training

import feedline
from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.verdict import verdict
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.ranks.buckets import cut_timeline
from feedline.analysis.ranks.communication import CollectiveKind, ExposedKind, Prediction
from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.text.formatting import percent
from feedline.analysis.traces.collectives import PHASES
from feedline.profiler.ceilings import Ceiling, Ceilings

RECORDED = Path(__file__).parents[1] / "golden" / "runs" / "ranks"  # two ranks on Gloo

SAMPLES = {rank: {"read": 1e-3, "decode": 30e-3 if rank == 3 else 4e-3} for rank in range(4)}


def facts_of(plan, ceilings=None, costs=None):
    compared = _compare_collectives(train(plan).ranks, ceilings, costs)
    assert compared is not None
    total = sum(value or 0.0 for value in vars(compared.parts[0]).values()) * 1e3
    facts = made_up_facts(
        stages={"forward": total * 0.3, "backward": total * 0.6, "optimizer": total * 0.05}
    )
    return replace(facts, comm=compared.communication, comm_parts=compared.parts, ddp=True)


def test_a_rank_whose_decode_makes_the_others_wait_is_named_and_the_network_is_not_blamed():
    facts = facts_of(Training(late=always(3, range(30), "wait", 52.0)), costs=SAMPLES)

    top, *rest = diagnose(facts)

    assert top.rule_id == "late_rank" and top.severity is Severity.HIGH
    assert (top.blame.rank, top.blame.phase, top.blame.part) == (3, "wait", "decode")
    assert (
        "rank 3 is the straggler (slow decode): the other 3 ranks wait" in top.message
        and "the network is not the cause" in said(top)
    )
    assert top.fix.startswith("Find why decode is slower on this rank: larger samples")
    assert top.cost_s == pytest.approx(0.052, abs=0.002)
    assert "compute_bound" not in {finding.rule_id for finding in rest}, (
        "its loader should not be left as it is"
    )
    assert verdict([top], facts).limit.startswith("Bound by a late rank: Rank 3")


def test_another_rank_in_each_step_is_said_so():
    facts = facts_of(Training(late={(step, step % 4): ("forward", 30.0) for step in range(30)}))

    top = diagnose(facts)[0]

    assert top.rule_id == "late_ranks" and top.blame.rank is None and top.blame.phase == "forward"
    assert (
        "late are rank 0 in 8, rank 1 in 8, rank 2 in 7 of the 30 steps with a late rank"
        in top.more
        and "only this rank" not in advised(top)
    )
    (waits,) = [one.value for one in top.evidence if one.id == "waiting_for_rank_share"]
    assert f"the others wait up to {percent(waits)} of the step" in top.message


def test_a_slow_network_is_told_from_much_to_move():
    plan = Training(buckets=(MB, 40 * MB, 40 * MB))
    settings = {"backend": "nccl", "ranks": 4, "bytes": 25 * MB}

    def rule_id(rate):
        ceiling = Ceiling(
            "all_reduce/nccl",
            "all_reduce",
            1.0,
            unit="B/s",
            settings=settings | {"bus_bytes_per_s": rate},
        )
        return diagnose(facts_of(plan, Ceilings([ceiling])))[0]

    assert rule_id(
        1e9
    ).rule_id == "exposed_communication" and "as fast as the network allows" in said(rule_id(1e9))
    assert rule_id(9e9).rule_id == "slow_network" and rule_id(9e9).cost_s > 0


def test_the_hook_that_is_advised_can_be_registered_on_the_backend_of_the_run(tmp_path):
    (found,) = [
        one
        for one in feedline.load(RECORDED).report.findings
        if one.rule_id == "exposed_communication"
    ]
    named = re.search(r"default_hooks\.(\w+)\)", advised(found))[1]

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        model.register_comm_hook(None, getattr(default_hooks, named))
        model(torch.ones(2, 8)).sum().backward()
        assert model.module.weight.grad.abs().sum() > 0
    finally:
        del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
        torch.distributed.destroy_process_group()


def test_messages_that_are_all_latency_are_not_advised_to_have_fewer_bytes():
    facts = facts_of(Training(ranks=2, link=2e8))
    small = [CollectiveKind("all_reduce", 2080, 2, "gloo", 30, 420e-6, 0.005, 0.005)]
    (found,) = [
        one
        for one in diagnose(replace(facts, comm=replace(facts.comm, collectives=small, what_if=[])))
        if "latency" in advised(one)
    ]

    assert found.rule_id == "exposed_communication"
    assert found.fix == "Send less often: use larger batches per rank."
    assert found.fix_more[-1] == "Or use gradient accumulation (no_sync)."

    gathered = {rank: [ExposedKind("all_gather", "forward", 2e-3)] for rank in facts.comm.exposed}
    comm = replace(facts.comm, collectives=small, what_if=[], exposed=gathered)
    assert not [one for one in diagnose(replace(facts, comm=comm)) if "no_sync" in advised(one)], (
        "nothing of FSDP is spared by it"
    )


def test_metrics_that_are_reduced_in_each_step_are_not_advised_to_send_gradients_less_often():
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9))
    kinds = [ExposedKind("all_reduce", "other", 8e-3), ExposedKind("all_reduce", "backward", 2e-3)]
    comm = replace(facts.comm, exposed=dict.fromkeys(facts.comm.exposed, kinds))

    (found,) = [
        one for one in diagnose(replace(facts, comm=comm)) if one.rule_id == "exposed_communication"
    ]

    assert "metrics" in advised(found) and "torch.stack" in found.fix
    assert "no_sync" not in advised(found) and "hook" not in advised(found)
    assert found.predicted is None


@pytest.mark.parametrize(
    ("name", "phase", "fix", "place"),
    [
        ("all_gather", "other", "Do this less often", "log.py:7"),
        ("barrier", "other", "Remove the barrier", "log.py:7"),
        ("broadcast", "forward", "broadcast_buffers=False", ""),
        ("all_gather", "forward", "Use larger batches", ""),
    ],
)
def test_collectives_of_the_programs_own_have_a_fix_and_a_line_of_their_own(
    name, phase, fix, place
):
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9))
    comm = replace(
        facts.comm,
        exposed=dict.fromkeys(facts.comm.exposed, [ExposedKind(name, phase, 8e-3)]),
    )
    calls = [*LOOP, ("log.py", 7, "collect"), (TORCH + "distributed/distributed_c10d.py", 9, name)]
    code = SampledCode.of([training(stack(calls, 60))])

    (found,) = [
        one
        for one in diagnose(replace(facts, comm=comm, code=code))
        if one.rule_id == "exposed_communication"
    ]

    assert fix in found.fix and found.place == place


WRAPPED = """import torch
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(8, 8))
loss = model(torch.zeros(8)).sum()
loss.backward()  # DDP(sends)
"""


@pytest.mark.parametrize(
    ("passes", "refused", "fix", "line"),
    [
        (8, "the clocks differ", "Run all but the last of the 8 backward passes", 5),
        (8, "gradients are sent once", "Use larger batches per rank.", None),
        (None, "the clocks differ", "Set DistributedDataParallel(..., broadcast_buffers=False)", 3),
    ],
)
def test_gradients_sent_in_each_pass_are_sent_once_also_where_nothing_can_be_replayed(
    passes, refused, fix, line, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(WRAPPED)
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9))
    none = Prediction("as_it_was", None, "", None, None, None, 0.0, "the clocks differ")
    asked = replace(none, id="no_sync", value=passes, why=refused)
    kind = ("all_reduce", "backward") if passes else ("broadcast", "forward")
    comm = replace(
        facts.comm,
        exposed=dict.fromkeys(facts.comm.exposed, [ExposedKind(*kind, 8e-3)]),
        what_if=[none, *([asked] if passes else [])],
    )
    code = SampledCode.of([training()], SourceLines(2e9))

    (found,) = [
        one
        for one in diagnose(replace(facts, comm=comm, code=code))
        if one.rule_id == "exposed_communication"
    ]

    assert found.fix.startswith(fix) and found.place == (f"train.py:{line}" if line else "")
    assert found.condition == ""  # an update is of as many samples as before


def exposed_in(facts):
    (found,) = [one for one in diagnose(facts) if one.rule_id == "exposed_communication"]
    return found


def best_of(facts, question):
    """The same facts, where only this change is predicted to gain."""
    (asked,) = [one for one in facts.comm.what_if if one.id == question][:1]
    wins = replace(asked, step_s=0.05, low=0.04, high=0.06, gain_s=0.03, value=asked.value or 4)
    kept = [one for one in facts.comm.what_if if one.id == "as_it_was"]
    return replace(facts, comm=replace(facts.comm, what_if=[*kept, wins]))


@pytest.mark.parametrize(
    ("question", "condition", "action"),
    [
        (
            "half_gradients",
            "only if training tolerates rounded gradients",
            "send gradients as bf16",
        ),
        (
            "accumulation",
            "only if an effective batch of 4 times the samples is acceptable",
            "accumulate 4 batches",
        ),
        ("bucket_size", "", "set bucket_cap_mb=10"),
    ],
)
def test_a_change_that_changes_results_says_what_must_be_acceptable(question, condition, action):
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9))

    found = exposed_in(best_of(facts, question))

    assert (found.condition, found.action) == (condition, action)


@pytest.mark.parametrize(
    "kind",
    [
        ("all_reduce", "backward"),
        ("reduce_scatter", "backward"),
        ("all_gather", "forward"),
        ("all_gather", "backward"),
        ("send_recv", "forward"),
    ],
)
@pytest.mark.parametrize("ddp", [True, False])
def test_each_way_that_rounds_says_that_training_has_to_tolerate_it(kind, ddp):
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9))
    exposed = dict.fromkeys(facts.comm.exposed, [ExposedKind(*kind, 8e-3)])
    comm = replace(facts.comm, exposed=exposed, what_if=[])

    found = exposed_in(replace(facts, comm=comm, ddp=ddp))

    rounds = re.compile(r"bf16|half precision|smaller dtype")
    ways = [way for way in (found.fix, *found.fix_more) if rounds.search(way)]
    assert ways and all("if training tolerates rounded" in way for way in ways)


@pytest.mark.parametrize("nbytes", [2080, 20 * MB])
@pytest.mark.parametrize("phase", ["backward", ""])
def test_what_tensor_parallelism_reduces_in_backward_is_not_treated_as_gradients(phase, nbytes):
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9))
    exposed = dict.fromkeys(facts.comm.exposed, [ExposedKind("all_reduce", phase, 8e-3)])
    moved = [replace(facts.comm.collectives[0], bytes=nbytes)]
    comm = replace(facts.comm, exposed=exposed, collectives=moved)

    found = exposed_in(replace(facts, comm=comm, ddp=False))

    told = f"{found.message} {advised(found)} {found.how_to_check} {found.action}"
    for word in ("gradient", "no_sync", "hook", "bucket_cap_mb", "accumulat"):
        assert word not in told
    assert found.predicted is None and found.condition == "" and found.action == ""
    assert found.fix == "Use larger batches per rank."


@pytest.mark.parametrize(
    ("buckets", "hook", "known"),
    [(2, False, True), (0, False, False), (0, True, True), (1, True, False)],
)
def test_gradients_are_known_by_the_flag_of_buckets_or_by_a_hook_that_sends_them(
    buckets, hook, known
):
    made = train(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9)).ranks
    ranks = []
    for one in made:
        table = one.table.copy()
        table["bucket"] = np.arange(len(table)) % 2 < buckets  # the first one is the smaller
        ranks.append(with_table(one, table))

    compared = _compare_collectives(ranks, hook=hook)

    assert compared.ddp == known
    questions = {one.id for one in compared.communication.what_if}
    assert ({"accumulation", "half_gradients", "bucket_size"} <= questions) == known
    assert known or not questions & {"accumulation", "half_gradients", "bucket_size", "no_sync"}


def test_of_activations_and_gradients_in_one_backward_only_the_buckets_are_accumulated():
    """Tensor parallelism inside of data parallelism: the first all-reduce is an activation's."""
    made = train(Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9)).ranks
    ranks = []
    for one in made:
        table = one.table.copy()
        table["bucket"] = np.arange(len(table)) % 3 > 0
        ranks.append(with_table(one, table))

    assert cut_timeline(combine(ranks)).gradients.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("phases", "bucket", "sharded"),
    [
        (["backward"], False, True),  # FSDP
        (["forward", "backward"], False, False),  # sequence parallelism
        (["backward"], True, False),  # features that are gathered beside DistributedDataParallel
    ],
)
def test_what_is_scattered_is_gradients_only_where_nothing_else_is(phases, bucket, sharded):
    ranks = []
    for one in train(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9)).ranks:
        table = one.table.copy()
        table["phase"] = np.resize([PHASES.index(phase) for phase in phases], len(table))
        table["bucket"] = bucket
        ranks.append(replace(one, table=table, names=["_reduce_scatter_base_"]))

    compared = _compare_collectives(ranks)
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB), link=1e9))
    kinds = dict.fromkeys(
        facts.comm.exposed, [ExposedKind("reduce_scatter", phase, 8e-3) for phase in phases]
    )
    comm = replace(facts.comm, exposed=kinds, what_if=[])
    found = exposed_in(replace(facts, comm=comm, ddp=False, sharded=compared.sharded))

    told = f"{found.message} {advised(found)} {found.how_to_check} {found.action}"
    assert ("gradient" in told, "accumulation" in told) == (sharded, sharded)


def test_what_a_program_does_already_or_loses_by_is_not_among_the_ways():
    facts = facts_of(Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9))
    lost = [
        replace(one, high=1.0, gain_s=-1e-3) if one.step_s is not None else one
        for one in facts.comm.what_if
        if one.id != "accumulation"
    ]

    (found,) = [
        one
        for one in diagnose(replace(facts, comm=replace(facts.comm, what_if=lost)))
        if "bytes_per_s" in str(one.evidence)
    ]

    assert advised(found) == "Use larger batches per rank."


def test_communication_that_backward_hides_is_not_spoken_of():
    facts = facts_of(Training(buckets=(MB, MB, 50_000)))

    assert {finding.rule_id for finding in diagnose(facts)} == {"compute_bound"}


def test_one_rank_or_no_collective_gives_nothing():
    made = train(Training(ranks=2, steps=4))

    assert _compare_collectives([with_table(one, one.table[:0]) for one in made.ranks]) is None
    assert _compare_collectives(train(Training(ranks=1, steps=4)).ranks) is None


def test_parts_sum_to_the_mean_step_of_their_rank():
    made = train(Training(ranks=3, jitter=2.0))
    compared = _compare_collectives(made.ranks, first=4)

    for one in made.ranks:
        assert sum(vars(compared.parts[one.rank]).values()) == pytest.approx(
            one.walls[4:].mean() / 1e9, rel=1e-9
        )


def test_evaluation_is_in_no_part_and_in_no_replayed_step():
    plan = Training(ranks=2, steps=40)
    compared = _compare_collectives(
        train(replace(plan, evaluation=dict.fromkeys((9, 19, 29), 1000.0))).ranks
    )

    usual = _compare_collectives(train(plan).ranks)
    assert compared.parts == usual.parts
    assert compared.communication.what_if[0].step_s == pytest.approx(
        usual.communication.what_if[0].step_s, rel=1e-3
    )


def test_what_was_not_kept_is_in_no_part_and_in_no_replayed_step():
    plan = Training(ranks=2, steps=40)
    ranks, gone = [], slice(10, 20)
    for one in train(plan).ranks:
        place = one.step_at(one.table["start"])
        kept = one.table[(place < gone.start) | (place >= gone.stop)]
        ranks.append(replace(with_table(one, kept), steps=np.delete(one.steps, gone, 0)))

    compared, usual = _compare_collectives(ranks), _compare_collectives(train(plan).ranks)

    assert vars(compared.parts[0]) == pytest.approx(vars(usual.parts[0]))
    assert compared.communication.what_if[0].step_s == pytest.approx(
        usual.communication.what_if[0].step_s, rel=1e-3
    )


def test_a_rank_without_a_folder_leaves_a_report_that_says_so():
    compared = _compare_collectives(
        train(Training(late=always(3, range(30), "wait", 50.0))).ranks[:3]
    )

    assert any("rank 3 left no records" in note for note in compared.notes)
    assert not compared.communication.late or compared.communication.late[0].late_s < 1e-3


@pytest.mark.parametrize("ranks,measured", [(3, True), (4, False)])
def test_where_waiting_cannot_be_told_from_transfer_the_network_is_not_judged(ranks, measured):
    plan = Training(
        late=always(3, range(30), "wait", 50.0), steps=5 if measured else 1, measured=measured
    )
    compared = _compare_collectives(train(plan).ranks[:ranks], link_bytes_per_s=1e9)
    comm = compared.communication
    facts = replace(
        made_up_facts(stages={"forward": 40.0, "backward": 60.0}),
        comm=comm,
        comm_parts=compared.parts,
    )

    (found,) = [finding for finding in diagnose(facts) if finding.rule_id != "compute_bound"]

    assert comm.network_share is None and {kind.busbw_gbps for kind in comm.collectives} == {None}
    assert comm.network.endswith("transfer cannot be separated from waiting")
    assert found.rule_id == "exposed_communication" and found.message.endswith(" of the step)")
    assert found.more == [comm.network]


def test_messages_between_two_ranks_are_one_kind_with_the_bandwidth_of_the_link():
    compared = _compare_collectives(
        messages([0, 200, 400], [20, 220, 420], [104, 304, 504], 84 * MB), link_bytes_per_s=1e9
    )

    (kind,) = compared.communication.collectives
    assert (kind.name, kind.n, kind.count, kind.busbw_gbps) == (
        "send_recv",
        2,
        3,
        pytest.approx(1.0),
    )
    assert compared.communication.network_share == pytest.approx(1.0)


def test_what_no_tap_could_see_is_in_the_report():
    made = train(Training(ranks=2, steps=6))
    ranks = [
        replace(made.ranks[0], unseen=["horovod: its collectives are not torch's"]),
        made.ranks[1],
    ]

    assert (
        "horovod: its collectives are not torch's"
        in _compare_collectives(ranks).communication.unseen
    )


def test_a_group_destroyed_in_mid_run_and_a_smaller_one_after_it_are_both_seen():
    first, second = (
        train(Training(ranks=4, steps=10)),
        train(Training(ranks=2, steps=10, buckets=(2 * MB,))),
    )
    ranks = []
    for one, two in zip(first.ranks, [*second.ranks, None, None], strict=True):
        if two is None:
            ranks.append(one)
            continue
        shift = int(one.steps[-1, 1] - two.steps[0, 0])
        table = two.table.copy()
        table["start"], table["end"], table["group"] = (
            table["start"] + shift,
            table["end"] + shift,
            1,
        )
        steps = np.concatenate([one.steps, two.steps + shift])
        ranks.append(
            replace(
                one,
                table=np.concatenate([one.table, table]),
                groups=[*one.groups, replace(two.groups[0], name="7")],
                steps=steps,
            )
        )

    compared = _compare_collectives(ranks)

    assert {(kind.n, kind.count) for kind in compared.communication.collectives} == {
        (4, 20),
        (4, 10),
        (2, 10),
    }
