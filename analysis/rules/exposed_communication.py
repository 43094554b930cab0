"""Collectives move bytes while no backward runs: because the network is slow, or because there is that much to move."""

from collections.abc import Sequence

from feedline.analysis.comm.model import Communication, ExposedKind, Prediction
from feedline.analysis.comm.question import QuestionId
from feedline.analysis.facts import Facts
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.quantities import seconds, share

SLOW = "slow_network"
CAUSE = "exposed_communication"

#: The same gate as for the input (analysis/rules/held.py).
MIN_SHARE = 0.05

#: A bandwidth below this share of the link's or the probe's is not the message's fault.
SLOW_SHARE = 0.50

#: Share of the exposed transfer that is gradients, from which on the rest of it is not worth a word.
ALL_OF_IT = 0.99
SHOWN = 3  # kinds of collective in a sentence

#: What a program can change by itself: no other machine, and not the late rank's finding.
ADVICE: dict[QuestionId, str] = {
    "half_gradients": "Send gradients as bf16 (ddp_comm_hooks.default_hooks.bf16_compress_hook).",
    "accumulation": "Accumulate the gradients of several batches before sending them (no_sync).",
    "bucket_size": "Change the bucket size (bucket_cap_mb): ",
}
#: Where not gradients but parameters take most: (operation, phase) -> what FSDP2 can do about it.
GATHERED = {
    ("all_gather", "forward"): "Use larger batches per rank, parameters in bf16 (MixedPrecisionPolicy(param_dtype=torch.bfloat16)), "
    "or a faster link.",
    ("all_gather", "backward"): "Keep the parameters between forward and backward if memory allows (fully_shard(..., "
    "reshard_after_forward=False)), or gather them in bf16 (MixedPrecisionPolicy(param_dtype=torch.bfloat16)).",
}
ANY = "Use larger batches per rank, a smaller dtype for messages, or a faster link."
ALONE = "Train one rank alone. If its step takes as long, this finding is wrong."


def check(facts: Facts) -> Finding | None:
    """Weigh the exposed transfer of the rank that has least of it: what the others have more is waiting in disguise."""
    comm = facts.comm
    if comm is None or not facts.comm_parts:
        return None
    exposed_s = facts.comm_parts[least(facts)].exposed_transfer_s or 0.0
    part = exposed_s / facts.step.mean_s if facts.step.mean_s else 0.0
    if part < MIN_SHARE:
        return None
    if all(kind.transfer_s is None for kind in comm.collectives):
        return _untold(facts, comm, exposed_s)
    if comm.network_share is not None and comm.network_share < SLOW_SHARE:
        return _slow(facts, comm, exposed_s)
    return _exposed(facts, comm, exposed_s)


def least(facts: Facts) -> int:
    """The rank that has least exposed transfer."""
    return min(facts.comm_parts, key=lambda rank: facts.comm_parts[rank].exposed_transfer_s or 0.0)


def _least(facts: Facts) -> str:
    return f" on rank {least(facts)}, the rank with the least of it" if len(facts.comm_parts) > 1 else ""


def _slow(facts: Facts, comm: Communication, exposed_s: float) -> Finding:
    cost_s = exposed_s * (1 - (comm.network_share or 0.0))
    return Finding(
        SLOW,
        Severity.of(exposed_s / facts.step.mean_s),
        says=f"the network is slower than it should be: {comm.network}; transfer that is not hidden behind backward takes "
        f"{seconds(exposed_s)} per step",
        evidence=_evidence(facts, comm, exposed_s),
        fix="Check which transport and interface NCCL chose (NCCL_DEBUG=INFO: sockets instead of InfiniBand, shared memory instead of "
        "NVLink), and look for other traffic on the link.",
        disproof="Run `feedline probe --parts all_reduce` between the same hosts. If it is no faster than the training, this finding is "
        "wrong.",
        cost_s=cost_s,
    )


def _untold(facts: Facts, comm: Communication, exposed_s: float) -> Finding:
    return Finding(
        CAUSE,
        Severity.of(exposed_s / facts.step.mean_s),
        says=f"collectives that are not hidden behind backward take {seconds(exposed_s)} per step; {comm.network}",
        evidence=[Evidence("exposed_collectives_s", "exposed collectives per step", exposed_s, "s")],
        fix="Record all ranks in one run, with clocks that can be compared: the notes say which rank is missing, or what is wrong with its "
        "clock.",
        disproof=ALONE,
        cost_s=exposed_s,
    )


def _exposed(facts: Facts, comm: Communication, exposed_s: float) -> Finding:
    best = best_of(comm)
    network = f". {comm.network[:1].upper()}{comm.network[1:]}" if comm.network_share is not None else ""
    hidden_s = facts.comm_parts[least(facts)].hidden_transfer_s or 0.0
    kinds = comm.exposed.get(str(least(facts)), [])
    return Finding(
        CAUSE,
        Severity.of(exposed_s / facts.step.mean_s),
        says=f"{_moved(kinds)} {seconds(exposed_s)} per step{_least(facts)}{_by_kind(kinds)}; "
        f"{share(hidden_s / (hidden_s + exposed_s))} of the transfer is hidden behind backward{network}",
        evidence=_evidence(facts, comm, exposed_s),
        fix=_fix(best, kinds),
        disproof=ALONE,
        cost_s=exposed_s,
    )


def _gradients(kind: ExposedKind) -> bool:
    return kind.phase == "backward" and kind.name in ("all_reduce", "reduce_scatter")


def _of_gradients(kinds: Sequence[ExposedKind]) -> float:
    """Share (0 to 1) of the exposed transfer."""
    total = sum(one.transfer_s for one in kinds)
    return sum(one.transfer_s for one in kinds if _gradients(one)) / total if total else 0.0


def _moved(kinds: Sequence[ExposedKind]) -> str:
    return "exposed transfer of gradients takes" if _of_gradients(kinds) >= ALL_OF_IT else "exposed collectives take"


def _by_kind(kinds: Sequence[ExposedKind]) -> str:
    """``: all_gather in forward 30.2 ms, reduce_scatter in backward (gradients) 20.5 ms``; nothing where all of it is gradients."""
    if not kinds or _of_gradients(kinds) >= ALL_OF_IT:
        return ""
    told = [f"{one.name} {_when(one)}{seconds(one.transfer_s)}" for one in kinds[:SHOWN]]
    rest_s = sum(one.transfer_s for one in kinds[SHOWN:])
    return f": {', '.join([*told, f'other {seconds(rest_s)}'] if rest_s else told)}"


def _when(kind: ExposedKind) -> str:
    return f"in {kind.phase} {'(gradients) ' if _gradients(kind) else ''}" if kind.phase != "other" else ""


def best_of(comm: Communication) -> Prediction | None:
    """What would win most of that which a program can change by itself. Only what wins something at both ends of its interval."""
    return max((one for one in comm.what_if if one.id in ADVICE and _wins(one)), key=lambda one: one.gain_s, default=None)


def _wins(one: Prediction) -> bool:
    return one.step_s is not None and one.high is not None and one.high < one.step_s + one.gain_s


def _fix(best: Prediction | None, kinds: Sequence[ExposedKind]) -> str:
    if best is None and kinds and not _gradients(kinds[0]):
        return GATHERED.get((kinds[0].name, kinds[0].phase), ANY)
    if best is None:
        return "Use larger batches per rank, gradients in bf16, fewer updates (no_sync), or a faster link."
    return f"{ADVICE[best.id]}{best.what}." if best.id == "bucket_size" else ADVICE[best.id]


def _evidence(facts: Facts, comm: Communication, exposed_s: float) -> list[Evidence]:
    found = [Evidence("exposed_transfer_s", "exposed transfer per step", exposed_s, "s")]
    found += [Evidence("share_of_step", "share of the step", exposed_s / facts.step.mean_s, SHARE)] if facts.step.mean_s else []
    moved = next((kind for kind in comm.collectives if kind.busbw_gbps), None)
    if moved and moved.busbw_gbps:
        what = f"bus bandwidth, {moved.name} of {moved.bytes:,} B over {moved.n} ranks"
        found.append(Evidence("bus_bytes_per_s", what, moved.busbw_gbps * 1e9, "B/s", moved.name))
    if comm.network_share is not None:
        found.append(Evidence("share_of_ceiling", "bandwidth, share of its ceiling", comm.network_share, SHARE))
    return found
