"""Many ranks: reduced rank by rank, the result does not depend on who did it, and what is wrong
with some of them is named.
"""

import functools
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.record import RUNS
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling.made_up import MS, rank

from feedline.__main__ import main
from feedline.analysis.ranks import bandwidth
from feedline.analysis.ranks.aligned_clocks import Alignment
from feedline.analysis.ranks.cross_rank import combine
from feedline.analysis.ranks.many import reduce
from feedline.analysis.ranks.many.envelope import Envelope
from feedline.analysis.ranks.many.passes import find_sources, survey_ranks
from feedline.analysis.ranks.many.rank_pool import dask, here
from feedline.analysis.ranks.match import match
from feedline.analysis.ranks.partition import RANK_PARTS
from feedline.analysis.report.document import Headline, Note, Table
from feedline.analysis.report.json_report import plain
from feedline.analysis.traces.collectives import PHASES, UNKNOWN_HOST
from feedline.cli.report.by_rank import document_of
from feedline.profiler import proc
from feedline.profiler.errors import RunDamaged, RunNotFound, WorkersLost
from feedline.profiler.store.run_folder import Rank
from feedline.profiler.store.trainings import open_run

RANKS, STEPS, BUCKETS, HALF_WAY = 6, 12, 4, 7


@pytest.fixture(scope="module")
def plan(synthetic):
    return synthetic.Plan(RANKS, STEPS, BUCKETS, per_host=3)


@pytest.fixture(scope="module")
def whole(synthetic, plan, tmp_path_factory) -> Path:
    """A run of six ranks on two hosts whose clocks are 3 s apart."""
    path = tmp_path_factory.mktemp("many") / "run"
    for number in range(RANKS):
        synthetic.write_rank(path, plan, number)
    return path


@pytest.fixture
def copied(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def reduced(*paths: Path | str):
    with here() as pool:
        return reduce.reduce_ranks([str(path) for path in paths], pool)


def test_who_was_late_and_what_the_others_waited_is_found(synthetic, plan, whole):
    found = reduced(whole)

    late = [plan.late_rank(step) for step in range(2, STEPS)]
    for one in found.ranks:
        expected = late.count(one.rank) / len(late) * synthetic.LATE / 1e9 * (RANKS - 1)
        assert one.caused_s == pytest.approx(expected, abs=2e-5)
    assert found.late[0].rank == 3


def test_the_parts_of_each_rank_sum_to_its_step(whole):
    for one in reduced(whole).ranks:
        assert sum(getattr(one, f"{name}_s") for name in RANK_PARTS) == pytest.approx(
            one.step_s, abs=1e-12
        )


def with_a_gap(one: Rank):
    """As of a run that forgot the window of steps 4 to 6."""
    found = reduce._of_rank(one)
    place = found.step_at(found.table["start"])
    return replace(
        found,
        steps=np.delete(found.steps, [4, 5, 6], 0),
        table=found.table[(place < 4) | (place > 6)],
    )


def test_what_a_run_forgot_is_in_no_step(whole):
    with here() as pool:
        found = reduce.reduce_ranks([str(whole)], pool, with_a_gap)

    for one in found.ranks:
        assert one.steps == STEPS - 3
        assert one.step_s == pytest.approx(0.1, rel=0.02)
        assert sum(getattr(one, f"{name}_s") for name in RANK_PARTS) == pytest.approx(
            one.step_s, abs=1e-12
        )


def loaded(path: Path):
    return [
        found
        for _, one in sorted(open_run(path).ranks.items())
        if (found := reduce._of_rank(one)) is not None
    ]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_rank_is_split_as_the_report_of_all_ranks_at_once_splits_it(whole, recorded):
    """Also in a recorded run over gloo, whose first rank waits for the second in the broadcasts of
    its buffers.
    """
    path = RUNS / "ranks" if recorded else whole
    together, costs = combine(loaded(path)), {one.rank: one for one in reduced(path).ranks}
    for number, part in together.partitions.items():
        for name in RANK_PARTS:
            assert getattr(costs[number], f"{name}_s") == pytest.approx(
                part.parts[name][2:].mean() / 1e9, abs=1e-9
            ), (number, name)


@pytest.mark.parametrize("recorded", [False, True])
def test_bus_bandwidth_by_rank_is_that_of_the_report(whole, recorded):
    path = RUNS / "ranks" if recorded else whole
    report = {
        (kind.name, kind.bytes, kind.n): kind.busbw_gbps
        for kind in bandwidth.collective_kinds(combine(loaded(path)))
    }
    by_rank = {
        (kind.name, kind.nbytes, kind.ranks): kind.busbw_gbps
        for kind in reduced(path).kinds
        if kind.busbw_gbps
    }

    assert by_rank and by_rank == {
        label: pytest.approx(report[label], rel=1e-4) for label in by_rank
    }


def in_one(name: str, starts: list[int], ends: list[int]):
    """Ranks of one collective, ms."""
    return [
        replace(
            rank(number, np.array([[start]]) * MS, np.array([[end]]) * MS, len(starts)),
            names=[name],
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def envelope_of(ranks):
    return functools.reduce(Envelope.merge, map(Envelope.of, ranks))


@pytest.mark.parametrize(
    ("name", "starts", "ends", "waited"),
    [
        ("allreduce_", [0, 20, 5], [21, 21, 21], [20, 0, 15]),
        ("broadcast_", [0, 20], [21, 21], [20, 0]),  # gloo: the root waits for its receiver
        ("broadcast_", [0, 20], [1, 21], [0, 0]),  # NCCL: the bytes wait for it
        ("broadcast_", [20, 0], [21, 21], [0, 20]),
        ("broadcast_", [5, 0, 20], [6, 6, 21], [0, 5, 0]),
        ("broadcast_", [20, 0, 25], [26, 21, 26], [5, 20, 0]),
        ("reduce_", [0, 20, 10], [21, 20, 11], [20, 0, 0]),
    ],
)
def test_whom_ranks_wait_for_in_a_collective_is_the_same_by_rank_and_in_the_report(
    name, starts, ends, waited
):
    ranks = in_one(name, starts, ends)
    together, envelope = combine(ranks), envelope_of(ranks)

    for one, expected in zip(ranks, waited, strict=True):
        for found in (together.arrivals[one.rank], envelope.arrivals(one, together.bound)):
            assert found.last[0] - one.table["start"][0] == expected * MS
            assert not expected or starts[found.ranks[found.late[0]]] == starts[one.rank] + expected


times = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=3, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(times, min_size=2, max_size=4),
    st.sampled_from(["allreduce_", "broadcast_", "reduce_"]),
)
def test_by_rank_two_ranks_wait_as_in_the_report_and_more_ranks_no_longer(each, name):
    ranks = []
    for number, spans in enumerate(each):
        starts = np.sort(np.array([start for start, _ in spans]))[None] * MS
        ranks.append(
            replace(
                rank(
                    number, starts, starts + np.array([took for _, took in spans]) * MS, len(each)
                ),
                names=[name],
            )
        )
    together, envelope = (
        combine(
            ranks,
            lambda ranks, matched: Alignment([one.clock for one in ranks], 0.0, "measured", []),
        ),
        envelope_of(ranks),
    )

    for one in ranks:
        report, by_rank = together.arrivals[one.rank], envelope.arrivals(one, 0.0)
        if len(ranks) == 2 or name == "allreduce_":
            assert (by_rank.last == report.last).all() and (by_rank.free == report.free).all()
        assert (by_rank.last <= report.last).all()


def test_a_dask_cluster_of_two_workers_finds_the_same(whole):
    import distributed

    settings = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": None,
        "protocol": "tcp",
    }
    with distributed.LocalCluster(**settings) as cluster, dask(cluster.scheduler_address) as pool:
        found = reduce.reduce_ranks([str(whole)], pool)

    assert found == reduced(whole)


def test_no_scheduler_at_the_address_is_told(whole):
    with pytest.raises(WorkersLost, match="127.0.0.1:1 "), dask("tcp://127.0.0.1:1", wait_s=0.2):
        pass


def test_ranks_elsewhere_are_read_through_fsspec(whole):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(whole), "/elsewhere", recursive=True)
    try:
        assert reduced("memory://elsewhere") == reduced(whole)
    finally:
        memory.rm("/elsewhere", recursive=True)


def test_folders_of_several_nodes_are_one_run(whole, copied, tmp_path):
    (tmp_path / "node1").mkdir()
    for number in range(3, RANKS):
        (copied / f"rank{number}").rename(tmp_path / "node1" / f"rank{number}")

    assert reduced(copied, tmp_path / "node1") == reduced(whole)


def test_a_rank_in_two_folders_is_two_runs(whole, copied):
    with pytest.raises(RunDamaged, match="rank 0 is in .* and in .*: these are two runs"):
        reduced(whole, copied)


def test_a_rank_of_another_launch_on_the_same_host_is_named_and_left_out(synthetic, plan, copied):
    shutil.rmtree(copied / "rank2")
    without = reduced(copied)
    synthetic.write_rank(copied, replace(plan, launch="another", later=3600 * 10**9), 2)

    found = reduced(copied)

    assert found.notes == [
        "rank 2 is left out: its folder belongs to a different launch than ranks 0, 1 on the same "
        "host"
    ]
    assert (found.ranks, found.incomplete) == (without.ranks, STEPS * BUCKETS)


def test_each_host_may_have_a_launch_of_its_own_and_each_rank_that_was_typed_by_hand(
    synthetic, plan, whole, copied, tmp_path
):
    for number in range(RANKS):
        synthetic.write_rank(
            tmp_path / "torchrun", replace(plan, launch=f"of host {number // 3}"), number
        )
        manifest = copied / f"rank{number}" / "manifest.json"
        written = json.loads(manifest.read_text())
        written["place"]["launcher"], written["launch"] = "env", f"of rank {number}"
        manifest.write_text(json.dumps(written))

    assert reduced(tmp_path / "torchrun") == reduced(copied) == reduced(whole)


def test_where_ranks_cannot_have_met_no_waiting_is_claimed(synthetic, plan, copied):
    for number in range(3, RANKS):  # the other host, where a launch may have another name
        shutil.rmtree(copied / f"rank{number}")
        synthetic.write_rank(copied, replace(plan, launch="another", later=3600 * 10**9), number)

    found = reduced(copied)

    assert found.clock_bound_s is None and found.late == []
    assert any(
        note.startswith("ranks ended 100.0 % of their collectives before others had begun them")
        for note in found.notes
    )
    (headline,), (note, *_) = document_of(found).of(Headline), document_of(found).of(Note)
    assert headline.text == (
        "Whether a rank delays the others is unknown: their clocks cannot be compared."
    )
    assert note.text.endswith(" The clocks cannot be compared.")


def unseen(one: Rank, kept: int):
    """As of ranks whose collectives, all but these, another library carried out."""
    made = reduce._of_rank(one)
    return replace(made, table=made.table[:kept], unseen=["collectives of horovod are not seen"])


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        (0, "Whether a rank delays the others is unknown: what they exchange was not seen."),
        (
            1,
            "In the collectives that were seen, no rank delays the others by more than 1.0 % of the step.",
        ),
    ],
)
def test_ranks_whose_collectives_were_not_seen_are_not_cleared(whole, kept, verdict):
    with here() as pool:
        found = reduce.reduce_ranks([str(whole)], pool, functools.partial(unseen, kept=kept))

    assert found.together is None
    (headline,), (note, *_) = document_of(found).of(Headline), document_of(found).of(Note)
    assert headline.text == verdict
    assert ("no collectives seen" in note.text) == (kept == 0)


def without_steps(one: Rank, kept: int, training: bool = True):
    """As of a run that made no more steps than that; all collectives are outside of training."""
    made = reduce._of_rank(one)
    table = made.table.copy()
    if not training:
        table["phase"], table["bucket"] = PHASES.index("other"), False
    return replace(made, steps=made.steps[:kept], table=table)


@pytest.mark.parametrize(
    ("kept", "training", "why"),
    [
        (0, True, "no step was recorded"),
        (0, False, "no step was recorded"),
        (1, True, "only 1 step was recorded"),
        (5, True, "only 5 steps were recorded"),
    ],
)
def test_of_too_few_steps_nothing_is_concluded(whole, kept, training, why):
    load = functools.partial(without_steps, kept=kept, training=training)
    with here() as pool:
        found = reduce.reduce_ranks([str(whole)], pool, load)

    document = document_of(found)
    (headline,) = document.of(Headline)
    assert found.together is (True if training else None)
    assert headline.text == f"Whether a rank delays the others is unknown: {why}."
    assert [table.title for table in document.of(Table)] == ["Mean step", "Collectives"]


def without_host(one: Rank):
    made = reduce._of_rank(one)
    return replace(made, host=UNKNOWN_HOST) if one.number == 1 else made


def test_hosts_are_not_counted_where_one_is_unknown(whole):
    with here() as pool:
        found = reduce.reduce_ranks([str(whole)], pool, without_host)

    assert document_of(found).of(Note)[0].text.startswith(f"6 of 6 ranks, {STEPS} steps")


@pytest.mark.parametrize(("early", "share"), [(2 * MS, 1 / 6), (MS // 2, 0.0)])
def test_an_end_before_the_last_begin_contradicts_beyond_the_slack(early, share):
    starts = np.array([[31, 40], [33, 41], [35, 42]]) * MS
    first, second = (rank(number, starts, starts + 5 * MS, 2) for number in range(2))
    first.table["end"][3] = second.table["start"][3] - early

    made = Envelope.of(first).merge(Envelope.of(second))

    assert made.contradicting(2000.0) == pytest.approx(share)
    assert Envelope.of(first).contradicting(2000.0) == 0.0


def test_a_missing_rank_is_named_and_its_collectives_are_counted(copied):
    shutil.rmtree(copied / "rank3")

    found = reduced(copied)

    assert any("rank 3 of 6 left no folder" in note for note in found.notes)
    assert (len(found.ranks), found.incomplete) == (RANKS - 1, STEPS * BUCKETS)


def test_a_shorter_rank_is_named(synthetic, plan, copied):
    shutil.rmtree(copied / "rank4")
    synthetic.write_rank(copied, plan, 4, steps=HALF_WAY, compacted=False)

    found = reduced(copied)

    assert f"rank 4 completed {HALF_WAY} of {STEPS} steps" in found.notes
    assert any(note.startswith("rank 4 was killed") for note in found.notes)
    assert found.incomplete == (STEPS - HALF_WAY) * BUCKETS


def test_ranks_that_were_killed_are_several_and_what_nobody_kept_is_not_counted_as_made(
    synthetic, plan, copied
):
    for number in (3, 4):
        shutil.rmtree(copied / f"rank{number}")
        synthetic.write_rank(copied, plan, number, steps=HALF_WAY, compacted=False)

    with here() as pool:
        found = reduce.reduce_ranks(
            [str(copied)], pool, lambda one: replace(reduce._of_rank(one), stride=2)
        )

    assert found.notes == [
        f"ranks 3, 4 completed {HALF_WAY} of the {STEPS} steps that others kept",
        "ranks 3, 4 were killed: everything up to then is shown",
    ]


def test_a_rank_whose_process_runs_is_live_to_those_that_compare_it(synthetic, plan, tmp_path):
    synthetic.write_rank(tmp_path, plan, 0, compacted=False)
    path = tmp_path / "rank0" / "manifest.json"
    written = json.loads(path.read_text())
    dead = reduce._of_rank(open_run(tmp_path).ranks[0])
    written |= {"pid": os.getpid(), "pid_started": proc.started(os.getpid())}
    path.write_text(json.dumps(written))

    assert not dead.live
    assert reduce._of_rank(open_run(tmp_path).ranks[0]).live


def test_a_rank_that_forgot_more_windows_is_named_and_not_taken_for_a_shorter_one(whole):
    def load(one):
        made = reduce._of_rank(one)
        return replace(made, stride=2, steps=made.steps[::2]) if one.number == 4 else made

    with here() as pool:
        found = reduce.reduce_ranks([str(whole)], pool, load)

    assert [note.partition(":")[0] for note in found.notes] == [
        "rank 4 kept 1 of 2 windows of 64 batches, others all"
    ]


def test_a_run_that_goes_on_while_it_is_read_is_taken_as_it_was_at_the_first_look(
    synthetic, plan, tmp_path
):
    early, later = tmp_path / "early", tmp_path / "later"
    for number in range(RANKS):
        synthetic.write_rank(early, plan, number, steps=HALF_WAY, compacted=False)
        synthetic.write_rank(later, plan, number, compacted=False)
    looks: Counter[int] = Counter()

    def load(one):
        looks[one.number] += 1
        return reduce._of_rank(
            one if looks[one.number] == 1 else replace(one, folder=later / one.folder.name)
        )

    with here() as pool:
        found = reduce.reduce_ranks([str(early)], pool, load)

    late = [
        plan.late_rank(step) for step in range(2, HALF_WAY - 1)
    ]  # of the last step, the second look finds another end
    for one in found.ranks:
        assert one.caused_s == pytest.approx(
            late.count(one.rank) / len(late) * synthetic.LATE / 1e9 * (RANKS - 1), abs=2e-5
        )
        assert (
            sum(getattr(one, f"{name}_s") for name in RANK_PARTS)
            == pytest.approx(one.step_s, abs=1e-12)
            == pytest.approx(0.1)
        )
    assert found.collectives == HALF_WAY * BUCKETS


def test_a_group_that_nobody_had_at_the_first_look_has_its_own_times():
    starts = np.array([[31, 40], [33, 41]]) * MS
    known, new = rank(0, starts, starts + MS, 2), rank(0, starts, starts + MS, 2, group="new")

    assert (
        Envelope.of(known).rows_of(new)["start_max"] == new.clock.to_reference(new.table["start"])
    ).all()


def test_after_a_restart_only_the_last_start_counts(synthetic, plan, copied, whole):
    for number in range(RANKS - 1):
        synthetic.write_rank(copied, plan, number, restart=1)

    found = reduced(copied)

    assert found.notes[0].startswith("the launcher started the ranks again 1 time:")
    assert "rank 5 did not come back after the last restart" in found.notes
    assert [one.rank for one in found.ranks] == list(range(RANKS - 1))


def test_a_damaged_rank_is_named_and_the_others_are_shown(copied):
    (copied / "rank2" / "events.parquet").write_bytes(b"PAR1")

    found = reduced(copied)

    (told,) = [note for note in found.notes if note.startswith("rank 2 is left out: ")]
    assert ".parquet cannot be read" in told and str(copied) not in told
    assert len(found.ranks) == RANKS - 1


def test_a_place_without_ranks_is_refused(tmp_path):
    with pytest.raises(RunNotFound, match="contains no rank folder"):
        reduced(tmp_path)
    (tmp_path / "training-1").mkdir()
    with pytest.raises(RunNotFound, match="one of its trainings, such as .*training-1"):
        reduced(tmp_path)


def test_the_command_finds_the_same_in_processes_and_prints_it(whole, tmp_path, capsys):
    out = tmp_path / "ranks.json"

    assert main(["report", "--by-rank", str(whole), "--processes", "2", "--json", str(out)]) == 0

    said = capsys.readouterr().out
    assert "6 of 6 ranks on 2 hosts" in said and "Stragglers" in said
    assert max(map(len, said.splitlines())) <= 80
    assert json.loads(out.read_text()) == json.loads(json.dumps(plain(reduced(whole))))


def test_quiet_ranks_print_nothing(whole, capsys):
    assert main(["report", "--by-rank", str(whole), "--processes", "1", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_envelopes_merge_in_any_order():
    starts = np.array([[31, 40], [33, 41], [35, 42]]) * MS
    parts = [
        Envelope.of(rank(number, starts + number % 3 * MS, starts + 9 * MS, 4))
        for number in range(4)
    ]
    one_by_one = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
    by_twos = parts[3].merge(parts[1]).merge(parts[2].merge(parts[0]))

    (a,), (b,) = one_by_one.groups.values(), by_twos.groups.values()
    assert a.first == b.first
    assert (a.rows == b.rows).all()
    assert a.rows["last"].tolist() == [2] * 6
    assert a.rows["ranks"].tolist() == [4] * 6


def test_a_group_that_was_made_again_is_another_one_as_in_the_report():
    starts = np.array([[31, 40], [33, 41], [35, 42]]) * MS
    ranks = [rank(number, starts, starts + MS, 2) for number in range(2)]
    for one, numbers in zip(ranks, ([0, 1, 2, 0, 1, 2], [0, 2, 1, 0, 1, 2]), strict=True):
        one.table["sequence"] = numbers

    made = Envelope.of(ranks[0]).merge(Envelope.of(ranks[1]))

    assert [key.generation for key in sorted(made.groups)] == [0, 1]
    assert [extents.rows["ranks"].tolist() for extents in made.groups.values()] == [[2, 2, 2]] * 2
    assert match(ranks).complete.tolist() == [True] * 6


def test_a_survey_of_nothing_readable_says_why(copied):
    for number in range(RANKS):
        (copied / f"rank{number}" / "manifest.json").write_text("{")

    assert set(survey_ranks(find_sources([str(copied)]).found, reduce._of_rank).unread) == set(
        range(RANKS)
    )
    with pytest.raises(RunDamaged, match="no rank of .* can be read; rank 0"):
        reduced(copied)
