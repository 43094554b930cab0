"""No advice about what is not there, of ranks: each fix with ranks that have what it takes for
granted, and others that do not.
"""

from dataclasses import replace

import pytest
from ranks.made_up import MB, Training, always, train
from ranks.test_findings import facts_of
from text.breath import advised
from user_code.made_stacks import LOOP, TORCH, stack, training

from feedline.analysis.ledger.facts import RankFacts
from feedline.analysis.ledger.view.recorded_ranks import recorded
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.garbage import COLLECTING
from feedline.analysis.ranks.communication import ExposedKind
from feedline.analysis.ranks.comparison import _compare_collectives
from feedline.analysis.rules import BY_ID, CROSS_RANK
from feedline.profiler.ceilings import Ceiling, Ceilings

GRADIENTS = Training(ranks=2, buckets=(MB, 20 * MB, 20 * MB), link=1e9)
TWO_HOSTS = replace(GRADIENTS, hosts=("a", "b"))


def ranks_of(plan: Training, **given: object) -> RankFacts:
    found = recorded(facts_of(plan, **given))
    assert found is not None
    return found


def late(phase: str, **changes: object) -> RankFacts:
    """Four ranks, of which the last is late in this phase."""
    facts = ranks_of(Training(late=always(3, range(30), "wait", 50.0)))
    return replace(facts, late=[replace(facts.late[0], phase=phase)], **changes)


def in_turns(phase: str) -> RankFacts:
    """Four ranks that are late in turns in this phase."""
    facts = ranks_of(Training(late={(step, step % 4): ("forward", 30.0) for step in range(30)}))
    return replace(facts, late=[replace(one, phase=phase) for one in facts.late])


def moving(
    name: str, phase: str, plan: Training = GRADIENTS, place: str = "", sharded: bool = False
) -> RankFacts:
    """Ranks whose exposed transfer is of this kind, and for which no change is predicted."""
    facts = facts_of(plan)
    kinds = dict.fromkeys(facts.comm.exposed, [ExposedKind(name, phase, 8e-3)])
    calls = [*LOOP, ("log.py", 7, "log"), (TORCH + "distributed/distributed_c10d.py", 9, name)]
    code = SampledCode.of([training(stack(calls, 60))]) if place else None
    comm = replace(facts.comm, exposed=kinds, what_if=[])
    found = recorded(replace(facts, comm=comm, code=code, sharded=sharded))
    assert found is not None
    return found


def sending(*questions: str) -> RankFacts:
    """Ranks for which only these changes are predicted."""
    facts = facts_of(GRADIENTS)
    kept = [one for one in facts.comm.what_if if one.id in ("as_it_was", *questions)]
    found = recorded(replace(facts, comm=replace(facts.comm, what_if=kept)))
    assert found is not None
    return found


def one_missing() -> RankFacts:
    """Ranks of which one left no records: transfer cannot be separated from waiting."""
    plan = Training(late=always(3, range(30), "wait", 50.0))
    compared = _compare_collectives(train(plan).ranks[:3])
    facts = replace(facts_of(plan), comm=compared.communication, comm_parts=compared.parts)
    found = recorded(facts)
    assert found is not None
    return found


def slow(plan: Training) -> RankFacts:
    """Ranks whose link was measured to carry nine times as much."""
    settings = {"backend": plan.backend, "ranks": plan.ranks, "bytes": 20 * MB}
    rate = settings | {"bus_bytes_per_s": 9e9}
    ceiling = Ceiling(f"all_reduce/{plan.backend}", "all_reduce", 1.0, unit="B/s", settings=rate)
    return ranks_of(plan, ceilings=Ceilings([ceiling]))


def on(plan: Training, backend: str) -> Training:
    return replace(plan, backend=backend)


#: Rule -> words of its fix or check, ranks that have what they take for granted, and ranks that do
#: not: then it is silent, or says something else.
CASES: dict[str, list[tuple[str, RankFacts, RankFacts]]] = {
    "late_rank": [
        ("loader", late("wait"), late("forward")),
        ("link to its device", late("copy"), late("wait")),
        ("update", late("optimizer"), late("backward")),
        ("gc.freeze", late(COLLECTING), late("other")),
        ("feedline.stage", late("other"), late("other", traced=True)),
        ("record_function", late("other", traced=True), late("other")),
        ("rank 3", late("evaluate"), in_turns("evaluate")),
    ],
    "late_ranks": [
        ("batches", in_turns("wait"), in_turns("backward")),
        ("gc.disable", in_turns(COLLECTING), in_turns("forward")),
        ("similar length", in_turns("forward"), in_turns("wait")),
        ("similar length", in_turns("forward"), late("forward")),
    ],
    "exposed_communication": [
        ("no_sync", sending("accumulation"), moving("all_gather", "forward")),
        ("compress_hook", sending("half_gradients"), sending("accumulation")),
        *(
            (words, moving(*kind, sharded=True), without)
            for words, kind in (
                ("reduce_dtype", ("reduce_scatter", "backward")),
                ("gradient accumulation", ("reduce_scatter", "backward")),
                ("param_dtype", ("all_gather", "forward")),
                ("reshard_after_forward", ("all_gather", "backward")),
            )
            for without in (moving(*kind), moving("barrier", "other", sharded=True))
        ),
        ("broadcast_buffers", moving("broadcast", "forward"), moving("broadcast", "other")),
        ("barrier", moving("barrier", "other"), moving("all_gather", "other")),
        ("metrics", moving("all_reduce", "other"), moving("all_reduce", "backward")),
        ("log.py:7", moving("all_gather", "other", place="log.py"), moving("all_gather", "other")),
        ("Record all ranks", one_missing(), sending("accumulation")),
        *(
            (
                "faster link",
                moving(name, phase, on(TWO_HOSTS, "gloo")),
                moving(name, phase, on(GRADIENTS, "gloo")),
            )
            for name, phase in (
                ("all_reduce", "backward"),
                ("all_gather", "forward"),
                ("reduce_scatter", "backward"),
                ("send_recv", "forward"),
            )
        ),
    ],
    "slow_network": [
        ("NCCL", slow(GRADIENTS), slow(on(TWO_HOSTS, "gloo"))),
        ("between hosts", slow(TWO_HOSTS), slow(GRADIENTS)),
        ("interface", slow(on(TWO_HOSTS, "gloo")), slow(on(GRADIENTS, "gloo"))),
        ("other traffic", slow(TWO_HOSTS), slow(GRADIENTS)),
        ("iperf3", slow(on(TWO_HOSTS, "gloo")), slow(on(GRADIENTS, "gloo"))),
        ("NCCL", slow(GRADIENTS), sending("accumulation")),
    ],
}


@pytest.mark.parametrize(
    ("rule_id", "words", "there", "missing"),
    [(rule_id, *case) for rule_id, cases in CASES.items() for case in cases],
)
def test_a_fix_takes_for_granted_only_what_the_ranks_have(rule_id, words, there, missing):
    finding, other = (BY_ID[rule_id].check(facts) for facts in (there, missing))

    assert finding is not None and words in f"{advised(finding)}\n{finding.how_to_check}"
    assert other is None or words not in f"{advised(other)}\n{other.how_to_check}"
    assert other is None or (other.fix and other.how_to_check)


def test_every_rule_about_ranks_has_such_a_pair():
    assert set(CASES) == {rule.rule_id for rule in CROSS_RANK}
