"""What the timers made by hand say of a program: where its steps' time went."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

INPUT = ("next", "start", "input")
# forwards without gradients in a row are no part of a step, such as a teacher's or a target
# network's
MANY = 20


@dataclass(frozen=True)
class Span:
    """One call, times in ns;

    ``own`` without what lies inside; ``who`` made it, or the pass over a loader; ``size`` of the batch
    that it gave.
    """

    kind: str
    begin: int
    end: int
    own: int
    who: int
    size: int


@dataclass(frozen=True)
class ByHand:
    """Steps of one process.

    Attributes:
        updates: of the optimizer that made the most; backwards, where there is no optimizer.
        loaded: samples in the batches of passes that feed steps.
        step_s: mean step without the first, and without evaluation.
        parts: kind -> seconds of such a step; ``rest`` is what no timer saw.
        evaluation_share: of the time of the steps and of all evaluation.
    """

    updates: int
    loaded: int
    step_s: float
    parts: dict[str, float]
    evaluation_share: float = 0.0

    @property
    def outside(self) -> float:
        """Share of the step outside models, backward passes, updates and input."""
        own = sum(
            took for kind, took in self.parts.items() if kind == "rest" or kind.startswith("code ")
        )
        return own / self.step_s if self.step_s else 0.0

    @property
    def functions(self) -> dict[str, float]:
        """Functions that were timed by name -> share of the step."""
        return {
            kind[5:]: took / self.step_s
            for kind, took in self.parts.items()
            if kind.startswith("code ") and self.step_s
        }

    @property
    def update_share(self) -> float:
        """Share of the step in optimizers."""
        return self.parts.get("update", 0.0) / self.step_s if self.step_s else 0.0

    @property
    def input_share(self) -> float:
        return (
            sum(self.parts.get(kind, 0.0) for kind in INPUT) / self.step_s if self.step_s else 0.0
        )


def read(folder: Path) -> list[ByHand]:
    """Every process that trained, in the order of their numbers."""
    return [_of(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def _of(about: dict) -> ByHand:
    spans = _by_pass(sorted((Span(*span) for span in about["spans"]), key=lambda span: span.begin))
    updates, ends = _rounds(spans)
    fed = _training_passes(spans)
    evaluation = _evaluation(spans, fed)
    counted = [span for span in spans if len(ends) > 1 and ends[0] <= span.begin < ends[-1]]
    inside = [
        span for span in counted if not any(begin <= span.begin < end for begin, end in evaluation)
    ]
    away = sum(
        min(end, ends[-1]) - max(begin, ends[0])
        for begin, end in evaluation
        if ends and begin < ends[-1] and end > ends[0]
    )
    steps = max(1, len(ends) - 1)
    wall_s = (ends[-1] - ends[0] - away) / 1e9 / steps if len(ends) > 1 else 0.0
    parts: Counter[str] = Counter()
    for span in inside:
        parts[span.kind] += span.own / 1e9 / steps
    parts["rest"] = wall_s - sum(parts.values())
    loaded = sum(span.size for span in spans if span.kind == "next" and span.who in fed)
    evaluated = sum(end - begin for begin, end in evaluation)
    whole = wall_s * 1e9 * steps + evaluated
    return ByHand(updates, loaded, wall_s, dict(parts), evaluated / whole if whole else 0.0)


def _rounds(spans: list[Span]) -> tuple[int, list[int]]:
    """How many updates the busiest optimizer made, and when each was over; backwards, where there
    is no optimizer.
    """
    made = Counter(span.who for span in spans if span.kind == "update")
    if not made:
        ends = [span.end for span in spans if span.kind == "backward"]
        return len(ends), ends
    busiest = max(made.values())
    who = max(one for one, number in made.items() if number == busiest)  # the last of a round
    return busiest, [span.end for span in spans if span.kind == "update" and span.who == who]


def _by_pass(spans: list[Span]) -> list[Span]:
    """Number the passes over loaders in ``who``: a program may evaluate on the loader it trains with."""
    begun, found = dict[int, int](), list[Span]()
    for number, span in enumerate(spans):
        if span.kind == "start":
            begun[span.who] = number
        loads = span.kind in ("start", "next")
        found.append(replace(span, who=begun.get(span.who, -1)) if loads else span)
    return found


def _training_passes(spans: list[Span]) -> set[int]:
    """Passes after whose batches a backward comes before the next batch, at least once."""
    asked, fed = None, set()
    for span in spans:
        if span.kind == "next":
            asked = span.who
        elif span.kind == "backward" and asked is not None:
            fed.add(asked)
    return fed


def _evaluation(spans: list[Span], fed: set[int]) -> list[tuple[int, int]]:
    """Stretches from a pass that feeds no step to the next event that trains."""
    found, begin, last = [], 0, 0
    begun, learns = False, _learned_from(spans)
    for number, span in enumerate(spans):
        other = (span.kind in ("next", "start") and span.who not in fed) or (
            span.kind == "eval" and begun
        )
        if other and not begun:
            begin, begun = span.begin, True  # what comes before it is the loop's
        elif (
            begun
            and not other
            and (
                span.kind in ("backward", "input")
                or number in learns
                or (span.kind in ("next", "start") and span.who in fed)
            )
        ):
            found.append((begin, last))
            begun = False
        last = max(last, span.end)
    found += [(begin, last)] if begun else []
    loops = (
        loop
        for loop in _without_a_loader(spans)
        if not any(begin < loop[1] and loop[0] < end for begin, end in found)
    )
    return [*found, *loops]


def _learned_from(spans: list[Span]) -> set[int]:
    """Numbers of the forwards with gradients that a backward follows before the next batch: an
    evaluation may compute gradients for nothing.
    """
    found, trains = set[int](), False
    for number in reversed(range(len(spans))):
        span = spans[number]
        if span.kind == "backward":
            trains = True
        elif span.kind in ("next", "start"):
            trains = False
        elif span.kind == "forward" and trains:
            found.add(number)
    return found


def _without_a_loader(spans: list[Span]) -> list[tuple[int, int]]:
    """Stretches of at least MANY forwards without gradients that nothing interrupts which trains."""
    found, run = [], list[Span]()
    for span in [*spans, Span("forward", 0, 0, 0, 0, 0)]:
        if span.kind == "eval":
            run.append(span)
        elif span.kind in ("forward", "backward", "update"):
            found += [(run[0].begin, run[-1].end)] if len(run) >= MANY else []
            run.clear()
    return found
