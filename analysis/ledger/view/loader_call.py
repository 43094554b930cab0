"""How the program's call of its loader changes: with which arguments, where, and on what conditions."""

import math

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.input_wait import num_workers
from feedline.analysis.text.formatting import sentence

#: The library whose TrainingArguments hold the arguments of the loaders that it makes.
TRANSFORMERS = "transformers"
#: Argument of the DataLoader -> what they call it.
TRAINING_ARGUMENTS = {
    "batch_size": "per_device_train_batch_size",
    "num_workers": "dataloader_num_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "persistent_workers": "dataloader_persistent_workers",
    "pin_memory": "dataloader_pin_memory",
    "in_order": "dataloader_in_order",
    "multiprocessing_context": "dataloader_multiprocessing_context",
}
#: Those that older versions do not have, and the first version that does (huggingface/transformers#47164).
LATER_TRAINING_ARGUMENTS = ("in_order", "multiprocessing_context")
FIRST_WITH_LATER = (5, 15)

#: torch refuses them without workers; whether a default or the program set them is not recorded.
_WITHOUT_WORKERS = (
    "remove prefetch_factor, persistent_workers, timeout and multiprocessing_context if set"
)
_WITHOUT_WORKERS_OF_TRANSFORMERS = (
    "remove dataloader_prefetch_factor, dataloader_persistent_workers and "
    "dataloader_multiprocessing_context if set"
)

#: Of making a batch: what workers that stay may take longer than new ones, and still be advised.
_MOST_DEARER = 0.1


def arguments(facts: RuleInputs, workers: int | None) -> dict[str, int | bool]:
    """Return what a DataLoader is given for that many workers; None: no number is advised.

    Of several passes over one loader they are kept: starting them for each takes longer than many a
    batch. Not if workers that stay make batches slower than new ones do, because these inherit what
    the main process's malloc has learned, nor if the program changes the dataset between passes,
    which they would not see. Of a stream that is not split between workers, each would yield all
    samples. Of several loaders that feed the steps, it is not known which needs them.
    """
    if workers is None or facts.several_loaders or (workers > 1 and not facts.may_be_split):
        return {}
    passes = (
        facts.epochs > 1 and not facts.setting("persistent_workers") and not facts.loader_made_again
    )
    kept = passes and not dearer_if_they_stay(facts) and not facts.dataset_changes
    return {"num_workers": workers, **({"persistent_workers": True} if kept else {})}


def dearer_if_they_stay(facts: RuleInputs) -> bool:
    """Tell whether batches take much longer in workers that stay between passes."""
    batch_s = facts.workers.fetch_mean_s if facts.workers else None
    return facts.staying_s > _MOST_DEARER * (batch_s or math.inf)


def as_code(given: dict[str, int | bool], at: str = "") -> str:
    """Return ``num_workers=2, persistent_workers=True``, by the names in the call at a place."""
    return ", ".join(f"{_name_at(at, name)}={value}" for name, value in given.items())


def name_of(facts: RuleInputs, name: str) -> str:
    """Return what an argument of the DataLoader is called where the program sets it."""
    return _name_at(place(facts), name)


def _name_at(at: str, name: str) -> str:
    return TRAINING_ARGUMENTS.get(name, name) if _sets_training_arguments(at) else name


def _sets_training_arguments(at: str) -> bool:
    """Tell whether the loader at a ``place`` is made by transformers."""
    return at.endswith(f"via {TRANSFORMERS}")


def _conditions(facts: RuleInputs, given: dict[str, int | bool]) -> dict[str, str]:
    """Return what has to be true of the program for each argument to leave the training as it is."""
    found = {}
    if given.get("in_order") is False:
        found["in_order"] = "the order of batches may change"
    if given.get("num_workers", 0) > 1 and facts.is_stream and (num_workers(facts) or 0) < 2:
        found["num_workers"] = (
            "each worker yields its own part of the iterable dataset (get_worker_info)"
        )
    asks = facts.is_stream and facts.setting("asks_for_worker") is True
    if given.get("num_workers") == 0 and asks:
        found["num_workers"] = "the dataset handles get_worker_info() being None"
    if given.get("persistent_workers") is True:
        found["persistent_workers"] = "the program does not change the dataset between epochs"
    return found


def only_if(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the conditions, to be appended to a line that sets these arguments.

    Each comes with its argument, where there are others. Empty: there are none.
    """
    named = {
        f"{as_code({name: given[name]}, place(facts))} " if len(given) > 1 else "": condition
        for name, condition in _conditions(facts, given).items()
    }
    return " and ".join(f"{name}only if {condition}" for name, condition in named.items())


def change(facts: RuleInputs, given: dict[str, int | bool], now: str | None = None) -> str:
    """Return the new line that makes the loader: ``DataLoader(..., num_workers=3)  # now 1``.

    Where that line is, and what has to be true, are ``place`` and ``only_if``.

    Args:
        facts: of the run.
        given: new arguments.
        now: what it does now; None: its present values.
    """
    at = place(facts)
    arguments, comment = as_code(given, at), _now(facts, given) if now is None else now
    if _sets_training_arguments(at):
        return _line("TrainingArguments", arguments, comment)
    return call(facts, arguments, comment)


def line_to_change(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the same with its place and its condition in the comment, for a line of its own.

    ``DataLoader(..., num_workers=3) # now 1, train.py:31``.
    """
    now = ", ".join(filter(None, (_now(facts, given), place(facts))))
    comments = filter(None, (now, only_if(facts, given), _to_remove(facts, given)))
    return change(facts, given, "; ".join(comments))


def without_workers(facts: RuleInputs, given: dict[str, int | bool]) -> list[str]:
    """Return what has to be removed where no workers are left; empty: nothing."""
    others = _to_remove(facts, given)
    return [f"{sentence(others)}."] if others else []


def _to_remove(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    if given.get("num_workers") != 0:
        return ""
    if _sets_training_arguments(place(facts)):
        kept, others = ", dataloader_persistent_workers", _WITHOUT_WORKERS_OF_TRANSFORMERS
    else:
        kept, others = " persistent_workers,", _WITHOUT_WORKERS
    return others.replace(kept, "") if "persistent_workers" in given else others


def in_words(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return the same for the middle of a text: ``Set num_workers=3 (now 1)``."""
    now = _now(facts, given)
    return f"Set {as_code(given, place(facts))}{f' ({now})' if now else ''}"


def _now(facts: RuleInputs, given: dict[str, int | bool]) -> str:
    """Return ``now 1``, or ``now num_workers=1, persistent_workers=False``.

    It is empty where they are unknown.
    """
    now: dict[str, int | bool] = {
        name: value for name in given if isinstance(value := facts.setting(name), int)
    }
    values = as_code(now, place(facts)) if len(given) > 1 else "".join(map(str, now.values()))
    return f"now {values}" if values else ""


def call(facts: RuleInputs, arguments: str, now: str = "") -> str:
    """Return the same for any arguments of the DataLoader."""
    return _line(facts.loader.kind if facts.loader else "DataLoader", arguments, now)


def _line(called: str, arguments: str, comment: str) -> str:
    return f"{called}(..., {arguments})" + (f"  # {comment}" if comment else "")


def place(facts: RuleInputs) -> str:
    """Return where the program makes its loader.

    ``train.py:31``, ``train.py:88 via transformers``; empty where that is unknown.
    """
    at, by = facts.setting("made_at"), facts.setting("made_by")
    return " ".join(filter(None, (f"{at}" if at else "", f"via {by}" if by else "")))
