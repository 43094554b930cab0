"""The workers of a stream deliver the same samples: it is not split between them."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view import cheaper
from feedline.analysis.measure.clues import SameSamples
from feedline.analysis.text.sentences import COUNT, NAME, NUMBER, Sentence

_RULE_ID = "same_samples"

_SAME = Sentence(
    "{workers} workers deliver the same samples: the model sees each sample {times} times per epoch",
    workers=COUNT,
    times=COUNT,
)
_IN_GROUPS = Sentence(
    "groups of {times} workers deliver the same samples: the model sees each {times} times per epoch",
    times=COUNT,
)
_IN_UNEQUAL_GROUPS = Sentence(
    "groups of {times} or more workers deliver the same samples, so the model sees each as often",
    times=COUNT,
)
_IN_ORDER = Sentence(
    "the first {compared} samples that were compared are the same in each of them",
    compared=COUNT,
)
_SHUFFLED = Sentence(
    "workers have samples in common among the {compared} of each that were compared",
    compared=COUNT,
)
_BY_LABELS = "their labels and names are the same, and the rest is random"
_FEWER = Sentence(
    "of {rate} samples per second, {different} are different", rate=NUMBER, different=NUMBER
)
_EPOCH = Sentence("an epoch takes {times} times as many steps", times=COUNT)
_DIFFERENT = Sentence("no repeated samples: {times} times fewer steps per epoch", times=COUNT)
_SPLIT = Sentence(
    "Split the stream between workers in {function}, with get_worker_info().", function=NAME
)
_FOR_EXAMPLE = "For example: islice(samples, worker.id, None, worker.num_workers), or every num_workers-th file."
_AND_RANKS = "With several ranks, split it between these first."
_PRINT = (
    "Print get_worker_info().id and the first samples in each worker. If no two workers have the "
    "same ones, this finding is wrong."
)
#: A library of streams -> what splits them, and what else to know.
_FIXES: dict[str, list[str]] = {
    "webdataset": [
        "Add wds.split_by_worker to the pipeline, directly after the list of shards.",
        "wds.WebDataset(urls) does that by itself, unless workersplitter is set.",
        "With several ranks, add wds.split_by_node before it.",
    ],
    "datasets": [
        "Give the data set several shards, such as from_generator(..., gen_kwargs={'files': files}).",
        "Each worker then reads shards of its own.",
        "With several ranks, call datasets.distributed.split_dataset_by_node.",
    ],
}
#: A library whose stream is in a data set of the program -> what splits it.
_WRAPPED_FIXES: dict[str, list[str]] = {
    "litdata": [
        "Iterate the litdata.StreamingDataset, or give it to StreamingDataLoader itself.",
        "It splits itself between workers and ranks then.",
        "By index, each worker reads all of it.",
    ],
    "streaming": [
        "Iterate the streaming.StreamingDataset, or give it to the DataLoader itself.",
        "It splits itself between workers and ranks then.",
        "By index, each worker reads all of it.",
    ],
    "datasets": [
        "Iterate dataset.to_iterable_dataset(num_shards=...) instead: its shards go to workers.",
        "Or give the data set itself to the DataLoader, which reads it by index.",
        "With several ranks, call datasets.distributed.split_dataset_by_node.",
    ],
}


def _check(facts: RuleInputs) -> Finding | None:
    """Tell what the marks of the workers' samples show (measure/stream_workers.py)."""
    same = facts.same_samples
    if same is None:
        return None
    seen = (_IN_ORDER if same.in_order else _SHUFFLED)(compared=same.compared)
    rate = facts.throughput.samples_per_s
    fewer = [_FEWER(rate=rate, different=rate / same.times)] if rate else []
    fix, *others = _fixes(facts)
    return Finding(
        _RULE_ID,
        Severity.HIGH,
        message=_says(same),
        more=[seen, *([_BY_LABELS] if same.by_labels else []), *fewer, _EPOCH(times=same.times)],
        evidence=[
            Evidence("same_workers", "workers that were compared", same.workers, "workers"),
            Evidence("times", "how often each sample comes", same.times, "times"),
            Evidence(
                "compared_samples", "samples of each worker compared", same.compared, "samples"
            ),
        ],
        fix=fix,
        fix_more=others,
        how_to_check=_PRINT,
        place=cheaper.place_of_samples(facts),
        gives=_DIFFERENT(times=same.times),
    )


def _says(same: SameSamples) -> str:
    if same.times == same.workers:
        return _SAME(workers=same.workers, times=same.times)
    equal = same.workers % same.times == 0
    return (_IN_GROUPS if equal else _IN_UNEQUAL_GROUPS)(times=same.times)


def _fixes(facts: RuleInputs) -> list[str]:
    """Return what splits the stream, in the terms of its library."""
    of_library = _FIXES.get(str(facts.setting("dataset_library")))
    if of_library is None:
        of_library = _WRAPPED_FIXES.get(str(facts.setting("wrapped_library")))
    if of_library is not None:
        return of_library
    function = cheaper.own_name(facts)
    return [_SPLIT(function=function), _FOR_EXAMPLE, _AND_RANKS]


def _change(facts: RuleInputs) -> Refused:
    """Return why no gain is predicted: the training becomes the one that was meant."""
    return Refused(
        "set_up",
        "This finding is about which samples the training sees, so no speedup is predicted.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    bound="Misconfigured",
    in_part=False,
    lifts=frozenset(),
    action="split the stream",
)
