"""Augmentation takes most of the CPU time of a sample."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.cpus import cost_share, cpu_share_of, kind_of_work, making_wait_s
from feedline.analysis.ledger.view.input_wait import making_share, severity
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.measure.crops import CONTAINERS, is_cut
from feedline.analysis.measure.model import Operation
from feedline.analysis.text.sentences import NAME, PERCENT, TIME, Sentence

_RULE_ID = "augmentation_bound"

#: The same two as for decode (rules/input/decode_bound.py): most of the CPU, and the CPU is what
#: the sample spends its time on.
_MIN_CPU_SHARE = 0.50
_MIN_WALL_SHARE = 0.25

_OWN = 0.5  # of the CPU time of augmentation

_TO_FLOAT = "ToTensor"  # of torchvision's first transforms: those behind it work on floating point
_NAMED = 3  # operations in the evidence: the rest is rarely worth a change

_SAYS = Sentence("augmentation takes {part} of the CPU time per sample", part=PERCENT)
_MOSTLY = Sentence(
    "augmentation takes {part} of the CPU time per sample, mostly in {operation} ({each})",
    part=PERCENT,
    operation=NAME,
    each=TIME,
)
_LONGEST = Sentence(
    "augmentation takes {part} of the CPU time per sample, {operation} most of all ({each})",
    part=PERCENT,
    operation=NAME,
    each=TIME,
)
_HEAVIEST = Sentence("its most expensive operation is {operation}", operation=NAME)
_IN_CONTAINER = Sentence(
    "{operation} only calls others: its time is spent in transforms of your own", operation=NAME
)
_CUT = "to their final size before the expensive transforms."
_CUT_ALREADY = "samples are cut to their size before it"
_IN_ONE_CALL = "ransform whole batches instead of samples{device}."
_CUT_LESS = 1.1  # times the pixels that a sample has in the end: fewer are not cut
_UINT8 = "Or use torchvision.transforms.v2 on uint8 tensors."


def _check(facts: RuleInputs) -> Finding | None:
    """Compare augmentation with the whole sample, and name the operations that take most."""
    of_cpu, of_wall = cpu_share_of(facts, "augment"), making_share(facts, "augment")
    if of_cpu < _MIN_CPU_SHARE or of_wall < _MIN_WALL_SHARE:
        return None
    cost_s = making_wait_s(facts) * cost_share(facts, "augment")
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    heaviest = _heaviest(facts)
    message, more = _says(facts, of_cpu, heaviest[0] if heaviest else None)
    fix, *others = _fixes(facts)
    return Finding(
        _RULE_ID,
        weight,
        message=message,
        more=[*more, *([_CUT_ALREADY] if facts.cut_first else [])],
        evidence=[
            Evidence(
                "augment_share_of_cpu", "augmentation, share of CPU time per sample", of_cpu, SHARE
            ),
            Evidence("augment_share", "augmentation, share of a sample's time", of_wall, SHARE),
            *(
                Evidence(
                    "operation_cpu_s",
                    f"{op.name}, CPU time per sample",
                    op.cpu_s or 0.0,
                    "s",
                    op.name,
                )
                for op in heaviest
            ),
        ],
        fix=fix,
        fix_more=others,
        place=making_line(facts),
        how_to_check="Have the dataset return the same augmented sample each time. If samples/s "
        "do not rise, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=kind_of_work(facts),
    )


def _transforms(facts: RuleInputs) -> list[Operation]:
    operations = facts.workers.operations if facts.workers else []
    return [op for op in operations if op.stage == "augment"]


def _heaviest(facts: RuleInputs) -> list[Operation]:
    transforms = _transforms(facts)
    whole_s = sum(op.cpu_s or 0.0 for op in transforms)
    told = [
        op for op in transforms if op.name not in CONTAINERS or (op.cpu_s or 0.0) >= _OWN * whole_s
    ]
    return sorted(told, key=lambda op: -(op.cpu_s or 0.0))[:_NAMED]


def _fixes(facts: RuleInputs) -> list[str]:
    """Return what to do first, and what else: of images only where some were decoded."""
    in_one_call = _IN_ONE_CALL.format(device=" on the GPU" if facts.on_gpu else "")
    operations = facts.workers.operations if facts.workers else []
    in_floats = facts.decodes_images and any(op.name == _TO_FLOAT for op in operations)
    uint8 = [_UINT8] if in_floats else []
    if not _are_cut_late(facts):
        return [f"T{in_one_call}", *uint8]
    kind = "images" if facts.decodes_images else "samples"
    return [
        f"{'Crop or resize' if facts.decodes_images else 'Cut'} {kind} {_CUT}",
        f"Or t{in_one_call}",
        *uint8,
    ]


def _are_cut_late(facts: RuleInputs) -> bool:
    """Tell whether samples are cut, and not before the transform that takes most.

    Where no such transform was seen, images that end with fewer pixels than they have are cut.
    """
    heaviest = _heaviest(facts)
    if facts.cut_first is not None or (heaviest and is_cut(heaviest[0].name)):
        return facts.cut_first is False
    maker = facts.workers
    decoded, left = (maker.decoded_pixels, maker.output_pixels) if maker else (None, None)
    return bool(decoded and left and decoded > _CUT_LESS * left)


def _says(facts: RuleInputs, of_cpu: float, heaviest: Operation | None) -> tuple[str, list[str]]:
    """Return the message, and more on the operation that takes most."""
    if heaviest is None:
        return _SAYS(part=of_cpu), []
    name = heaviest.name
    own = [_IN_CONTAINER(operation=name)] if name in CONTAINERS else []
    if not heaviest.cpu_s:
        return _SAYS(part=of_cpu), [_HEAVIEST(operation=name), *own]
    made = facts.workers
    if any((op.cpu_s or 0.0) > heaviest.cpu_s for op in _transforms(facts)):
        return _SAYS(part=of_cpu), []  # transforms of the program's own, which a container calls
    whole_s = made.per_sample["augment"].cpu_s if made else None
    mostly = heaviest.cpu_s >= _OWN * (whole_s or 0.0)
    says = _MOSTLY if mostly else _LONGEST
    return says(part=of_cpu, operation=name, each=heaviest.cpu_s), own


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: what other transforms would take is unknown."""
    return Refused(
        "unknown_transforms",
        "Which transforms can be replaced, and by what, is unknown. Return the same augmented "
        "sample each time for a minute of training, "
        "and record again: that is the most that can be gained.",
    )


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/augment/cpu", "sample/augment/run_queue"),
    supposing="if augmentation took no time",
    of_input=True,
    action="make transforms cheaper",
)
