"""A loader's worker was killed, and the training ended with it."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.measure.model import KilledWorker
from feedline.analysis.text.formatting import counted, size
from feedline.analysis.text.sentences import PART, SIZE, TIME, Sentence, Slot

_RULE_ID = "killed_worker"

_FOR_MEMORY = Sentence("{who} was killed because memory was full{size}", who=PART, size=PART)
_NOT_FOR_MEMORY = Sentence(
    "{who} was killed by signal 9, which the kernel did not send for memory{size}",
    who=PART,
    size=PART,
)
_UNKNOWN = Sentence(
    "{who} was killed by signal 9, perhaps because memory was full{size}", who=PART, size=PART
)
_LIMIT = Sentence("the limit of its control group, {limit}, was reached", limit=SIZE)
_MACHINE = "no limit of a control group was reached: the machine's memory was full"
_BELOW = Sentence("the limit of its control group, {limit}, was not reached", limit=SIZE)
_GREW = Sentence("in {time} it had grown by {grown}", time=TIME, grown=SIZE)
_OF_BATCH = Sentence(
    "for its {which} batch it had grown by {grown}",
    which=Slot(str, ("first", "last, unfinished")),
    grown=SIZE,
)
_STEADY = Sentence("it had not grown for {time}", time=TIME)
_LAST = Sentence("it was seen last {at} after the recording began", at=TIME)
_TOGETHER = Sentence(
    "{workers} had {size} together, pages that they share counted for each",
    workers=PART,
    size=SIZE,
)
_NOT_COUNTED = "the kernel counts processes that it kills for memory, and counted none"
_LOOK = "Look in the dataset for lists, dicts and caches that get longer with each sample."
_SHARE = "Load once what all samples need: before workers are forked, or as a memory map."
_LARGE = "Look for samples that are much larger than the others, and skip or shrink them."
_EMPTY = "Empty or bound what this line adds to with each sample."
_FEWER = "Use fewer workers, a smaller prefetch_factor or smaller batches, or raise the limit."
_ASK = "Find out what sent the signal: a job scheduler, a monitor of memory, or the program."


def _check(facts: RuleInputs) -> Finding | None:
    """Say which, how large it was, how fast it grew, and whether memory was full."""
    return found(facts.killed)


def found(killed: KilledWorker | None) -> Finding | None:
    """Say so of a worker; None: none was killed."""
    if killed is None:
        return None
    says = {True: _FOR_MEMORY, False: _NOT_FOR_MEMORY, None: _UNKNOWN}[killed.for_memory]
    fix, *others = _fixes(killed)
    return Finding(
        _RULE_ID,
        Severity.HIGH,
        message=says(who=_who(killed), size=_size(killed)),
        more=_more(killed),
        evidence=measured(
            (
                ("worker", "number of the worker", _number(killed.worker), ""),
                ("seen_s", "when it was seen last, in the recording", killed.at_s, "s"),
                ("worker_bytes", "its memory then", killed.size_bytes, "B"),
                ("grown_bytes", "growth since it could work", killed.grown_bytes, "B"),
                ("batch_bytes", "of that, while it made one batch", killed.batch_bytes, "B"),
                ("growing_s", "time in which it grew", killed.grown_s, "s"),
                ("growth_per_s", "growth per second", killed.per_second_bytes, "B/s"),
                ("together_bytes", "all workers of its loader", killed.together_bytes, "B"),
                ("limit_bytes", "limit of its control group", killed.limit_bytes, "B"),
                ("for_memory", "1: killed because memory was full", _yes(killed.for_memory), ""),
                ("limit_reached", "1: that limit was reached", _yes(killed.limit_reached), ""),
            )
        ),
        fix=fix,
        fix_more=others,
        place=killed.place if fix == _EMPTY else "",
        how_to_check="Record with half as many workers. If one is killed at the same size, after "
        "as many samples of its own, their number is not the cause.",
    )


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _yes(known: bool | None) -> float | None:
    return None if known is None else float(known)


def _who(killed: KilledWorker) -> str:
    return "a worker" if killed.worker is None else f"worker {killed.worker}"


def _size(killed: KilledWorker) -> str:
    """Return ``: it had 1.90 GB and grew by 210 MB per second``, or how much was for one batch.

    Its growth is no cause of a signal that may have had another sender.
    """
    if killed.size_bytes is None:
        return ""
    grew = ""
    if killed.for_memory and killed.batch_bytes is not None:
        grew = f", {size(killed.batch_bytes)} of it for its {_which(killed)} batch"
    elif killed.for_memory and killed.per_second_bytes is not None:
        grew = f" and grew by {size(killed.per_second_bytes)} per second"
    return f": it had {size(killed.size_bytes)}{grew}"


def _which(killed: KilledWorker) -> str:
    return "first" if killed.first_batch else "last, unfinished"


def _more(killed: KilledWorker) -> list[str]:
    more = [*_why(killed)]
    if killed.batch_bytes is not None:
        if not killed.for_memory:
            more.append(_OF_BATCH(which=_which(killed), grown=killed.batch_bytes))
    elif killed.per_second_bytes is not None:
        more.append(_GREW(time=killed.grown_s, grown=killed.grown_bytes))
    elif killed.grown_s:
        more.append(_STEADY(time=killed.grown_s))
    if killed.workers > 1 and killed.together_bytes is not None:
        workers = counted(killed.workers, "worker")
        more.append(_TOGETHER(workers=f"its loader's {workers}", size=killed.together_bytes))
    return [*more, *([_LAST(at=killed.at_s)] if killed.at_s is not None else [])]


def _why(killed: KilledWorker) -> list[str]:
    """Return whether a limit was reached."""
    if killed.for_memory is False:
        below = killed.limit_bytes if killed.limit_reached is False else None
        return [_NOT_COUNTED, *([_BELOW(limit=below)] if below is not None else [])]
    if killed.limit_bytes is not None and killed.limit_reached:
        return [_LIMIT(limit=killed.limit_bytes)]
    return [_MACHINE] if killed.for_memory else []


def _fixes(killed: KilledWorker) -> list[str]:
    if killed.for_memory is False:
        return [_ASK]
    of_one = killed.batch_bytes is not None
    if killed.per_second_bytes is not None or killed.kept_perhaps:
        return [_EMPTY if killed.place else _LOOK, *([_SHARE, _LARGE] if of_one else []), _FEWER]
    if of_one:
        return [_SHARE if killed.first_batch else _LARGE, _FEWER]
    return [_FEWER]


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: it takes no time until the training ends."""
    return Refused("memory", "A worker that is killed takes no time until then.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    bound="Ended early",
    in_part=False,
    lifts=frozenset(),
    ends_training=True,
    action="let workers keep less",
)
