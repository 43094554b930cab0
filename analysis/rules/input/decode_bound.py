"""Decoding takes most of the CPU time of a sample."""

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Refused, Severity
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.cheaper import fewer_pixels, may_crop
from feedline.analysis.ledger.view.cpus import cost_share, cpu_share_of, kind_of_work, making_wait_s
from feedline.analysis.ledger.view.expected import heaviest
from feedline.analysis.ledger.view.input_wait import making_share, severity
from feedline.analysis.ledger.view.sample import accounted, total
from feedline.analysis.ledger.view.slow_code import making_line
from feedline.analysis.ledger.view.slow_stage import is_slowest_stage
from feedline.analysis.ledger.view.storage import decoder_threads
from feedline.analysis.text.formatting import sentence
from feedline.analysis.text.sentences import PERCENT, TIME, Sentence

_RULE_ID = "decode_bound"

_SAYS = Sentence("decoding takes {part} of the CPU time per sample", part=PERCENT)
_TIMED = Sentence(
    "decoding takes {took} per sample, {part} of a sample's CPU time", part=PERCENT, took=TIME
)

#: From half of the CPU on, no other stage can win more (docs/rules/decode_bound.md).
_MIN_CPU_SHARE = 0.50

#: And half of the CPU is a quarter of the sample where that is blocked half of its time: below it
#: the CPU is not what the step waits for.
_MIN_WALL_SHARE = 0.25

#: Operations that decode videos.
_VIDEO = ("cv2.VideoCapture.", "decord.VideoReader.")
#: Decoders of JPEG that others do not beat on a CPU, as the names of their operations begin.
_FAST = ("simplejpeg.", "torchvision.")
_FRAMES = [
    "Take clips of adjacent frames: those in between are decoded, too.",
    "Store videos with a key frame where clips may begin (ffmpeg -g), at the size that the model "
    "sees.",
    "Or store the frames as images.",
]
_FRAMES_ON_GPU = "Or decode on the GPU (torchcodec, DALI)."
_JPEGS = " (simplejpeg, torchvision.io)"
_ON_GPU = " (nvJPEG, DALI)"
#: Formats beside JPEG that `feedline whatif` decodes with several libraries.
_MEASURED = ("png", "webp", "bmp", "tiff", "cv2.", "torchvision.")
_STORED = "store the images decoded, as arrays"
#: Audio, volumes: their decoders report no pixels.
_OTHERS = (
    "Use a faster decoder, decode only the part that the model sees, or store the samples decoded."
)


def _check(facts: RuleInputs) -> Finding | None:
    """Compare decode with the whole sample, in CPU and in wall time."""
    of_cpu, of_wall = _cpu_share(facts), making_share(facts, "decode")
    if of_cpu < _MIN_CPU_SHARE or of_wall < _MIN_WALL_SHARE or is_slowest_stage(facts, "decode"):
        return None
    cost_s = making_wait_s(facts) * cost_share(facts, "decode")
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    cost = facts.costs.get("decode")
    evidence = [
        Evidence("decode_share_of_cpu", "decode, share of CPU time per sample", of_cpu, SHARE),
        Evidence("decode_share", "decode, share of a sample's time", of_wall, SHARE),
    ]
    if cost is not None:
        evidence.append(Evidence("decode_s", "decode per sample", cost.wall_s, "s"))
    threads_s = _threads_s(facts)
    if threads_s:
        evidence.append(
            Evidence(
                "decoder_threads_s",
                "CPU time of the decoder's own threads per sample",
                threads_s,
                "s",
            )
        )
    fix, *others = _fixes(facts)
    return Finding(
        _RULE_ID,
        weight,
        # of wall time it may be ten times that, on full CPUs
        message=_TIMED(part=of_cpu, took=cost.cpu_s + threads_s)
        if cost and cost.cpu_s
        else _SAYS(part=of_cpu),
        evidence=evidence,
        fix=fix,
        fix_more=others,
        place=making_line(facts),
        how_to_check="Have the dataset return the same decoded sample every time. If samples/s do "
        "not rise, this finding is wrong.",
        cost_s=cost_s,
        cost_kind=kind_of_work(facts),
    )


def _change(facts: RuleInputs) -> Refused:
    """Refuse to predict: the speed of another decoder is unknown."""
    name = heaviest(facts, "decode")[0]
    measured = not name or _is_jpeg(name) or any(kind in name.lower() for kind in _MEASURED)
    if _videos(facts) or not facts.decodes_images or not measured:
        return Refused(
            "unknown_decoder",
            "The speed of another decoder on these samples is unknown. Time one on some of them.",
        )
    other = "turbo" if not name or _is_jpeg(name) else "pil" if name.startswith("cv2.") else "cv2"
    return Refused(
        "unknown_decoder",
        "The speed of another decoder on these files is unknown. `feedline whatif RUN --set "
        f"decode={other} --data DIR` measures it on 50 of them.",
    )


def _threads_s(facts: RuleInputs) -> float:
    """Return the CPU seconds per sample of the decoder's own threads."""
    return (
        max(0.0, (facts.process_cpu_s or 0.0) - (accounted(facts) or 0.0))
        if decoder_threads(facts)
        else 0.0
    )


def _cpu_share(facts: RuleInputs) -> float:
    """Return the share (0 to 1) of a sample's CPU time that decoding takes.

    The decoder's own threads count.
    """
    whole, threads_s = total(facts), _threads_s(facts)
    own_s = (whole.cpu_s or 0.0) if whole else 0.0
    return (
        (cpu_share_of(facts, "decode") * own_s + threads_s) / (own_s + threads_s)
        if threads_s
        else cpu_share_of(facts, "decode")
    )


def _fixes(facts: RuleInputs) -> list[str]:
    """Return what to do first, and the alternatives."""
    if _videos(facts):
        return [*_FRAMES, *([_FRAMES_ON_GPU] if facts.on_gpu else [])]
    return _of_images(facts) if facts.decodes_images else [_OTHERS]


def _of_images(facts: RuleInputs) -> list[str]:
    """Return what there is to do about images that are decoded as these are."""
    name = heaviest(facts, "decode")[0]
    of_jpeg = _is_jpeg(name)
    ways = [
        *([] if name.startswith(_FAST) else [f"decode with a faster library{_JPEGS * of_jpeg}"]),
        *([f"decode on the GPU{_ON_GPU * of_jpeg}"] if facts.on_gpu and _on_gpus(name) else []),
        *(["decode only the crop"] if fewer_pixels(facts) and may_crop(facts) else []),
        *(["store smaller images"] if fewer_pixels(facts) else []),
    ]
    first, *others = ways or [_STORED]
    return [f"{sentence(first)}.", *(f"Or {way}." for way in others)]


def _is_jpeg(name: str) -> bool:
    return "jpeg" in name.lower() and "2000" not in name


def _on_gpus(name: str) -> bool:
    """Whether GPUs decode it: libraries decode PNG and WebP on the CPU, also of batches for a GPU."""
    return not any(kind in name.lower() for kind in ("png", "webp", "gif"))


def _videos(facts: RuleInputs) -> bool:
    return heaviest(facts, "decode")[0].startswith(_VIDEO)


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("sample/decode/cpu", "sample/decode/run_queue"),
    supposing="if decoding took no time",
    of_input=True,
    action="use a faster decoder",
)
