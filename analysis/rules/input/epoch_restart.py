"""Every epoch restarts its workers."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Change, CostKind, Finding, Refused, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view import loader_call
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers, severity
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.ledger.view.page_faults import assignments
from feedline.analysis.measure.code_places import START
from feedline.analysis.text.sentences import CODE, COUNT, NAME, PART, TIME, Sentence

_RULE_ID = "epoch_restart"
#: Of a step's batch: what a pass takes that ends after one batch, and what it has at least.
_ONE, _SEVERAL = 1.5, 4
_SETTINGS: dict[str, int | bool] = {"persistent_workers": True}
_RESTARTED = Sentence(
    "workers are started again{by} in each of {passes} epochs", by=PART, passes=COUNT
)
_MADE_AGAIN = Sentence(
    "each of the {passes} epochs makes a new DataLoader and starts its workers again{by}",
    passes=COUNT,
    by=PART,
)
_ONE_EACH = Sentence(
    "each step makes a new iterator of the loader, which starts its workers again{by}", by=PART
)
_ITERATOR = (
    "Make the iterator once (batches = iter(loader)), call next(batches) in each step, and make it "
    "again when it ends."
)
_WHEN_IT_ENDS = "It ends with StopIteration."
_DRAWN_FOR_NOTHING = "the other batches that workers make meanwhile are thrown away"
_FIRST = Sentence(", and the first batch then takes {first}", first=TIME)
_FAULTS = ", and the system clears the same memory for them each time"
_PRELOAD = "start the workers with forkserver and set_forkserver_preload(['torch'])"
_IMPORTS_ONCE = "The forkserver imports torch only once."
_ONE_DATASET = "Make one dataset for all epochs, so that its workers can stay."
_ANOTHER_DATASET = "the program makes another dataset for each epoch, so workers cannot stay"
_CHANGED = Sentence("the program changes {names} of {kind} between epochs", names=NAME, kind=NAME)
_SHARE = Sentence(
    "Put {names} into shared memory first, with torch.tensor(...).share_memory_(), and assign into it.",
    names=NAME,
)
_DO_NOT_KEEP = (
    "Do not set persistent_workers=True as the program is: workers that stay would keep the old "
    "value."
)
_ONCE = Sentence("Make the loader once, before the loop: {call}", call=CODE)
_DEARER = Sentence(
    "Persistent workers use {more} more CPU time per batch here: they keep returning memory to "
    "the system.",
    more=TIME,
)
_VARIABLES = Sentence("Start the program with {variables}.", variables=PART)
_CHANGES_ARE_SEEN = (
    "Print the attribute in a worker in the second epoch. If it has the old value "
    "already, this finding is wrong."
)
CHANGED = Refused(
    "dataset_changes",
    "The program changes the dataset between passes. Workers that stay would not see that, so no "
    "setting is predicted.",
)
MADE_AGAIN = Refused(
    "loader_made_again",
    "The program makes a new DataLoader for each pass, and its workers end with it. Make it once, "
    "before the loop.",
)


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh what epochs spend until their first batch.

    The making of that batch is left out, which no setting spares. It is silent where several
    loaders feed the steps: whose workers start is not known.
    """
    loader = facts.loader
    again, one_each = facts.loader_made_again, _takes_one_batch(facts)
    kept = facts.setting("persistent_workers") and not again
    if loader is None or facts.epochs < 2 or not num_workers(facts) or kept:
        return None
    if facts.several_loaders:
        return None
    first, batch = loader.first_batch_s, facts.workers.fetch_mean_s if facts.workers else None
    if facts.is_stream and facts.first_made_s:  # a stream begins again in workers that stay, too
        batch = max(batch or 0.0, facts.first_made_s)
    cost_s = input_wait(facts).restart_s * (max(0.0, 1 - (batch or 0.0) / first) if first else 1.0)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    method = facts.setting("start_method")
    by = f" ({method})" if method else ""
    found = [
        (
            "restart_s",
            "ending and starting workers, and first batches, per step",
            input_wait(facts).restart_s,
            "s",
        ),
        ("first_batch_s", "from the start of an epoch to its first batch", first, "s"),
        ("batch_s", "making a batch", batch, "s"),
        ("epochs", "loader iterated", float(facts.epochs), "times"),
    ]
    fix, fix_more = _fixes(facts, method)
    return Finding(
        _RULE_ID,
        weight,
        message=_says(facts, by) + (_then(facts, first) if first else ""),
        more=[*([_DRAWN_FOR_NOTHING] if one_each else []), *_changed(facts)],
        evidence=measured(found),
        fix=fix,
        fix_more=fix_more,
        place=_place(facts),
        condition=""
        if facts.dataset_changes or one_each
        else loader_call.only_if(facts, _SETTINGS),
        how_to_check=_CHANGES_ARE_SEEN
        if facts.dataset_changes
        else f"Run with {'one loader and ' if again else ''}persistent_workers=True. "
        "If the first batch of later epochs still takes as long, this finding is wrong.",
        cost_s=cost_s,
        # what ending workers takes the rest of the step is not part of it
        cost_kind=CostKind.AT_LEAST if one_each else CostKind.ESTIMATED,
        settings={} if again or one_each or facts.dataset_changes else dict(_SETTINGS),
    )


def _takes_one_batch(facts: RuleInputs) -> bool:
    """Tell whether passes end after one of their batches, as those of next(iter(loader)) do."""
    whole, batch, loader = facts.setting("epoch_samples"), facts.throughput.batch_size, facts.loader
    if not isinstance(whole, int) or not batch or loader is None or not loader.epochs:
        return False
    return whole >= _SEVERAL * batch and loader.samples / loader.epochs < _ONE * batch


def _says(facts: RuleInputs, by: str) -> str:
    if _takes_one_batch(facts):
        return _ONE_EACH(by=by)
    return (_MADE_AGAIN if facts.loader_made_again else _RESTARTED)(by=by, passes=facts.epochs)


def _then(facts: RuleInputs, first: float) -> str:
    """Return what follows from it: page faults, where they would become fewer in the same workers."""
    return _FAULTS if facts.settling_s else _FIRST(first=first)


def _place(facts: RuleInputs) -> str:
    """Return the line that makes the loader; of a pass in each step, that which begins it."""
    if facts.dataset_changes:
        return ""
    begun = line_of_stage(facts, START) if _takes_one_batch(facts) else ""
    return begun or loader_call.place(facts)


def _changed(facts: RuleInputs) -> list[str]:
    """Return what the program changes in the dataset, for which workers cannot stay as it is."""
    if not facts.dataset_changes:
        return []
    if facts.dataset_changes == [""]:
        return [_ANOTHER_DATASET]
    return [_CHANGED(names=_attributes(facts), kind=facts.setting("dataset", "the dataset"))]


def _attributes(facts: RuleInputs) -> str:
    return " and ".join(f"`{name}`" for name in facts.dataset_changes)


def _fixes(facts: RuleInputs, method: object) -> tuple[str, list[str]]:
    """Return what to do first, and more.

    Workers that stay would keep a dataset as it was when they started.
    """
    preload = [f"Or {_PRELOAD}.", _IMPORTS_ONCE]
    if _takes_one_batch(facts):
        return _ITERATOR, [_WHEN_IT_ENDS]
    if facts.dataset_changes:
        others = preload if method == "spawn" else []
        if facts.dataset_changes == [""]:
            return _ONE_DATASET, others
        return _SHARE(names=_attributes(facts)), [_DO_NOT_KEEP, *others]
    others = [*_dearer(facts), *(preload if method in ("spawn", "forkserver") else [])]
    if not facts.loader_made_again:
        return loader_call.change(facts, _SETTINGS), others
    kept = loader_call.change(facts, _SETTINGS, "now made for each pass")
    return _ONCE(call=kept), others


def _dearer(facts: RuleInputs) -> list[str]:
    """Return what to do besides, because workers that stay make batches slower."""
    if not loader_call.dearer_if_they_stay(facts):
        return []
    variables = assignments(facts)
    return [
        _DEARER(more=facts.staying_s),
        *([_VARIABLES(variables=variables)] if variables else []),
    ]


def _change(facts: RuleInputs) -> Change | Refused:
    """Keep workers from epoch to epoch.

    Not where they would miss what the program changes in the dataset.
    """
    if _takes_one_batch(facts):
        return Change(settings=_SETTINGS, endless=True)
    if facts.dataset_changes:
        return CHANGED
    return Change(one_loader=True) if facts.loader_made_again else Change(settings=_SETTINGS)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("epoch_start", "wait/first_batch"),
    effort=Effort.SETTING,
    by_settings=True,
    lifts=CHEAPER | {"step"},
    of_input=True,
    action="keep the workers",
)
