import pytest
from rules.made_up import waiting

from feedline.analysis.rules.input.many_tensors import _change, _check


@pytest.mark.parametrize(("tensors", "says"), [(16.0, "16 tensors"), (225.0, "about 225 tensors")])
def test_many_tensors_cost_what_more_than_a_few_take_of_receiving(tensors, says):
    facts = waiting(batch_tensors=tensors, stages={"transport": 40.0})

    finding = _check(facts)

    assert finding.message.endswith(says)
    assert finding.cost_s == pytest.approx(40e-3 * (1 - 10 / (tensors + 2)))
    assert _change(facts).stages["transport"].cpu == pytest.approx(10 / (tensors + 2))


@pytest.mark.parametrize(
    "given",
    [
        {"batch_tensors": 15.0},
        {"batch_tensors": None},
        {"batch_tensors": 60.0, "settings": {"num_workers": 0}},
        {"batch_tensors": 60.0, "loader": {"pickle_bytes": 38.5e6}},
        {"batch_tensors": 60.0, "stages": {"transport": 2.0}},
    ],
    ids=["few", "unknown", "no workers", "pickled", "cheap"],
)
def test_it_is_silent_otherwise(given):
    assert _check(waiting(**{"stages": {"transport": 40.0}, **given})) is None
