"""There are no workers, or too few to keep pace with the step, while CPUs are free."""

from feedline.analysis.formatting import seconds, sentence
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Effort, Rule
from feedline.analysis.ledger.view import cheaper, cpus, handover
from feedline.analysis.ledger.view.handover import arguments, making_s, receiving_s
from feedline.analysis.ledger.view.input_wait import (
    compute_s,
    input_wait,
    least_s,
    num_workers,
    severity,
)
from feedline.analysis.ledger.view.storage import (
    MIN_BLOCKED_SHARE,
    answers_share,
    from_swap,
    unknown_answers,
)
from feedline.analysis.ledger.view.workers_needed import advised, gained_s, repeats, sure_to_help

RULE_ID = "too_few_workers"


#: Why nothing is predicted for another number of workers of a stream that is not split between
#: them.
NOT_SPLIT = Refused(
    "not_split",
    "Nothing shows that the iterable dataset is split between workers (get_worker_info); if it is "
    "not, each yields all samples, and more "
    "workers only repeat them.",
)

_HAVE_OTHERS = (
    "Print get_worker_info().id and the first sample in each worker. If the samples "
    "differ, this finding is wrong."
)


def check(facts: RuleInputs) -> Finding | None:
    """Compare the step as it is with the one that more workers would make.

    It is silent where the CPUs are full.
    """
    workers, gain = num_workers(facts), gained_s(facts)
    number = None if facts.idle_workers else sure_to_help(facts)
    if (
        workers is None
        or gain is None
        or number is None
        or cpus.queueing(facts)
        or from_swap(facts)
    ):
        return None
    weight = severity(facts, gain.low)
    if weight is Severity.INFO:
        return None
    given = {} if repeats(facts) else arguments(facts, number)
    said = [_says(facts, workers), cpus.use(facts)]
    if facts.repeated_stream and not given:
        said.insert(0, _repeated(workers))
    return Finding(
        RULE_ID,
        weight,
        message=". ".join([said[0], *map(sentence, said[1:])]),
        evidence=_evidence(facts),
        fix=handover.change(facts, given) if given else _split_first(facts, workers),
        how_to_check=f"Run with num_workers={number}. If samples/s do not rise, this finding is "
        f"wrong."
        if given
        else _HAVE_OTHERS,
        cost_s=gain.high,
        settings=given,
    )


def change(facts: RuleInputs) -> Change | Refused:
    """Use the workers that the fix names."""
    number = advised(facts)
    if repeats(facts):
        return NOT_SPLIT
    if number is not None and answers_share(facts) > MIN_BLOCKED_SHARE:
        return unknown_answers(number)
    return Change(settings=arguments(facts, number))


def _split_first(facts: RuleInputs, workers: int) -> str:
    """Say what to do about a stream before it gets more workers."""
    function = cheaper.own_function(facts)
    if facts.repeated_stream:
        return (
            f"Split the stream between workers (get_worker_info in {function}) first, then set "
            f"more of them."
        )
    return (
        f"Nothing in {function} asks which worker it runs in (get_worker_info), so more workers "
        f"would probably repeat samples. Split the "
        "stream between workers first, then set more of them."
    )


def _repeated(workers: int) -> str:
    """Say what a stream does that is not split between workers."""
    return f"the {workers} workers yield the same batches, so each sample comes {workers} times"


def _says(facts: RuleInputs, workers: int) -> str:
    if workers == 0:
        making, step, receiving = (
            seconds(input_wait(facts).making_s),
            seconds(facts.step.mean_s),
            receiving_s(facts),
        )
        instead = (
            f"receiving them from workers would take {seconds(receiving.low)} to "
            f"{seconds(receiving.high)}"
        )
        return (
            f"no workers: the main process makes every batch itself, which takes {making} of "
            f"each {step} step; {instead}"
        )
    together, rest = (making_s(facts) or 0.0) / workers, least_s(facts)
    other = (
        f"the GPU needs {seconds(rest)} for its work"
        if rest > compute_s(facts)
        else f"the rest of the step takes {seconds(rest)}"
    )
    fails = "cannot keep up" if together >= rest else "can barely keep up"
    who = (
        f"1 worker {fails}: it needs"
        if workers == 1
        else f"{workers} workers {fails}: together they need"
    )
    late = "" if together >= rest else ", and the step waits for batches that take longer"
    return f"{who} {seconds(together)} for the batches of one step, while {other}{late}"


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
    late = (
        facts.step.waits.get("handover", 0.0) > input_wait(facts).making_s / 2
    )  # made, and kept by a worker that never idles
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
            None if late else facts.ready_share,
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


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("wait/starved", "wait/head_of_line", "read", "decode", "augment", "dataset", "collate"),
    effort=Effort.SETTING,
    by_settings=True,
    lifts=AS_MUCH_CPU,
    of_input=True,
)
