from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, waiting
from user_code.made_stacks import COLLATING, FETCHING, LIBRARIES, process, stack

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.explain.order import claimed
from feedline.analysis.ledger.finding import Severity
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Operation
from feedline.analysis.rules.input.user_code import _change, _check, _free

SLOW = {"dataset": (8.0, 0.0, 0.0)}
GETITEM = ("data.py", 20, "__getitem__")
IMAGE = (LIBRARIES + "PIL/ImageFile.py", 200, "load")
TAP = ("a tap (feedline; passed by like importlib._bootstrap)", 3, "wrapper")


def with_stacks(facts, *stacks):
    return replace(facts, code=SampledCode.of([process("worker", *stacks)]))


def tokenizing(facts=None, samples=80):
    tokenize = [*FETCHING, GETITEM, ("data.py", 88, "tokenize")]
    return with_stacks(
        facts or waiting(60.0, sample=SLOW),
        stack(tokenize, samples),
        stack([*FETCHING, GETITEM], 100 - samples),
    )


def test_a_function_that_takes_most_of_making_a_sample_is_named_with_its_line():
    finding = _check(tokenizing())

    assert (finding.rule_id, finding.severity) == ("user_code", Severity.HIGH)
    assert finding.place == "data.py:88"
    assert finding.message.startswith("tokenize() takes 80 % of the time to make a sample")
    assert finding.cost_s == pytest.approx(60e-3 * 0.8)


def test_bytes_of_chunks_for_each_byte_that_is_used_are_told_where_a_part_is_used():
    chunk = (LIBRARIES + "h5py/_hl/dataset.py", 800, "__getitem__")
    facts = with_stacks(waiting(60.0, sample=SLOW), stack([*FETCHING, GETITEM, chunk], 100))

    def more(times):
        read = Operation("read", "h5py.Dataset", 4e-3, 4e-3, 1.0, times)
        return _check(replace(facts, workers=replace(facts.workers, operations=[read]))).more

    assert more(64.0)[:2] == [
        "HDF5 reads whole chunks to get a part of them, and picks a list of indices one by one.",
        "64.0 times as many bytes are unpacked as are used",
    ]
    assert more(1.0)[0] == "What a sample needs is unpacked each time it is read."
    assert more(None)[0] == more(64.0)[0] and not any("64" in one for one in more(None))


def test_it_claims_the_rows_of_its_functions():
    facts = tokenizing()

    rows = claimed(_check(facts), facts.rows)

    assert set(rows) == {"sample/dataset/user/tokenize/cpu"}
    assert sum(rows.values()) == pytest.approx(0.8 * 8.0e-3)


def test_the_caller_is_named_where_no_call_takes_most_of_it():
    facts = with_stacks(
        waiting(60.0, sample=SLOW),
        stack([*FETCHING, GETITEM, ("data.py", 50, "load")], 40),
        stack([*FETCHING, ("data.py", 21, "__getitem__"), ("data.py", 60, "crop")], 45),
        stack([*FETCHING, ("data.py", 22, "__getitem__"), ("data.py", 70, "label")], 15),
    )

    assert _check(facts).place == "data.py:21"
    assert "__getitem__() takes nearly all" in _check(facts).message


def test_it_is_silent_where_nothing_waits():
    assert _check(tokenizing(made_up_facts(sample=SLOW))) is None


def test_it_is_silent_without_stacks_and_with_few_samples():
    assert _check(waiting(60.0, sample=SLOW)) is None
    few = with_stacks(waiting(60.0, sample=SLOW), stack([*FETCHING, GETITEM], 5))
    assert _check(few) is None


def test_six_samples_are_enough_where_all_are_in_one_function():
    slow = waiting(60.0, sample=SLOW)
    once = with_stacks(slow, stack([*FETCHING, GETITEM], 6))
    apart = [stack([*FETCHING, ("data.py", 90 + at, f"part{at}")], 6) for at in range(4)]

    assert _check(once).message.startswith("__getitem__() takes nearly all")
    assert _check(with_stacks(slow, *apart)) is None


def test_decoding_is_no_code_of_the_program():
    facts = with_stacks(
        waiting(60.0, sample={"decode": (20.0, 0.0, 0.0)}),
        stack([*FETCHING, GETITEM, TAP, IMAGE], 97),
        stack([*FETCHING, GETITEM], 3),
    )

    assert _check(facts) is None


def test_half_the_time_and_none_of_it_are_changes_of_the_stage():
    facts = tokenizing()

    assert _change(facts).stages["dataset"].cpu == pytest.approx(0.6)
    assert _free(facts).stages["dataset"].cpu == pytest.approx(0.2)


def test_a_function_in_collate_claims_that_stage():
    facts = with_stacks(
        waiting(60.0, sample={"collate": (8.0, 0.0, 0.0)}),
        stack([*COLLATING, ("data.py", 41, "pad")], 70),
        stack([*FETCHING, GETITEM], 30),
    )

    finding = _check(facts)

    assert finding.place == "data.py:41"
    assert set(claimed(finding, facts.rows)) == {"sample/collate/user/pad/cpu"}


def test_a_known_slow_call_says_why_it_is_slow():
    row = (LIBRARIES + "pandas/core/indexing.py", 1191, "__getitem__")
    facts = with_stacks(
        waiting(60.0, sample=SLOW),
        stack([*FETCHING, GETITEM, row], 60),
        stack([*FETCHING, ("data.py", 21, "__getitem__")], 40),
    )

    finding = _check(facts)

    assert "Pandas builds a new object" in finding.more[0]
    assert finding.fix == "Keep the columns as NumPy arrays, and the rows of each key in a dict."


def test_the_cost_of_a_known_call_is_what_its_fix_spares():
    """Of 60 ms, 36 are the call, of which a tenth is left."""
    read = (LIBRARIES + "pandas/io/parsers/readers.py", 900, "read_csv")
    facts = with_stacks(
        waiting(60.0, sample=SLOW),
        stack([*FETCHING, GETITEM, read], 60),
        stack([*FETCHING, ("data.py", 21, "__getitem__")], 40),
    )

    finding = _check(facts)

    assert finding.names_known_call
    assert finding.cost_s == pytest.approx(36e-3 * 0.9)


def test_the_ledger_still_closes():
    facts = tokenizing()
    of_sample = sum(s for where, s in facts.rows.items() if where.startswith("sample/"))

    assert of_sample == pytest.approx(
        sum(facts.costs[name].wall_s for name in facts.costs if name != "total")
    )


def test_findings_about_samples_are_placed_where_they_are_made_and_settings_where_the_loader_is():
    facts = with_stacks(
        waiting(60.0, sample={"decode": (8.4, 0.0, 0.0)}, settings={"made_at": "train.py:22"}),
        stack([*FETCHING, GETITEM, TAP, IMAGE], 100),
    )
    placed = {one.rule_id: one.place for one in diagnose(facts)}

    assert placed["decode_bound"] == "data.py:20"
    few = waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}, settings={"made_at": "train.py:22"})
    assert {one.rule_id: one.place for one in diagnose(few)}["too_few_workers"] == "train.py:22"
