"""Each pass over a stream begins with a batch that takes long to make: a buffer is filled first."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view import cheaper
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers, severity
from feedline.analysis.text.sentences import COUNT, NAME, TIME, Sentence

_RULE_ID = "slow_first_batch"
_TIMES = 5.0  # as long as another batch: less is a matter of cold caches

_TAKES = Sentence(
    "the first batch of each epoch takes {first} to make, and the others take {batch}",
    first=TIME,
    batch=TIME,
)
_PASSES = Sentence("the loader was iterated {passes} times", passes=COUNT)
_WHAT = (
    "the stream does something before its first sample, such as filling a shuffle buffer or opening "
    "files"
)
_NO_WORKERS = "more workers do not help: each fills a buffer of its own"
_SMALLER = Sentence(
    "Let {function} yield before its shuffle buffer is full, or make the buffer smaller.",
    function=NAME,
)
_FIXES = {
    "webdataset": "Let the shuffle buffer yield before it is full: wds.shuffle(size, initial=...).",
    "datasets": "Make the shuffle buffer smaller: shuffle(buffer_size=...).",
    "litdata": "Raise max_pre_download, and keep chunks between passes: StreamingDataset(max_cache_size=...).",
    "streaming": "Raise predownload, and keep shards between passes: StreamingDataset(cache_limit=...).",
}
_LONGER = "Or make passes longer, so that fewer of them begin."


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the making of the first batch of later passes with that of the others.

    The first pass is left out: a loader starts once in any case.
    """
    first, batch = facts.first_made_s, facts.workers.fetch_mean_s if facts.workers else None
    whole = facts.loader.first_batch_s if facts.loader else None
    if not facts.is_stream or facts.epochs < 2 or not num_workers(facts):
        return None
    if first is None or not batch or not whole or first < _TIMES * batch:
        return None
    cost_s = input_wait(facts).restart_s * min(1.0, (first - batch) / whole)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    fix = _FIXES.get(str(facts.setting("dataset_library")))
    return Finding(
        _RULE_ID,
        weight,
        message=_TAKES(first=first, batch=batch),
        more=[_WHAT, _PASSES(passes=facts.epochs), _NO_WORKERS],
        evidence=measured(
            [
                ("first_made_s", "making the first batch of a pass", first, "s"),
                ("batch_s", "making a batch", batch, "s"),
                ("first_batch_s", "from the start of an epoch to its first batch", whole, "s"),
                ("epochs", "loader iterated", float(facts.epochs), "times"),
            ]
        ),
        fix=fix or _SMALLER(function=cheaper.own_name(facts)),
        fix_more=[_LONGER],
        how_to_check="Time the first sample of iter(dataset). If it comes as fast as the others, "
        "this finding is wrong.",
        cost_s=cost_s,
        place=cheaper.place_of_samples(facts),
    )


def _change(facts: RuleInputs) -> Refused:
    """Return why no gain is predicted: what the stream does first is its own."""
    return Refused(
        "first_batch",
        "How much of the first batch a smaller buffer saves is unknown. Apply the fix, and record "
        "again.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("wait/first_batch",),
    of_input=True,
    supposing="with a first batch that is made as fast as the others",
    action="make first batches sooner",
)
