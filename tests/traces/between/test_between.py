"""Several traces together: who waited for whom, and what that one was doing."""

from dataclasses import replace

import numpy as np
import pytest
from traces.between.made_up import MS, Training, trained
from traces.numbers.lines import kernel, operator, said, trace

from feedline.analysis.ranks.cross_rank import RankComparison
from feedline.analysis.ranks.traced_ranks import compare
from feedline.analysis.traces.rank_trace import RankTrace, summarise
from feedline.analysis.traces.trace_columns import CollectiveArgs, Trace


def always(
    rank: int, what: str, ms: float, steps: int = 6
) -> dict[tuple[int, int], tuple[str, float]]:
    return {(step, rank): (what, ms) for step in range(steps)}


def compared(plan: Training) -> RankComparison:
    found = compare(trained(plan))
    assert found is not None
    return found


def waited(found: RankComparison, rank: int) -> int:
    return int((found.waiting[rank][:, 1] - found.waiting[rank][:, 0]).sum())


@pytest.mark.parametrize(
    ("what", "phase"),
    [
        ("input", "wait"),
        ("launching", "launching"),
        ("copy", "copy"),
        ("computing", "computing"),
        ("synchronising", "synchronising"),
    ],
)
def test_the_late_rank_is_named_with_what_it_was_doing(what, phase):
    found = compared(Training(late=always(2, what, 8)))

    (late,) = found.communication.late
    assert (late.rank, late.phase, late.persistent) == (2, phase, True)
    assert (late.steps, late.late_steps, late.all_steps) == (6, 6, 6)
    assert late.late_s == late.waited_s == pytest.approx(8e-3, rel=1e-6)
    assert late.excess_s == pytest.approx(8e-3, rel=0.01)


def test_others_wait_exactly_as_long_as_the_rank_is_late_and_it_waits_for_nobody():
    found = compared(Training(late=always(2, "input", 8)))
    assert [waited(found, rank) for rank in range(4)] == [48 * MS, 48 * MS, 0, 48 * MS]
    assert [found.parts[rank].transfer_s for rank in range(4)] == [pytest.approx(2e-3)] * 4
    assert found.last.tolist() == [2, -1] * 6


def test_nobody_is_named_where_all_come_together():
    found = compared(Training())
    assert found.communication.late == []
    assert all(waited(found, rank) == 0 for rank in range(4))
    assert found.notes == []


def test_another_rank_in_each_step_is_not_one_rank_always():
    found = compared(
        Training(steps=8, late={(step, step % 4): ("computing", 5) for step in range(8)})
    )
    assert {late.rank for late in found.communication.late} == {0, 1, 2, 3}
    assert not any(late.persistent for late in found.communication.late)


def test_clocks_that_are_apart_change_nothing():
    plan = Training(late=always(1, "input", 3))
    straight, apart = (
        compared(plan),
        compared(replace(plan, clocks={1: 700 * MS, 2: -300 * MS, 3: 12_345})),
    )

    assert apart.communication.late == straight.communication.late
    assert apart.communication.clocks == "collective ends"
    for rank in range(4):
        assert (apart.waiting[rank] == straight.waiting[rank]).all()


def test_waiting_moves_out_of_transfer_and_the_budget_still_closes():
    plan = Training(late=always(0, "input", 8))
    before, found = trained(plan), compared(plan)

    for rank, budget in found.budgets.items():
        assert (
            sum(part.sum() for part in budget.parts.values()) == budget.edges[-1] - budget.edges[0]
        )
        exposed = budget.parts["waiting_for_rank"].sum() + budget.parts["exposed_transfer"].sum()
        assert exposed == before[rank].budget.parts["exposed_transfer"].sum()
        assert budget.parts["waiting_for_rank"].sum() == (0 if rank == 0 else 48 * MS)


def without_a_device(rank: int) -> Trace:
    """Steps of 40 ms over gloo, which the second rank comes to 8 ms late."""
    rows = []
    for step in range(6):
        at = step * 40_000
        rows += [
            said(f"ProfilerStep#{step}", at, at + 40_000),
            operator("aten::mm", at, at + 10_000 + 8_000 * rank),
            said("gloo:all_reduce", at + 10_000 + 8_000 * rank, at + 20_000),
        ]
    return trace(*rows)


def test_waiting_over_gloo_without_a_device_moves_out_of_transfer_too():
    found = compare({rank: summarise(without_a_device(rank)) for rank in range(2)})

    assert found is not None
    for rank, waiting in ((0, 8 * MS), (1, 0)):
        parts = {
            name: part.tolist() for name, part in found.budgets[rank].parts.items() if part.any()
        }
        assert parts == {
            "compute": [10 * MS + 8 * MS * rank] * 6,
            **({"waiting_for_rank": [waiting] * 6} if waiting else {}),
            "exposed_transfer": [2 * MS] * 6,
            "unexplained": [20 * MS] * 6,
        }


def test_less_than_the_bound_is_not_claimed():
    found = compared(
        Training(late=always(2, "computing", 0.0005))
    )  # 500 ns, with ends that agree to the ns
    assert found.communication.clock_bound_s is not None
    assert any(waited(found, rank) for rank in range(4)) == (
        500 > found.communication.clock_bound_s * 1e9
    )


def test_numbers_of_the_trace_match_what_order_could_not():
    args = [CollectiveArgs("allreduce", "0", (0, 1, 2, 3), 4)] * 4
    found = compared(
        Training(late=always(3, "input", 4), args=args, numbered=True, skipped=frozenset({(1, 0)}))
    )

    assert len(found.last) == 10  # the first step's two have no rank 1
    (late,) = found.communication.late
    assert (late.rank, late.steps, late.all_steps) == (3, 5, 6)
    assert waited(found, 0) == 6 * 4 * MS  # in the first step at least until rank 3 had begun
    assert any(
        "2 collectives that other ranks began are missing from the trace of rank 1" in note
        for note in found.notes
    )


def test_without_numbers_what_ranks_have_unequally_many_of_is_left_out_and_said():
    found = compared(Training(late=always(3, "input", 4), skipped=frozenset({(1, 2)})))

    assert len(found.last) == 10
    assert found.communication.late[0].rank == 3
    assert "6 collectives (all_reduce) are left out" in found.notes[0]


def begun_before_its_steps(*operations: str) -> RankTrace:
    """A trace whose collectives have a group but no numbers, these before its first step."""
    names = {"allreduce": "ncclDevKernel_AllReduce", "broadcast": "ncclDevKernel_Broadcast"}
    rows = [said(f"ProfilerStep#{step}", at, at + 99) for step, at in ((0, 100), (1, 200))]
    for at, what in [*zip((10, 50), operations), (150, "allreduce"), (250, "allreduce")]:
        args = CollectiveArgs(what, "0", (0, 1), 2)
        rows.append(kernel(at, at + 5, names[what], collective=args))
    return summarise(trace(*rows))


def test_another_operation_before_the_first_step_is_not_the_same_collective():
    first, second = (
        begun_before_its_steps(*operations)
        for operations in (("allreduce", "broadcast"), ("broadcast",))
    )

    found = compare({0: first, 1: second})

    assert found is not None
    matched = found.together.matched
    seen = [
        (matched.names[name], all_there)
        for name, all_there in zip(matched.name, matched.complete.tolist())
    ]
    assert sorted(seen) == [
        ("all_reduce", False),
        ("all_reduce", True),
        ("all_reduce", True),
        ("broadcast", True),
    ]


def test_with_a_rank_missing_nobody_is_blamed_and_waiting_is_a_lower_bound():
    found = compared(Training(late=always(3, "input", 4), seen=(0, 1, 3)))

    assert found.communication.late == [] and not found.complete
    assert found.notes[0].startswith("1 of 4 ranks have no trace here (2)")
    assert any("lower bound" in note for note in found.notes)
    assert waited(found, 0) == 24 * MS


def test_ranks_that_only_a_groups_size_tells_of_are_not_counted_as_more_of_them():
    everybody = CollectiveArgs("allreduce", "0", (0, 1, 2, 3), 4, None, 250_000, 250_000, "Float")
    some = CollectiveArgs("allreduce", "tp", (), 3, None, 250_000, 250_000, "Float")
    plan = Training(seen=(0, 1), args=[everybody, some] * 6, numbered=True)

    found = compared(plan)
    alone = compared(replace(plan, args=[some] * 12))

    assert found.notes[0].startswith("2 of 4 ranks have no trace here (2, 3)")
    assert alone.notes[0].startswith("some groups have ranks that left no trace here: ")
    assert not found.complete and not alone.complete


def test_a_trace_of_another_training_is_named_as_that_and_not_as_missing():
    mine, other = (
        [CollectiveArgs("allreduce", "0", (0, 1, 2, 3), 4, None, count, count, "Float")] * 4
        for count in (250_000, 999)
    )
    traces = trained(Training(late=always(3, "input", 4), args=mine, numbered=True))
    foreign = trained(Training(args=other, numbered=True))

    found = compare({**traces, 2: foreign[2]})

    assert found is not None and not found.complete
    assert found.notes[0].startswith(
        "rank 2 is left out of the comparison: 12 of its 12 collectives differ"
    )
    assert any("lower bound" in note for note in found.notes)
    assert not any("no trace" in note or "no records" in note for note in found.notes)


def test_one_trace_alone_is_not_compared():
    assert compare(trained(Training(seen=(0,)))) is None


@pytest.mark.parametrize("said", ["nccl:all_to_all", ""])
def test_send_and_receive_kernels_of_all_ranks_are_all_to_all(said):
    found = compared(
        Training(
            late=always(2, "input", 8),
            collective="ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)",
            said=said,
        )
    )

    assert {kind.name for kind in found.communication.collectives} == {"all_to_all"}
    assert found.communication.late[0].rank == 2
    assert any("counted as all_to_all" in note for note in found.notes) == (not said)


def test_sends_between_two_ranks_are_not_taken_for_something_that_all_take_part_in():
    found = compared(
        Training(
            late=always(2, "input", 8),
            collective="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
            said="nccl:send",
        )
    )
    assert len(found.last) == 0 and found.communication.late == []


def test_bytes_come_from_elements_and_their_type():
    found = compared(
        Training(
            args=[CollectiveArgs("allreduce", "0", None, 4, None, 1_000_000, 1_000_000, "BFloat16")]
            * 4
        )
    )
    (kind,) = found.communication.collectives
    assert (kind.name, kind.bytes, kind.n) == ("all_reduce", 2_000_000, 4)
    assert kind.algbw_gbps == pytest.approx(2e6 / 1e-3 / 1e9)


def test_a_shard_of_an_all_gather_counts_as_the_whole_message():
    found = compared(
        Training(
            args=[CollectiveArgs("_allgather_base", "0", None, 4, None, 1_000, 4_000, "Float")] * 4
        )
    )
    assert [kind.bytes for kind in found.communication.collectives] == [16_000]


def test_groups_of_one_name_with_their_ranks_known_are_kept_apart():
    args = [
        CollectiveArgs("allreduce", "1", (0, 1) if rank < 2 else (2, 3), 2) for rank in range(4)
    ]
    found = compared(Training(args=args))
    assert {kind.n for kind in found.communication.collectives} == {2}
    assert len(found.last) == 24


def test_groups_of_one_name_whose_ranks_nobody_knows_are_left_out_and_said():
    found = compared(Training(args=[CollectiveArgs("allreduce", "1", None, 2)] * 4))
    assert len(found.last) == 0
    assert "several groups of 2 ranks are named '1'" in found.notes[0]


def test_a_single_collective_still_tells_by_how_long_each_rank_was_in_it():
    found = compared(
        Training(steps=1, collectives=1, late=always(1, "input", 5, 1), clocks={2: 90 * MS})
    )

    assert found.communication.clock_bound_s == pytest.approx(144e-6)
    assert found.communication.late[0].rank == 1
    assert waited(found, 2) == 5 * MS
    assert "too few to tell whether it is always this rank" in found.notes[-1]


def test_traces_of_different_times_are_doubted():
    found = compared(Training(clocks={2: 30_000 * MS}))
    assert any("ranks 0 and 2 are 30 s apart" in note for note in found.notes)


def test_traces_that_cannot_belong_together_say_nothing_across_ranks():
    one, other = (
        trained(Training(ranks=2, world_size=2)),
        trained(Training(ranks=2, world_size=2, between=40.0)),
    )
    found = compare({0: one[0], 1: other[1]})

    assert found is not None
    assert found.waiting == {} and found.budgets == {} and found.communication.clocks == "none"
    assert any("do not fit together" in note for note in found.notes)


def test_a_rank_that_was_late_when_its_trace_began_is_not_blamed_for_what_the_trace_shows():
    plan = Training(steps=1, collectives=6, late=always(1, "input", 20, 1))
    cut = trained(plan)
    found = compare({**cut, 1: late_start(cut[1])})
    assert found is not None
    assert found.communication.late[0].rank == 1
    assert found.communication.late[0].phase == "before_trace"


def late_start(trace):
    """As if the profiler had begun after the wait for the batch."""
    before = trace.collectives.before.copy()
    before[0] = 0
    return replace(trace, collectives=replace(trace.collectives, before=before))


def test_the_order_in_which_ranks_are_given_does_not_matter():
    found = trained(Training(late=always(2, "input", 8)))
    forth, back = compare(found), compare(dict(reversed(found.items())))
    assert forth is not None and back is not None
    assert forth.communication == back.communication
    assert all(np.array_equal(forth.waiting[rank], back.waiting[rank]) for rank in range(4))
