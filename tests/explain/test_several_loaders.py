"""Two loaders feed each step, as labelled and unlabelled samples do: what is said of one is true of it."""

import itertools
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from rules.any_facts import any_facts
from rules.made_up import LOADER, made_up_facts, waiting, without_workers
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report, training_input
from feedline.analysis.ledger.view.input_wait import input_wait, num_workers
from feedline.analysis.measure.feeding import together
from feedline.analysis.rules import INPUT
from feedline.analysis.rules.input import (
    custom_collate,
    epoch_restart,
    fewer_workers,
    made_one_by_one,
    straggler_in_order,
    too_few_workers,
)
from feedline.profiler.store.trainings import open_run

CHEAP = dict.fromkeys(("read", "decode", "augment", "dataset", "collate"), (0.003, 0.0, 0.0))


class Samples(Dataset):
    """Samples that take so many seconds each."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(10), index % 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Batches of 8 labelled samples and of 24 that take ten times as long, by 2 workers each."""
    folder = tmp_path_factory.mktemp("several") / "run"
    net = torch.nn.Linear(10, 3)
    optimizer = torch.optim.SGD(net.parameters())
    labelled = DataLoader(Samples(0.0005), batch_size=8, num_workers=2)
    unlabelled = DataLoader(Samples(0.005), batch_size=24, num_workers=2)
    with feedline.record(folder, strict=True):
        for (images, labels), (others, _) in zip(labelled, unlabelled):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            (loss + net(others).square().mean()).backward()
            optimizer.step()
    return open_run(folder)


def test_no_number_of_workers_is_said_to_be_too_small_and_none_is_advised(run):
    findings = recorded_report(run).findings
    texts = [f"{one.message} {one.fix} {' '.join(one.fix_more)}" for one in findings]

    assert not any(one.settings for one in findings)
    assert not any("keep up" in text or "num_workers" in text for text in texts)


def test_the_rules_see_all_workers_and_no_line_of_one_loader(run):
    facts = training_input(run).facts

    assert facts.several_loaders and num_workers(facts) == 4
    assert facts.setting("made_at") is None and facts.setting("prefetch_factor") == 2


@pytest.mark.parametrize(
    ("workers", "persistent", "in_turn", "alone"),
    [
        (0, False, True, True),
        (1, False, True, True),
        (1, True, True, False),  # the other one's workers idle meanwhile
        (0, False, False, False),
    ],
)
def test_loaders_that_take_turns_are_as_one(tmp_path, workers, persistent, in_turn, alone):
    net = torch.nn.Linear(10, 3)
    optimizer = torch.optim.SGD(net.parameters())
    settings = {"batch_size": 40, "num_workers": workers, "persistent_workers": persistent}
    loaders = [
        DataLoader(Samples(0.0), **settings),
        DataLoader(Samples(0.0001), **settings),
    ]
    with feedline.record(tmp_path / "run", strict=True):
        for batches in [itertools.chain(*loaders)] if in_turn else zip(*loaders):
            for images, labels in batches:
                torch.nn.functional.cross_entropy(net(images), labels).backward()
                optimizer.step()
    facts = training_input(open_run(tmp_path / "run")).facts

    assert facts.several_loaders is not alone
    assert facts.setting("num_workers") == (workers if alone or not workers else None)
    assert facts.setting("made_at") is None  # each has a line of its own


@given(any_facts())
def test_no_rule_about_the_input_names_a_setting_where_several_loaders_feed_the_steps(facts):
    facts = replace(facts, several_loaders=True)

    assert not any(found.settings for rule in INPUT if (found := rule.check(facts)) is not None)


VARYING = {"fetch_cv": 0.8, "processes": 4}
TWO_SLOW = {"sample": {"decode": (9.0, 0.0, 0.0)}, "settings": {"num_workers": 2}}
TINY = {"forward": 0.3, "backward": 0.4, "optimizer": 0.1, "other": 0.0, "copy": 0.0}


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        (too_few_workers, waiting(**TWO_SLOW)),
        (straggler_in_order, made_up_facts(waits={"head_of_line": 40.0}, maker=VARYING)),
        (
            fewer_workers,
            made_up_facts(
                sample=CHEAP,
                stages=TINY | {"transport": 1.2},
                waits={"starved": 0.1, "in_transit": 0.5},
                loader={"flags": [], "batch_bytes": 4e3},
            ),
        ),
        (
            epoch_restart,
            made_up_facts(epochs=5, waits={"first_batch": 60.0}, loader={"first_batch_s": 6.0}),
        ),
        (
            custom_collate,
            made_up_facts(
                settings={"collate": "pad"},
                stages={"transport": 60.0},
                loader={"flags": [], "batch_bytes": 40e6},
            ),
        ),
    ],
    ids=lambda one: one.__name__.rpartition(".")[2] if hasattr(one, "__name__") else "",
)
def test_what_is_said_of_the_workers_or_settings_of_one_loader_is_not_said_of_several(rule, facts):
    assert rule.RULE.check(facts) is not None
    assert rule.RULE.check(replace(facts, several_loaders=True)) is None


def test_batches_that_the_main_process_makes_are_waited_for_beside_those_of_workers():
    facts = made_up_facts(stages={"decode": 40.0}, waits={"starved": 20.0}, several_loaders=True)

    assert input_wait(facts).making_s == pytest.approx(60e-3)


def test_without_workers_the_way_to_make_batches_in_one_call_sets_nothing_of_a_loader():
    cheap = dict.fromkeys(("read", "decode", "augment", "dataset", "collate"), (0.01, 0.0, 0.0))
    alone = without_workers(sample=cheap, stages={"forward": 1.0, "backward": 1.0})
    assert any("batch_size=None" in one for one in made_one_by_one._check(alone).fix_more)

    found = made_one_by_one._check(replace(alone, several_loaders=True))

    assert "batch_size" not in " ".join([found.fix, *found.fix_more])


def test_what_loaders_do_not_share_is_not_known_of_them_together():
    other = replace(
        LOADER,
        settings=LOADER.settings
        | {"made_at": "train.py:9", "collate": "pad", "persistent_workers": True},
        batches=100,
        samples=100 * 96,
        batch_bytes=3e6,
        flags=["float32", "shared"],
        pickle_bytes=None,
    )
    first = replace(
        LOADER, settings=LOADER.settings | {"made_at": "train.py:8", "collate": "default"}
    )

    both = together([first, other])

    assert both.settings == {
        "batch_size": 32,
        "prefetch_factor": 2,
        "in_order": True,
        "collate": None,
    }
    assert (both.batches, both.samples, both.flags) == (300, 200 * 32 + 100 * 96, ["shared"])
    assert both.batch_bytes == pytest.approx((200 * LOADER.batch_bytes + 100 * 3e6) / 300)
    assert both.pickle_bytes == pytest.approx(400.0)
    assert together([first]) is first and together([]) is None
