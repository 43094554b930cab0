"""A fix that is arguments of the DataLoader is the line to change, as far as the recorder saw it."""

from dataclasses import replace

import pytest
from rules.made_up import made_up_facts, without_workers

from feedline.analysis.explain.verdict import verdict
from feedline.analysis.ledger.finding import Finding, Severity
from feedline.analysis.ledger.view.loader_call import (
    arguments,
    call,
    change,
    in_words,
    line_to_change,
    only_if,
    place,
)

FINDING = Finding("too_few_workers", Severity.HIGH, "no workers", cost_s=0.05)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"made_at": "train.py:31"}, "train.py:31"),
        ({"made_at": "train.py:88", "made_by": "lightning"}, "train.py:88 via lightning"),
        ({"made_by": "lightning"}, "via lightning"),
        ({}, ""),
    ],
)
def test_it_says_what_the_line_says_now_and_where_it_is(settings, where):
    facts = without_workers(settings=settings)

    assert change(facts, {"num_workers": 3}) == "DataLoader(..., num_workers=3)  # now 0"
    assert place(facts) == where
    comment = f", {where}" if where else ""
    assert (
        line_to_change(facts, {"num_workers": 3})
        == f"DataLoader(..., num_workers=3)  # now 0{comment}"
    )


def test_of_transformers_it_is_an_argument_of_the_training():
    facts = without_workers(settings={"made_at": "train.py:88", "made_by": "transformers"})
    given = {"num_workers": 3, "persistent_workers": True}

    assert change(facts, {"num_workers": 3}) == (
        "TrainingArguments(..., dataloader_num_workers=3)  # now 0"
    )
    assert in_words(facts, given) == (
        "Set dataloader_num_workers=3, dataloader_persistent_workers=True (now "
        "dataloader_num_workers=0, dataloader_persistent_workers=False)"
    )
    assert only_if(facts, given).startswith("dataloader_persistent_workers=True only if")
    assert (
        line_to_change(facts, {"num_workers": 0})
        == "TrainingArguments(..., dataloader_num_workers=0)  # now 0, train.py:88 via "
        "transformers; remove dataloader_prefetch_factor, dataloader_persistent_workers and "
        "dataloader_multiprocessing_context if set"
    )
    found = replace(FINDING, settings=given, place=place(facts))
    said = verdict([found], facts)
    assert said.fix == "dataloader_num_workers=3, dataloader_persistent_workers=True"
    assert found.settings == given


def test_several_arguments_are_named_with_their_present_values():
    facts = without_workers(
        settings={"made_at": "train.py:31"}, loader={"kind": "StatefulDataLoader"}
    )

    given = {"num_workers": 3, "persistent_workers": True}
    assert change(facts, given) == (
        "StatefulDataLoader(..., num_workers=3, persistent_workers=True)  # now num_workers=0, "
        "persistent_workers=False"
    )
    assert (
        only_if(facts, given)
        == "persistent_workers=True only if the program does not change the dataset between epochs"
    )


def test_several_workers_for_an_iterable_dataset_are_advised_only_if_it_is_split_between_them():
    stream = without_workers(settings={"map_style": False, "made_at": "train.py:31"})
    split = made_up_facts(settings={"map_style": False, "num_workers": 2})

    assert only_if(stream, {"num_workers": 3}) == (
        "only if each worker yields its own part of the iterable dataset (get_worker_info)"
    )
    assert only_if(stream, {"num_workers": 1}) == only_if(split, {"num_workers": 3}) == ""
    found = replace(FINDING, settings={"num_workers": 3}, condition="only if it is split")
    said = verdict([found], stream)
    assert (said.fix, said.condition) == ("num_workers=3", "only if it is split")


def test_without_a_place_or_a_value_there_is_no_comment():
    assert call(without_workers(), "worker_init_fn=...") == "DataLoader(..., worker_init_fn=...)"


@pytest.mark.parametrize("staying_s, kept", [(0.0, True), (0.010, True), (0.030, False)])
def test_workers_that_would_become_slower_if_they_stayed_are_not_kept(staying_s, kept):
    facts = made_up_facts(epochs=3, staying_s=staying_s)  # 154 ms per batch

    assert ("persistent_workers" in arguments(facts, 6)) is kept
