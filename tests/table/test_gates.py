from acceptance.gates import check

GOOD = {
    "A": 87.3,
    "B": 47.4,
    "C": 82.6,
    "D": 86.0,
    "E": 89.1,
    "F": 89.6,
    "H": 90.2,
    "I": 90.3,
    "J": 89.0,
    "L": 92.7,
}


def failed(means):
    return {gate.message for gate in check(means) if gate.passed is False}


def test_the_table_they_were_made_for_passes_all():
    assert all(gate.passed for gate in check(GOOD))
    assert len(check(GOOD)) == 10


def test_every_gate_fails_where_its_figure_is_wrong():
    assert failed({**GOOD, "A": 82.9}) == {"A >= 83"}
    assert failed({**GOOD, "B": 55.1}) == {"B <= 55"}
    assert failed({**GOOD, "B": 60}) == {"B <= 55", "A - B >= 30", "C - B >= 25"}
    assert failed({**GOOD, "C": 87.2}) == {"E - C >= 2"}
    assert failed({**GOOD, "E": 84.5}) == {"E >= 85", "E - C >= 2"}
    assert failed({**GOOD, "F": 85.9, "H": 85.9, "I": 85.9}) == {"F >= 86", "H >= 86", "I >= 86"}
    assert failed({**GOOD, "J": 94.8}) == {"no arm above L by more than 2"}


def test_lamb_need_not_beat_anything():
    assert not failed({**GOOD, "H": 86.0})


def test_a_gate_whose_arm_was_not_trained_is_neither_passed_nor_failed():
    assert {gate.passed for gate in check({"L": 92.7})} == {None}
    assert {gate.figure for gate in check({})} == {None}


def test_a_figure_that_is_no_number_fails():
    assert "A >= 83" in failed({**GOOD, "A": float("nan")})
