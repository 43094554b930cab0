"""There are no workers, or too few to keep pace with the step, while CPUs are free."""

import math

from feedline.analysis.formatting import seconds, sentence
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.view import cheaper, cpus, handover
from feedline.analysis.ledger.view.handover import alone_s, arguments, making_s, receiving_s, with_workers_s
from feedline.analysis.ledger.view.handover_cost import Between
from feedline.analysis.ledger.view.input_wait import MIN_WAIT_SHARE, compute_s, input_wait, least_s, num_workers, severity, unsure_s
from feedline.analysis.ledger.view.storage import MIN_BLOCKED_SHARE, answers_share, at_locks_s, unknown_answers
from feedline.analysis.rules.input import slow_for_its_bytes

RULE_ID = "too_few_workers"

#: Workers beyond S / C, because batches do not take equally long (docs/rules.md).
_MARGIN = 1.15

#: Why nothing is predicted for another number of workers of a stream that is not split between them.
NOT_SPLIT = Refused(
    "not_split",
    "Nothing shows that the iterable dataset is split between workers (get_worker_info); if it is not, each yields all samples, and more "
    "workers only repeat them.",
)

_HAVE_OTHERS = "Print get_worker_info().id and the first sample in each worker. If the samples differ, this finding is wrong."

#: C is taken as at least this share of the step: where the input is more than 95 % of it, S / C divides by noise.
_MIN_COMPUTE_SHARE = 0.05


def check(facts: RuleInputs) -> Finding | None:
    """Compare the step as it is with the one that more workers would make; silent where the CPUs are full."""
    workers, gain = num_workers(facts), gained_s(facts)
    number = None if facts.idle_workers else _helping(facts)
    if workers is None or gain is None or number is None or cpus.queueing(facts):
        return None
    weight = severity(facts, gain.low)
    if weight is Severity.INFO:
        return None
    given = {} if repeats(facts) else arguments(facts, number)
    return Finding(
        RULE_ID,
        weight,
        message=f"{_says(facts, workers)}. {sentence(cpus.use(facts))}",
        evidence=_evidence(facts),
        fix=handover.change(facts, given) if given else _split_first(facts, workers),
        how_to_check=f"Run with num_workers={number}. If samples/s do not rise, this finding is wrong." if given else _HAVE_OTHERS,
        cost_s=gain.high,
        settings=given,
    )


def change(facts: RuleInputs) -> Change | Refused:
    """The workers that the fix names."""
    number = advised(facts)
    if repeats(facts):
        return NOT_SPLIT
    if number is not None and answers_share(facts) > MIN_BLOCKED_SHARE:
        return unknown_answers(number)
    return Change(settings=arguments(facts, number))


def gained_s(facts: RuleInputs, most_workers: int | None = None) -> Between | None:
    """What the step would be shorter by with as many workers as it needs. None: no such setting, or the making of a batch was not measured.

    Where it has workers, that is at most the time in which it waits for a batch that is being made.

    Args:
        most_workers: as for ``needed``.
    """
    workers, number, receiving = num_workers(facts), needed(facts, most_workers), receiving_s(facts)
    if workers is None or number is None:
        return None
    most = input_wait(facts).making_s
    now = alone_s(facts) if workers == 0 else with_workers_s(facts, workers, receiving.low)
    slow, fast = (with_workers_s(facts, number, seconds) for seconds in (receiving.high, receiving.low))
    if now is None or slow is None or fast is None:
        return None
    locked_s = 0.0 if slow_for_its_bytes.at_own_locks(facts) else at_locks_s(facts)
    return Between(max(0.0, min(most, now - max(slow, locked_s))), max(0.0, min(most, now - fast)))


def repeats(facts: RuleInputs) -> bool:
    """Whether another worker would only yield once more what those that there are yield."""
    return not facts.may_be_split and bool(num_workers(facts))


def _split_first(facts: RuleInputs, workers: int) -> str:
    """What to do about a stream before it gets more workers."""
    function = cheaper.own_function(facts)
    if facts.repeated_stream:
        repeated = (
            f"The {workers} workers yield the same batches, so each sample comes {workers} times, and more workers would repeat it more."
        )
        return f"{repeated} Split the stream between workers (get_worker_info in {function}) first, then set more of them."
    return (
        f"Nothing in {function} asks which worker it runs in (get_worker_info), so more workers would probably repeat samples. Split the "
        "stream between workers first, then set more of them."
    )


def advised(facts: RuleInputs) -> int | None:
    """W*, where it is sure that the step would be shorter with it by more than the gate, that each worker gets batches, and that none would
    repeat samples; else None."""
    return None if facts.idle_workers or repeats(facts) else _helping(facts)


def _helping(facts: RuleInputs) -> int | None:
    gain = gained_s(facts)
    return needed(facts) if gain is not None and gain.low - unsure_s(facts) >= MIN_WAIT_SHARE * facts.step.mean_s else None


def needed(facts: RuleInputs, most_workers: int | None = None) -> int | None:
    """W*: workers that keep pace with the step, capped by what the CPUs can run. None: the making of a batch was not measured.

    Args:
        most_workers: that are advised in any case; None: as many as there are CPUs, and more where samples are partly blocked.
    """
    making = making_s(facts)
    taking = max(compute_s(facts) + receiving_s(facts).low, facts.step.gpu_s)
    if not making:
        return None
    if not facts.may_be_split and not num_workers(facts):
        return 1
    wanted = math.ceil(_MARGIN * making / max(taking, _MIN_COMPUTE_SHARE * facts.step.mean_s, 1e-9))
    most = _carried(facts, wanted) if most_workers is None else min(_carried(facts, wanted), most_workers)
    return max((num_workers(facts) or 0) + 1, min(wanted, most))


def carried(facts: RuleInputs) -> int | None:
    """``needed``, where the CPUs can run more workers than there are and those that are there all get batches; else None."""
    if facts.idle_workers:
        return None
    number, workers = needed(facts), num_workers(facts)
    if number is None or workers is None or repeats(facts):
        return None
    return number if _carried(facts, number) > workers else None


def _carried(facts: RuleInputs, wanted: int) -> int:
    """How many workers the CPUs can run that other programs leave: one each, more where a sample is partly blocked."""
    total, room = cpus.total(facts), cpus.left_by_others(facts)
    if total is None or total.cpu_s is None:
        return math.ceil(room)
    alone_s = total.wall_s - (total.runqueue_s or 0.0)
    return math.ceil(min(float(wanted), room * alone_s / max(total.cpu_s, 1e-9)))


def _says(facts: RuleInputs, workers: int) -> str:
    if workers == 0:
        making, step, receiving = seconds(input_wait(facts).making_s), seconds(facts.step.mean_s), receiving_s(facts)
        instead = f"receiving them from workers would take {seconds(receiving.low)} to {seconds(receiving.high)}"
        return f"no workers: the main process makes every batch itself, which takes {making} of each {step} step; {instead}"
    together, rest = (making_s(facts) or 0.0) / workers, least_s(facts)
    other = f"the GPU needs {seconds(rest)} for its work" if rest > compute_s(facts) else f"the rest of the step takes {seconds(rest)}"
    fails = "cannot keep up" if together >= rest else "can barely keep up"
    who = f"1 worker {fails}: it needs" if workers == 1 else f"{workers} workers {fails}: together they need"
    late = "" if together >= rest else ", and the step waits for batches that take longer"
    return f"{who} {seconds(together)} for the batches of one step, while {other}{late}"


def _evidence(facts: RuleInputs) -> list[Evidence]:
    maker, receiving, alone = facts.workers, receiving_s(facts), num_workers(facts) == 0
    workers, making = num_workers(facts) or 1, making_s(facts)
    each = ("making_s", "making the batches of one step, by all workers together", making / workers if making else None, "s")
    batch = ("batch_s", "making a batch", maker.fetch_mean_s if maker else None, "s")
    times = [("making_s", "making the batches of one step", making, "s")] if alone else [each, batch]
    times.append(("compute_s", "rest of the step", compute_s(facts), "s"))
    times.append(("gpu_s", "work of the GPU, per step", facts.step.gpu_s or None, "s"))
    ends = (("lower", receiving.low), ("upper", receiving.high)) if alone else ()
    late = facts.step.waits.get("handover", 0.0) > input_wait(facts).making_s / 2  # made, and kept by a worker that never idles
    shares = [
        ("idle_share", "workers idle, share of their time", maker.idle_share if maker else None, SHARE),
        ("ready_share", "batches already made when asked for", None if late else facts.ready_share, SHARE),
        ("cpus_of_training", "CPUs used by this training", cpus.own_cpus(facts), "CPUs"),
        ("cpus_of_others", "CPUs used by other programs", facts.cpus.others if facts.cpus else None, "CPUs"),
        ("cpus_allowed", "CPUs available to this training", facts.effective_cpus, "CPUs"),
    ]
    what = "receiving those batches from workers, {} estimate"
    received = [Evidence("receiving_s", what.format(end), value, "s", end) for end, value in ends]
    return [*measured(times), *received, *measured(shares)]
