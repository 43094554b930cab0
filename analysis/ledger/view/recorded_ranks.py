"""What the ranks of a recorded run cost each other."""

from feedline.analysis.ledger.facts import Exposed, RankFacts, RuleInputs, Waiting
from feedline.analysis.ledger.finding import SHARE, Evidence
from feedline.analysis.measure.code_places import OTHER, origin
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.ranks.communication import Communication
from feedline.analysis.text.sentences import COUNT, Sentence
from feedline.profiler.store.sampled_stacks import StackFrame

_LEAST = Sentence("that is on rank {rank}, where it is least", rank=COUNT)
_RECORD_ALL = [
    "Record all ranks in one `feedline run`.",
    "The notes say which rank is missing, or what is wrong with its clock.",
]


def recorded(facts: RuleInputs) -> RankFacts | None:
    """Return what the recorded ranks cost each other.

    None: there is one rank, or no collective was seen.
    """
    comm, parts, step_s = facts.comm, facts.comm_parts, facts.step.mean_s
    if comm is None:
        return None
    late = comm.late if comm.late and comm.late[0].late_steps >= FEWEST_STEPS else []
    most = max(parts, key=lambda rank: parts[rank].wait_s, default=0)
    wait_s = parts[most].wait_s if parts else 0.0
    share = wait_s / step_s if step_s else 0.0
    waiting = Waiting(
        most,
        wait_s,
        step_s,
        share,
        parts.get(most),
        evidence=[
            Evidence(
                "waiting_for_rank_share",
                f"rank {most} waits for other ranks",
                share,
                SHARE,
                str(most),
            )
        ],
    )
    return RankFacts(len(parts), "the step", comm, late, waiting, _exposed(facts, comm), facts.code)


def _exposed(facts: RuleInputs, comm: Communication) -> Exposed | None:
    parts, step_s = facts.comm_parts, facts.step.mean_s
    if not parts or not step_s:
        return None
    rank = min(parts, key=lambda rank: parts[rank].exposed_transfer_s or 0.0)
    exposed_s = parts[rank].exposed_transfer_s or 0.0
    hidden_s = parts[rank].hidden_transfer_s or 0.0
    separated = any(kind.transfer_s is not None for kind in comm.collectives)
    return Exposed(
        rank,
        exposed_s,
        exposed_s / step_s,
        beyond="backward",
        kinds=comm.exposed.get(str(rank), []) if separated else [],
        hidden_share=hidden_s / (hidden_s + exposed_s) if hidden_s + exposed_s else None,
        more=([_LEAST(rank=rank)] if len(parts) > 1 else []) if separated else [comm.network],
        separate=[] if separated else _RECORD_ALL,
        evidence=_evidence(comm, exposed_s, step_s)
        if separated
        else [Evidence("exposed_collectives_s", "exposed collectives per step", exposed_s, "s")],
        place=_called_at(facts),
        ddp=facts.ddp,
        sharded=facts.sharded,
    )


def _called_at(facts: RuleInputs) -> str:
    """Return file and line of the training loop that call collectives themselves for longest."""
    tree = facts.code.places.get((MAIN, OTHER)) if facts.code is not None else None
    lines: dict[tuple[str, int], float] = {}
    for node in tree.root.under() if tree is not None else ():
        for line, chains in node.below.items():
            for chain, seconds in chains.items():
                if any(_communicates(frame) for frame in chain):
                    lines[node.file, line] = lines.get((node.file, line), 0.0) + seconds
    file, line = max(lines, key=lambda at: lines[at], default=("", 0))
    return f"{file}:{line}" if file else ""


def _communicates(frame: StackFrame) -> bool:
    whose = origin(frame.file)
    return whose.owner == "torch" and whose.tail.startswith("distributed/")


def _evidence(comm: Communication, exposed_s: float, step_s: float) -> list[Evidence]:
    evidence = [
        Evidence("exposed_transfer_s", "exposed transfer per step", exposed_s, "s"),
        Evidence("share_of_step", "share of the step", exposed_s / step_s, SHARE),
    ]
    moved = next((kind for kind in comm.collectives if kind.busbw_gbps), None)
    if moved and moved.busbw_gbps:
        what = f"bus bandwidth, {moved.name} of {moved.bytes:,} B over {moved.n} ranks"
        evidence.append(
            Evidence("bus_bytes_per_s", what, moved.busbw_gbps * 1e9, "B/s", moved.name)
        )
    if comm.network_share is not None:
        evidence.append(
            Evidence(
                "share_of_ceiling", "bandwidth, share of its ceiling", comm.network_share, SHARE
            )
        )
    return evidence


#: Below it the median of few steps decides more than the ranks do: a run says nothing then, and
#: traces, which have few steps, say so.
FEWEST_STEPS = 4
