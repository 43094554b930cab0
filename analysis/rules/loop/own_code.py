"""The program's own code takes much of the step.

It runs between models, backward passes and updates; the finding names functions or lines.
"""

import re
from collections.abc import Sequence

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import (
    SHARE,
    Change,
    CostKind,
    Evidence,
    Factor,
    Finding,
    Refused,
    Severity,
    measured,
)
from feedline.analysis.ledger.rule import LESS_TO_COMPUTE, Rule
from feedline.analysis.ledger.view.cpus import kind_of_work
from feedline.analysis.ledger.view.enough_steps import growing
from feedline.analysis.ledger.view.loop_code import (
    LoopCall,
    known_in_loop,
    line_in,
    loop_call,
    loop_function,
)
from feedline.analysis.ledger.view.own_functions import (
    NamedFunctions,
    is_lines,
    is_short,
    name_of,
    named_functions,
    parts,
    place_of,
    speeding_up,
)
from feedline.analysis.ledger.view.slow_code import reported
from feedline.analysis.measure.code_places import OTHER
from feedline.analysis.measure.step_model import OwnFunction
from feedline.analysis.text.formatting import called, seconds
from feedline.analysis.text.sentences import NAME, PART, PERCENT, SIZE, TIME, Sentence

_RULE_ID = "own_code"

_SAYS = Sentence(
    "code outside the model takes {took} per step, {part} of it in {function}",
    took=TIME,
    part=TIME,
    function=NAME,
)
_OUTSIDE = "that is the code outside nn.Module, the backward pass and the optimizer"
_SHARE = Sentence("it takes {part} of the {step} step", part=PERCENT, step=TIME)
_GPU_TOO = "waiting for the GPU is included"
_QUEUED = Sentence(
    "about {part} of this time is probably waiting for a CPU, which is not counted in the gain",
    part=PERCENT,
)
_FEW = Sentence("{took} per step of it lies in a few long steps that were not observed", took=TIME)
_FREES = Sentence(
    "The line that iterates over the loader also frees the previous batch ({batch}), which takes "
    "about {took}.",
    batch=SIZE,
    took=TIME,
)
_NOT_SAVED = Sentence(
    "That is left out of what can be saved: fewer bytes per sample{ways} are freed faster.",
    ways=PART,
)
_OF_LIBRARY_ALONE = Sentence(
    "Call {function}, which is of an installed library, less often or with less.", function=NAME
)
_LOOK = Sentence(
    "Look at {function}: {callee}, which is called there, takes the time.",
    function=NAME,
    callee=NAME,
)
_LESS_OFTEN = Sentence(
    "Call {callee}, which is of an installed library, less often or with less.", callee=NAME
)
_PROFILE = Sentence(
    "Profile {function} line by line, for example with line_profiler.", function=NAME
)
_WAITS = Sentence(
    "it waits for at least {waits} of that: all processes together compute {cpu} per step",
    waits=TIME,
    cpu=TIME,
)
_ASIDE = "Do what this code waits for less often, or in a thread beside the training."
_REPLACE = Sentence(
    "Run {function} less often, or replace Python loops there with tensor operations.",
    function=NAME,
)
_LEAVE_OUT = Sentence(
    "Leave out of {function} what not every step needs, or replace Python loops there with tensor "
    "operations.",
    function=NAME,
)

#: Places in libraries: masked, or shortened to fit into a record
#: (profiler/taps/own_code/producers.py).
_OF_LIBRARY = r"(?:^|\()(?:(?:site|dist)-packages/|python3\.\d+/|\w+…/)"
#: From this share on, waiting for a CPU is told; it is not measured there, but in forward and
#: backward.
_TOLD_QUEUED = 0.1
_HALVED = 0.5
_NOTABLE = 0.1  # of this code
_MOSTLY = 0.5  # of this code: from here on it is told as waiting


def _check(facts: RuleInputs) -> Finding | None:
    """Name the functions and lines that take most of it."""
    found = named_functions(facts)
    if found is None:
        return None
    step, own, on_gpu = facts.step, found.own, facts.step.gpu_stages is not None
    named = found.functions
    took = found.took_s
    queued = found.queued
    freed_bytes = found.freed_bytes
    freeing_s = found.freeing_s
    known, sampled = known_in_loop(facts, named), loop_function(facts)
    if known is None and is_short(step.mean_s * (1 - queued)):
        return None  # with a CPU at hand, recording is a good part of it
    own_function = _own_function(named)
    told = own_function or named[0]
    if told is not named[0]:
        sampled = None  # what stacks show of the loop may be the call of the library
    line = sampled[0] if sampled else line_in(facts, told.name)
    waits_s = _waits_s(facts, found)
    fix, *others = [f"{known.call.fix}."] if known else _fixes(named, bool(line), bool(waits_s))
    # what waits for the GPU takes no less time without it, and a call that does not, does
    by_host_s = known.share * own.s if known and not known.call.on_gpu else 0.0
    saved_s = took
    if known is not None:  # what its fix spares of the call, and nothing of the code beside it
        spared = 1 - (known.call.left or 0.0)
        saved_s = spared * min(took, known.share * own.s * (1 - queued))
        if saved_s < _MOSTLY * took:
            others = [*others, *_fixes(named, bool(line), bool(waits_s))]
    more = [
        _OUTSIDE,
        _SHARE(part=own.s / step.mean_s, step=step.mean_s),
        *([_WAITS(waits=waits_s, cpu=step.cpu_s)] if waits_s else []),
        *([_GPU_TOO] if on_gpu else []),
        *([known.call.says] if known else []),
        *parts(named, " per step"),
        *([_FEW(took=own.few_s)] if own.few_s >= _NOTABLE * own.s else []),
        *([_QUEUED(part=queued)] if queued >= _TOLD_QUEUED else []),
        *growing(facts, OTHER, "this code"),
    ]
    flags = facts.loader.flags if facts.loader else ()
    return Finding(
        _RULE_ID,
        Severity.of((by_host_s if on_gpu else took) / step.mean_s),
        message=_SAYS(took=own.s, part=told.s, function=called(name_of(told.name))),
        more=more,
        evidence=[
            *_evidence(found, step.mean_s),
            *_waiting(waits_s, step.cpu_s),
            *_reported(known),
        ],
        fix=fix,
        fix_more=[*others, *_freeing(freed_bytes, freeing_s, flags, facts.decodes_images)],
        place=_place(known, line, own_function),
        how_to_check=f"Time {told.name} with time.perf_counter() over some steps, without the "
        f"wait for the next batch. If it takes "
        f"much less than {seconds(told.s)} per step, this finding is wrong.",
        cost_s=saved_s,
        cost_kind=_kind(facts, known, queued),
        action=speeding_up(told.name),
    )


def _kind(facts: RuleInputs, known: LoopCall | None, queued: float) -> CostKind:
    """Return what the cost says of the gain: without this code, its waiting for a CPU ends too."""
    if known is not None:
        return CostKind.ESTIMATED
    return CostKind.AT_LEAST if queued >= _TOLD_QUEUED else kind_of_work(facts)


def _place(known: LoopCall | None, line: str, own: OwnFunction | None) -> str:
    """Return the line of a call that is known to be slow, or else of what takes most."""
    if known is not None:
        return known.place
    return "" if _of_library(line) else line or (place_of(own.name) if own else "")


def _reported(known: LoopCall | None) -> list[Evidence]:
    return [reported(known.call, known.share, "this code")] if known else []


def _evidence(found: NamedFunctions, mean_s: float) -> list[Evidence]:
    own, first = found.own, _own_function(found.functions) or found.functions[0]
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
        *measured(
            [
                (
                    "few_s",
                    "in a few long steps that were not observed, per step",
                    own.few_s or None,
                    "s",
                )
            ]
        ),
        *measured([("queued_share", waiting, found.queued or None, SHARE)]),
        Evidence("looks", "times that this code was observed", float(own.looks), "1"),
        *measured([("batch_bytes", "bytes per batch", found.freed_bytes or None, "B")]),
        *measured([("freeing_s", freeing, found.freeing_s or None, "s")]),
    ]


def _freeing(freed_bytes: float, freeing_s: float, flags: Sequence[str], images: bool) -> list[str]:
    """Return what else the line that iterates over the loader does, if workers made the batches."""
    if not freed_bytes:
        return []
    ways = ", ".join(
        [*(["uint8"] if "float32" in flags else []), *(["smaller images"] if images else [])]
    )
    return [
        _FREES(batch=freed_bytes, took=freeing_s),
        _NOT_SAVED(ways=f" ({ways})" if ways else ""),
    ]


def _own_function(named: Sequence[OwnFunction]) -> OwnFunction | None:
    """Return the first of them that the program can change; None: what matters is of libraries."""
    own = next((one for one in named if not _of_library(one.name)), None)
    return own if own is not None and own.s >= _HALVED * named[0].s else None


def _waits_s(facts: RuleInputs, found: NamedFunctions) -> float:
    """Return how long this code surely waits, per step; 0.0: it may compute most of the time.

    All processes of the training together compute less than it takes. With a GPU, it may be this
    that it waits for.
    """
    cpu_s, own = facts.step.cpu_s, found.own
    if cpu_s is None or facts.on_gpu:
        return 0.0
    waits_s = own.s * (1 - found.queued) - cpu_s
    return waits_s if waits_s >= _MOSTLY * own.s else 0.0


def _waiting(waits_s: float, cpu_s: float | None) -> list[Evidence]:
    if not waits_s:
        return []
    return measured(
        [
            ("waits_s", "waiting, per step, at least", waits_s, "s"),
            ("cpu_s", "CPU time of all processes of the training, per step", cpu_s, "s"),
        ]
    )


def _fixes(named: Sequence[OwnFunction], sampled: bool, waits: bool) -> list[str]:
    """Return what to do about the first of them that the program can change.

    A library's own functions are not to be profiled or rewritten.

    Args:
        sampled: which line takes most is known from sampled stacks.
        waits: it mostly does not compute.
    """
    own = _own_function(named)
    if own is None:
        return [_OF_LIBRARY_ALONE(function=called(name_of(named[0].name)))]
    function = called(name_of(own.name))
    if _of_library(own.mainly) or own.mainly and "(" not in own.mainly:  # stacks name it so
        callee = called(name_of(own.mainly))
        return [_LOOK(function=function, callee=callee), _LESS_OFTEN(callee=callee)]
    replaced = _LEAVE_OUT if is_lines(own.name) else _REPLACE  # what the loop does in each step
    what = _ASIDE if waits else replaced(function=function)
    alone = sampled or own.name.startswith("line ")
    return [what] if alone else [_PROFILE(function=function), what]


def _of_library(name: str) -> bool:
    """Tell whether a function or line is in an installed library or Python's own, by its place."""
    return re.search(_OF_LIBRARY, name) is not None


def _change(facts: RuleInputs) -> Change | Refused:
    """Halve the time of the line that takes most; of a known call, leave what its fix leaves.

    Without sampled stacks, or with a GPU for which it may only wait, nothing is predicted: how
    much of it can be spared, only the program's author knows.
    """
    known = loop_call(facts)
    left = known[0].call.left if known else _HALVED
    if left is None:
        return Refused("replaced", "How long what replaces this call takes is not known.")
    return _scaled(facts, left)


def _free(facts: RuleInputs) -> Change | Refused:
    """Return it takes none."""
    return _scaled(facts, 0.0)


def _scaled(facts: RuleInputs, left: float) -> Change | Refused:
    found_call, function = loop_call(facts), loop_function(facts)
    part = found_call[1] if found_call else function[1] if function else 0.0
    if not part or facts.on_gpu:
        return Refused("own_code", "How much of this code can be avoided is unknown.")
    remains = 1 - part * (1 - left)
    return Change(stages={"other": Factor(remains, remains)})


RULE: Rule[RuleInputs] = Rule(
    _RULE_ID,
    _check,
    _change,
    claims=("other", "loss"),
    bound="Bound by the training loop",
    lifts=LESS_TO_COMPUTE,
    free=_free,
    action="speed up this code",
)
