"""What a table supports and what it does not, in sentences derived only from its p values."""

from collections.abc import Sequence

from acceptance.arms import REFERENCE
from acceptance.result import Claim, Comparison, Row
from acceptance.statistics import LEVEL


def claims_of(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> list[Claim]:
    """One sentence per question, and one or two about the reference."""
    control = [one for one in comparisons if one.family == "control"]
    names = {row.arm.letter: row.arm.name for row in rows}
    return [_claim(one, names, len(control)) for one in control] + _reference(comparisons)


def supported(one: Comparison) -> bool:
    """Whether two arms differ, after correction for the number of questions."""
    return one.p_holm is not None and one.p_holm < LEVEL


def _claim(one: Comparison, names: dict[str, str], questions: int) -> Claim:
    found = one.difference
    more = f", with {one.samples_ratio:g} times the samples" if one.samples_ratio != 1 else ""
    if found.p is None:
        return Claim(
            f"{one.letter} against {one.against}{more}: {found.mean:+.1f} points; nothing can be "
            f"said of so few seeds",
            False,
        )
    interval = (
        f"{found.mean:+.1f} points ({found.low:+.1f} to {found.high:+.1f}), {p_text(found.p)}"
    )
    if supported(one):
        word = "better" if found.mean > 0 else "worse"
        return Claim(
            f"{one.letter} ({names[one.letter]}) is {word} than {one.against}{more}: {interval}",
            True,
        )
    if found.p < LEVEL:
        after = f", but {p_text(one.p_holm)} once corrected for {questions} questions"
        return Claim(
            f"{one.letter} ({names[one.letter]}) against {one.against}{more}: {interval}{after}",
            False,
        )
    return Claim(
        f"{one.letter} ({names[one.letter]}) is not shown to differ from {one.against}{more}: "
        f"{interval}",
        False,
    )


def _reference(comparisons: Sequence[Comparison]) -> list[Claim]:
    """How the large batches stand to the small one with batch norm."""
    asked = [
        one for one in comparisons if one.family == "reference" and one.difference.p is not None
    ]
    below = [one.letter for one in asked if supported(one) and one.difference.mean < 0]
    above = [one.letter for one in asked if supported(one) and one.difference.mean > 0]
    rest = [one.letter for one in asked if not supported(one)]
    found = []
    if below:
        found.append(
            Claim(
                f"worse than {REFERENCE}, the small batch with batch norm: {', '.join(below)}", True
            )
        )
    if above:
        found.append(
            Claim(
                f"better than {REFERENCE}, the small batch with batch norm: {', '.join(above)}",
                True,
            )
        )
    if rest:
        found.append(
            Claim(
                f"not shown to differ from {REFERENCE}, the small batch with batch norm, in "
                f"either direction: {', '.join(rest)}",
                False,
            )
        )
    return found


def p_text(p: float | None) -> str:
    """``p = 0.032``, ``p < 0.001``."""
    if p is None:
        return "no p"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"
