"""Whether memory was full, and whose, from the gauges of a run folder."""

from types import SimpleNamespace

import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.full_memory import (
    FullMemory,
    filled_since,
    full_limit,
)
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.samplers.gauge_file import GaugeLegend, GaugeWriter

S = 1_000_000_000
GB = 1e9
MACHINE = 64 * GB
LIMIT = 8 * GB
READINGS = 40  # one a second; steps run from 10 s to 30 s
NAMES = ("memory/used", "memory/available", "cgroup/memory", "cgroup/memory_limit")


def filling(*shares):
    """Shares of a memory, each for as long."""
    return [shares[at * len(shares) // READINGS] for at in range(READINGS)]


ROOM = filling(0.2)


@pytest.fixture
def rank(tmp_path):
    """Make one whose gauges are in a file."""

    def made(machine=ROOM, group=None, limit=LIMIT):
        path = tmp_path / "gauges.bin"
        GaugeLegend(gauges=[(name, "B") for name in NAMES]).write(path)
        writer = GaugeWriter(path)
        for at, share in enumerate(machine):
            rows = [(0, share * MACHINE), (1, (1 - share) * MACHINE)]
            if group is not None:
                rows += [(2, group[at] * limit), (3, limit)]
            writer.append(at * S, rows)
        writer.close()
        run = MadeUp()
        for begin in range(10, 30):
            run.forward(begin * S, begin * S + 1).backward(begin * S + 1, begin * S + 2)
            run.update(begin * S + 2, begin * S + S // 2)
        main = run.process()
        folder = SimpleNamespace(folder=tmp_path)
        return SimpleNamespace(rank=folder, main=main, steps=steps_of(main), first=1)

    return made


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ({}, None),
        ({"group": filling(0.5, 0.97)}, FullMemory(0.97 * LIMIT, LIMIT, False)),
        ({"group": filling(0.97, 0.5)}, None),
        ({"machine": filling(0.5, 0.97)}, FullMemory(0.97 * MACHINE, MACHINE, True)),
        (
            {"machine": filling(0.5, 0.92), "group": filling(0.5, 0.99)},
            FullMemory(0.99 * LIMIT, LIMIT, False),
        ),
        (
            {"machine": filling(0.5, 0.95), "group": filling(0.5, 0.95), "limit": MACHINE},
            FullMemory(0.95 * MACHINE, MACHINE, True),
        ),
        ({"machine": filling(0.92)}, None),
        (
            {"machine": filling(0.99), "group": filling(0.5, 0.92)},
            FullMemory(0.92 * LIMIT, LIMIT, False),
        ),
    ],
    ids=[
        "room",
        "group",
        "no longer",
        "machine",
        "the fuller",
        "a limit like the machine",
        "a machine that others fill all the time",
        "a group on one",
    ],
)
def test_memory_that_filled_until_the_end_is_told_with_whose_it_is(rank, given, full):
    found = filled_since(rank(**given))

    assert found is None if full is None else found == pytest.approx(full)


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({"machine": filling(0.5, 0.6, 0.8, 0.97)}, True),
        ({"group": filling(0.5, 0.6, 0.8, 0.97)}, True),
        ({"group": filling(0.93)}, False),
        ({"machine": filling(0.93)}, False),
        ({"group": filling(0.2, 0.3, 0.4, 0.5)}, False),
    ],
    ids=["machine", "group", "group always full", "machine always full", "it only grew"],
)
def test_memory_that_was_full_before_did_not_fill(rank, given, filled):
    assert (filled_since(rank(**given), 20 * S) is not None) is filled


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, None),
        ({"group": filling(0.97)}, LIMIT),
        ({"group": filling(0.2, 0.3, 0.97, 0.97)}, LIMIT),  # on average 63 % while steps ran
        ({"group": filling(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.97)}, None),  # only after them
        ({"machine": filling(0.95), "group": filling(0.97)}, None),
        ({"group": filling(0.97), "limit": 0.97 * MACHINE}, None),
        ({"machine": filling(0.92), "group": filling(0.97), "limit": 2 * GB}, 2 * GB),
    ],
    ids=[
        "room",
        "full",
        "it filled",
        "after the steps",
        "the machine too",
        "as the machine's",
        "a machine with room for it",
    ],
)
def test_a_limit_counts_if_its_group_and_not_the_machine_was_full_while_steps_ran(
    rank, given, limit
):
    assert full_limit(rank(**given)) == limit


def test_nothing_is_full_where_nothing_was_sampled(tmp_path):
    none = SimpleNamespace(rank=SimpleNamespace(folder=tmp_path), steps=None, first=0)

    assert filled_since(none) is None and full_limit(none) is None
