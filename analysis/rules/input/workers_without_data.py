"""Some workers of a stream never make a batch: it has fewer parts than there are workers."""

from feedline.analysis.formatting import counted
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Severity, measured
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Rule, Time
from feedline.analysis.ledger.view import cheaper, cpus
from feedline.analysis.ledger.view.handover import making_s, receiving_s, with_workers_s
from feedline.analysis.ledger.view.input_wait import compute_s, input_wait, num_workers, severity
from feedline.analysis.sentences import COUNT, NAME, PART, TIME, Sentence

RULE_ID = "workers_without_data"

_WITHOUT = Sentence(
    "{idle} of {workers} never made a batch{shards}", idle=COUNT, workers=PART, shards=PART
)
_SHARDS = Sentence(": the stream has {shards}", shards=PART)
_ALONE = Sentence(
    "the others make a step's batches in {making}, and all together would in {all}",
    making=TIME,
    all=TIME,
)
_NO_MORE = "more workers cannot help as long as there are no more parts"
_FEWER = Sentence("Or set num_workers={fed}: the others only take memory.", fed=COUNT)
_AS_MANY = Sentence(
    "Give each worker a part of the data, in {function}: as many parts as workers, or more.",
    function=NAME,
)
_BY_SAMPLES = "Split it by samples instead of files, for example."
#: A library of streams -> what gives each worker a part.
_FIXES = {
    "webdataset": Sentence(
        "Write the data as {workers} tar files or more: each worker reads whole ones.",
        workers=COUNT,
    ),
    "datasets": Sentence(
        "Give the data set {workers} shards or more: to_iterable_dataset(num_shards=...), or more files.",
        workers=COUNT,
    ),
}
_CHECK = Sentence(
    "Run with num_workers={fed}. If samples/s fall, this finding is wrong.", fed=COUNT
)


def check(facts: RuleInputs) -> Finding | None:
    """Compare the step with the one that all of the workers would make.

    It is silent where the CPUs are full, where no batch is made by any, and of a stream that is not
    split at all.
    """
    idle, workers, making = facts.idle_workers, num_workers(facts) or 0, making_s(facts)
    fed, receiving = workers - idle, receiving_s(facts).low
    if not facts.is_stream or not facts.may_be_split or not idle or fed < 1 or making is None:
        return None
    if cpus.queueing(facts):
        return None
    now, then = (with_workers_s(facts, number, receiving) for number in (fed, workers))
    if now is None or then is None:
        return None
    cost_s = max(0.0, min(input_wait(facts).making_s, now - then))
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    shards = facts.shards
    known = _SHARDS(shards=counted(shards, "shard")) if shards else ""
    fix, *others = _fixes(facts, workers)
    return Finding(
        RULE_ID,
        weight,
        message=_WITHOUT(idle=idle, workers=counted(workers, "worker"), shards=known),
        more=[_ALONE(making=making / fed, all=making / workers), _NO_MORE],
        evidence=measured(
            [
                ("shards", "shards of the stream", shards, "shards"),
                ("making_s", "making the batches of one step, by the others", making / fed, "s"),
                ("compute_s", "rest of the step", compute_s(facts), "s"),
            ]
        ),
        fix=fix,
        fix_more=[*others, _FEWER(fed=fed)],
        how_to_check=_CHECK(fed=fed),
        cost_s=cost_s,
        place=cheaper.place_of_samples(facts),
    )


def _fixes(facts: RuleInputs, workers: int) -> list[str]:
    """Return what gives each worker a part, in the terms of the stream's library."""
    of_library = _FIXES.get(str(facts.setting("dataset_library")))
    if of_library is not None:
        return [of_library(workers=workers)]
    return [_AS_MANY(function=cheaper.own_name(facts)), _BY_SAMPLES]


def change(facts: RuleInputs) -> Refused:
    """Return why no gain is predicted: who makes which batch is up to the stream."""
    return Refused(
        "idle_workers",
        "How the stream would be divided is unknown. Give each worker a part of it, and record "
        "again.",
    )


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("wait/starved", "wait/head_of_line"),
    time=Time.IDLE,
    of_input=True,
    lifts=AS_MUCH_CPU,
    supposing="with a part of the data for each worker",
)
