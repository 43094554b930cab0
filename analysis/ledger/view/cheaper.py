"""What would make a sample take less CPU time.

Only stages that the sample has are named, so a text dataset is not advised about images.
"""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.view.cpus import cpu_share_of
from feedline.analysis.ledger.view.expected import heaviest
from feedline.analysis.ledger.view.input_wait import maker
from feedline.analysis.ledger.view.own_functions import name_of, place_of
from feedline.analysis.ledger.view.slow_code import (
    PARTLY,
    SlowCode,
    making_line,
    slow_code,
    unpacked_per_byte,
)
from feedline.analysis.ledger.view.storage import decoder_threads
from feedline.analysis.measure.stages import MAKING_STAGES
from feedline.analysis.text.formatting import nearly
from feedline.analysis.text.sentences import CODE, FUNCTION, NAME, PART, PERCENT, Sentence

#: Of a sample's CPU time: below it, a stage is not worth naming beside one that takes more.
_MIN_PART = 0.20
_NAMED = 2  # stages
#: Pixels decoded over pixels handed on, from which on smaller images lose nothing that the model
#: sees.
_MIN_PIXEL_RATIO = 1.5
#: Their calls read, and unpack what they read: a chunk for each sample (profiler/taps/operations).
_UNPACKS = ("h5py.Dataset", "zarr.Array")
_THE_REST = "dataset"  # of __getitem__

_LESS = Sentence(
    "{how}: {what} takes {part} of a sample's CPU time.", how=PART, what=PART, part=PERCENT
)
_FASTER = Sentence(
    "Make {function} faster: it takes {part} of the time to make a sample.",
    function=FUNCTION,
    part=PART,
)
_AT_LINE = Sentence("Make {line} faster: much of making a sample is spent there.", line=NAME)
_SHOWS = Sentence("`py-spy top --pid PID` on {maker} shows where that is.", maker=PART)
_SPEND_LESS = "Spend less CPU time per sample."
_DECODE = "Decode with one thread per worker"
_OF_DECODER = {
    "decord.": [f"{_DECODE}: decord.VideoReader(file, num_threads=1)."],
    "": [
        f"{_DECODE}: cv2.VideoCapture(file, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1]).",
        "Other decoding libraries have an equivalent.",
    ],
}
_ONE_THREAD = Sentence("Run one thread per worker: call {limits} in a worker_init_fn.", limits=CODE)
_NOT_FOR_ALL = "Do not set OMP_NUM_THREADS=1: it also slows the model, which trains on the CPU."


def less_cpu(facts: RuleInputs) -> list[str]:
    """Return what to do about the stages that take most of a sample's CPU time.

    One sentence for each: ``Use a faster decoder: decoding by PIL.JPEG takes 71 % of a sample's CPU
    time.``.
    """
    large = _large(facts)
    told = [_less(facts, stage, of_cpu) for of_cpu, stage in large]
    if not facts.setting("sample_code") and any(stage == _THE_REST for _, stage in large):
        told.append(_SHOWS(maker=maker(facts)))
    return told or [_SPEND_LESS]


def _less(facts: RuleInputs, stage: str, of_cpu: float) -> str:
    """Return what to do about a stage that takes this share (0 to 1) of a sample's CPU time.

    Of the dataset's own code, the function and its own share, or else the line.
    """
    if stage == _THE_REST and (slow := _own_slow(facts)) is not None:
        return _FASTER(function=slow.name, part=nearly(slow.share))
    if stage == _THE_REST and (line := making_line(facts)):
        return _AT_LINE(line=line)
    return _LESS(how=_how(facts, stage), what=_who(facts, stage), part=of_cpu)


def _own_slow(facts: RuleInputs) -> SlowCode | None:
    """Return the function that takes much of the dataset's own code; None: none is known."""
    slow = slow_code(facts)
    return slow if slow and slow.place == _THE_REST and slow.share >= _MIN_PART else None


def place_of_samples(facts: RuleInputs) -> str:
    """Where the function of the program that makes samples is; empty where that is unknown."""
    return place_of(str(facts.setting("sample_code", "")))


def place_of_largest(facts: RuleInputs) -> str:
    """Return the line to make faster, or else that function, if its own code takes most CPU time.

    Empty: a stage takes more.
    """
    large = _large(facts)
    if not large or large[0][1] != _THE_REST:
        return ""
    slow = _own_slow(facts)
    return (slow.where if slow else making_line(facts)) or place_of_samples(facts)


def _large(facts: RuleInputs) -> list[tuple[float, str]]:
    """Shares (0 to 1) of a sample's CPU time and their stages, the largest first."""
    parts = sorted(((cpu_share_of(facts, stage), stage) for stage in MAKING_STAGES), reverse=True)
    return [part for part in parts if part[0] >= _MIN_PART][:_NAMED] or [
        part for part in parts[:1] if part[0] > 0
    ]


def fewer_pixels(facts: RuleInputs) -> bool:
    """Tell whether images are decoded larger than what is handed on."""
    workers = facts.workers
    if workers is None or not workers.decoded_pixels or not workers.output_pixels:
        return False
    return workers.decoded_pixels >= _MIN_PIXEL_RATIO * workers.output_pixels


def may_crop(facts: RuleInputs) -> bool:
    """Tell whether a part of each image may be all that the model sees.

    A transform that crops was seen, or none that makes images smaller.
    """
    names = (
        [one.name.lower() for one in facts.workers.operations if one.stage == "augment"]
        if facts.workers
        else []
    )
    return any("crop" in name for name in names) or not any(
        "resize" in name or "maxsize" in name for name in names
    )


def _own_function(facts: RuleInputs) -> str:
    """Return the function of the program that makes samples, with its place if that is known."""
    if code := facts.setting("sample_code"):
        return str(code)
    dataset = facts.setting("dataset")
    return f"{dataset if dataset not in (None, 'none') else 'the dataset'}.{'__iter__' if facts.is_stream else '__getitem__'}"


def own_name(facts: RuleInputs) -> str:
    """Return the same without its place."""
    return name_of(_own_function(facts))


def _who(facts: RuleInputs, stage: str) -> str:
    if stage == _THE_REST:
        return "its own code"
    if stage == "collate" and (collate := facts.setting("collate")) not in (None, "default"):
        return f"collate_fn={collate}"
    name = heaviest(facts, stage)[0]
    if stage == "user":
        return f"your stage {name}" if name else "your stages together"
    if stage == "read" and name in _UNPACKS:
        return f"{name}, unpacking included,"
    return f"{stage} by {name}" if name else stage


def _how(facts: RuleInputs, stage: str) -> str:
    if stage == _THE_REST:
        by_line = " line by line" if facts.setting("sample_code") else ""
        return f"Profile {own_name(facts)}{by_line}"
    if stage == "decode":
        smaller = " or smaller images" if facts.decodes_images and fewer_pixels(facts) else ""
        return f"Use a faster decoder{smaller}"
    if stage == "augment":
        return (
            "Use cheaper transforms, or transform whole batches on the GPU"
            if facts.on_gpu
            else "Use cheaper transforms"
        )
    if stage == "read" and heaviest(facts, stage)[0] in _UNPACKS:
        unpacked = unpacked_per_byte(facts)
        if unpacked is not None and unpacked < PARTLY:
            return "Use less compression, or a faster method"
        return "Use chunks of about a sample each, or less compression"
    return _SPEND_LESS.removesuffix(".")


def one_thread(facts: RuleInputs) -> list[str]:
    """Return how to leave one thread to each worker, and more."""
    if decoder_threads(facts):
        name = heaviest(facts, "decode")[0]
        return next(fixes for prefix, fixes in _OF_DECODER.items() if name.startswith(prefix))
    return [_ONE_THREAD(limits=_limits(facts)), *([] if facts.on_gpu else [_NOT_FOR_ALL])]


def _limits(facts: RuleInputs) -> str:
    """Say what sets the number of threads in the libraries that were seen."""
    of_opencv = (
        any(operation.name.startswith("cv2.") for operation in facts.workers.operations)
        if facts.workers
        else False
    )
    return f"{'cv2.setNumThreads(0) and ' * of_opencv}threadpoolctl.threadpool_limits(1)"
