"""Batches that are ready wait behind a slow one, and the workers behind them run dry."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Finding, Severity
from feedline.analysis.ledger.rule import AS_MUCH_CPU, Effort, Rule
from feedline.analysis.ledger.view import loader_call
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers, severity, shortage_s
from feedline.analysis.text.sentences import COUNT, NAME, PERCENT, TIME, Sentence

_RULE_ID = "straggler_in_order"
_SETTINGS: dict[str, int | bool] = {"in_order": False}

#: Coefficient of variation of the time to make a batch (docs/rules/straggler_in_order.md). With
#: 0.05, workers in phase show head-of-line waits as well, but in_order=False won nothing there
#: (benchmarks/wait_split.py).
_MIN_VARIATION = 0.30

_SAYS = Sentence(
    "finished batches wait {waiting} per step behind slow ones, because batches are returned in "
    "order",
    waiting=TIME,
)
_VARIES = Sentence(
    "the time per batch varies: its standard deviation is {deviation} of its mean",
    deviation=PERCENT,
)
_KEEP_ORDER = Sentence(
    "To keep the order, raise {name} (now {factor}), and make slow samples faster or spread them "
    "out.",
    name=NAME,
    factor=COUNT,
)
_BEFORE = Sentence(
    "With transformers before {version}, override Trainer.get_train_dataloader to set it.",
    version=NAME,
)


def _check(facts: RuleInputs) -> Finding | None:
    """Look for the wait that is left although workers that never idle would have kept pace.

    Other batches were ready meanwhile.
    """
    maker, lack_s = facts.workers, shortage_s(facts)
    if (
        maker is None
        or lack_s is None
        or (num_workers(facts) or 0) < 2
        or facts.setting("in_order", True) is False
    ):
        return None
    if (maker.fetch_cv or 0.0) <= _MIN_VARIATION:
        return None
    blocked_s = facts.step.waits.get("head_of_line", 0.0)
    cost_s = min(blocked_s, input_wait(facts).making_s - lack_s)
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    evidence = [
        Evidence(
            "fetch_cv",
            "time to make a batch, coefficient of variation",
            maker.fetch_cv or 0.0,
            SHARE,
        ),
        Evidence(
            "head_of_line_s", "waiting per step while another batch was ready", blocked_s, "s"
        ),
    ]
    if facts.straggler_share is not None:
        what = "workers idle behind a slow batch, share of their time"
        evidence.append(Evidence("idle_behind_straggler_share", what, facts.straggler_share, SHARE))
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(waiting=blocked_s),
        more=[_VARIES(deviation=maker.fetch_cv)],
        evidence=evidence,
        fix=f"{loader_call.in_words(facts, _SETTINGS)}.",
        fix_more=_more(facts),
        place=loader_call.place(facts),
        condition=loader_call.only_if(facts, _SETTINGS),
        how_to_check="Run with in_order=False. If samples/s stay the same, this finding is wrong.",
        cost_s=cost_s,
        settings=dict(_SETTINGS),
    )


def _more(facts: RuleInputs) -> list[str]:
    """Return what to do where the setting does not exist, or the order has to stay."""
    factor = facts.setting("prefetch_factor", 2)
    keep = _KEEP_ORDER(name=loader_call.name_of(facts, "prefetch_factor"), factor=factor)
    if facts.setting("made_by") != loader_call.TRANSFORMERS:
        return [keep]
    return [_BEFORE(version=".".join(map(str, loader_call.FIRST_WITH_LATER))), keep]


def _change(facts: RuleInputs) -> Change:
    """Take the batches in the order in which they are ready."""
    return Change(settings=_SETTINGS)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("wait/head_of_line",),
    effort=Effort.SETTING,
    by_settings=True,
    lifts=AS_MUCH_CPU,
    of_input=True,
    action="take batches in any order",
)
