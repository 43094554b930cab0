"""Images are decoded far larger than what the model sees."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Change, Evidence, Factor, Finding, Refused
from feedline.analysis.ledger.rule import Effort, Rule, Time, Waste
from feedline.analysis.ledger.view.cheaper import may_crop
from feedline.analysis.ledger.view.cpus import cost_share, making_wait_s
from feedline.analysis.ledger.view.expected import heaviest
from feedline.analysis.ledger.view.input_wait import operations_share, severity
from feedline.analysis.ledger.view.page_faults import faults_share
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.sentences import NUMBER, PART, Sentence

_RULE_ID = "oversize_images"

_SAYS = Sentence(
    "images are decoded to {ratio} times as many pixels as the model sees", ratio=NUMBER
)
_STORE = "Store the images near the training size."
_IF_SCALED = "Store images at about the training size, if they are scaled down."
_AT_SCALE = Sentence("Or decode JPEGs at 1/2, 1/4 or 1/8 scale ({draft}).", draft=PART)
_IF_CROPPED = "If they are cropped at full resolution, decode only the crop."

#: docs/rules/oversize_images.md. ImageNet's mean 469 x 387 picture for a 224 px crop has 3.6, and
#: is stored as people want it.
_MIN_PIXEL_RATIO = 4.0


#: How a decoder makes a smaller image of a JPEG, as the names of its operations begin.
_DRAFTS = {"PIL.JPEG": "PIL's Image.draft", "cv2.im": "cv2.IMREAD_REDUCED_COLOR_2"}

_RESIZES = ("resize", "randomresizedcrop", "smallestmaxsize", "longestmaxsize")


def _check(facts: RuleInputs) -> Finding | None:
    """Compare decoded pixels with the pixels that are handed on, per sample."""
    maker = facts.workers
    if maker is None or not maker.decoded_pixels or not maker.output_pixels:
        return None
    ratio = maker.decoded_pixels / maker.output_pixels
    if ratio <= _MIN_PIXEL_RATIO:
        return None
    by_pixels = min(1.0, cost_share(facts, "read", "decode") + operations_share(facts, _RESIZES))
    cost_s = making_wait_s(facts) * by_pixels * (1 - 1 / ratio)
    fix, *others = _fixes(facts)
    return Finding(
        _RULE_ID,
        severity(
            facts, cost_s
        ),  # also where it costs little: it is known before it hurts, and stays true
        message=_SAYS(ratio=ratio),
        evidence=[
            Evidence("decoded_pixels", "pixels decoded per sample", maker.decoded_pixels, "pixels"),
            Evidence("output_pixels", "pixels returned per sample", maker.output_pixels, "pixels"),
            Evidence(
                "by_pixels_share",
                "read, decode and resize, share of a sample's time",
                by_pixels,
                SHARE,
            ),
        ],
        fix=fix,
        fix_more=others,
        place=making_line(facts),
        how_to_check="Resize 50 of the files and read only those. If decode time per sample does "
        "not fall, this finding is wrong.",
        cost_s=cost_s,
    )


def _fixes(facts: RuleInputs) -> list[str]:
    """Return what there is to do for the way in which images were seen to become smaller.

    Both, where none was.
    """
    name, scaled = heaviest(facts, "decode")[0], operations_share(facts, _RESIZES) > 0
    draft = next((way for library, way in _DRAFTS.items() if name.startswith(library)), "")
    at_scale = [_AT_SCALE(draft=draft)] if draft else []
    if scaled and not may_crop(facts):
        return [_STORE, *at_scale]
    return [_IF_SCALED, *at_scale, _IF_CROPPED]


def _change(facts: RuleInputs) -> Change | Refused:
    """Store images at the size that the model sees.

    Reading, decoding and resizing them go by pixels. Other stages are spared as much of the page
    faults for the memory of images.
    """
    maker = facts.workers
    if maker is None or not maker.decoded_pixels or not maker.output_pixels:
        return Refused("unknown_pixels", "The number of decoded pixels was not recorded.")
    left = maker.output_pixels / maker.decoded_pixels
    faults = 1 - (1 - left) * (faults_share(facts) or 0.0)
    augmenting = 1 - (1 - left) * operations_share(facts, _RESIZES, "augment")
    stages = dict.fromkeys(MAKING_STAGES, Factor(cpu=faults)) | dict.fromkeys(
        ("read", "decode"), Factor(left, left)
    )
    return Change(stages=stages | {"augment": Factor(augmenting * faults, augmenting)})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/decode/cpu", "sample/decode/run_queue"),
    effort=Effort.DATA,
    time=Time.NEEDLESS,
    of_input=True,
    ends=frozenset({Waste.PIXELS, Waste.PAGE_FAULTS}),  # smaller images spare their page faults
    action="store smaller images",
)
