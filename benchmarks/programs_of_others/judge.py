"""Is what feedline says of a program true: its counts against the program's own, its verdict
against timers made by hand.
"""

import re
from dataclasses import dataclass, field

from programs_of_others.program import Counts, Program
from programs_of_others.timers import ByHand

TRUE, FALSE, UNKNOWN, DOUBTFUL = "true", "false", "unknown", "doubtful"
#: Shares of the step. 5 % is where feedline begins to speak of the input; two runs of a program on
#: a machine with neighbours differ by some points, so a verdict is called false only where the
#: timers are far on the other side.
NONE, MUCH, NEAR = 0.03, 0.20, 0.07
#: Two runs of one program agree when their shares differ by less than either of these.
APART, FACTOR = 0.10, 1.6
#: Of all CPUs: a program that used less than that in its plain run did not fill them.
FULL = 0.75
NOT_HELD = ("compute_bound", "gpu_bound", "nothing")
OTHERS = ("busy_neighbors",)
NOT_KNOWN = ("input_not_seen", "too_short")
INPUT_STAGES = (
    "epoch_start",
    "sampler",
    "read",
    "decode",
    "augment",
    "dataset",
    "user",
    "collate",
    "wait",
    "transport",
    "input",
)
FROM_FILES = ("small_files", "cold_storage", "decode_bound", "oversize_images")
#: Findings whose fix is a setting of the loader.
OF_THE_LOADER = (
    "too_few_workers",
    "fewer_workers",
    "epoch_restart",
    "custom_collate",
    "straggler_in_order",
)
PERCENT = re.compile(r"(\d+(?:\.\d+)?) %")


@dataclass(frozen=True)
class Said:
    """What feedline said of one training.

    Attributes:
        samples: None where it says that they are unknown.
        causes: of its findings, the first first.
        settings: of a loader, that the first finding's fix names.
        share: of the step that is input, as its stages show it.
        step_s: mean step.
        others_known: it was sampled what other programs used of the CPUs.
        outside: share of the step that is the program's own code, the clearing of gradients with
            it.
        functions: of that code, by name, file and line -> share of the step.
        evaluation_share: of the time of steps and evaluation.
        unseen: of its findings, those about what no timer sees.
    """

    steps: int
    samples: int | None
    verdict: str
    causes: tuple[str, ...]
    settings: dict[str, int | bool]
    share: float
    step_s: float
    notes: tuple[str, ...] = ()
    others_known: bool = True
    outside: float = 0.0
    functions: dict[str, float] = field(default_factory=dict)
    evaluation_share: float = 0.0
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tried:
    """What became of the step with the fix that the first finding advises: its time over that
    without.
    """

    advice: str
    ratio: float


@dataclass(frozen=True)
class Facts:
    """What is known of a program without feedline.

    Attributes:
        busy: CPU seconds over wall seconds of its plain run, over the machine's CPUs.
        others_cpus: CPUs that others used while it was recorded.
    """

    by_hand: ByHand
    busy: float
    others_cpus: float
    tried: Tried | None


def counts_are_true(said: list[Said], true: tuple[Counts, ...]) -> bool:
    """Are steps of every training what the program counts, and samples, where both count them."""
    found = sorted(
        ((one.steps, one.samples) for one in said), key=lambda one: (one[0], one[1] or 0)
    )
    return len(found) == len(true) and all(
        one[0] == two[0] and None in (one[1], two[1]) or one == two for one, two in zip(found, true)
    )


def judge(program: Program, said: Said, facts: Facts) -> tuple[str, str]:
    """The judgement of a verdict, and why."""
    rule_id = (said.causes or ("nothing",))[0]
    if over := [number for number in PERCENT.findall(said.verdict) if float(number) > 100]:
        return FALSE, f"a share of {over[0]} %"
    if rule_id in program.causes:
        return TRUE, "it is planted, or read in the program's source"
    if rule_id == "evaluation_time":
        return _near(facts.by_hand.evaluation_share, said.evaluation_share, "evaluation")
    if rule_id in NOT_KNOWN or "too_short" in said.causes:
        return UNKNOWN, "it says that it does not know"
    if rule_id == "input_bound_unexplained" and not said.others_known:
        return UNKNOWN, "it says that it does not know who uses the CPUs"
    if rule_id in OTHERS:
        right = facts.others_cpus >= 0.5
        return TRUE if right else FALSE, f"others used {facts.others_cpus:.1f} CPUs meanwhile"
    if rule_id == "own_code":
        return _own_code(said, facts.by_hand)
    if rule_id == "optimizer_time":
        told = float((PERCENT.findall(said.verdict) or ["0"])[0]) / 100
        return _near(facts.by_hand.update_share, told, "the optimizer")
    if rule_id in said.unseen:
        return DOUBTFUL, "no timer sees it, and its source was not read"
    if rule_id == "borderline_input":
        return _borderline(facts.by_hand.input_share)
    if rule_id in NOT_HELD:
        return _not_held(facts.by_hand.input_share)
    return _held(program, rule_id, said, facts)


def _own_code(said: Said, by_hand: ByHand) -> tuple[str, str]:
    """Is as much of the step outside models as it says, and in the functions that it names, as far
    as they were timed.
    """
    judged = [_near(by_hand.outside, said.outside, "all of its own code")]
    for name, share in by_hand.functions.items():
        told = sum(
            part
            for function, part in said.functions.items()
            if function.partition(" (")[0].rpartition(".")[2] == name
        )
        if told >= NONE or share >= APART:
            judged.append(_near(share, told, name))
    worst = next(
        (one for verdict in (FALSE, DOUBTFUL) for one in judged if one[0] == verdict), judged[0]
    )
    return worst if worst[0] != TRUE else (TRUE, "; ".join(why for _, why in judged))


def _near(by_hand: float, told: float, what: str) -> tuple[str, str]:
    """Whether two runs of one program agree."""
    why = f"{what}: {by_hand:.0%} of the time by hand, {told:.0%} by feedline"
    if abs(by_hand - told) < APART or max(by_hand, told) < FACTOR * min(by_hand, told):
        return TRUE, why
    return (FALSE if max(by_hand, told) > 3 * min(by_hand, told) else DOUBTFUL), why


def _not_held(share: float) -> tuple[str, str]:
    if share >= MUCH:
        return FALSE, "the input does hold it back"
    return (TRUE, "by the timers") if share < NEAR else (DOUBTFUL, "the timers see more input")


def _borderline(share: float) -> tuple[str, str]:
    if share >= MUCH:
        return FALSE, "the input does hold it back"
    return (
        (TRUE, "by the timers")
        if NONE <= share < APART
        else (DOUBTFUL, "the timers are not near the gate")
    )


def _held(program: Program, rule_id: str, said: Said, facts: Facts) -> tuple[str, str]:
    share = facts.by_hand.input_share
    if program.no_input or share < NONE:
        return FALSE, "the timers see no input"
    if rule_id in FROM_FILES and not program.files:
        return FALSE, "its samples are in memory"
    if rule_id == "cpu_saturated" and facts.busy < FULL:
        return FALSE, f"it uses {facts.busy:.0%} of the CPUs; the rest is others'"
    if facts.tried is not None:
        return _tried(facts.tried)
    near = abs(share - said.share) < APART or max(share, said.share) < FACTOR * min(
        share, said.share
    )
    return (TRUE, "by the timers") if near else (DOUBTFUL, "the timers see another share")


def _tried(tried: Tried) -> tuple[str, str]:
    """5 % either way is what two runs differ by."""
    why = f"{tried.advice}: {tried.ratio:.2f} of the step's time"
    if tried.ratio < 1.05:
        return TRUE, why
    return FALSE, why
