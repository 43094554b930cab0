"""What the main thread waits for a CPU and moves in evaluation is no part of its steps."""

from measure.made_up_records import MadeUp

from feedline.analysis.measure import rank_metrics
from feedline.analysis.measure.steps import steps_of
from feedline.profiler.events import Flag, Stage


def with_evaluations():
    """Two steps of 100 ns, each followed by one forward pass without gradients.

    Every batch is received, and the GPU works on each forward 5 ns more than the last one.
    """
    main = MadeUp()
    for at, batch in ((0, 0), (200, 1)):
        main.next(at, at + 10, batch).span(
            Stage.FORWARD, at + 10, at + 30, flags=Flag.GRAD, cpu=16, runqueue=4
        ).backward(at + 35, at + 65).update(at + 65, at + 75)
        main.next(at + 100, at + 110, batch, loader=1).span(
            Stage.FORWARD, at + 110, at + 190, cpu=30, runqueue=50
        ).end(at + 190, at + 191, loader=1)
    main.next(400, 410, 2).forward(410, 430).backward(435, 465).update(465, 475)
    for number, at in enumerate((10, 110, 210, 310, 410)):
        main.span(Stage.TRANSPORT, at - 9, at - 5, nbytes=10 * number)
        main.span(Stage.GPU, at, at + 5 * number, number=at, extra=Stage.FORWARD)
    process = main.process()
    return process, steps_of(process)


def test_only_what_steps_wait_counts():
    process, steps = with_evaluations()
    assert len(steps.boundaries.evaluation) == 2

    assert rank_metrics.runqueue_s(process, steps, 0, Stage.FORWARD) == (4 + 4 + 0) / 3 / 1e9
    assert rank_metrics.queued_ns(process, steps, Stage.FORWARD).tolist() == [4, 4, 0]
    assert rank_metrics._queued_share(process, steps, 0, Stage.FORWARD) == 8 / (8 + 32)


def test_only_batches_that_steps_receive_count():
    received = rank_metrics.moved_per_step(*with_evaluations(), 0)["transport"]

    assert (received.times, received.nbytes) == (1, (0 + 20 + 40) / 3)


def test_only_what_the_gpu_computes_for_steps_counts():
    assert rank_metrics._gpu_stages(*with_evaluations(), 0) == {"forward": (0 + 10 + 20) / 3 / 1e9}
