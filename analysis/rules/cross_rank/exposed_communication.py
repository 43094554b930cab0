"""Collectives move bytes while nothing computes.

The network is slow, or there is that much to move.
"""

import math
from collections.abc import Sequence

from feedline.analysis.ledger.facts import Exposed, RankFacts
from feedline.analysis.ledger.finding import Finding, Refused, Severity
from feedline.analysis.ledger.rule import Effort, Needs, Rule
from feedline.analysis.ledger.view.model_code import line_with
from feedline.analysis.ranks.communication import (
    MIN_EXPOSED_SHARE,
    Communication,
    ExposedKind,
    Prediction,
    QuestionId,
)
from feedline.analysis.text.formatting import seconds, sentence
from feedline.analysis.text.sentences import COUNT, NAME, PART, PERCENT, TIME, Sentence

_SLOW = "slow_network"
_RULE_ID = "exposed_communication"


#: A bandwidth below this share of the link's or the probe's is not the message's fault.
_SLOW_SHARE = 0.50

#: Share of the exposed transfer that is gradients, from which on the rest is not mentioned.
_ALL_OF_IT = 0.99
_MOST_OF_IT = 0.5  # and from which on a change of how gradients are sent is the fix
_SHOWN = 3  # kinds of collective in a sentence

#: What a program can change by itself: no other machine, and not the late rank's finding.
_ADVICE: dict[QuestionId, list[str]] = {
    "half_gradients": [
        "Send gradients as {dtype}: call model.register_comm_hook(None, "
        "default_hooks.{dtype}_compress_hook).",
        "Import it first: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`.",
    ],
    "accumulation": [
        "Send gradients and update once in {value:g} batches: accumulate them in between, with "
        "model.no_sync().",
        "Whether that costs epochs is in the report's section Convergence.",
    ],
    "bucket_size": ["Set DistributedDataParallel(..., bucket_cap_mb={value:g})."],
    "no_sync": [
        "Run all but the last of the {value:g} backward passes of an update, with their forward, "
        "under model.no_sync().",
        "Each of them sends all gradients now.",
    ],
}
#: The same in a few words.
_ACTIONS: dict[QuestionId, str] = {
    "half_gradients": "send gradients as {dtype}",
    "accumulation": "accumulate {value:g} batches",
    "bucket_size": "set bucket_cap_mb={value:g}",
    "no_sync": "send gradients once an update",
}
#: Those that wrap the backward pass; the others are arguments of what wraps the model.
_OF_UPDATES = ("accumulation", "no_sync")
_BACKWARD = r"\bbackward\("
_WRAPPED = r"\b(DistributedDataParallel|DDP|fully_shard|FullyShardedDataParallel|FSDP)\("
_LARGER_UPDATES = Sentence(
    "only if an effective batch of {times} times the samples is acceptable", times=COUNT
)
_ROUNDED = "if training tolerates rounded gradients"
_KEEP_BATCH = Sentence(f"Or keep the batch, {_ROUNDED}, which gives steps of {{step}}.", step=TIME)
_FASTER_LINK = "a faster link"
#: What to try where no single change is predicted to gain, and the prediction that rules it out if
#: it says otherwise.
_WAYS: dict[str, QuestionId | None] = {
    "larger batches per rank": None,
    f"gradients in half precision (a compression hook), {_ROUNDED}": "half_gradients",
    "gradient accumulation (no_sync)": "accumulation",
    "another bucket size (bucket_cap_mb)": "bucket_size",
    _FASTER_LINK: "faster_link",
}
#: Of messages so small that each takes its latency, whatever the link and their bytes.
_SMALL_BYTES = 64 * 1024
_SELDOM = [
    "Send less often: use larger batches per rank.",
    "The time of messages this small is latency.",
]
_ACCUMULATE = "Or use gradient accumulation (no_sync)."
_METRICS = [
    "Reduce values that are only shown less often, or several of them as one tensor (torch.stack).",
    "These all-reduces lie outside backward: they are the program's own, such as metrics.",
    "If they are gradients, let DistributedDataParallel reduce them.",
]
_OR_LINK = f"Or use {_FASTER_LINK}."
_SHARDED = [
    "Use larger batches per rank.",
    f"Or use gradients in bf16 (MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)), {_ROUNDED}.",
    "Or use gradient accumulation (set_requires_gradient_sync(False)).",
    _OR_LINK,
]
_IN_BF16 = (
    "in bf16 (MixedPrecisionPolicy(param_dtype=torch.bfloat16)), if training tolerates rounded "
    "parameters."
)
_PARAMETERS = [
    "Use larger batches per rank.",
    f"Or use parameters {_IN_BF16}",
    _OR_LINK,
]
_GATHERED = [
    "If memory allows, keep the parameters between forward and backward: fully_shard(..., "
    "reshard_after_forward=False).",
    f"Or gather them {_IN_BF16}",
]
#: Of collectives that the program calls itself, outside of forward and backward.
_OWN_PHASES = ("other", "optimizer", "loader")
_OWN = Sentence(
    "These calls of {name} lie outside forward and backward: they are the program's own, such as "
    "metrics.",
    name=NAME,
)
_SELDOMER = "Do this less often, or for several values in one call."
_BARRIER = [
    "Remove the barrier: gradients are exchanged in step anyway.",
    "A barrier in each step makes every rank wait for the slowest.",
]
_BUFFERS = [
    "Set DistributedDataParallel(..., broadcast_buffers=False), if each rank may keep its own buffers.",
    "Buffers, such as batch norm's statistics, are sent before each forward.",
]
#: Where DistributedDataParallel reduces them. Tensor parallelism reduces activations in backward.
_UNKNOWN_KIND = ("all_reduce", "")
_OF_GRADIENTS = (("all_reduce", "backward"), _UNKNOWN_KIND)
#: By the operation and the phase that take most; of traces, the phase is unknown.
_FIXES = {
    **dict.fromkeys(
        [("all_reduce", "other"), ("all_reduce", "optimizer"), ("all_reduce", "loader")], _METRICS
    ),
    ("broadcast", "forward"): _BUFFERS,
}
#: The same of FSDP, which gathers parameters and scatters gradients. Sequence parallelism does both
#: to activations.
_FIXES_OF_SHARDED = {
    **dict.fromkeys([("reduce_scatter", "backward"), ("reduce_scatter", "")], _SHARDED),
    **dict.fromkeys([("all_gather", "forward"), ("all_gather", "")], _PARAMETERS),
    ("all_gather", "backward"): _GATHERED,
}
_ANY = [
    "Use larger batches per rank.",
    "Or use a smaller dtype for messages, if training tolerates rounded values.",
    _OR_LINK,
]
_MOVED = Sentence(
    "{moved} not overlapped with {beyond} {take} {took} ({part} of {whole})",
    moved=PART,
    beyond=NAME,
    take=PART,
    took=TIME,
    part=PERCENT,
    whole=PART,
)
_KINDS = Sentence("by operation: {kinds}", kinds=PART)
_HIDDEN = Sentence("{part} of the transfer is hidden", part=PERCENT)
_NONE_HIDDEN = "none of the transfer is hidden"
_REACHES = Sentence(
    "collectives reach {part} of the available bandwidth, and transfer that {beyond} does not hide "
    "takes {took}",
    part=PERCENT,
    beyond=NAME,
    took=TIME,
)
_RDMA = "Check with NCCL_DEBUG=INFO that NCCL uses RDMA, not sockets, between hosts."
_P2P = "Check with NCCL_DEBUG=INFO that NCCL uses P2P (NVLink, PCIe), not shared memory."
_P2P_TOO = "Within a host, it should use P2P (NVLink, PCIe), not shared memory."
_INTERFACE = "Check which interface the backend chose."
_TRAFFIC = "Look for other traffic on the link."
_FEWER = "Send fewer and larger messages: those of a few kB never fill a link."
_UNKNOWN_GAIN = Refused(
    "no_replay",
    "No gain could be predicted for any single change. Try the suggested ones one at a time, "
    "recording after each.",
)
_NOT_SEPARATED = Refused(
    "no_replay", "The gain is unknown until transfer and waiting are separated."
)
_PROBE = "run `feedline probe --parts all_reduce` on this host"
_OR_PROBE = "On a single host, `feedline probe --parts all_reduce` can be used instead."
_NCCL_TESTS = "run all_reduce_perf of nccl-tests on the same hosts"
_IPERF = "run iperf3 between the same hosts"
#: A benchmark over a wrong transport is as slow as the training, which proves nothing.
_NO_FASTER = (
    "If the benchmark runs over the intended link and is no faster than the training, "
    "this finding is wrong."
)
_NO_SYNC = "Run all steps under model.no_sync(). If they are no faster, this finding is wrong."
_ALONE = (
    "Train on one rank, then on all, with the same batch per rank; if the model does not fit on "
    "one, give it fewer layers in both. If a "
    "step takes as long on one rank, this finding is wrong."
)


def _check(facts: RankFacts) -> Finding | None:
    """Find transfer that nothing hides, where the network is fast enough or its speed unknown."""
    exposed = facts.exposed
    if exposed is None or exposed.share < MIN_EXPOSED_SHARE or _slow(facts):
        return None
    best = _best(exposed, facts.comm) or _sent_in_each_pass(exposed, facts.comm)
    ways = exposed.separate or _fixes(best, exposed, facts.comm)
    fix, *others = ways
    return Finding(
        _RULE_ID,
        Severity.of(exposed.share),
        message=_moved(exposed, facts.whole),
        more=[
            *exposed.more,
            *_by_kind(exposed),
            *_hidden(exposed),
            *_network(facts),
        ],
        evidence=exposed.evidence,
        fix=fix,
        fix_more=others,
        place=_place(exposed) or _line(facts, best, ways),
        condition=_condition(exposed, best),
        how_to_check=_NO_SYNC if exposed.kinds and _of_ddp(exposed.kinds[0], exposed) else _ALONE,
        cost_s=exposed.s * (1 - 1 / _passes(best)) if best else exposed.s,
        action="" if best is None else _told_of(best, _ACTIONS[best.id], facts.comm),
    )


def _check_slow(facts: RankFacts) -> Finding | None:
    """Find transfer that nothing hides, where the network reaches less than half of its bandwidth."""
    exposed, comm = facts.exposed, facts.comm
    if exposed is None or comm is None or exposed.share < MIN_EXPOSED_SHARE or not _slow(facts):
        return None
    fix, *others = _ways_of_transport(comm)
    return Finding(
        _SLOW,
        Severity.of(exposed.share),
        message=_REACHES(part=comm.network_share, beyond=exposed.beyond, took=exposed.s),
        more=[comm.network],
        evidence=exposed.evidence,
        fix=fix,
        fix_more=others,
        how_to_check=f"{sentence(_benchmark(comm))} {_NO_FASTER}",
        cost_s=exposed.s * (1 - (comm.network_share or 0.0)),
    )


def _change(facts: RankFacts) -> Prediction | Refused:
    """Return what the replay of the buckets predicts for the change that the fix names."""
    if facts.exposed is not None and facts.exposed.separate:
        return _NOT_SEPARATED
    best = None if facts.exposed is None else _best(facts.exposed, facts.comm)
    return best or _UNKNOWN_GAIN


def _faster(facts: RankFacts) -> Refused:
    """Refuse to predict: what the network can do is unknown."""
    return Refused(
        "unknown_link",
        f"How much faster these ranks can communicate is unknown. To measure the network without "
        f"the training, {_benchmark(facts.comm)}",
    )


def _ways_of_transport(comm: Communication) -> list[str]:
    """Return what to check first of how the bytes travel, and more: only what these hosts have."""
    if _nccl(comm):
        ways = [_P2P] if comm.hosts == 1 else [_RDMA, _P2P_TOO]
    else:
        ways = [] if comm.hosts == 1 else [_INTERFACE]
    return [*ways, *([_TRAFFIC] if comm.hosts != 1 else []), _FEWER]


def _benchmark(comm: Communication | None) -> str:
    """Return how to measure the network without the training."""
    hosts = comm.hosts if comm is not None else None
    if hosts == 1:
        return f"{_PROBE}."
    way = _NCCL_TESTS if _nccl(comm) else _IPERF
    return f"{way}. {_OR_PROBE}" if hosts is None else f"{way}."


def _has_link(comm: Communication | None) -> bool:
    """Tell whether a link may be between the ranks: on one host, only NCCL uses any."""
    return comm is None or comm.hosts != 1 or _nccl(comm)


def _nccl(comm: Communication | None) -> bool:
    return comm is not None and bool(comm.collectives) and comm.collectives[0].backend == "nccl"


def _slow(facts: RankFacts) -> bool:
    known = facts.exposed is not None and not facts.exposed.separate
    return (
        known
        and facts.comm is not None
        and facts.comm.network_share is not None
        and facts.comm.network_share < _SLOW_SHARE
    )


def _network(facts: RankFacts) -> list[str]:
    comm = facts.comm
    told = (
        comm is not None
        and comm.network_share is not None
        and facts.exposed is not None
        and not facts.exposed.separate
    )
    return [comm.network] if comm is not None and told else []


def _hidden(exposed: Exposed) -> list[str]:
    if exposed.hidden_share is None or exposed.separate:
        return []
    return [_HIDDEN(part=exposed.hidden_share) if exposed.hidden_share else _NONE_HIDDEN]


def _gradients(kind: ExposedKind, exposed: Exposed) -> bool:
    scattered = exposed.sharded and kind.phase == "backward" and kind.name == "reduce_scatter"
    return scattered or _of_ddp(kind, exposed)


def _of_ddp(kind: ExposedKind, exposed: Exposed) -> bool:
    return exposed.ddp and kind.phase == "backward" and kind.name == "all_reduce"


def _of_gradients(exposed: Exposed) -> float:
    """Return the share (0 to 1) of the exposed transfer that is known to be gradients."""
    kinds = exposed.kinds
    total = sum(one.transfer_s for one in kinds)
    of_gradients = sum(one.transfer_s for one in kinds if _gradients(one, exposed))
    return of_gradients / total if total else 0.0


def _moved(exposed: Exposed, whole: str) -> str:
    of_gradients = _of_gradients(exposed) >= _ALL_OF_IT
    return _MOVED(
        moved="gradient transfer" if of_gradients else "collectives",
        beyond=exposed.beyond,
        take="takes" if of_gradients else "take",
        took=exposed.s,
        part=exposed.share,
        whole=whole,
    )


def _by_kind(exposed: Exposed) -> list[str]:
    """Return the exposed transfer by operation; nothing where all of it is gradients.

    ``by operation: all_gather in forward 30.2 ms, reduce_scatter in backward 20.5 ms``.
    """
    kinds = exposed.kinds
    if not kinds or _of_gradients(exposed) >= _ALL_OF_IT:
        return []
    told = [f"{one.name} {_when(one)}{seconds(one.transfer_s)}" for one in kinds[:_SHOWN]]
    rest_s = sum(one.transfer_s for one in kinds[_SHOWN:])
    return [_KINDS(kinds=", ".join([*told, f"other {seconds(rest_s)}"] if rest_s else told))]


def _when(kind: ExposedKind) -> str:
    return f"in {kind.phase} " if kind.phase not in ("", "other") else ""


def _best(exposed: Exposed, comm: Communication | None) -> Prediction | None:
    """Return the best change of how gradients are sent, if they are most of what is exposed."""
    mostly = not exposed.kinds or _of_gradients(exposed) >= _MOST_OF_IT
    return _best_of(comm) if exposed.ddp and mostly else None


def _sent_in_each_pass(exposed: Exposed, comm: Communication | None) -> Prediction | None:
    """Return the change that ends sending gradients in each backward pass of an update.

    It is sure to help, also where nothing can be replayed. None: gradients are sent once.
    """
    mostly = exposed.ddp and _of_gradients(exposed) >= _MOST_OF_IT
    if comm is None or not comm.what_if or not mostly:
        return None
    refused = comm.what_if[0].why  # the replay of the run itself: all that follow have this reason
    return next((one for one in comm.what_if if one.id == "no_sync" and one.why == refused), None)


def _passes(best: Prediction) -> float:
    """Return of how many backward passes a change leaves one that sends gradients."""
    return best.value or 1.0 if best.id in _OF_UPDATES else math.inf


def _best_of(comm: Communication | None) -> Prediction | None:
    """Return the change with the largest predicted gain.

    It is one that a program can make by itself and that gains at both ends of its interval.
    """
    told = comm.what_if if comm else []
    return max(
        (one for one in told if one.id in _ADVICE and _wins(one)),
        key=lambda one: one.gain_s,
        default=None,
    )


def _wins(one: Prediction) -> bool:
    return one.step_s is not None and one.high is not None and one.high < one.step_s + one.gain_s


def _fixes(best: Prediction | None, exposed: Exposed, comm: Communication | None) -> list[str]:
    """Return what to do first, and more."""
    kinds = exposed.kinds
    if best is not None:
        return _advice(best, comm)
    first_kind = (kinds[0].name, kinds[0].phase) if kinds else _UNKNOWN_KIND
    if not exposed.ddp or first_kind not in _OF_GRADIENTS:
        of_sharded = _FIXES_OF_SHARDED.get(first_kind) if exposed.sharded else None
        ways = of_sharded or _FIXES.get(first_kind) or _own(*first_kind) or _ANY
        return ways if _has_link(comm) else [way for way in ways if way != _OR_LINK]
    largest = max((one.bytes for one in comm.collectives), default=0) if comm is not None else 0
    if 0 < largest < _SMALL_BYTES and kinds and _of_ddp(kinds[0], exposed):
        return [*_SELDOM, *([_ACCUMULATE] if _open(comm, "accumulation") else [])]
    first, *others = [
        way
        for way, question in _WAYS.items()
        if (question is None or _open(comm, question)) and (way != _FASTER_LINK or _has_link(comm))
    ]
    return [f"Use {first}.", *(f"Or use {way}." for way in others)]


def _own(name: str, phase: str) -> list[str]:
    """Return what to do about a collective that the program calls itself; nothing of others."""
    if "barrier" in name:
        return _BARRIER
    return [_SELDOMER, _OWN(name=name)] if phase in _OWN_PHASES else []


def _place(exposed: Exposed) -> str:
    """Return the line that calls what takes most, if the program does so itself."""
    own = exposed.kinds and exposed.kinds[0].phase in _OWN_PHASES
    return exposed.place if own else ""


def _line(facts: RankFacts, best: Prediction | None, ways: Sequence[str]) -> str:
    """Return the line of the backward pass, or that wraps the model, if that is to be changed.

    Empty: it was not found, or the fix is elsewhere.
    """
    if facts.code is None:
        return ""
    if best is not None:
        return line_with(facts.code, _BACKWARD if best.id in _OF_UPDATES else _WRAPPED)
    return line_with(facts.code, _WRAPPED) if ways == _BUFFERS else ""


def _condition(exposed: Exposed, best: Prediction | None) -> str:
    """Return what must be true for the best change to leave the training as it is."""
    if best is None or exposed.separate:
        return ""
    if best.id == "half_gradients":
        return f"only {_ROUNDED}"
    return _LARGER_UPDATES(times=best.value) if best.id == "accumulation" else ""


def _advice(best: Prediction, comm: Communication | None) -> list[str]:
    """How to make the best change, and, where that changes the batch, one that does not."""
    told = [_told_of(best, advice, comm) for advice in _ADVICE[best.id]]
    what_if = comm.what_if if comm is not None else []
    halves = next((one for one in what_if if one.id == "half_gradients" and _wins(one)), None)
    if halves is None or halves.step_s is None or best.id != "accumulation":
        return told
    half = [_told_of(halves, advice, comm) for advice in _ADVICE["half_gradients"]]
    return [*told, _KEEP_BATCH(step=halves.step_s), *half]


def _told_of(best: Prediction, advice: str, comm: Communication | None) -> str:
    """Return advice with the values of a change; torch refuses bf16's hook without NCCL."""
    return advice.format(value=best.value, dtype="bf16" if _nccl(comm) else "fp16")


def _open(comm: Communication | None, question: QuestionId) -> bool:
    """Tell whether a change may gain: its prediction says so, or could not be made.

    What the program does already is not predicted.
    """
    if comm is None or not comm.what_if or comm.what_if[0].step_s is None:
        return True
    told = [one for one in comm.what_if if one.id == question]
    if question == "half_gradients":  # costs CPU time: not without a gain
        return any(map(_wins, told))
    return any(
        one.gain_s > 0 if one.step_s is not None else question != "accumulation" for one in told
    )


SLOW_RULE: Rule[RankFacts] = Rule(
    _SLOW,
    _check_slow,
    _faster,
    claims=("*/comm/transfer", "exposed_transfer"),
    effort=Effort.HARDWARE,
    bound="Bound by the network",
    lifts=frozenset({"step"}),
    needs=Needs.NETWORK,
    action="check the transport",
)
RULE: Rule[RankFacts] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("*/comm/transfer", "exposed_transfer"),
    bound="Bound by communication",
    lifts=frozenset({"step"}),
    action="send less between ranks",
)
