"""Batches are made sample by sample in the main process, so cheaply that workers may not help."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule, Time
from feedline.analysis.ledger.view.cpus import kind_of_work
from feedline.analysis.ledger.view.handover import Between, receiving_s
from feedline.analysis.ledger.view.input_wait import (
    MIN_WAIT_SHARE,
    input_wait,
    making_share,
    num_workers,
    severity,
    unsure_s,
)
from feedline.analysis.ledger.view.loader_call import call, place
from feedline.analysis.text.sentences import TIME, Sentence

_RULE_ID = "made_one_by_one"
_IN_ONE_CALL = (
    "Make each batch in one call: batch_size=None, sampler=BatchSampler(...), and a dataset "
    "that takes a list of indices."
)
_TORCHS = ("RandomSampler", "SequentialSampler")  # what a DataLoader makes of shuffle
#: With a batch sampler of the program's or a library's own, which a BatchSampler would replace.
_WHOLE_LIST = (
    "Make each batch in one call: give the dataset a method __getitems__() that takes a list of "
    "indices."
)
_COLLATED = "collate_fn then gets what that method returns."
_YIELD_BATCHES = "Make each batch in one call: let the dataset yield whole batches."
_YIELD = "yield whole batches"
_SAYS = Sentence(
    "the main process makes each batch one sample at a time: {making} per step", making=TIME
)
_TAKING = Sentence(
    "receiving batches from workers takes {low} to {high} per step", low=TIME, high=TIME
)
_SAVED = Sentence("workers would save {low} to {high} per step", low=TIME, high=TIME)
_KEEP = "Keep num_workers=0."
_REMOVE = "Remove shuffle, drop_last, batch_sampler and collate_fn if set."
_REMOVE_OTHERS = (
    "Remove shuffle, drop_last and batch_sampler if set. collate_fn then gets what the dataset "
    "returns for these indices."
)
_REMOVE_OF_STREAM = "Remove drop_last if set."


def _check(facts: RuleInputs) -> Finding | None:
    """Compare making a step's batches with receiving them from workers.

    It is silent where workers help for sure.
    """
    making = input_wait(facts).making_s
    receiving = receiving_s(facts)
    size = facts.throughput.batch_size
    workers_save = making - receiving.high - unsure_s(facts) >= MIN_WAIT_SHARE * facts.step.mean_s
    if (
        num_workers(facts) != 0
        or not size
        or size < 2
        or workers_save
        or facts.setting("whole_batches")
        or _of_objects(facts)
    ):
        return None
    apart = making * (1 - _own_collate(facts))
    computing = 1 - (facts.runqueue_share or 0.0)  # one call waits for a CPU, too
    weight = severity(facts, apart * computing)
    if weight is Severity.INFO:
        return None
    saved = Between(making - receiving.high, making - receiving.low)
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(making=apart),
        more=_with_workers(saved, receiving),
        evidence=_evidence(making, apart, size, receiving, saved),
        fix=_fix(facts),
        fix_more=[*([_KEEP] if saved.low <= 0 else []), *_in_one_call(facts)],
        place=place(facts),
        how_to_check="Time an epoch of the loader alone, with batches made in one call. If it "
        "still takes as long, this finding is wrong.",
        cost_s=apart * computing,
        cost_kind=kind_of_work(facts),
        action=_YIELD if facts.is_stream else "",
    )


def _of_objects(facts: RuleInputs) -> bool:
    """Tell whether batches hold neither tensors nor arrays, such as graphs: no index makes several."""
    return facts.loader is not None and facts.loader.batch_bytes == 0


def _own_collate(facts: RuleInputs) -> float:
    """Return the share of making that a collate function of the program's own takes; it stays."""
    default = facts.setting("collate", "default") == "default"
    return 0.0 if default else making_share(facts, "collate")


def _own_batches(facts: RuleInputs) -> bool:
    """Tell whether something else than torch's BatchSampler decides what a batch consists of."""
    return not facts.is_stream and (
        facts.setting("batch_sampler", "BatchSampler") != "BatchSampler"
        or facts.setting("batch_size") is None
    )


def _fix(facts: RuleInputs) -> str:
    if facts.is_stream:
        return _YIELD_BATCHES
    return _WHOLE_LIST if facts.several_loaders or _own_batches(facts) else _IN_ONE_CALL


def _in_one_call(facts: RuleInputs) -> list[str]:
    """Return what to write, for batches of this size; nothing, where several loaders feed the steps."""
    if facts.several_loaders:
        return []
    if _own_batches(facts):
        return [_COLLATED]
    size, kind = facts.setting("batch_size"), facts.setting("sampler")
    now = f"now batch_size={size}" if size is not None else ""
    if facts.is_stream:
        return [call(facts, "batch_size=None", now), _REMOVE_OF_STREAM]
    each = f"{kind}(dataset)" if kind in _TORCHS and not _draws_otherwise(facts) else "sampler"
    batches = f"BatchSampler({each}, {size}, drop_last={bool(facts.setting('drop_last'))})"
    remove = _REMOVE_OTHERS if _own_collate(facts) else _REMOVE
    return [call(facts, f"sampler={batches}, batch_size=None", now), remove]


def _draws_otherwise(facts: RuleInputs) -> bool:
    """Whether the sampler has arguments of its own: with replacement, or of other than each sample."""
    whole, drawn = facts.setting("dataset_samples"), facts.setting("epoch_samples")
    size = facts.setting("batch_size")
    left = whole - drawn if isinstance(whole, int) and isinstance(drawn, int) else 0
    dropped = size - 1 if isinstance(size, int) else 0
    return bool(facts.setting("replacement")) or not 0 <= left <= dropped


def _with_workers(saved: Between, receiving: Between) -> list[str]:
    taking = _TAKING(low=receiving.low, high=receiving.high)
    if saved.low > 0:
        return [_SAVED(low=saved.low, high=saved.high), taking]
    return [f"workers {'would take longer' if saved.high <= 0 else 'may not help'}", taking]


def _evidence(
    making: float, apart: float, size: float, receiving: Between, saved: Between
) -> list[Evidence]:
    found = [
        Evidence("making_s", "making the batches of one step", making, "s"),
        *(
            [Evidence("apart_s", "of that, without the collate function", apart, "s")]
            if apart < making
            else []
        ),
        Evidence("sample_s", "making one sample", making / size, "s"),
        Evidence(
            "receiving_s",
            "receiving those batches from workers, lower estimate",
            receiving.low,
            "s",
            "lower",
        ),
        Evidence(
            "receiving_s",
            "receiving those batches from workers, upper estimate",
            receiving.high,
            "s",
            "upper",
        ),
    ]
    if saved.low > 0:
        found.append(
            Evidence("saved_s", "saved by workers, lower estimate", saved.low, "s", "lower")
        )
        found.append(
            Evidence("saved_s", "saved by workers, upper estimate", saved.high, "s", "upper")
        )
    return found


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: it depends on the dataset.

    In one call, batches took 0.52 to 0.95 times as long (docs/measured/advice-tried.md).
    """
    return Refused(
        "unknown_dataset",
        "The time to make a whole batch in one call is unknown. Time one such call, and compare "
        "it with what a batch takes now.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/dataset/*cpu", "sample/dataset/*run_queue", "sample/dataset/user"),
    time=Time.NEEDLESS,  # calls for each sample
    of_input=True,
    action="add __getitems__()",
)
