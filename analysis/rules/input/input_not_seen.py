"""Nothing that was recorded or traced says which part of the step the input is.

That is not the same as none.
"""

from feedline.analysis.formatting import seconds, share
from feedline.analysis.ledger.change import Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view.batch_function import HOW_TO_CHECK, unsure
from feedline.analysis.ledger.view.own_functions import named_functions

RULE_ID = "input_not_seen"
_IN_TORCH = (
    "Trace a few steps with torch.profiler around the loop over the DataLoader, or record "
    "the training with `feedline run`."
)
#: A name that threads.LOADER knows.
_IN_XPROF = (
    "Wrap the code that gets a batch in jax.profiler.TraceAnnotation('get_next_batch') "
    "(TensorFlow: tf.profiler.experimental.Trace), and "
    "trace again."
)


def check(facts: RuleInputs) -> Finding:
    """Say so of a run without a loader that the steps ask themselves."""
    step, found = (
        seconds(facts.step.mean_s),
        [Evidence("other_s", "other per step", facts.step.stages.get("other", 0.0), "s")],
    )
    how_to_check = (
        "Check whether a DataLoader feeds the steps directly. If one does, its hook failed (see "
        "'Hooks that could not be attached' in the "
        "full report), and this finding is wrong."
    )
    if facts.making is not None:
        message, how_to_check = unsure(facts), HOW_TO_CHECK
    elif facts.loader is not None:
        message = (
            f"{facts.loader.kind} is iterated in another thread of the program, so the "
            f"input's share of the {step} step is unknown"
        )
        how_to_check = (
            "Iterate it in the training loop itself: the report then shows how long "
            "the step waits for it."
        )
    else:
        message = f"no loader was seen, so the input's share of the {step} step is unknown"
        if facts.unseen is not None and facts.unseen_at_most is not None:
            message += (
                f" (at most {share(facts.unseen_at_most)}, unless a model's forward() loads data)"
            )
            found.append(
                Evidence(
                    "unseen_share", "share of the step that may be input", facts.unseen.share, SHARE
                )
            )
            what = "share of the step that may be input, upper end of its 95 % interval"
            found.append(Evidence("unseen_share_end", what, facts.unseen.high, SHARE))
    if named_functions(facts) is not None:
        message += "; the code named in the finding own_code may be part of the input"
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=message,
        evidence=found,
        fix="Put the code that gets a batch into a function that returns the batch (feedline "
        "finds such functions), or wrap that code in "
        "`with feedline.stage('input'):`.",
        how_to_check=how_to_check,
    )


def _traced(facts: TraceFacts) -> Finding | None:
    """Say so of a trace without ranges of a loader."""
    reason = facts.shown.input.reasons.get("loader_pct")
    if reason is None:
        return None
    return Finding(
        RULE_ID,
        Severity.INFO,
        message=f"whether the loader limits this training is unknown: {reason}",
        fix=_IN_XPROF if facts.shown.maker == "xprof" else _IN_TORCH,
    )


def change(facts: RuleInputs | TraceFacts) -> Refused:
    """Refuse to predict: what the input costs is unknown."""
    return Refused(
        "input_not_seen",
        "The input's share of the step is unknown, and so is what a faster input would save.",
    )


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    of_input=True,
    asks_for_more=True,
    states=Statement.INPUT_UNSEEN,
)
TRACED_RULE: Rule[TraceFacts] = Rule(RULE_ID, _traced, change, of_input=True)
