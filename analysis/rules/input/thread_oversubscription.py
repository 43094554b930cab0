"""Workers run helper threads that fight for CPUs which are full already."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view import cpus, sample
from feedline.analysis.ledger.view.cheaper import one_thread
from feedline.analysis.ledger.view.input_wait import num_workers, severity
from feedline.analysis.ledger.view.loader_call import place
from feedline.analysis.ledger.view.storage import decoder_threads
from feedline.analysis.text.formatting import counted, seconds
from feedline.analysis.text.sentences import PART, PERCENT, Sentence

RULE_ID = "thread_oversubscription"

_SAYS = Sentence(
    "helper threads take {part} of the CPU time of {workers}, while the CPUs are saturated",
    part=PERCENT,
    workers=PART,
)


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the CPU time of worker processes with that of the threads that make samples.

    Threads that send them count as well. It is silent while CPUs are free.
    """
    process_s = facts.process_cpu_s
    accounted_s = sample.accounted(facts)
    ratio = sample.process_ratio(facts)
    if (
        process_s is None
        or accounted_s is None
        or ratio is None
        or not num_workers(facts)
        or not cpus.saturated(facts)
    ):
        return None
    if ratio <= sample.MIN_PROCESS_RATIO:
        return None
    helpers = 1 - 1 / ratio
    cost_s = cpus.making_wait_s(facts) * helpers
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    fix, *others = one_thread(facts)
    return Finding(
        RULE_ID,
        weight,
        message=_SAYS(part=helpers, workers=counted(num_workers(facts) or 0, "worker")),
        evidence=[
            Evidence(
                "process_cpu_s", "CPU time per sample, whole worker processes", process_s, "s"
            ),
            Evidence(
                "thread_cpu_s",
                "CPU time per sample, threads that make and send it",
                accounted_s,
                "s",
            ),
            Evidence("process_cpu_over_thread_cpu", "ratio of the two CPU times", ratio, "1"),
            Evidence("helper_threads_share", "helper threads, share of CPU time", helpers, SHARE),
        ],
        fix=fix,
        fix_more=others,
        place="" if decoder_threads(facts) else place(facts),
        how_to_check="Run with one thread per worker. If the worker processes still use about "
        f"{seconds(process_s)} of CPU time per sample, this finding is wrong.",
        cost_s=cost_s,
    )


def _change(facts: RuleInputs) -> Change:
    """Leave one thread to each worker.

    Whether the others spun or worked is unknown: the interval of the prediction holds both.
    """
    return Change(helper_threads=False)


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    _check,
    _change,
    claims=("sample/*/run_queue",),
    effort=Effort.ENVIRONMENT,
    by_variables=True,
    lifts=CHEAPER | {"step"},
    of_input=True,
    action="use fewer helper threads",
)
