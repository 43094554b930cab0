"""Conditions that a table of five seeds must meet before its other results can be trusted.

The bounds are wide: they hold the order of the arms, not their figures. None asks LAMB to beat
plain SGD, or ghost to beat plain batch norm: neither does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, le

from acceptance.arms import REFERENCE

Means = Mapping[str, float]  # letter -> test accuracy, percent
SEEDS = 5  # that the bounds are meant for


@dataclass(frozen=True)
class Gate:
    """A condition, and its result.

    Attributes:
        message: the condition.
        figure: what was compared with the bound, percent or points; None: an arm that it needs was
            not trained.
        passed: None as above.
    """

    message: str
    figure: float | None
    passed: bool | None


def check(means: Means) -> list[Gate]:
    """All gates for these means."""
    found = [_at("A", ge, 83, means), _at("B", le, 55, means)]
    found += [
        _apart("A", "B", 30, means),
        _apart("C", "B", 25, means),
        _at("E", ge, 85, means),
        _apart("E", "C", 2, means),
    ]
    found += [_at(letter, ge, 86, means) for letter in ("F", "H", "I")]
    return [*found, _none_above_reference(2, means)]


def _at(letter: str, holds: Callable[[float, float], bool], bound: float, means: Means) -> Gate:
    sign = ">=" if holds is ge else "<="
    figure = means.get(letter)
    return Gate(
        f"{letter} {sign} {bound:g}", figure, None if figure is None else holds(figure, bound)
    )


def _apart(better: str, worse: str, points: float, means: Means) -> Gate:
    figure = means[better] - means[worse] if better in means and worse in means else None
    return Gate(
        f"{better} - {worse} >= {points:g}", figure, None if figure is None else figure >= points
    )


def _none_above_reference(points: float, means: Means) -> Gate:
    others = [mean for letter, mean in means.items() if letter != REFERENCE]
    figure = max(others) - means[REFERENCE] if REFERENCE in means and others else None
    return Gate(
        f"no arm above {REFERENCE} by more than {points:g}",
        figure,
        None if figure is None else figure <= points,
    )
