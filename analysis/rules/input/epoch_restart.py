"""Every epoch restarts its workers."""

from feedline.analysis.formatting import seconds
from feedline.analysis.ledger.change import Change, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding, Severity, measured
from feedline.analysis.ledger.rule import CHEAPER, Effort, Rule
from feedline.analysis.ledger.view import handover
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers, severity
from feedline.analysis.ledger.view.page_faults import assignments

RULE_ID = "epoch_restart"
_SETTINGS: dict[str, int | bool] = {"persistent_workers": True}
_CHANGES_ARE_SEEN = (
    "Print the attribute in a worker in the second pass. If it has the old value "
    "already, this finding is wrong."
)
CHANGED = Refused(
    "dataset_changes",
    "The program changes the dataset between passes. Workers that stay would not see that, so no "
    "setting is predicted.",
)


def check(facts: RuleInputs) -> Finding | None:
    """Weigh what epochs spend until their first batch.

    The making of that batch is left out, which no setting spares.
    """
    loader = facts.loader
    again = facts.loader_made_again
    kept = facts.setting("persistent_workers") and not again
    if loader is None or facts.epochs < 2 or num_workers(facts) == 0 or kept:
        return None
    first, batch = loader.first_batch_s, facts.workers.fetch_mean_s if facts.workers else None
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
    faster = (
        "Keep the workers (or start them with forkserver and "
        "set_forkserver_preload(['torch']), which imports torch only once): "
    )
    return Finding(
        RULE_ID,
        weight,
        message=(
            f"each of the {facts.epochs} passes makes a new DataLoader and starts its workers "
            f"again{by}"
            if again
            else f"workers are restarted{by} each time the loader is iterated, {facts.epochs} "
            f"times here"
        )
        + (f"; the first batch then takes {seconds(first)}" if first else ""),
        evidence=measured(found),
        fix=_handed_over(facts, method)
        if facts.dataset_changes
        else _dearer(facts)
        + (faster if method in ("spawn", "forkserver") else "")
        + (_once(facts) if again else handover.change(facts, _SETTINGS)),
        how_to_check=_CHANGES_ARE_SEEN
        if facts.dataset_changes
        else f"Run with {'one loader and ' if again else ''}persistent_workers=True. "
        "If the first batch of later epochs still takes as long, this finding is wrong.",
        cost_s=cost_s,
        settings={} if again or facts.dataset_changes else dict(_SETTINGS),
    )


def _handed_over(facts: RuleInputs, method: object) -> str:
    """Say what to do first where workers that stay would keep the dataset as it was."""
    preload = (
        "Start the workers with forkserver and set_forkserver_preload(['torch']), which "
        "imports torch only once. "
    )
    start = preload if method == "spawn" else ""
    if facts.dataset_changes == [""]:
        return (
            f"{start}The program makes another dataset for each pass, so workers cannot stay: "
            f"make one for all passes."
        )
    names, kind = (
        " and ".join(f"`{name}`" for name in facts.dataset_changes),
        facts.setting("dataset", "the dataset"),
    )
    return (
        f"{start}Do not set persistent_workers=True as the program is: it changes {names} of "
        f"{kind} between passes, and workers that stay "
        f"would keep the old value. Put {names} into shared memory first "
        f"(torch.tensor(...).share_memory_()), and assign into it."
    )


def _once(facts: RuleInputs) -> str:
    """Say to make one loader in place of one for each pass."""
    kept = handover.call(
        facts,
        handover.as_code(_SETTINGS),
        "now made for each pass",
        handover.only_if(facts, _SETTINGS),
    )
    return f"Make the loader once, before the loop: {kept}"


def _dearer(facts: RuleInputs) -> str:
    """Say what else to do first, because workers that stay make batches slower.

    It is a sentence before the line to change.
    """
    if not handover.dearer_if_they_stay(facts):
        return ""
    more = (
        f"Persistent workers use {seconds(facts.staying_s)} more CPU time per batch here: they "
        f"keep returning memory to the system"
    )
    variables = assignments(facts)
    return f"{more}. Start the program with {variables}. " if variables else f"{more}. "


def change(facts: RuleInputs) -> Change | Refused:
    """Keep workers from epoch to epoch.

    Not where they would miss what the program changes in the dataset.
    """
    return CHANGED if facts.dataset_changes else Change(settings=_SETTINGS)


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("epoch_start", "wait/first_batch"),
    effort=Effort.SETTING,
    by_settings=True,
    lifts=CHEAPER | {"step"},
    of_input=True,
)
