"""The program's own code, between models, backward passes and updates, takes much of the step:
which function, or which lines.
"""

import re
from collections.abc import Sequence

from feedline.analysis.formatting import seconds, share, size
from feedline.analysis.ledger.change import Change, Factor, Refused
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import SHARE, Evidence, Finding, Severity, measured
from feedline.analysis.ledger.rule import Rule
from feedline.analysis.ledger.view.loop_code import known_in_loop, line_in, loop_call, loop_function
from feedline.analysis.ledger.view.own_functions import (
    NamedFunctions,
    named_functions,
    parts,
    place_of,
)
from feedline.analysis.ledger.view.slow_code import reported
from feedline.analysis.measure.model import OwnFunction

RULE_ID = "own_code"

#: Places in libraries: masked, or shortened to fit into a record
#: (profiler/taps/own_code/producers.py).
_OF_LIBRARY = r"\((?:(?:site|dist)-packages/|python3\.\d+/|\w+…/)"
#: From this share on, waiting for a CPU is told; it is not measured there, but in forward and
#: backward.
_TOLD_QUEUED = 0.1
_HALVED = 0.5


def check(facts: RuleInputs) -> Finding | None:
    """Name the functions and lines that take most of it."""
    found = named_functions(facts)
    if found is None:
        return None
    step, own, on_gpu = facts.step, found.own, facts.step.gpu_stages is not None
    named, took, queued, freed_bytes, freeing_s = (
        found.functions,
        found.took_s,
        found.queued,
        found.freed_bytes,
        found.freeing_s,
    )
    waiting = ", including waiting for the GPU" if on_gpu else ""
    left_out = "probably waiting for a CPU, which does not count as a saving"
    crowded = (
        f". About {share(queued)} of this time is {left_out}" if queued >= _TOLD_QUEUED else ""
    )
    known, function = known_in_loop(facts, named), loop_function(facts)
    line = function[0] if function else line_in(facts, named[0].name)
    by_host = known.share * own.s if known is not None and not known.call.on_gpu else 0.0
    return Finding(
        RULE_ID,
        # what waits for the GPU takes no less time without it, and a call that does not, does
        Severity.of((by_host if on_gpu else took) / step.mean_s),
        message=f"the program's own code, outside the model (nn.Module), the backward pass and "
        f"the optimizer, takes {seconds(own.s)} of "
        f"the {seconds(step.mean_s)} step ({share(own.s / step.mean_s)}{waiting}): "
        f"{parts(named)}{crowded}{f'. {known.call.says}' if known else ''}",
        evidence=[
            *_evidence(found, step.mean_s),
            *([reported(known.call, known.share, "this code")] if known else []),
        ],
        fix=(f"{known.call.fix}." if known else _first(named, bool(line)))
        + _freeing(
            freed_bytes,
            freeing_s,
            facts.loader.flags if facts.loader else (),
            facts.decodes_images,
        ),
        how_to_check=f"Time {named[0].name} with time.perf_counter() over some steps, without the "
        f"wait for the next batch. If it takes "
        f"much less than {seconds(named[0].s)} per step, this finding is wrong.",
        cost_s=took,
        place=known.place if known else line or place_of(named[0].name),
    )


def _evidence(found: NamedFunctions, mean_s: float) -> list[Evidence]:
    own, first = found.own, found.functions[0]
    each = [
        Evidence("function_s", f"{one.name}, per step", one.s, "s", one.name)
        for one in found.functions
    ]
    what = f"{first.name}, share of the step"
    ends = [
        Evidence(
            "function_share_end",
            f"{what}, lower end of its 95 % interval",
            first.low_s / mean_s,
            SHARE,
            "lower",
        ),
        Evidence("function_share_end", f"{what}, upper end", first.high_s / mean_s, SHARE, "upper"),
    ]
    waiting = "waiting for a CPU, share of this code's time (estimated from forward and backward)"
    freeing = "freeing the previous batch, per step (estimated)"
    return [
        Evidence("own_code_s", "all of this code, per step", own.s, "s"),
        Evidence("own_code_share", "share of the step", own.s / mean_s, SHARE),
        *each,
        *ends,
        *measured([("queued_share", waiting, found.queued or None, SHARE)]),
        Evidence("looks", "times that this code was observed", float(own.looks), "1"),
        *measured([("batch_bytes", "bytes per batch", found.freed_bytes or None, "B")]),
        *measured([("freeing_s", freeing, found.freeing_s or None, "s")]),
    ]


def _freeing(freed_bytes: float, freeing_s: float, flags: Sequence[str], images: bool) -> str:
    """What else the line that iterates over the loader does, if workers made the batches."""
    if not freed_bytes:
        return ""
    ways = ", ".join(
        [*(["uint8"] if "float32" in flags else []), *(["smaller images"] if images else [])]
    )
    return (
        f" The line that iterates over the loader also frees the previous batch "
        f"({size(freed_bytes)}), which takes about "
        f"{seconds(freeing_s)} and is left out of what can be saved. Fewer bytes per "
        f"sample{f' ({ways})' if ways else ''} are freed faster."
    )


def _first(named: Sequence[OwnFunction], sampled: bool) -> str:
    """What to do about the first of them that the program can change; a library's own functions are
    not to be profiled or rewritten.

    Args:
        sampled: which line takes most is known from sampled stacks.
    """
    own = next((one for one in named if not _of_library(one.name)), None)
    if own is None:
        return (
            f"Call it less often or with less: {named[0].name} is a function of an installed "
            f"library."
        )
    if _of_library(own.mainly):
        return (
            f"Look at {own.name}: {own.mainly}, which is called there, is an installed "
            f"library's. Call it less often or with less."
        )
    profile = (
        "" if sampled else f"Profile {own.name} line by line, for example with line_profiler. "
    )
    return (
        f"{profile}Replace Python loops with tensor operations, and skip work that not every step "
        f"needs."
    )


def _of_library(name: str) -> bool:
    """Whether a function or line is in an installed library or Python's own, by its place."""
    return re.search(_OF_LIBRARY, name) is not None


def change(facts: RuleInputs) -> Change | Refused:
    """The line that takes most takes half of its time. Without sampled stacks, or with a GPU for
    which it may only wait, nothing is predicted: how much of it can be spared, only the program's
    author knows.
    """
    return _scaled(facts, _HALVED)


def free(facts: RuleInputs) -> Change | Refused:
    """It takes none."""
    return _scaled(facts, 0.0)


def _scaled(facts: RuleInputs, left: float) -> Change | Refused:
    found_call, function = loop_call(facts), loop_function(facts)
    part = found_call[1] if found_call else function[1] if function else 0.0
    if not part or facts.on_gpu:
        return Refused("own_code", "How much of this code can be avoided is unknown.")
    remains = 1 - part * (1 - left)
    return Change(stages={"other": Factor(remains, remains)})


RULE: Rule[RuleInputs] = Rule(
    RULE_ID,
    check,
    change,
    claims=("other", "loss"),
    bound="Bound by the training loop",
    lifts=frozenset({"step"}),
    supposing="if this code took no time",
    free=free,
)
