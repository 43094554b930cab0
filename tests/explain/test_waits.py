"""Waiting has a cause, read off when each batch was made."""

from explain.made_up_records import MadeUp

from feedline.analysis.steps import partition
from feedline.analysis.waits import classify, ready_share, ready_times
from feedline.profiler.events import Flag


def waits(made: dict[int, int], asks: list[tuple[int, int]], flags: dict[int, int] | None = None) -> dict[str, int]:
    """Nanoseconds by kind of a training that asked for batches at (start, end) and whose workers made batch -> time."""
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    for batch, (start, end) in enumerate(asks):
        main.next(start, end, batch, flags=(flags or {}).get(batch, 0)).backward(end, end + 1).update(end + 1, end + 2)
    for batch, time in made.items():
        worker.fetched(time - 1, time, batch)
    steps = partition(main.process())
    found = {name: int(values.sum()) for name, values in classify(steps, ready_times([worker.process()])).items()}
    assert sum(found.values()) == int(steps.stages["wait"].sum())
    return {name: ns for name, ns in found.items() if ns}


def test_nothing_was_made_yet():
    assert waits({0: 90, 1: 200}, [(20, 90)]) == {"starved": 70}


def test_a_later_batch_was_made_but_not_this_one():
    assert waits({0: 90, 1: 10}, [(20, 90)]) == {"head_of_line": 70}


def test_a_later_batch_is_made_while_this_one_is_awaited():
    assert waits({0: 90, 1: 50}, [(20, 90)]) == {"starved": 30, "head_of_line": 40}


def test_the_batch_was_made_and_is_on_its_way():
    assert waits({0: 10, 1: 500}, [(20, 90)]) == {"transport": 70}


def test_the_rest_of_the_way_after_it_was_made():
    assert waits({0: 60, 1: 500}, [(20, 90)]) == {"starved": 40, "transport": 30}


def test_the_first_batch_of_an_epoch_waits_for_its_start():
    assert waits({0: 60, 1: 100}, [(20, 90), (95, 105)], {0: Flag.FIRST}) == {"epoch_start": 70, "starved": 5, "transport": 5}


def test_a_batch_of_an_unseen_worker_counts_as_starved():
    assert waits({}, [(20, 90)]) == {"starved": 70}


def test_the_share_of_requests_that_found_their_batch():
    main, worker = MadeUp(), MadeUp(role="worker", loader=0, worker=0)
    for batch, (made, asked) in enumerate([(5, 10), (15, 20), (40, 30), (60, 50)]):
        main.next(asked, asked + 5, batch).backward(asked + 5, asked + 6).update(asked + 6, asked + 7)
        worker.fetched(made - 1, made, batch)

    assert ready_share(partition(main.process()).asked, ready_times([worker.process()])) == 0.5
