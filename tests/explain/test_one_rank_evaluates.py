"""Whether a single rank evaluates, and the others wait for it."""

from types import SimpleNamespace

import pytest

from feedline.analysis.explain.measured import _not_evaluating


def source(evaluating, together=True):
    """Ranks that evaluate for so many nanoseconds; the first is shown."""
    ranks = {
        number: SimpleNamespace(steps=SimpleNamespace(evaluating=ns))
        for number, ns in enumerate(evaluating)
    }
    compared = SimpleNamespace(communication=object() if together else None)
    return SimpleNamespace(ranks=ranks, shown=ranks[0], compared=compared)


@pytest.mark.parametrize(
    ("evaluating", "others"),
    [([8000, 0], 1), ([8000, 100, 0], 2), ([8000, 7000], 0), ([0, 8000], 0), ([8000], 0)],
)
def test_other_ranks_count_where_only_the_shown_one_evaluates(evaluating, others):
    assert _not_evaluating(source(evaluating)) == others


def test_ranks_that_exchange_nothing_do_not_wait():
    assert _not_evaluating(source([8000, 0], together=False)) == 0
