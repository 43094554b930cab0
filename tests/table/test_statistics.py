import pytest
from acceptance.statistics import difference, holm
from scipy import stats

OURS, THEIRS = [89.1, 90.4, 86.2, 91.0, 88.8], [82.6, 80.1, 85.0, 83.3, 81.9]


def test_p_and_interval_are_those_of_scipy():
    found, expected = difference(OURS, THEIRS), stats.ttest_ind(OURS, THEIRS, equal_var=False)

    interval = expected.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx(
        (expected.pvalue, interval.low, interval.high)
    )
    assert found.paired_p == pytest.approx(stats.ttest_rel(OURS, THEIRS).pvalue)


def test_figures_worked_out_by_hand():
    found = difference(
        [1, 2, 3], [4, 5, 6]
    )  # standard error sqrt(2/3), 4 degrees of freedom, t = -3.674

    assert found.mean == -3
    assert found.p == pytest.approx(0.0213, abs=5e-5)
    assert (found.low, found.high) == pytest.approx(
        (-3 - 2.776 * 0.8165, -3 + 2.776 * 0.8165), abs=1e-3
    )


def test_groups_of_unlike_size_have_no_pairs():
    assert difference(OURS, THEIRS[:3]).paired_p is None


@pytest.mark.parametrize("theirs", [[80.0], [float("nan"), 80.0]])
def test_nothing_is_said_of_one_value_or_of_none(theirs):
    assert difference(OURS, theirs).p is None


def test_groups_without_any_spread_have_no_p():
    assert difference([90.0, 90.0], [80.0, 80.0]).p is None


def test_an_empty_group_is_refused():
    with pytest.raises(ValueError, match="no mean"):
        difference([], OURS)


def test_a_seed_that_shifts_both_arms_alike_is_seen_by_pairs():
    shifted = [one + 0.5 + 0.01 * index for index, one in enumerate(OURS)]

    found = difference(shifted, OURS)

    assert found.p is not None and found.p > 0.5
    assert found.paired_p is not None and found.paired_p < 1e-4


def test_holm_multiplies_the_smallest_most_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_holm_never_exceeds_one_and_takes_none_at_all():
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
