"""Some workers of a stream have no data, or soon none: its parts are too few, or uneven."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Rule, Time
from feedline.analysis.ledger.view import cheaper, cpus
from feedline.analysis.ledger.view.handover import receiving_s, with_workers_s
from feedline.analysis.ledger.view.input_wait import (
    compute_s,
    input_wait,
    making_s,
    num_workers,
    severity,
)
from feedline.analysis.measure.clues import Parts
from feedline.analysis.text.formatting import counted
from feedline.analysis.text.sentences import COUNT, NAME, NUMBER, PART, TIME, Sentence

_RULE_ID = "workers_without_data"

_WITHOUT = Sentence(
    "{idle} of {workers} never made a batch{shards}", idle=COUNT, workers=PART, shards=PART
)
_SHARDS = Sentence(": the stream has {shards}", shards=PART)
_UNEVEN = Sentence(
    "the workers have uneven parts of the stream: {most} samples the largest, {least} the smallest",
    most=COUNT,
    least=COUNT,
)
_AS_LONG = Sentence("a pass takes as long as with {fed} workers that have even parts", fed=NUMBER)
_EVEN = Sentence(
    "Give each worker as many samples, in {function}: shards of even size, and as many for each.",
    function=NAME,
)
_EVEN_FIXES = {
    "webdataset": Sentence(
        "Write tar files of even size, and {workers}, or a multiple of it.", workers=COUNT
    ),
    "datasets": Sentence(
        "Give the data set shards of even size: {workers}, or a multiple of it.", workers=COUNT
    ),
}
_COUNT_THEM = "Print get_worker_info().id and the number of samples in each worker. If they are even, this finding is wrong."
#: Of the workers: parts of a stream are uneven if even ones would keep this share of them busy.
_MOST_EVEN = 0.8
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
        "Write the data as {workers} tar files or more: a worker reads whole files.",
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


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the step with the one that all of the workers would make, with even parts.

    Says nothing in three cases: samples wait for a CPU and the free CPUs are unknown; no worker
    made a batch; the stream is not split at all.
    """
    workers, fed, making = num_workers(facts) or 0, _fed(facts), making_s(facts)
    if not facts.is_stream or not facts.may_be_split or fed is None or making is None:
        return None
    if cpus.queueing(facts) and (facts.cpus is None or facts.cpus.free is None):
        return None
    receiving = receiving_s(facts).low
    now, then = (with_workers_s(facts, number, receiving) for number in (fed, workers))
    if now is None or then is None:
        return None
    cost_s = max(0.0, min(input_wait(facts).making_s, now - then))
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    shards, uneven = facts.shards, None if facts.idle_workers else facts.worker_parts
    message, more, fixes, how_to_check = (
        _says(facts, workers, making, shards) if uneven is None else _says_uneven(facts, uneven)
    )
    fix, *others = fixes
    counts = (uneven.most, uneven.least, fed) if uneven else (None, None, None)
    return Finding(
        _RULE_ID,
        weight,
        message=message,
        more=more,
        evidence=measured(
            [
                ("shards", "shards of the stream", shards, "shards"),
                ("largest_part", "samples of the worker with most", counts[0], "samples"),
                ("smallest_part", "samples of the worker with fewest", counts[1], "samples"),
                ("even_workers", "workers with even parts that would do", counts[2], "workers"),
                ("making_s", "making the batches of one step, by the others", making / fed, "s"),
                ("compute_s", "rest of the step", compute_s(facts), "s"),
            ]
        ),
        fix=fix,
        fix_more=others,
        how_to_check=how_to_check,
        cost_s=cost_s,
        place=cheaper.place_of_samples(facts),
    )


def _fed(facts: RuleInputs) -> float | None:
    """Return the workers that have data; of uneven parts, as many as would do with even ones.

    None: all have data, or none has.
    """
    workers, parts = num_workers(facts) or 0, facts.worker_parts
    if facts.idle_workers:
        fed = workers - facts.idle_workers
        return fed if fed >= 1 else None
    if parts is None or parts.as_workers > _MOST_EVEN * workers:
        return None
    return parts.as_workers


_Said = tuple[str, list[str], list[str], str]  # message, more, fixes, how to check


def _says(facts: RuleInputs, workers: int, making: float, shards: int | None) -> _Said:
    """Return what is said of workers without a batch."""
    idle, fed = facts.idle_workers, workers - facts.idle_workers
    known = _SHARDS(shards=counted(shards, "shard")) if shards else ""
    return (
        _WITHOUT(idle=idle, workers=counted(workers, "worker"), shards=known),
        [_ALONE(making=making / fed, all=making / workers), _NO_MORE],
        [*_fixes(facts, workers), _FEWER(fed=fed)],
        _CHECK(fed=fed),
    )


def _says_uneven(facts: RuleInputs, parts: Parts) -> _Said:
    """Return what is said of workers that end long before others."""
    of_library = _EVEN_FIXES.get(str(facts.setting("dataset_library")))
    workers = num_workers(facts) or 0
    return (
        _UNEVEN(most=parts.most, least=parts.least),
        [_AS_LONG(fed=parts.as_workers)],
        [of_library(workers=workers)]
        if of_library is not None
        else [_EVEN(function=cheaper.own_name(facts)), _BY_SAMPLES],
        _COUNT_THEM,
    )


def _fixes(facts: RuleInputs, workers: int) -> list[str]:
    """Return what gives each worker a part, in the terms of the stream's library."""
    of_library = _FIXES.get(str(facts.setting("dataset_library")))
    if of_library is not None:
        return [of_library(workers=workers)]
    return [_AS_MANY(function=cheaper.own_name(facts)), _BY_SAMPLES]


def _change(facts: RuleInputs) -> Refused:
    """Return why no gain is predicted: who makes which batch is up to the stream."""
    return Refused(
        "idle_workers",
        "How the stream would be divided is unknown. Give each worker a part of it, and record "
        "again.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("wait/starved", "wait/head_of_line"),
    time=Time.IDLE,
    of_input=True,
    lifts=AS_MUCH_CPU,
    supposing="with a part of the data for each worker",
    action="divide data between workers",
)
