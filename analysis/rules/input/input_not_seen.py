"""Nothing that was recorded or traced says which part of the step the input is.

That is not the same as none.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule, Statement
from feedline.analysis.ledger.trace_facts import TraceFacts
from feedline.analysis.ledger.view.loop_code import HOW_TO_CHECK, makes
from feedline.analysis.ledger.view.own_functions import named_functions
from feedline.analysis.text.sentences import NAME, PERCENT, TIME, Sentence

_KNOWN = Sentence(
    "the known part of the input takes {took} of each {step} step", took=TIME, step=TIME
)
_UNKNOWN = Sentence(
    "another {other} per step ({part}) belong to no stage and may be input as well",
    other=TIME,
    part=PERCENT,
)

_RULE_ID = "input_not_seen"
_ELSEWHERE = Sentence(
    "{kind} is iterated in another thread, so the input's share of the {step} step is unknown",
    kind=NAME,
    step=TIME,
)
_NO_LOADER = Sentence(
    "no loader was seen, so the input's share of the {step} step is unknown", step=TIME
)
_AT_MOST = Sentence(
    "at most {part} of the step is input, unless a model's forward() loads data", part=PERCENT
)
_OWN_CODE = "the code named in the finding own_code may be part of the input"
_FUNCTION = (
    "Put the code that gets a batch into a function that returns the batch (feedline finds such "
    "functions)."
)
_REST = "If other code makes part of the batch, move it into the function that returns the batch."
_STAGE = "Or wrap that code in `with feedline.stage('input'):`."
_IN_TORCH = [
    "Trace a few steps with torch.profiler around the loop over the DataLoader.",
    "Or record the training with `feedline run`.",
]
#: A name that threads.LOADER knows.
_IN_XPROF = [
    "Wrap the code that gets a batch in jax.profiler.TraceAnnotation('get_next_batch'), and trace "
    "again.",
    "In TensorFlow, wrap it in tf.profiler.experimental.Trace.",
]


def check(facts: RuleInputs) -> Finding:
    """Of a run without a loader that the steps ask themselves."""
    found = [Evidence("other_s", "other per step", facts.step.stages.get("other", 0.0), "s")]
    more: list[str] = []
    how_to_check = (
        "Check whether a DataLoader feeds the steps directly. If one does, its hook failed (see "
        "'Hooks that could not be attached' in the "
        "full report), and this finding is wrong."
    )
    if facts.making is not None:
        (message, more), how_to_check = _unsure(facts), HOW_TO_CHECK
    elif facts.loader is not None:
        message = _ELSEWHERE(kind=facts.loader.kind, step=facts.step.mean_s)
        how_to_check = (
            "Iterate it in the training loop itself: the report then shows how long "
            "the step waits for it."
        )
    else:
        message = _NO_LOADER(step=facts.step.mean_s)
        if facts.unseen is not None and facts.unseen_at_most is not None:
            more = [_AT_MOST(part=facts.unseen_at_most)]
            found.append(
                Evidence(
                    "unseen_share", "share of the step that may be input", facts.unseen.share, SHARE
                )
            )
            what = "share of the step that may be input, upper end of its 95 % interval"
            found.append(Evidence("unseen_share_end", what, facts.unseen.high, SHARE))
    if named_functions(facts) is not None:
        more = [*more, _OWN_CODE]
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message=message,
        more=more,
        evidence=found,
        fix=_FUNCTION if facts.making is None else _REST,
        fix_more=[_STAGE],
        how_to_check=how_to_check,
    )


def _traced(facts: TraceFacts) -> Finding | None:
    """Say so of a trace without ranges of a loader."""
    reason = facts.shown.input.reasons.get("loader_pct")
    if reason is None:
        return None
    fix, *others = _IN_XPROF if facts.shown.maker == "xprof" else _IN_TORCH
    return Finding(
        _RULE_ID,
        Severity.INFO,
        message="whether the loader limits this training is unknown",
        more=[reason],
        fix=fix,
        fix_more=others,
    )


def _change(facts: RuleInputs | TraceFacts) -> Refused:
    """Refuse to predict: what the input costs is unknown."""
    return Refused(
        "input_not_seen",
        "The input's share of the step is unknown, and so is what a faster input would save.",
    )


def _unsure(facts: RuleInputs) -> tuple[str, list[str]]:
    """Return what is known where the function takes less than the gate.

    Other parts of the step may be input as well. It is a message, and more.
    """
    took, other = facts.step.stages.get("input", 0.0), facts.step.stages.get("other", 0.0)
    mean = facts.step.mean_s
    more = [*makes(facts), _UNKNOWN(other=other, part=other / mean)]
    return _KNOWN(took=took, step=mean), more


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    check,
    _change,
    of_input=True,
    asks_for_more=True,
    states=Statement.INPUT_UNSEEN,
)
TRACED_RULE: Rule[TraceFacts] = Rule(_RULE_ID, _traced, _change, of_input=True)
