"""Real traces of several ranks, against figures worked out from their JSON by hand."""

import gzip
import json

import numpy as np
import pytest
from needs import TRACES, real_traces

from feedline.analysis.ranks.aligned_clocks import align
from feedline.analysis.ranks.cross_rank import RankComparison
from feedline.analysis.ranks.match import match
from feedline.analysis.ranks.numbered_collectives import numbered
from feedline.analysis.ranks.traced_ranks import compare
from feedline.analysis.traces.kineto.kineto_reader import read_kineto
from feedline.analysis.traces.nsight.nsight_reader import read_nsight
from feedline.analysis.traces.rank_trace import RankTrace, summarise


def read(pattern: str) -> dict[int, RankTrace]:
    found = [summarise(read_kineto(str(path))) for path in real_traces(pattern)]
    return {one.rank: one for one in found if one.rank is not None}


@pytest.fixture(scope="module")
def dlrm() -> RankComparison:
    found = compare(read("dlrm8/*"))
    assert found is not None
    return found


def by_hand() -> np.ndarray:
    """[rank, collective, (start, length)] in us, of all kernels of NCCL's: the file has eight a
    rank, in the same order.
    """
    made = {}
    for path in real_traces("dlrm8/*"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        kernels = [
            one
            for one in trace["traceEvents"]
            if one.get("cat") == "kernel" and one["name"].startswith("nccl")
        ]
        made[trace["distributedInfo"]["rank"]] = sorted((one["ts"], one["dur"]) for one in kernels)
    return np.array([made[rank] for rank in range(8)])


def test_the_late_rank_of_eight_is_the_seventh(dlrm):
    (late,) = dlrm.communication.late
    assert (late.rank, late.steps, late.late_steps, late.all_steps) == (7, 1, 1, 1)
    assert not late.persistent  # one step does not tell
    assert late.waited_s == pytest.approx(5.08e-3, rel=0.01)


def test_it_is_the_last_where_its_kernels_are_the_shortest(dlrm):
    took = by_hand()[:, :, 1]
    assert took.argmin(0).tolist() == [7, 7, 7, 7, 7, 5, 5, 4]
    assert dlrm.last.tolist() == [7, 7, 7, 7, 7, 5, 5, 4]


def test_what_the_others_waited_is_what_their_kernels_took_longer(dlrm):
    took = by_hand()[:, :, 1].T * 1000
    assert dlrm.communication.clock_bound_s is not None
    bound = dlrm.communication.clock_bound_s * 1e9
    assert bound < 10_000
    longer = took - took.min(1, keepdims=True)
    waits = np.stack(
        [dlrm.together.arrivals[one.rank].last - one.table["start"] for one in dlrm.together.ranks],
        1,
    )
    assert np.abs(waits - longer).max() <= 3 * bound  # ends differ by up to 15 us
    assert (dlrm.waiting[1][0] - dlrm.waiting[1][0, 0]).tolist() == pytest.approx(
        [0, 7_624_000], abs=bound
    )


def test_it_came_late_into_its_trace_and_launched_late_within_it(dlrm):
    phases = dlrm.phases[7]
    assert list(phases)[:2] == ["before_trace", "launching"]
    assert phases["before_trace"] == pytest.approx(4.583e-3, abs=5e-6)
    assert phases["launching"] > 1e-3 > 10 * phases["wait"]


def test_exposed_communication_is_split_and_stays_the_same_in_sum(dlrm):
    reference = json.loads((TRACES / "reference.json").read_text())["traces"]
    exposed = {
        int(name.split("worker")[1].split("_")[0]): one["exposed_comm_us"]
        for name, one in reference.items()
        if "dlrm8" in name
    }
    for rank in range(8):
        parts = dlrm.budgets[rank].parts
        split = int(parts["waiting_for_rank"].sum() + parts["exposed_transfer"].sum())
        assert split == pytest.approx(
            exposed[rank] * 1000, abs=25_000
        )  # a copy beside it counts as communication here
        assert (
            sum(part.sum() for part in parts.values())
            == dlrm.budgets[rank].edges[-1] - dlrm.budgets[rank].edges[0]
        )


def test_two_of_128_ranks_do_not_tell_who_was_late():
    found = compare(read("kineto/sampled_rank*"))
    assert found is not None and not found.complete
    assert found.communication.late == []
    assert found.notes[0].startswith("126 of 128 ranks have no trace here") or any(
        note.startswith("126 of 128") for note in found.notes
    )


def test_clocks_from_ends_are_worth_what_the_one_clock_of_a_file_with_two_ranks_says():
    (path,) = real_traces("nsys/h100_2gpu_sendrecv.sqlite")
    traces = dict(enumerate(map(summarise, read_nsight(str(path)))))
    made, found = numbered(traces), compare(traces)
    passive = align(made.ranks, match(made.ranks))

    error = float(np.abs(passive.clocks[1].offset).max())
    assert error < 50_000
    assert found is not None and found.communication.clock_bound_s is not None
    assert found.communication.clock_bound_s * 1e9 == max(error, passive.bound)


def test_two_ranks_of_a_file_of_nsight_systems_are_compared():
    (path,) = real_traces("nsys/h100_2gpu_sendrecv.sqlite")
    found = compare(dict(enumerate(map(summarise, read_nsight(str(path))))))

    assert found is not None and found.complete
    assert (found.communication.late[0].rank, found.communication.late[0].phase) == (1, "launching")
    assert len(found.last) == 33
