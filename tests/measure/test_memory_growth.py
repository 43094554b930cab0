"""Memory that grows with the steps, from exact readings; and the line that keeps graphs."""

import numpy as np
import pytest
from measure.made_up_records import MadeUp

from feedline.analysis.measure.counted_steps import Counted
from feedline.analysis.measure.growing_lines import keeping_line
from feedline.analysis.measure.memory import growths
from feedline.analysis.measure.model import Gauge, Holder
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Flag, Stage

S = 1_000_000_000
STEPS = 300  # of 0.1 s
MB = 1e6


def gauge(name, values):
    at = np.arange(len(values), dtype=float)
    return Gauge(name, "B", 0.0, 0.0, 0.0, at.tolist(), list(map(float, values)))


def grown(*gauges, looks=(), stride=1):
    run = MadeUp()
    for step in range(STEPS):
        begin, window = step * S // 10, step // 5
        for stage, since, until in (
            (Stage.FORWARD, 0, S // 40),
            (Stage.BACKWARD, S // 40, S // 20),
            (Stage.OPTIMIZER, S // 20, S // 10),
        ):
            flags, number = int(stage is Stage.FORWARD) * Flag.GRAD, int(stage is Stage.OPTIMIZER)
            run.span(stage, begin + since, begin + until, flags=flags, number=number, window=window)
    for number, (graphs, alive) in enumerate(looks):
        run.span(Stage.KEPT, number, number, nbytes=graphs, extra=alive)
    main = run.process(stride)
    available = gauge("memory/available", np.full(31, 20_000 * MB))
    return growths(main, steps_of(main), Counted.of(main), [*gauges, available], 0, SourceLines())


def main_by(per_second, noise=0.0, until=31):
    dice = np.random.default_rng(1)
    made = 500 * MB + per_second * np.minimum(np.arange(31), until)
    return gauge("memory/main", made + dice.normal(0, noise, 31))


def test_growth_per_step_and_the_steps_until_the_limit():
    (found,) = grown(main_by(40 * MB))

    assert found.who == "main" and found.holder is None and found.limit == "machine"
    assert found.per_step_bytes == pytest.approx(4 * MB, rel=0.01)
    assert found.low_bytes <= found.per_step_bytes <= found.high_bytes
    assert found.steps_left == pytest.approx(5000, rel=0.01)
    assert found.seconds_left == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_growth_per_step_counts_the_steps_of_forgotten_windows(stride):
    """The last windows are forgotten: the steps up to then are taken for a few too many."""
    (found,) = grown(main_by(40 * MB), stride=stride)

    assert found.per_step_bytes == pytest.approx(4 * MB, rel=0.1)
    assert found.steps_left == pytest.approx(5000, rel=0.1)
    assert found.seconds_left == pytest.approx(500, rel=0.05)


def filling(until, per_second):
    """Of the main process: it fills a cache by 40 MB/s until then, and grows by so much after."""
    at = np.arange(31)
    made = 40 * MB * np.minimum(at, until) + per_second * np.maximum(at - until, 0)
    return gauge("memory/main", 500 * MB + made)


def test_a_cache_that_filled_up_does_not_grow_although_it_creeps_afterwards():
    assert not grown(filling(15, 1 * MB))


def test_what_grows_once_a_cache_has_filled_up_is_told_by_its_own_rate():
    (found,) = grown(filling(15, 4 * MB))

    assert found.per_step_bytes == pytest.approx(0.4 * MB, rel=0.05)


def test_noise_widens_the_interval_which_holds_the_truth():
    (found,) = grown(main_by(40 * MB, noise=20 * MB))

    assert found.low_bytes < 4 * MB < found.high_bytes < 2 * found.low_bytes


@pytest.mark.parametrize(
    "series",
    [main_by(0.5 * MB), main_by(100 * MB, until=12), main_by(0, noise=30 * MB)],
    ids=["little", "warming up", "noise"],
)
def test_what_is_little_or_comes_to_an_end_is_no_growth(series):
    assert grown(series) == []


def test_one_jump_is_no_growth():
    assert grown(gauge("memory/main", [500 * MB] * 20 + [900 * MB] * 11)) == []


def test_too_few_readings_say_nothing():
    assert grown(gauge("memory/main", 500 * MB + 40 * MB * np.arange(9))) == []


def test_graphs_that_were_seen_to_stay_need_fewer_readings():
    def every(seconds):
        at = np.arange(0.0, 31.0, seconds)
        values = 500 * MB + 40 * MB * at
        return Gauge("memory/main", "B", 0.0, 0.0, 0.0, at.tolist(), values.tolist())

    (found,) = grown(every(5), looks=[(20, 20)])

    assert found.per_step_bytes == pytest.approx(4 * MB, rel=0.01)
    assert grown(every(5), looks=[(20, 0)]) == grown(every(10), looks=[(20, 20)]) == []


def test_graphs_that_are_all_alive_hold_it():
    (found,) = grown(main_by(40 * MB), looks=[(2, 2), (20, 20)])

    assert found.holder is Holder.GRAPHS and (found.graphs, found.graphs_alive) == (20, 20)


def test_graphs_that_are_gone_do_not_hold_it():
    (found,) = grown(main_by(40 * MB), looks=[(20, 0)])

    assert found.holder is None and found.graphs == 20


def shared_by(per_second, workers=2.0):
    used = per_second * np.arange(31)
    return (
        gauge("memory/children", [workers] * 31),
        gauge("shm/size", [8000 * MB] * 31),
        gauge("shm/free", 8000 * MB - used),
    )


def test_batches_that_stay_in_shared_memory_count_until_that_is_full():
    (found,) = grown(main_by(10 * MB), *shared_by(60 * MB))

    assert found.who == "main" and found.holder is Holder.PIECES
    assert found.per_step_bytes == pytest.approx(7 * MB, rel=0.01)
    assert found.left_bytes == pytest.approx(6200 * MB)


@pytest.mark.parametrize(
    "shared", [shared_by(0.0), shared_by(60 * MB, workers=0.0)], ids=["steady", "no workers"]
)
def test_other_use_of_shared_memory_does_not_count(shared):
    (found,) = grown(main_by(10 * MB), *shared)

    assert found.per_step_bytes == pytest.approx(1 * MB, rel=0.01) and found.holder is None


def of_workers(private, anonymous, number=(2,) * 31):
    return grown(
        gauge("memory/children", number),
        gauge("memory/children_private", private),
        gauge("memory/children_anonymous", anonymous),
    )


def test_workers_that_gain_what_they_shared_copy_it():
    private = 100 * MB + 20 * MB * np.arange(31)
    (found,) = of_workers(private, [2000 * MB] * 31)

    assert found.who == "workers" and found.holder is Holder.COPIES
    assert found.still_shared_bytes == pytest.approx(1300 * MB)


def test_workers_that_gain_more_than_they_shared_keep_it():
    private = 100 * MB + 20 * MB * np.arange(31)
    (found,) = of_workers(private, private + 50 * MB)

    assert found.holder is Holder.OWN and found.still_shared_bytes is None


def test_what_workers_copy_once_is_not_counted_with_what_they_keep():
    kept = 100 * MB + 20 * MB * np.arange(31)
    copied = 150 * MB * (np.arange(31) >= 19)
    (found,) = of_workers(kept + copied, kept + 400 * MB)

    assert found.holder is Holder.OWN
    assert found.per_step_bytes == pytest.approx(2 * MB, rel=0.001)
    assert found.at_end_bytes == pytest.approx(kept[-1] + 150 * MB, rel=0.02)


def test_nothing_is_said_of_workers_that_come_and_go():
    private = 100 * MB + 20 * MB * np.arange(31)
    children = gauge("memory/children", [2, 3, 4] * 10 + [2])
    others = [gauge(f"memory/children_{name}", private) for name in ("private", "anonymous")]

    assert grown(children, *others) == []


def test_workers_of_an_evaluation_that_come_and_go_beside_them_are_left_out():
    number = np.array([2, 2, 2, 4] * 7 + [2] * 3)
    private = 100 * MB + 20 * MB * np.arange(31) + 300 * MB * (number == 4)
    (found,) = of_workers(private, private + 50 * MB, number)

    assert found.per_step_bytes == pytest.approx(2 * MB, rel=0.01)


@pytest.mark.parametrize("readings", [5, 9])
def test_what_workers_copy_gets_slower_and_the_last_rate_counts(readings):
    private = 100 * MB + 2000 * MB * (1 - np.exp(-np.arange(31) / readings))
    (found,) = of_workers(private, [3000 * MB] * 31)

    whole = (private[-1] - private[9]) / (21 * 10)
    assert found.holder is Holder.COPIES and found.per_step_bytes < 0.85 * whole
    assert found.per_step_bytes > (private[-1] - private[-2]) / 10


def test_small_objects_and_large_pieces_are_told_apart_by_the_blocks_that_come_with_them():
    def with_blocks(per_second):
        (found,) = grown(
            main_by(40 * MB), gauge("memory/main_blocks", 1e6 + per_second * np.arange(31))
        )
        return found

    small, large, between = with_blocks(500_000), with_blocks(30), with_blocks(27_000)

    assert small.holder is Holder.OBJECTS and small.new_objects == pytest.approx(50_000, rel=0.01)
    assert large.holder is Holder.PIECES and between.holder is None


def test_graphs_hold_it_unless_small_objects_explain_it():
    blocks = [gauge("memory/main_blocks", 1e6 + n * np.arange(31)) for n in (100, 500_000)]
    with_few, with_many = (grown(main_by(40 * MB), one, looks=[(20, 20)])[0] for one in blocks)

    assert with_few.holder is Holder.GRAPHS and with_many.holder is Holder.OBJECTS


def test_figures_that_stay_open_are_told_where_they_explain_what_grows():
    def with_figures(opened):
        (found,) = grown(main_by(40 * MB), gauge("memory/figures", opened))
        return found.figures

    assert with_figures(2 + 40 * np.arange(31)) == 2 + 40 * 30
    assert with_figures([4] * 31) is None  # they are used again
    assert with_figures(np.arange(31) / 10) is None  # 400 MB each: it is something else
    assert with_figures(10_000 * np.arange(31)) is None  # 4 kB each


def test_growth_in_jumps_has_their_distance():
    (found,) = grown(gauge("memory/main", 500 * MB + 100 * MB * (np.arange(31) // 3)))

    assert found.every_steps == pytest.approx(30, rel=0.05) and found.at == ""
    assert found.per_step_bytes == pytest.approx(100 * MB / 30, rel=0.05)


def test_all_that_grows_fills_the_same_memory():
    private = 100 * MB + 20 * MB * np.arange(31)
    workers = [gauge("memory/children", [2] * 31), gauge("memory/children_private", private)]
    own = gauge("memory/children_anonymous", private + 50 * MB)
    shared = gauge("memory/children_anonymous", [3000 * MB] * 31)

    found = grown(main_by(40 * MB), *workers, own)
    assert [one.steps_left for one in found] == pytest.approx([20_000 / 6] * 2, rel=0.01)

    found = grown(main_by(40 * MB), *workers, shared)  # 2,300 MB are left to be copied
    assert found[1].holder is Holder.COPIES
    assert found[0].steps_left == pytest.approx((20_000 - 2300) / 4, rel=0.01)


LOOP = """
def train(model, loader):
    total, losses, seen = 0.0, [], []
    for x, y in loader:
        out = model(x)
        loss = cross_entropy(out, y)
        metric = out.softmax(1).mean()
        loss.backward()
        seen.append(loss.item())
        {kept}
"""


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        ("total = total + metric", "train.py:10"),
        ("total += loss", "train.py:10"),
        ("losses.append(loss)", "train.py:10"),
        ("total = total + (metric.detach() if TWIN else metric)", "train.py:10"),
        ("total += loss.item()", ""),
        ("losses.append(loss.detach())", ""),
        ("total += len(x)", ""),
        ("total += float(loss)", ""),
        ("total += loss; losses.append(loss)", "train.py:10"),
    ],
)
def test_the_line_that_keeps_the_graph(tmp_path, monkeypatch, kept, line):
    (tmp_path / "train.py").write_text(LOOP.format(kept=kept))
    monkeypatch.chdir(tmp_path)

    assert keeping_line("train.py:5", SourceLines(1e12)) == line


def test_two_lines_that_may_keep_it_are_not_told(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(
        LOOP.format(kept="total += loss\n        losses.append(loss)")
    )
    monkeypatch.chdir(tmp_path)

    assert keeping_line("train.py:5", SourceLines(1e12)) == ""


@pytest.mark.parametrize("place", ["", "train.py", "***/train.py:5", "gone.py:5"])
def test_without_source_no_line_is_told(place):
    assert keeping_line(place, SourceLines(1e12)) == ""
