"""What would make a sample take less CPU time.

Only stages that the sample has are named, so a text dataset is not advised about images.
"""

from feedline.analysis.formatting import share
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.cpus import cpu_share_of
from feedline.analysis.ledger.view.expected import heaviest
from feedline.analysis.ledger.view.input_wait import maker
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


def less_cpu(run: RuleInputs) -> str:
    """Say what to do about the stages that take most of a sample's CPU time.

    ``spend less CPU per sample (decode by PIL.JPEG, 71 %: a faster decoder)``.
    """
    parts = sorted(((cpu_share_of(run, stage), stage) for stage in MAKING_STAGES), reverse=True)
    large = [part for part in parts if part[0] >= _MIN_PART][:_NAMED] or [
        part for part in parts[:1] if part[0] > 0
    ]
    advice = "; ".join(
        f"{_who(run, stage)}, {share(of_cpu)}{_how(run, stage)}" for of_cpu, stage in large
    )
    return f"spend less CPU per sample ({advice})" if advice else "spend less CPU per sample"


def fewer_pixels(run: RuleInputs) -> bool:
    """Tell whether images are decoded larger than what is handed on."""
    workers = run.workers
    if workers is None or not workers.decoded_pixels or not workers.output_pixels:
        return False
    return workers.decoded_pixels >= _MIN_PIXEL_RATIO * workers.output_pixels


def may_crop(run: RuleInputs) -> bool:
    """Tell whether a part of each image may be all that the model sees.

    A transform that crops was seen, or none that makes images smaller.
    """
    names = (
        [
            operation.name.lower()
            for operation in run.workers.operations
            if operation.stage == "augment"
        ]
        if run.workers
        else []
    )
    return any("crop" in name for name in names) or not any(
        "resize" in name or "maxsize" in name for name in names
    )


def own_function(run: RuleInputs) -> str:
    """Return the function of the program that makes samples, with its place if that is known."""
    if code := run.setting("sample_code"):
        return str(code)
    dataset = run.setting("dataset")
    return f"{dataset if dataset not in (None, 'none') else 'the dataset'}.{'__iter__' if run.is_stream else '__getitem__'}"


def _who(run: RuleInputs, stage: str) -> str:
    if stage == _THE_REST:
        return f"code in {own_function(run)}"
    if stage == "collate" and (collate := run.setting("collate")) not in (None, "default"):
        return f"collate_fn={collate}"
    name = heaviest(run, stage)[0]
    if stage == "user":
        return f"your stage {name}" if name else "your stages"
    return f"{stage}{f' by {name}' if name else ''}"


def _how(run: RuleInputs, stage: str) -> str:
    if stage == _THE_REST:
        return (
            ": profile it line by line"
            if run.setting("sample_code")
            else f": `py-spy top --pid PID` on {maker(run)}"
        )
    if stage == "decode":
        smaller = " or smaller images" if run.decodes_images and fewer_pixels(run) else ""
        return f": a faster decoder{smaller}"
    if stage == "augment":
        return (
            ": cheaper transforms, or transform whole batches on the GPU"
            if run.on_gpu
            else ": cheaper transforms"
        )
    if stage == "read" and heaviest(run, stage)[0] in _UNPACKS:
        return ", unpacking included: chunks of about a sample each, or less compression"
    return ""
