"""Workers run helper threads that fight for CPUs which are full already."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.quantities import number, share
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import held, num_workers, severity

CAUSE = "thread_oversubscription"

#: CPU of a worker's whole process over that of the threads that are accounted for (docs/rules.md).
MIN_PROCESS_RATIO = 1.2


def check(facts: Facts) -> Finding | None:
    """Compare CPU seconds of worker processes with those of the threads that make and send samples; silent while CPUs are free."""
    total, process_s = cpus.total(facts), facts.process_cpu_s
    if total is None or not total.cpu_s or process_s is None or not num_workers(facts) or not cpus.saturated(facts):
        return None
    sending = facts.workers.per_sample.get("transport") if facts.workers else None
    accounted_s = total.cpu_s + (sending.cpu_s or 0.0 if sending else 0.0)  # the queue's feeder thread pickles beside the worker
    if process_s <= MIN_PROCESS_RATIO * accounted_s:
        return None
    helpers = 1 - accounted_s / process_s
    cost_s = held(facts).making_s * helpers
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        CAUSE,
        weight,
        says=f"helper threads take {share(helpers)} of the CPU time of {num_workers(facts)} workers on {facts.effective_cpus:g} full CPUs",
        evidence=[
            Evidence("CPU per sample of whole worker processes", process_s, "s"),
            Evidence("CPU per sample of the threads that make and send it", accounted_s, "s"),
            Evidence("process CPU over thread CPU", process_s / accounted_s, "1"),
        ],
        fix="one thread per worker: cv2.setNumThreads(0) and OMP_NUM_THREADS=1, set in worker_init_fn",
        disproof=f"process CPU that stays {number(process_s / accounted_s)}x the thread CPU with cv2.setNumThreads(0)",
        cost_s=cost_s,
    )
