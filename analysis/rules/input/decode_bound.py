"""Decoding takes most of the CPU time of a sample."""

from feedline.analysis.facts import RuleInputs
from feedline.analysis.finding import SHARE, Evidence, Finding, Severity
from feedline.analysis.formatting import seconds, share
from feedline.analysis.predict.change import Refused
from feedline.analysis.rules.input import slow_for_its_bytes
from feedline.analysis.rules.input.cpus import cost_share, cpu_share_of, making_wait_s
from feedline.analysis.rules.input.input_wait import making_share, severity

RULE_ID = "decode_bound"

#: From half of the CPU on, no other stage can win more (docs/rules.md).
MIN_CPU_SHARE = 0.50

#: And half of the CPU is a quarter of the sample where that is blocked half of its time: below it the CPU is not what the step waits for.
MIN_WALL_SHARE = 0.25

IMAGES = "Decode with libjpeg-turbo (simplejpeg, OpenCV, torchvision.io) or on the GPU (nvJPEG, DALI), or decode only the crop."
#: Audio, video, volumes: their decoders report no pixels.
OTHERS = "Use a faster decoder, decode only the part that the model sees, or store the samples decoded."


def check(facts: RuleInputs) -> Finding | None:
    """Compare decode with the whole sample, in CPU and in wall time."""
    of_cpu, of_wall = cpu_share_of(facts, "decode"), making_share(facts, "decode")
    if of_cpu < MIN_CPU_SHARE or of_wall < MIN_WALL_SHARE or slow_for_its_bytes.names(facts, "decode"):
        return None
    cost_s = making_wait_s(facts) * cost_share(facts, "decode")
    weight = severity(facts, cost_s)
    if weight is Severity.INFO:
        return None
    cost = facts.workers.per_sample.get("decode") if facts.workers else None
    evidence = [
        Evidence("decode_share_of_cpu", "decode, share of CPU time per sample", of_cpu, SHARE),
        Evidence("decode_share", "decode, share of time per sample", of_wall, SHARE),
    ]
    if cost is not None:
        evidence.append(Evidence("decode_s", "decode per sample", cost.wall_s, "s"))
    each = f" ({seconds(cost.cpu_s)})" if cost and cost.cpu_s else ""  # of wall time it may be ten times that, on full CPUs
    return Finding(
        RULE_ID,
        weight,
        message=f"decoding takes {share(of_cpu)} of the CPU time per sample{each}",
        evidence=evidence,
        fix=IMAGES if _images(facts) else OTHERS,
        how_to_check="Have the dataset return the same decoded sample every time. If samples/s do not rise, this finding is wrong.",
        cost_s=cost_s,
    )


def change(facts: RuleInputs) -> Refused:
    """The gain is the other decoder's, which is not known."""
    if not _images(facts):
        return Refused("unknown_decoder", "The speed of another decoder on these samples is unknown. Time one on some of them.")
    return Refused(
        "unknown_decoder",
        "The speed of another decoder on these files is unknown. `feedline whatif RUN --set decode=turbo --data DIR` measures it on 50 "
        "of them.",
    )


def _images(facts: RuleInputs) -> bool:
    return bool(facts.workers and facts.workers.decoded_pixels)
