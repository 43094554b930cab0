"""Drawing the indices of a batch, which the main process does while the step waits, takes long."""

from pathlib import PurePosixPath

from feedline.analysis.ledger.calls_per_sample import PER_SAMPLE
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.known_call import KnownCall, known_call
from feedline.analysis.ledger.rule import CHEAPER, Rule
from feedline.analysis.ledger.view.cpus import kind_of_work
from feedline.analysis.ledger.view.input_wait import input_wait, severity
from feedline.analysis.ledger.view.loop_code import line_of_stage
from feedline.analysis.ledger.view.own_functions import name_of, place_of
from feedline.analysis.ledger.view.slow_code import FEWEST
from feedline.analysis.measure.code_places import SAMPLER
from feedline.analysis.measure.code_tree import MAIN
from feedline.analysis.text.formatting import seconds
from feedline.analysis.text.sentences import COUNT, NAME, PART, TIME, Sentence

_RULE_ID = "slow_sampler"

#: Torch's own samplers take 0.1 to 0.4 us per index, the start of a pass over 60,000 or more
#: samples included (docs/rules/slow_sampler.md).
_MIN_BATCH_S, _MIN_INDEX_S = 0.5e-3, 2e-6

#: Of the time in which a pass draws its indices.
_MOSTLY = 0.5

#: Samplers of torch as older recordings name them, without saying whose they are; and those that
#: can draw with replacement.
_RANDOM = "RandomSampler"
_DRAWS_AGAIN = (_RANDOM, "WeightedRandomSampler")
_TORCHS = (*_DRAWS_AGAIN, "SubsetRandomSampler", "SequentialSampler", "DistributedSampler")

_STORED = (
    "Compute what depends on the data, such as lengths or distances, before the training, and "
    "store it."
)
_IN_ONE_CALL = [
    "Compute the order of an epoch once, in one call (torch.randperm, torch.multinomial, NumPy).",
    "Let the sampler return slices of that order.",
    _STORED,
]
_READS = "the sampler makes samples of the dataset to draw its indices"
_FEWER_PASSES = [
    "Begin fewer passes, each longer.",
    "Or let a sampler of your own keep the order as a tensor and yield slices of it, without a "
    "list of all indices.",
]
_ONLY_THOSE = [
    "Passes end before the sampler does: let a sampler of your own draw only the indices that "
    "they take."
]
_EACH = Sentence(
    "{sampler} takes {took} to draw the indices of each batch, in the main process",
    sampler=NAME,
    took=TIME,
)
_ONCE = Sentence(
    "{sampler} takes {took} at the beginning of each pass, in the main process",
    sampler=NAME,
    took=TIME,
)
_DRAWS = Sentence("it draws the order of {samples} samples in one call", samples=COUNT)
_DRAWS_ALL = "it draws the order of the pass in one call"
_LISTS = "it makes a Python list of that order"
_SLICES = Sentence(
    "Draw with a sampler of your own that yields slices of a tensor: {sampler} iterates over the "
    "indices in Python.",
    sampler=NAME,
)
_REPLACE = Sentence("Set replacement=True: {sampler} then {faster}.", sampler=NAME, faster=PART)
_MAY_REPEAT = "only if samples may repeat within a pass"
_ENDS_EARLY = 0.9  # of the samples of a whole pass


def _check(facts: RuleInputs) -> Finding | None:
    """Compare the time in which indices are drawn with what torch's samplers take."""
    loader, took_s = facts.loader, input_wait(facts).sampler_s
    batches, samples = facts.batches_per_step, facts.throughput.batch_size or 0.0
    if loader is None or took_s < max(_MIN_BATCH_S * batches, _MIN_INDEX_S * samples):
        return None
    weight = severity(facts, took_s)
    if weight is Severity.INFO:
        return None
    once = _at_once(facts, took_s)
    (message, more), (fix, *others) = _says(facts, took_s / batches, once), _fixes(facts, once)
    call = None if _of_torch(facts) else _known(facts)
    place = "" if _of_torch(facts) else line_of_stage(facts, SAMPLER)
    if reading := "" if _of_torch(facts) else _reads_samples(facts):
        more, place = [*more, _READS], reading
        fix, *others = [_STORED, *(other for other in (fix, *others) if other != _STORED)]
    elif call is not None:
        more, (fix, *others) = [*more, call.says], [f"{call.fix}.", fix, *others]
    return Finding(
        _RULE_ID,
        weight,
        message=message,
        more=more,
        evidence=[
            Evidence("sampler_s", "drawing indices per step", took_s, "s"),
            Evidence(
                "sampler_share",
                "drawing indices, share of the step",
                took_s / facts.step.mean_s,
                SHARE,
            ),
            Evidence(
                "index_s", "drawing indices, per sample", took_s / samples if samples else 0.0, "s"
            ),
            *(
                [
                    Evidence(
                        "order_s", "drawing the first indices of a pass", facts.order_s or 0.0, "s"
                    )
                ]
                if once
                else []
            ),
        ],
        fix=fix,
        fix_more=others,
        place=place,
        condition=_MAY_REPEAT if _may_replace(facts, once) else "",
        how_to_check=_how_to_check(facts, once),
        cost_s=took_s,
        cost_kind=kind_of_work(facts),
    )


def _known(facts: RuleInputs) -> KnownCall | None:
    """Return the known slow call that takes most of drawing indices; None: there is none."""
    code = facts.code
    tree = code.places.get((MAIN, SAMPLER)) if code is not None else None
    if code is None or tree is None or tree.weight.number < FEWEST:
        return None
    found = known_call(tree.root, PER_SAMPLE, code.source)
    return None if found is None else found.call


def _reads_samples(facts: RuleInputs) -> str:
    """Return file and line of the sampler that make samples of the dataset.

    Empty: that is not where most of the time goes, or too few stacks show it.
    """
    code, made_by = facts.code, str(facts.setting("sample_code", ""))
    tree = code.places.get((MAIN, SAMPLER)) if code is not None else None
    if tree is None or not made_by or tree.weight.number < FEWEST:
        return ""
    file, name = place_of(made_by).rpartition(":")[0], name_of(made_by).rpartition(".")[2]
    lines: dict[str, float] = {}
    for node in tree.root.under():
        for made in node.calls.values():
            if made.function != name or node.function == name:
                continue
            if PurePosixPath(made.file).name != PurePosixPath(file).name:  # folders are masked
                continue
            for line, taken in made.called_at.items():
                place = f"{node.file}:{line}"
                lines[place] = lines.get(place, 0.0) + taken
    place = max(lines, key=lambda place: lines[place], default="")
    return place if sum(lines.values()) >= _MOSTLY * tree.weight.seconds else ""


def _at_once(facts: RuleInputs, took_s: float) -> bool:
    """Tell whether most of the time goes to the first indices of a pass.

    The sampler makes an order for all of them then.
    """
    steps_per_pass = facts.throughput.steps / max(facts.epochs, 1)
    return facts.order_s is not None and facts.order_s > _MOSTLY * took_s * steps_per_pass


def _of_torch(facts: RuleInputs) -> bool:
    """Tell whether torch's own sampler draws the indices.

    It makes the order of a pass in one call already.
    """
    if facts.setting("batch_sampler") not in (None, "BatchSampler"):
        return False
    return bool(facts.setting("torchs_sampler", facts.setting("sampler") in _TORCHS))


def _says(facts: RuleInputs, batch_s: float, once: bool) -> tuple[str, list[str]]:
    """Return the message, and more on what the sampler does."""
    if not once or facts.order_s is None:
        return _EACH(sampler=_called(facts), took=batch_s), []
    order = _ONCE(sampler=_called(facts), took=facts.order_s)
    if not _of_torch(facts):
        return order, []
    samples = facts.setting("dataset_samples")
    drawn = _DRAWS(samples=samples) if isinstance(samples, int) else _DRAWS_ALL
    return order, [drawn, _LISTS]


def _fixes(facts: RuleInputs, once: bool) -> list[str]:
    """Return what to do first, and the alternatives."""
    if not _of_torch(facts):
        return _IN_ONE_CALL
    name = _name(facts)
    if not once:
        return [_SLICES(sampler=name)]
    first, *rest = _ONLY_THOSE if _ends_early(facts) else _FEWER_PASSES
    if not _may_replace(facts, once):
        return [first, *rest]
    faster = "draws 32 indices at a time" if name == _RANDOM else "takes far less time"
    return [_REPLACE(sampler=name, faster=faster), first, *rest]


def _may_replace(facts: RuleInputs, once: bool) -> bool:
    """Whether drawing with replacement, which the sampler does not do yet, would be faster."""
    can = _of_torch(facts) and once and _name(facts) in _DRAWS_AGAIN
    return can and not facts.setting("replacement")


def _ends_early(facts: RuleInputs) -> bool:
    """Tell whether passes take only a part of the indices that the sampler draws for them."""
    whole, loader = facts.setting("epoch_samples"), facts.loader
    if not isinstance(whole, int) or loader is None or not loader.epochs:
        return False
    return loader.samples / loader.epochs < _ENDS_EARLY * whole


def _how_to_check(facts: RuleInputs, once: bool) -> str:
    drawn = "sampler" if facts.setting("batch_sampler") == "none" else "batch_sampler"
    if once:
        return (
            f"Time `next(iter(loader.{drawn}))` alone. If it takes much less than "
            f"{seconds(facts.order_s)}, this finding is wrong."
        )
    return (
        f"Time the sampler alone: `for _ in loader.{drawn}: pass`. If a batch takes much less "
        f"time there, this finding is wrong."
    )


def _name(facts: RuleInputs) -> str:
    """Return the name of the sampler, or of the batch sampler if that is not torch's."""
    batches = facts.setting("batch_sampler")
    return str(
        batches
        if batches not in (None, "BatchSampler")
        else facts.setting("sampler", "the sampler")
    )


def _called(facts: RuleInputs) -> str:
    """Return what the sampler is called at the beginning of a sentence."""
    name = _name(facts)
    return name if name == "the sampler" else f"the sampler {name}"


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: what another sampler takes is not known."""
    return Refused("other_sampler", "How long another sampler would take is unknown.")


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sampler",),
    lifts=CHEAPER | {"step"},
    of_input=True,
    action="make the sampler cheaper",
)
