"""Sentences come from the p values of this table, so tables with other figures get other sentences."""

import pytest

FAR, NEAR = [60.0, 61.0, 59.5, 60.4, 60.2], [89.0, 91.0, 90.2, 88.5, 90.9]
SHIFTED = [one + 0.2 for one in reversed(NEAR)]


def says(table, supported):
    return [claim.message for claim in table.claims if claim.supported is supported]


def test_a_gap_many_times_the_spread_is_supported(made_up):
    assert any(
        one.startswith("B (batch 256, nothing changed) is worse than A: -29.")
        for one in says(made_up(A=NEAR, B=FAR), True)
    )


def test_a_gap_within_the_spread_is_not(made_up):
    (claim,) = says(made_up(J=NEAR, H=SHIFTED), False)
    assert claim.startswith("H (C + LAMB) is not shown to differ from J: +0.2 points")


def test_lamb_is_called_better_where_it_is(made_up):
    assert says(made_up(J=FAR, H=NEAR), True)[0].startswith("H (C + LAMB) is better than J: +29.")


def test_a_p_that_correction_takes_away_is_not_supported(made_up):
    table = made_up(
        E=NEAR, F=[one + 1.8 for one in NEAR], G=SHIFTED, I=SHIFTED, J=SHIFTED, K=SHIFTED
    )

    (claim,) = [one for one in says(table, False) if one.startswith("F ")]
    assert "once corrected for 5 questions" in claim


def test_nothing_is_claimed_of_one_seed(made_up):
    table = made_up(A=[87.0], B=[47.0], L=[92.0])
    assert not says(table, True)
    assert all("too few" in one or "so few seeds" in one for one in says(table, False))


def test_the_small_batch_with_batch_norm_is_the_reference_of_large_ones(made_up):
    table = made_up(A=FAR, B=FAR, L=NEAR, E=SHIFTED)

    assert "worse than L, the small batch with batch norm: B" in says(table, True)
    assert (
        "not shown to differ from L, the small batch with batch norm, in either direction: E"
        in says(table, False)
    )


def test_a_budget_that_is_not_equal_is_named(made_up):
    assert "with 8 times the samples" in says(made_up(B=FAR, P=NEAR), True)[0]


def test_the_control_s_p_is_the_row_s(made_up):
    table = made_up(E=NEAR, J=SHIFTED, H=[one + 1 for one in NEAR])
    plain = table.plain()

    (against_j,) = [
        one for one in plain["comparisons"] if one["letter"] == "H" and one["against"] == "J"
    ]
    assert plain["arms"]["H"]["p_vs_control"] == pytest.approx(against_j["p"])
    assert plain["arms"]["E"]["p_vs_control"] is None
