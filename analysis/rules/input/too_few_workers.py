"""There are no workers, or too few to keep pace with the step, while CPUs are free."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Effort, Rule
from feedline.analysis.ledger.view import cheaper, cpus, loader_call
from feedline.analysis.ledger.view.handover import receiving_s
from feedline.analysis.ledger.view.input_wait import (
    compute_s,
    input_wait,
    least_s,
    making_s,
    num_workers,
    severity,
)
from feedline.analysis.ledger.view.loader_call import arguments
from feedline.analysis.ledger.view.sample import blocked_share, from_swap
from feedline.analysis.ledger.view.storage import (
    ANSWERS,
    MIN_BLOCKED_SHARE,
    blocked_by,
    unknown_answers,
)
from feedline.analysis.ledger.view.workers_needed import (
    advised,
    gained_s,
    repeats,
    sure_to_help,
    useless,
)
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import NAME, PART, TIME, Sentence

_RULE_ID = "too_few_workers"
_CLAIMS = ("wait/starved", "wait/head_of_line", *MAKING_STAGES)

_ALONE = Sentence(
    "the main process makes every batch itself, which takes {making} of each {step} step",
    making=TIME,
    step=TIME,
)
_RECEIVING = Sentence(
    "receiving batches from workers would take {low} to {high} per step", low=TIME, high=TIME
)
_KEEPS = Sentence(
    "{workers} {keeps} keep up: making a step's batches takes {together}, {rest} {other}",
    workers=PART,
    keeps=PART,
    together=TIME,
    rest=PART,
    other=TIME,
)
_LATE = "the step waits for batches that take longer than the mean"
_SPLIT = Sentence(
    "Split the stream between workers first (get_worker_info in {function}), then set more of "
    "them.",
    function=NAME,
)
_NOTHING_ASKS = Sentence(
    "Nothing in {function} asks which worker it runs in, so more workers would probably repeat "
    "samples.",
    function=NAME,
)


#: Why nothing is predicted for another number of workers of a stream that is not split between
#: them.
NOT_SPLIT = Refused(
    "not_split",
    "Nothing shows that the iterable dataset is split between workers (get_worker_info); if it is "
    "not, each yields all samples, and more "
    "workers only repeat them.",
)

#: Why nothing is predicted for more workers than a stream has shards.
NO_SHARDS = Refused(
    "no_shards",
    "The stream has no more shards than that: more workers would get none, so nothing is predicted.",
)
_MORE_SHARDS = Sentence(
    "Divide the stream into more shards first: it has {shards}, then set more workers.",
    shards=PART,
)
_A_SHARD_EACH = "A worker without a shard makes no batch."

_HAVE_OTHERS = (
    "Print get_worker_info().id and the first sample in each worker. If the samples "
    "differ, this finding is wrong."
)


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the step as it is with the one that more workers would make.

    It is silent where the CPUs are full, or a worker was killed because memory was.
    """
    workers, gain = num_workers(facts), gained_s(facts)
    without_use = facts.idle_workers or facts.same_samples  # more would deliver nothing new
    number = None if without_use else sure_to_help(facts)
    if (
        workers is None
        or gain is None
        or number is None
        or cpus.queueing(facts)
        or from_swap(facts)
        or facts.killed is not None
    ):
        return None
    weight = severity(facts, gain.low)
    if weight is Severity.INFO:
        return None
    given = {} if useless(facts) else arguments(facts, number)
    said = [*_says(facts, workers), *cpus.use(facts)]
    fix, *why = [loader_call.change(facts, given)] if given else _split_first(facts)
    return Finding(
        _RULE_ID,
        weight,
        message=said[0],
        more=said[1:],
        evidence=_evidence(facts),
        fix=fix,
        fix_more=why,
        place=loader_call.place(facts) if given else cheaper.place_of_samples(facts),
        condition=loader_call.only_if(facts, given),
        how_to_check=_HAVE_OTHERS
        if repeats(facts)
        else f"Run with num_workers={number}{'' if given else ' and as many shards'}. If samples/s "
        f"do not rise, this finding is wrong.",
        cost_s=gain.high,
        settings=given,
        action=f"num_workers={given['num_workers']}" if "num_workers" in given else "",
        claims=[*_CLAIMS, "wait/handover"] if _handed_late(facts) else [],
    )


def _handed_late(facts: RuleInputs) -> bool:
    """Tell whether batches are made, and then kept by a worker that never idles."""
    return facts.step.waits.get("handover", 0.0) > input_wait(facts).making_s / 2


def _change(facts: RuleInputs) -> Change | Refused:
    """Use the workers that the fix names."""
    number = advised(facts)
    if repeats(facts):
        return NOT_SPLIT
    if useless(facts):
        return NO_SHARDS
    if number is not None and _answers_share(facts) > MIN_BLOCKED_SHARE:
        return unknown_answers(number)
    return Change(settings=arguments(facts, number))


def _split_first(facts: RuleInputs) -> list[str]:
    """Return what to do about a stream before it gets more workers, and why."""
    if not repeats(facts):
        return [_MORE_SHARDS(shards=counted(facts.shards or 0, "shard")), _A_SHARD_EACH]
    function = cheaper.own_name(facts)
    return [_SPLIT(function=function), _NOTHING_ASKS(function=function)]


def _says(facts: RuleInputs, workers: int) -> list[str]:
    """Return the message, and more."""
    if workers == 0:
        alone = _ALONE(making=input_wait(facts).making_s, step=facts.step.mean_s)
        receiving = receiving_s(facts)
        return [alone, _RECEIVING(low=receiving.low, high=receiving.high)]
    together, rest = (making_s(facts) or 0.0) / workers, least_s(facts)
    slow = together >= rest
    keeps = _KEEPS(
        workers=counted(workers, "worker"),
        keeps="cannot" if slow else "can barely",
        together=together,
        rest="the GPU's work" if rest > compute_s(facts) else "the rest of the step",
        other=rest,
    )
    return [keeps, *([] if slow else [_LATE])]


def _evidence(facts: RuleInputs) -> list[Evidence]:
    maker, receiving, alone = facts.workers, receiving_s(facts), num_workers(facts) == 0
    workers, making = num_workers(facts) or 1, making_s(facts)
    each = (
        "making_s",
        "making the batches of one step, by all workers together",
        making / workers if making else None,
        "s",
    )
    batch = ("batch_s", "making a batch", maker.fetch_mean_s if maker else None, "s")
    times = (
        [("making_s", "making the batches of one step", making, "s")] if alone else [each, batch]
    )
    times.append(("compute_s", "rest of the step", compute_s(facts), "s"))
    times.append(("gpu_s", "work of the GPU, per step", facts.step.gpu_s or None, "s"))
    ends = (("lower", receiving.low), ("upper", receiving.high)) if alone else ()
    shares = [
        (
            "idle_share",
            "workers idle, share of their time",
            maker.idle_share if maker else None,
            SHARE,
        ),
        (
            "ready_share",
            "batches already made when asked for",
            None if _handed_late(facts) else facts.ready_share,
            SHARE,
        ),
        ("cpus_of_training", "CPUs used by this training", cpus.own_cpus(facts), "CPUs"),
        (
            "cpus_of_others",
            "CPUs used by other programs",
            facts.cpus.others if facts.cpus else None,
            "CPUs",
        ),
        ("cpus_allowed", "CPUs available to this training", facts.effective_cpus, "CPUs"),
    ]
    what = "receiving those batches from workers, {} estimate"
    received = [Evidence("receiving_s", what.format(end), value, "s", end) for end, value in ends]
    return [*measured(times), *received, *measured(shares)]


def _answers_share(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of a sample's time in which it waits for an answer.

    How many at once the other side gives as fast is unknown.
    """
    return (blocked_share(facts) or 0.0) * sum(
        (blocked_by(facts) or {}).get(kind, 0.0) for kind in ANSWERS
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=_CLAIMS,
    effort=Effort.SETTING,
    by_settings=True,
    lifts=AS_MUCH_CPU,
    of_input=True,
    action="change num_workers",
)
