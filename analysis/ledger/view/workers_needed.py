"""How many workers would keep pace with the step, and what they would spare."""

import math

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view import cpus, sample
from feedline.analysis.ledger.view.handover import Between, alone_s, receiving_s, with_workers_s
from feedline.analysis.ledger.view.input_wait import (
    MIN_WAIT_SHARE,
    compute_s,
    input_wait,
    making_s,
    num_workers,
    unsure_s,
)
from feedline.analysis.ledger.view.sample import blocked_share
from feedline.analysis.ledger.view.slow_stage import at_own_locks
from feedline.analysis.ledger.view.storage import LOCK, blocked_by

_CONTENDING = 2  # workers: a single one never waits for another

#: Workers beyond S / C, because batches do not take equally long (docs/rules/too_few_workers.md).
_MARGIN = 1.15


#: C is taken as at least this share of the step: where the input is more than 95 % of it, S / C
#: divides by noise.
_MIN_COMPUTE_SHARE = 0.05
_PER_CPU = 4  # workers at most: each takes memory, and so does what it prefetches


def gained_s(facts: RuleInputs, most_workers: int | None = None) -> Between | None:
    """Return the seconds saved per step with as many workers as it needs.

    None: no such setting, or the making of a batch was not measured. Where it has workers, that is
    at most the time in which it waits for a batch that is being made.

    Args:
        most_workers: as for ``needed``.
    """
    workers, number, receiving = num_workers(facts), needed(facts, most_workers), receiving_s(facts)
    if workers is None or number is None:
        return None
    most = input_wait(facts).making_s
    now = alone_s(facts) if workers == 0 else with_workers_s(facts, workers, receiving.low)
    slow, fast = (
        with_workers_s(facts, number, seconds) for seconds in (receiving.high, receiving.low)
    )
    if now is None or slow is None or fast is None:
        return None
    locked_s = 0.0 if at_own_locks(facts) else _at_locks_s(facts)
    return Between(max(0.0, min(most, now - max(slow, locked_s))), max(0.0, min(most, now - fast)))


def repeats(facts: RuleInputs) -> bool:
    """Tell whether another worker would only yield once more what those that there are yield."""
    return not facts.may_be_split and bool(num_workers(facts))


def useless(facts: RuleInputs) -> bool:
    """Tell whether another worker would deliver nothing new: it repeats samples, or gets no shard."""
    workers = num_workers(facts) or 0
    return repeats(facts) or facts.shards is not None and workers >= facts.shards


def advised(facts: RuleInputs) -> int | None:
    """Return W*, where it is sure that the step would be shorter with it.

    It would be by more than the gate, each worker gets batches, and none would repeat samples; else
    None.
    """
    return None if facts.idle_workers or useless(facts) else sure_to_help(facts)


def sure_to_help(facts: RuleInputs) -> int | None:
    gain = gained_s(facts)
    return (
        needed(facts)
        if gain is not None and gain.low - unsure_s(facts) >= MIN_WAIT_SHARE * facts.step.mean_s
        else None
    )


def needed(facts: RuleInputs, most_workers: int | None = None) -> int | None:
    """Return W*: workers that keep pace with the step, capped by what the CPUs can run.

    None: the making of a batch was not measured.

    Args:
        most_workers: that are advised in any case; None: as many as there are CPUs, and more where
            samples are partly blocked.
    """
    making = making_s(facts)
    taking = max(compute_s(facts) + receiving_s(facts).low, facts.step.gpu_s)
    if not making:
        return None
    if not facts.may_be_split and not num_workers(facts):
        return 1
    wanted = math.ceil(_MARGIN * making / max(taking, _MIN_COMPUTE_SHARE * facts.step.mean_s, 1e-9))
    wanted = min(wanted, facts.shards or wanted)
    most = (
        _carried(facts, wanted)
        if most_workers is None
        else min(_carried(facts, wanted), most_workers)
    )
    return max((num_workers(facts) or 0) + 1, min(wanted, most))


def carried(facts: RuleInputs) -> int | None:
    """Return ``needed``, where the CPUs can run more workers than there are.

    Those that are there must all get batches; else None.
    """
    if facts.idle_workers:
        return None
    number, workers = needed(facts), num_workers(facts)
    if number is None or workers is None or useless(facts):
        return None
    return number if _carried(facts, number) > workers else None


def _carried(facts: RuleInputs, wanted: int) -> int:
    """Return how many workers the CPUs can run that other programs leave.

    It is one each, more where a sample is partly blocked.
    """
    total, room = sample.total(facts), cpus.left_by_others(facts)
    wanted = min(wanted, math.ceil(_PER_CPU * room))
    if total is None or total.cpu_s is None:
        return math.ceil(room)
    alone_s = total.wall_s - (total.runqueue_s or 0.0)
    return math.ceil(min(float(wanted), room * alone_s / max(total.cpu_s, 1e-9)))


def _at_locks_s(facts: RuleInputs) -> float:
    """Return the seconds per step that more workers cannot share, as they queue for one lock.

    That is how long it is held. Of the time of a sample, workers that take turns at a lock of
    share h wait for about (W - 1) h^2 / 2 while it is mostly free: one that asks finds it held with
    probability (W - 1) h, for half of h more. It is held for at most 1 / W of a sample's time.
    """
    waited = (blocked_share(facts) or 0.0) * (blocked_by(facts) or {}).get(LOCK, 0.0)
    making, workers = making_s(facts) or 0.0, num_workers(facts) or 0
    if workers < _CONTENDING:
        return waited * making
    return making * min(1 / workers, math.sqrt(2 * waited / (workers - 1)))
