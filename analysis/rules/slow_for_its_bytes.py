"""torch's own collate copies bytes from memory to memory. Where it takes ten times what that takes, its threads wait for each other."""

from feedline.analysis.facts import Facts
from feedline.analysis.finding import Evidence, Finding, Severity
from feedline.analysis.model import Cost
from feedline.analysis.quantities import number, seconds, size
from feedline.analysis.rules import cpus
from feedline.analysis.rules.held import held, making_share, num_workers, severity

CAUSE = "slow_for_its_bytes"

#: What any memory moves, into pages that are touched for the first time (docs/rules.md).
MEMORY_B_PER_S = 2e9

#: What collating a sample takes whatever its size: looking at its type, a pointer, a call.
PER_SAMPLE_S = 20e-6

#: Stages of the main process whose operations torch runs in parallel.
SAME_THREADS = ("forward", "loss", "backward", "optimizer")

#: A slower machine, or copying twice, does not explain so many times as long.
FAR_OFF = 10


def check(facts: Facts) -> Finding | None:
    """Compare collate's time, waiting for a CPU aside, with what its bytes take; speak where helper threads explain the rest."""
    cost, ratio = _of_copying(facts), cpus.process_ratio(facts)
    if cost is None or not cost.bytes or ratio is None or ratio <= cpus.MIN_PROCESS_RATIO:
        return None
    should_s, working_s = copying_s(cost.bytes), (cost.cpu_s or 0.0) + (cost.blocked_s or 0.0)
    collate_s = held(facts).making_s * making_share(facts, "collate") * max(0.0, 1 - should_s / cost.wall_s)
    weight = severity(facts, collate_s)
    if working_s < FAR_OFF * should_s or not _queues(cost) or weight is Severity.INFO:
        return None
    threads, where = enough_threads(facts), "worker_init_fn" if num_workers(facts) else "the main process"
    found = [
        ("collate per sample", cost.wall_s, "s"),
        ("of it on a CPU", cost.cpu_s, "s"),
        ("of it waiting for a CPU", cost.runqueue_s, "s"),
        ("of it blocked", cost.blocked_s, "s"),
        ("bytes per sample", cost.bytes, "B"),
        ("what they take at most", should_s, "s"),
        ("process CPU over thread CPU", ratio, "1"),
        ("forward, loss, backward and optimizer per step, on the same threads", beside_s(facts), "s"),
    ]
    copied = (
        f"collate takes {seconds(cost.wall_s)} per sample to copy {size(cost.bytes)}, which memory does in less than {seconds(should_s)}"
    )
    return Finding(
        CAUSE,
        weight,
        says=f"{copied}: it spins until torch's helper threads get a CPU, and they use {number(ratio - 1)} times its own CPU time; "
        f"{cpus.use(facts)}",
        evidence=[Evidence(what, value, unit) for what, value, unit in found if value is not None],
        fix=f"call torch.set_num_threads({threads}) in {where}, or start the program with OMP_NUM_THREADS={threads}",
        disproof=f"collate that takes as long with OMP_NUM_THREADS={threads}",
        cost_s=collate_s + beside_s(facts),
    )


def beside_s(facts: Facts) -> float:
    """Seconds of the mean step in torch's operations that run on the threads that collate: they spin as well, how much is not known."""
    return 0.0 if num_workers(facts) else sum(facts.step.stages.get(stage, 0.0) for stage in SAME_THREADS)


def copying_s(nbytes: float) -> float:
    """Seconds that a sample's bytes take at most, on a CPU of its own."""
    return nbytes / MEMORY_B_PER_S + PER_SAMPLE_S


def enough_threads(facts: Facts) -> int:
    """Threads that have a CPU each beside the workers, or else beside other programs."""
    return 1 if num_workers(facts) else int(cpus.left_by_others(facts))


def _of_copying(facts: Facts) -> Cost | None:
    """What collating a sample costs, where torch's own function does it and bytes are most of the work: small ones take Python's time."""
    cost = facts.workers.per_sample.get("collate") if facts.workers else None
    if cost is None or facts.setting("collate", "default") != "default":
        return None
    return cost if (cost.bytes or 0.0) >= MEMORY_B_PER_S * PER_SAMPLE_S else None


def _queues(cost: Cost) -> bool:
    """A parallel loop ends when its last thread has had a CPU: only where that one waits for it do the others spin."""
    return (cost.runqueue_s or 0.0) > cpus.MAX_RUNQUEUE_SHARE * cost.wall_s
