"""Waiting has a cause, read off when each batch was made."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from measure.made_up_records import MadeUp
from torch.utils.data import DataLoader, Dataset

import feedline
from feedline.analysis.explain.reports_of_run import recorded_report
from feedline.analysis.measure.rank_metrics import _ready_times
from feedline.analysis.measure.steps import steps_of
from feedline.analysis.measure.waits import _WAIT_KINDS, classify, ready_share
from feedline.analysis.report import phrases
from feedline.profiler.events import Flag, Stage, batch_key
from feedline.profiler.store.trainings import open_run

DESCRIBED = [
    "starved",
    "overhead",
    "head_of_line",
    "handover",
    "in_transit",
    "first_batch",
]  # in this order in docs/recording.md


def waits(
    made: dict[int, int], asks: list[tuple[int, int]], flags: dict[int, int] | None = None
) -> dict[str, int]:
    """Nanoseconds by kind of a training that asked for batches at (start, end) and whose workers
    made batch -> time.
    """
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    for batch, (start, end) in enumerate(asks):
        main.next(start, end, batch, flags=(flags or {}).get(batch, 0)).backward(
            end, end + 1
        ).update(end + 1, end + 2)
    for batch, time in made.items():
        worker.fetched(time - 1, time, batch)
    steps = steps_of(main.process())
    found = {
        name: int(values.sum())
        for name, values in classify(steps, _ready_times([worker.process()])).items()
    }
    assert sum(found.values()) == int(steps.stages["wait"].sum())
    return {name: ns for name, ns in found.items() if ns}


def test_nothing_was_made_yet():
    assert waits({0: 90, 1: 200}, [(20, 90)]) == {"starved": 70}


def test_a_later_batch_was_made_but_not_this_one():
    assert waits({0: 90, 1: 10}, [(20, 90)]) == {"head_of_line": 70}


def test_a_later_batch_is_made_while_this_one_is_awaited():
    assert waits({0: 90, 1: 50}, [(20, 90)]) == {"starved": 30, "head_of_line": 40}


def test_the_batch_was_made_and_is_on_its_way():
    assert waits({0: 10, 1: 500}, [(20, 90)]) == {"in_transit": 70}


def test_the_rest_of_the_way_after_it_was_made():
    assert waits({0: 60, 1: 500}, [(20, 90)]) == {"starved": 40, "in_transit": 30}


def test_the_first_batch_of_an_epoch_waits_for_its_start():
    assert waits({0: 60, 1: 100}, [(20, 90), (95, 105)], {0: Flag.FIRST}) == {
        "first_batch": 70,
        "starved": 5,
        "in_transit": 5,
    }


def test_a_batch_of_an_unseen_worker_counts_as_starved():
    assert waits({}, [(20, 90)]) == {"starved": 70}


def test_waits_for_batches_whose_making_was_forgotten_are_split_as_the_others():
    """Of two waits, 50 of 140 ns were for batches not made: so are 25 of the third's 70 ns."""
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    for batch, made in enumerate((40, 150, 240)):
        asked = 20 + 100 * batch
        main.next(asked, asked + 70, batch).backward(asked + 70, asked + 71)
        main.update(asked + 71, asked + 72)
        worker.span(Stage.FETCH, made - 1, made, number=batch_key(0, batch), window=int(batch == 2))
    steps, workers = steps_of(main.process()), [worker.process(stride=2)]
    some, nothing = (
        {kind: ns.tolist() for kind, ns in classify(steps, ready, workers).items() if ns.any()}
        for ready in (_ready_times(workers), {})
    )

    assert some == {"starved": [20, 30, 25], "in_transit": [50, 40, 45]}
    assert nothing == {"starved": [70, 70, 70]}


def test_without_workers_the_loaders_own_work_is_overhead():
    main = MadeUp().next(20, 90).backward(90, 91).update(91, 92)
    found = classify(steps_of(main.process()), {}, alone=True)

    assert {kind: int(ns.sum()) for kind, ns in found.items() if ns.any()} == {"overhead": 70}


def test_each_kind_has_one_name_in_the_report_the_json_and_the_docs():
    """The JSON has the keys that ``classify`` gives, and reports show them as they are."""
    page = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
    described = page.partition("Waiting is split by the state")[2].partition("\n## ")[0]

    assert re.findall(r"^- `(\w+)`", described, re.MULTILINE) == [
        kind for kind in DESCRIBED if kind in _WAIT_KINDS
    ]
    assert set(phrases._WAITS) == set(_WAIT_KINDS) == set(DESCRIBED)


def test_the_share_of_requests_that_found_their_batch():
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    for batch, (made, asked) in enumerate([(5, 10), (15, 20), (40, 30), (60, 50)]):
        main.next(asked, asked + 5, batch).backward(asked + 5, asked + 6).update(
            asked + 6, asked + 7
        )
        worker.fetched(made - 1, made, batch)

    assert ready_share(steps_of(main.process()).asked, _ready_times([worker.process()])) == 0.5


def test_a_batch_that_its_worker_had_no_turn_to_send_is_handed_over_late():
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    main.next(20, 90).backward(90, 91).update(91, 92)
    worker.fetched(9, 10, 0).span(Stage.PICKLE, 60, 70, number=batch_key(0, 0), cpu=5)
    workers = [worker.process()]
    found = classify(steps_of(main.process()), _ready_times(workers), workers)

    assert {kind: int(ns.sum()) for kind, ns in found.items() if ns.any()} == {
        "handover": 45,
        "in_transit": 25,
    }


def test_a_main_thread_that_waits_for_the_worker_while_it_receives_is_not_busy_with_transport():
    main = MadeUp()
    main.next(20, 90).span(Stage.TRANSPORT, 30, 80, cpu=10, runqueue=5).backward(90, 91).update(
        91, 92
    )
    steps = steps_of(main.process())
    found = classify(steps, {})

    assert {name: int(steps.stages[name].sum()) for name in ("wait", "transport")} == {
        "wait": 20 + 35,
        "transport": 15,
    }
    assert {kind: int(ns.sum()) for kind, ns in found.items() if ns.any()} == {
        "starved": 20,
        "handover": 35,
    }


class HoldsPythonsLock(Dataset):
    """As a page fault of a memory map does."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        ctypes.PyDLL(None).usleep(20_000)
        return torch.zeros(10), 0


@pytest.fixture
def one_thread():
    """Threads of torch that spin for each other make steps long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_worker_that_holds_pythons_lock_hands_over_late_and_its_transport_is_short(
    tmp_path, one_thread
):
    net = torch.nn.Linear(10, 3)
    optimizer = torch.optim.SGD(net.parameters())
    with feedline.record(tmp_path / "run", strict=True):
        for images, labels in DataLoader(
            HoldsPythonsLock(), batch_size=2, num_workers=1, prefetch_factor=4
        ):
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    step = recorded_report(open_run(tmp_path / "run")).step

    assert step.waits["handover"] > 0.5 * step.mean_s
    assert step.stages["transport"] < 0.3 * step.waits["handover"]
