"""The first batches of each pass over the loader are made, and nothing is trained on them."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, CostKind, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import CHEAPER, Rule, Time
from feedline.analysis.ledger.view.input_wait import severity
from feedline.analysis.text.sentences import COUNT, Sentence

_RULE_ID = "skipped_batches"

_SAYS = Sentence(
    "the first {skipped} of the {batches} batches of each pass are made, and nothing is trained on "
    "them",
    skipped=COUNT,
    batches=COUNT,
)
_COUNTED = "samples per second would count them as well, so steps per second are told"
_FIX = "Leave them out in the sampler, and only in the pass that resumes a checkpoint."
_SAMPLER = "A sampler that leaves out their indices makes none of their samples."


def _check(facts: RuleInputs) -> Finding | None:
    """Weigh them by their part of the batches."""
    skipped = facts.skipped
    if skipped is None:
        return None
    part = skipped.batches / skipped.of
    cost_s = facts.wait_share * facts.step.mean_s * part
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    return Finding(
        _RULE_ID,
        weight,
        message=_SAYS(skipped=skipped.batches, batches=skipped.of),
        more=[_COUNTED],
        evidence=[
            Evidence("skipped", "batches that are skipped", float(skipped.batches), "batches"),
            Evidence("pass_batches", "batches of a pass", float(skipped.of), "batches"),
            Evidence("skipped_share", "share of the batches", part, SHARE),
            Evidence("skipped_s", "waiting for them, per step", cost_s, "s"),
        ],
        fix=_FIX,
        fix_more=[_SAMPLER],
        place=skipped.place,
        how_to_check="Count the batches of a later pass that the model is trained on. If these are "
        "all, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=CostKind.ESTIMATED,
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to replay: the replay counts samples, those of skipped batches as well."""
    return Refused("skipped", "A replay would count the samples of skipped batches as well.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    time=Time.NEEDLESS,
    claims=("sample/*", "wait/*"),
    lifts=CHEAPER,
    of_input=True,
    action="do not make skipped batches",
)
