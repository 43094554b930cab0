"""What would make a sample take less CPU time: only stages that the sample has are named, so a text
dataset is not advised about images.
"""

from feedline.analysis.formatting import share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.cpus import cpu_share_of
from feedline.analysis.ledger.view.expected import heaviest
from feedline.analysis.ledger.view.input_wait import maker
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.measure.stages import MAKING_STAGES

#: Of a sample's CPU time: below it, a stage is not worth naming beside one that takes more.
_MIN_PART = 0.20
_NAMED = 2  # stages
#: Pixels decoded over pixels handed on, from which on smaller images lose nothing that the model
#: sees.
_MIN_PIXEL_RATIO = 1.5
#: Their calls read, and unpack what they read: a chunk for each sample (profiler/taps/operations).
_UNPACKS = ("h5py.Dataset", "zarr.Array")
_THE_REST = "dataset"  # of __getitem__


def less_cpu(facts: RuleInputs) -> str:
    """``spend less CPU per sample (decode by PIL.JPEG, 71 %: a faster decoder)``: what to do about
    the stages that take most of it.
    """
    parts = sorted(((cpu_share_of(facts, stage), stage) for stage in MAKING_STAGES), reverse=True)
    large = [part for part in parts if part[0] >= _MIN_PART][:_NAMED] or [
        part for part in parts[:1] if part[0] > 0
    ]
    told = "; ".join(
        f"{_who(facts, stage)}, {share(of_cpu)}{_how(facts, stage)}" for of_cpu, stage in large
    )
    return f"spend less CPU per sample ({told})" if told else "spend less CPU per sample"


def fewer_pixels(facts: RuleInputs) -> bool:
    """Whether images are decoded larger than what is handed on."""
    workers = facts.workers
    if workers is None or not workers.decoded_pixels or not workers.output_pixels:
        return False
    return workers.decoded_pixels >= _MIN_PIXEL_RATIO * workers.output_pixels


def may_crop(facts: RuleInputs) -> bool:
    """Whether a part of each image may be all that the model sees: a transform that crops was seen,
    or none that makes images smaller.
    """
    names = (
        [one.name.lower() for one in facts.workers.operations if one.stage == "augment"]
        if facts.workers
        else []
    )
    return any("crop" in name for name in names) or not any(
        "resize" in name or "maxsize" in name for name in names
    )


def own_function(facts: RuleInputs) -> str:
    """The function of the program that makes samples, with its place if that is known."""
    if code := facts.setting("sample_code"):
        return str(code)
    dataset = facts.setting("dataset")
    return f"{dataset if dataset not in (None, 'none') else 'the dataset'}.{'__iter__' if facts.is_stream else '__getitem__'}"


def _who(facts: RuleInputs, stage: str) -> str:
    if stage == _THE_REST:
        return f"code in {own_function(facts)}"
    if stage == "collate" and (collate := facts.setting("collate")) not in (None, "default"):
        return f"collate_fn={collate}"
    name = heaviest(facts, stage)[0]
    if stage == "user":
        return f"your stage {name}" if name else "your stages"
    return f"{stage}{f' by {name}' if name else ''}"


def _how(facts: RuleInputs, stage: str) -> str:
    if stage == _THE_REST and (line := making_line(facts)):
        return f": {line} takes most"
    if stage == _THE_REST:
        return (
            ": profile it line by line"
            if facts.setting("sample_code")
            else f": `py-spy top --pid PID` on {maker(facts)}"
        )
    if stage == "decode":
        smaller = " or smaller images" if facts.decodes_images and fewer_pixels(facts) else ""
        return f": a faster decoder{smaller}"
    if stage == "augment":
        return (
            ": cheaper transforms, or transform whole batches on the GPU"
            if facts.on_gpu
            else ": cheaper transforms"
        )
    if stage == "read" and heaviest(facts, stage)[0] in _UNPACKS:
        return ", unpacking included: chunks of about a sample each, or less compression"
    return ""
