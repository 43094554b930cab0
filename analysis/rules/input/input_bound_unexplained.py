"""The run waits for its input, and no rule says why."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    CostKind,
    Evidence,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import EVERY_LIMIT, Rule
from feedline.analysis.ledger.view import cheaper, cpus, sample
from feedline.analysis.ledger.view.input_wait import (
    input_wait,
    making_share,
    steady_share,
)
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.sentences import NAME, PART, PERCENT, TIME, Sentence

_RULE_ID = "input_bound_unexplained"
#: Parts of what the step waits for (input_wait.py) -> in words.
_PARTS = {
    "making_s": "making batches",
    "restart_s": "starting later epochs",
    "handover_s": "late handover of batches by workers",
    "transport_s": "moving batches to the main process",
    "sampler_s": "the sampler",
}
_UNKNOWN = Sentence(
    "what makes the input slow is unknown: its largest part is {name} ({took} per step)",
    name=PART,
    took=TIME,
)
_OWN = Sentence(
    "making batches takes {took} per step, most of its CPU time in {function}",
    took=TIME,
    function=NAME,
)
_IN_LIBRARY = Sentence(
    "the step waits {took} for {library}, which hands over batches too late",
    took=TIME,
    library=NAME,
)
_PASSES_OF_LIBRARY = Sentence(
    "passes of {library} start slowly: until their first batch, {took} per step",
    library=NAME,
    took=TIME,
)
_FEWER_PASSES = "Let one pass be longer, or keep what the source sets up at its start."
_NOT_VISIBLE = "what it does before is not visible"
#: A library with loaders of its own -> what makes them faster.
_FIXES: dict[str, list[str]] = {
    "DALI": [
        "Raise num_threads of the pipeline, or prefetch_queue_depth.",
        "Move operators to the GPU (device='mixed' for decoding) where it has time.",
    ],
    "torchdata.nodes": [
        "Raise num_workers of ParallelMapper (method='process' where samples need the CPU).",
        "Put a Prefetcher at the end: it makes batches while the step runs.",
    ],
    "torchrl": [
        "Let threads make batches while the step runs: ReplayBuffer(..., prefetch=3).",
        "If it has some, raise prefetch, or make its transforms cheaper.",
    ],
    "Ray Data": [
        "Raise prefetch_batches of iter_torch_batches(), and concurrency of map_batches().",
        "ds.stats() says which operator is slow.",
    ],
    "Grain": [
        "Raise num_workers of mp_prefetch(grain.MultiprocessingOptions(num_workers=...)).",
        "Of a grain.DataLoader, it is worker_count.",
        "If reading is slow, raise num_threads of grain.ReadOptions.",
    ],
}
_STAGE = Sentence(
    "the largest stage of a sample is {stage} ({part} of its time)", stage=NAME, part=PERCENT
)
_SAMPLE_QUEUES = Sentence("{part} of the time per sample is spent waiting for a CPU", part=PERCENT)
_MAIN_QUEUES = Sentence("the main thread waits for a CPU during {part} of the step", part=PERCENT)
_NOT_SAMPLED = "CPU use by other programs was not sampled"
_BY_WHOM = [
    "Check with `top` on the host whether other programs use the CPUs.",
    "Record a longer run: feedline then samples how many CPUs they use.",
]
_OTHER_CODE = [
    "Find what else in this training uses the CPUs: making samples takes little of their time.",
    "Candidates are the step itself (torch.set_num_threads) and helper processes.",
    "Threads of libraries are another (OMP_NUM_THREADS).",
]
_INSIDE = [
    "Look at the stages of a sample in the report.",
    "Wrap parts of your code in feedline.stage(...) to split them further.",
]
_UNSEEN = [
    "Wrap parts of the code that makes batches in feedline.stage(...).",
    "The report then shows how long each takes.",
]


def check(facts: RuleInputs) -> Finding:
    """Name the largest part of the wait and of a sample, where to look first."""
    waiting = steady_share(facts)
    part, part_s = _largest(facts)
    name = _PARTS[part]
    stage = max(MAKING_STAGES, key=lambda stage: making_share(facts, stage))
    of_sample = making_share(facts, stage)
    inside = [_STAGE(stage=stage, part=of_sample)] if of_sample and part == "making_s" else []
    message = _UNKNOWN(name=name, took=part_s)
    queues = _queues(facts)
    crowded = cpus.queueing(facts) and facts.cpus is not None and facts.cpus.others is not None
    if crowded:
        queued = facts.runqueue_share or 0.0
        waits = [_SAMPLE_QUEUES(part=queued)] if queued > cpus.MAX_RUNQUEUE_SHARE else []
        inside = [*waits, *cpus.use(facts)]
    if queues:
        inside = [*queues, _NOT_SAMPLED]
    place = "" if crowded or queues or part != "making_s" else cheaper.place_of_largest(facts)
    own = cheaper.less_cpu(facts)[:1] if place else []
    if own:
        message = _OWN(took=part_s, function=cheaper.own_name(facts))
    fix, *others = (
        _BY_WHOM
        if queues
        else _OTHER_CODE
        if crowded
        else [*own, *_INSIDE[len(own) :]]
        if of_sample
        else _UNSEEN
    )
    library = str(facts.setting("library"))
    if library in _FIXES and part == "restart_s":
        message, inside = _PASSES_OF_LIBRARY(took=part_s, library=library), [_NOT_VISIBLE]
        fix, *others = _FEWER_PASSES, *_FIXES[library]
    elif library in _FIXES:
        message, inside = _IN_LIBRARY(took=part_s, library=library), [_NOT_VISIBLE, *inside]
        fix, *others = _FIXES[library]
    return Finding(
        _RULE_ID,
        Severity.of(waiting),
        message=message,
        more=inside,
        evidence=[
            Evidence("input_share", "input, share of the step", waiting, SHARE),
            Evidence(part, f"{name} per step", part_s, "s"),
            *_shares(facts, stage if own else None),
        ],
        fix=fix,
        fix_more=others,
        place=place,
        how_to_check="Train on the same batch in every step. If the step is no faster, this "
        "finding is wrong.",
        cost_s=waiting * facts.step.mean_s,
        cost_kind=CostKind.BOUND,
    )


def _shares(facts: RuleInputs, stage: str | None) -> list[Evidence]:
    """Return what samples and the main thread wait for, and the stage's part of the CPU time."""
    found = [
        ("blocked_share", "blocked, share of a sample's time", sample.blocked_share(facts), SHARE),
        (
            "waiting_for_cpu_share",
            "waiting for a CPU, share of a sample's time",
            facts.runqueue_share,
            SHARE,
        ),
        (
            "main_thread_waiting_for_cpu_share",
            "main thread waiting for a CPU, share of the step",
            facts.main_runqueue_share,
            SHARE,
        ),
        (
            "of_cpu",
            f"{stage}, share of a sample's CPU time",
            cpus.cpu_share_of(facts, stage) if stage is not None else None,
            SHARE,
        ),
    ]
    return measured(found)


def _queues(facts: RuleInputs) -> list[str]:
    """Return what waits for a CPU, in words, if it is unknown what uses the CPUs; else empty."""
    if facts.cpus is not None and facts.cpus.others is not None:
        return []
    of_sample, of_step = facts.runqueue_share or 0.0, facts.main_runqueue_share or 0.0
    if of_sample > cpus.MAX_RUNQUEUE_SHARE:
        return [_SAMPLE_QUEUES(part=of_sample)]
    return [_MAIN_QUEUES(part=of_step)] if of_step > cpus.MAX_RUNQUEUE_SHARE else []


def _largest(facts: RuleInputs) -> tuple[str, float]:
    """Return the largest of ``_PARTS``, and its seconds of the mean step."""
    parts = input_wait(facts)
    return max(((name, float(getattr(parts, name))) for name in _PARTS), key=lambda pair: pair[1])


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: without a cause there is no fix."""
    return Refused(
        "unknown_cause",
        "The cause of the wait is unknown, so there is no specific fix to predict.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    _change,
    lifts=EVERY_LIMIT,
    of_input=True,
)
