"""Queueing, anchoring and limits of the GPU timer, against a made-up GPU (made_up.py): no statement
about CUDA.
"""

import threading

import pytest
import torch
from gpu.made_up import MS, MadeUpGpu, on_its_clock

from feedline.profiler.events import Stage
from feedline.profiler.record.recorder import Span, recorder
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.taps import gpu_timer
from feedline.profiler.taps.gpu_timer import (
    _LEARNING_STEPS,
    _QUEUE_LENGTH,
    _TIMED_SHARE,
    _StageTimer,
)

CPU, CUDA0, CUDA1 = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


class Bench:
    """A timer on a made-up GPU, and what it wrote."""

    def __init__(self, folder, monkeypatch):
        self.gpu, self.said = MadeUpGpu(), {}
        on_its_clock(self.gpu, monkeypatch)
        self.segment = Segment(folder / "main.seg", {"role": "main"})
        recorder.open_main(self.segment)
        self.timer = recorder.gpu = _StageTimer(
            lambda name, attached, why: self.said.update({name: (attached, why)}), self.gpu
        )

    def stage(self, stage: Stage, gpu_ms: float, host_ms: float = 1.0, **more: int) -> None:
        with Span(self.segment, stage):
            self.gpu.launch(gpu_ms, **more)
            self.gpu.host(host_ms)

    def records(self, stage: Stage = Stage.GPU):
        return read_segment(self.segment.path).of(stage)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    yield bench
    recorder.close()
    recorder.gpu = None


def test_a_stage_takes_what_the_gpu_took_and_not_what_the_host_took(bench):
    bench.stage(Stage.FORWARD, gpu_ms=30, host_ms=2)
    bench.gpu.host(100)
    bench.timer.stop()

    (record,) = bench.records()
    assert record["wall"] == 30 * MS
    assert record["extra"] == Stage.FORWARD


def test_a_stage_starts_when_the_gpu_has_done_what_came_before(bench):
    bench.stage(Stage.FORWARD, gpu_ms=30, host_ms=2)
    bench.stage(Stage.BACKWARD, gpu_ms=50, host_ms=2)
    bench.gpu.host(200)
    bench.timer.stop()

    forward, backward = bench.records()
    assert forward["start"] == 1_000 * MS
    assert backward["start"] == forward["start"] + 30 * MS


def test_a_record_leads_back_to_the_hosts_own(bench):
    bench.stage(Stage.FORWARD, gpu_ms=30)
    bench.stage(Stage.OPTIMIZER, gpu_ms=3)
    bench.gpu.host(100)
    bench.timer.stop()

    starts = [bench.records(stage)["start"][0] for stage in (Stage.FORWARD, Stage.OPTIMIZER)]
    assert bench.records()["number"].tolist() == starts


def test_nothing_is_read_before_the_gpu_has_passed_it(bench):
    bench.stage(Stage.FORWARD, gpu_ms=30, host_ms=1)
    bench.stage(Stage.BACKWARD, gpu_ms=30, host_ms=1)

    assert len(bench.records()) == 0
    bench.gpu.host(40)
    bench.stage(Stage.OPTIMIZER, gpu_ms=1)

    assert bench.records()["extra"].tolist() == [Stage.FORWARD]


def test_what_the_gpu_has_not_passed_at_the_end_is_counted_and_not_waited_for(bench):
    bench.stage(Stage.FORWARD, gpu_ms=30)
    before = bench.gpu.now_ns
    bench.timer.stop()

    assert bench.gpu.now_ns == before
    assert len(bench.records()) == 0
    assert bench.said[gpu_timer.NAME] == (True, f"{gpu_timer.GIVES}; 1 not read")


def test_each_step_is_anchored_anew(bench):
    anchors = []
    for _ in range(3):
        bench.stage(Stage.FORWARD, gpu_ms=5)
        bench.stage(Stage.OPTIMIZER, gpu_ms=1)
        bench.gpu.host(50)
        anchors.append(bench.timer._lanes[0].anchor.host_ns)

    assert len(set(anchors)) == 3


def test_events_are_used_again(bench):
    for _ in range(100):
        bench.stage(Stage.FORWARD, gpu_ms=5)
        bench.gpu.host(50)

    assert next(bench.gpu.made) <= 5  # two pairs and an anchor


def test_the_queue_is_bounded_when_the_gpu_hangs(bench):
    bench.gpu.launch(1e9)
    for _ in range(_QUEUE_LENGTH + 10):
        bench.stage(Stage.FORWARD, gpu_ms=5)

    assert len(bench.timer._lanes[0].pending) == _QUEUE_LENGTH
    assert bench.timer.lost == 10


def test_nothing_is_recorded_or_queried_inside_a_capture(bench):
    bench.stage(Stage.FORWARD, gpu_ms=5)
    bench.gpu.host(50)
    bench.gpu.capturing = True
    bench.stage(Stage.FORWARD, gpu_ms=5)  # the made-up event fails the test if it is touched
    bench.gpu.capturing = False
    bench.timer.stop()

    assert len(bench.records()) == 1
    assert bench.said[gpu_timer.NAME][0]


def test_a_capture_that_begins_inside_a_stage_loses_that_stage_only(bench):
    with Span(bench.segment, Stage.FORWARD):
        bench.gpu.capturing = True
    bench.gpu.capturing = False
    bench.stage(Stage.FORWARD, gpu_ms=5)
    bench.gpu.host(50)
    bench.timer.stop()

    assert len(bench.records()) == 1
    assert bench.timer.lost == 1


def test_a_program_that_never_uses_cuda_has_no_event_made_for_it(bench):
    bench.gpu.initialised = False
    bench.stage(Stage.FORWARD, gpu_ms=5)
    bench.timer.stop()

    assert next(bench.gpu.made) == 0
    assert bench.said[gpu_timer.NAME] == (False, "the program never used CUDA")


def test_an_error_of_cuda_ends_the_timing_and_not_the_training(bench):
    bench.stage(Stage.FORWARD, gpu_ms=5)
    bench.gpu.broken = True
    bench.stage(Stage.FORWARD, gpu_ms=5)

    assert recorder.gpu is None
    assert bench.said[gpu_timer.NAME] == (False, "RuntimeError (raised in the program's own code)")
    assert len(bench.records(Stage.FORWARD)) == 2


def test_stages_are_timed_on_the_gpu_that_the_last_copy_went_to(bench):
    bench.timer.end_copy(bench.timer.begin(Stage.COPY), 0, CPU, CUDA1)
    bench.stage(Stage.FORWARD, gpu_ms=7, device=1)
    bench.gpu.host(50)
    bench.timer.stop()

    assert bench.records()["extra"].tolist() == [
        Stage.FORWARD
    ]  # the first copy was marked on the wrong GPU, and left out
    assert bench.records()["wall"].tolist() == [7 * MS]


def test_a_conversion_on_one_device_is_no_copy(bench):
    bench.timer.end_copy(bench.timer.begin(Stage.COPY), 0, CUDA0, CUDA0)
    bench.gpu.host(50)
    bench.timer.stop()

    assert len(bench.records()) == 0


def test_a_copy_to_the_gpu_is_timed(bench):
    pair = bench.timer.begin(Stage.COPY)
    bench.gpu.launch(4)
    bench.timer.end_copy(pair, 123, CPU, CUDA0)
    bench.gpu.host(50)
    bench.timer.stop()

    (record,) = bench.records()
    assert (record["extra"], record["wall"], record["number"]) == (Stage.COPY, 4 * MS, 123)


def test_a_forward_that_turns_out_to_be_the_loss_is_timed_as_the_loss(bench):
    with Span(bench.segment, Stage.FORWARD) as span:
        span.stage = Stage.LOSS
        bench.gpu.launch(2)
    bench.gpu.host(50)
    bench.timer.stop()

    assert bench.records()["extra"].tolist() == [Stage.LOSS]


def test_another_thread_is_not_timed(bench):
    bench.stage(Stage.FORWARD, gpu_ms=5)
    other = threading.Thread(target=bench.stage, args=(Stage.FORWARD, 5.0))
    other.start()
    other.join()
    bench.gpu.host(50)
    bench.timer.stop()

    assert len(bench.records()) == 1


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch is built with CUDA")
def test_a_torch_without_cuda_says_so_and_costs_nothing():
    said = {}
    undo = gpu_timer.attach(lambda name, attached, why: said.update({name: (attached, why)}))
    undo()

    assert recorder.gpu is None
    assert said == {gpu_timer.NAME: (False, "this torch is built without CUDA")}


def steps(bench, count, host_ms):
    for _ in range(count):
        bench.stage(Stage.FORWARD, gpu_ms=1, host_ms=host_ms)
        bench.stage(Stage.OPTIMIZER, gpu_ms=1, host_ms=host_ms)
    bench.gpu.host(1_000)
    bench.timer.stop()


def marked(bench):
    """Numbers of the steps whose stages were marked; a step is marked as a whole."""
    forward, optimizer = (
        bench.records(stage)["start"].tolist() for stage in (Stage.FORWARD, Stage.OPTIMIZER)
    )
    marks = set(bench.records()["number"].tolist())
    assert [start in marks for start in forward] == [start in marks for start in optimizer]
    return [number for number, start in enumerate(forward) if start in marks]


def test_marks_that_cost_short_steps_much_are_left_out_of_most(bench):
    bench.gpu.mark_ms = 0.1  # five a step

    steps(bench, 2_000, host_ms=2)

    found = marked(bench)
    assert found[:_LEARNING_STEPS] == list(range(_LEARNING_STEPS))
    assert _TIMED_SHARE / 2 < len(found[_LEARNING_STEPS:]) * 0.5 / (2_000 * 4) < 2 * _TIMED_SHARE


def test_steps_that_are_left_out_follow_no_period(bench):
    bench.gpu.mark_ms = 0.1

    steps(bench, 2_000, host_ms=5)

    every_tenth = [sum(number % 10 == rest for number in marked(bench)) for rest in range(10)]
    assert min(every_tenth) > max(every_tenth) / 4


def test_marks_that_cost_long_steps_little_are_left_out_of_none(bench):
    bench.gpu.mark_ms = 0.1

    steps(bench, 100, host_ms=200)

    assert marked(bench) == list(range(100))


def test_a_mark_that_had_to_wait_for_the_gpu_is_not_taken_for_its_cost(bench):
    bench.gpu.mark_ms = 0.01
    steps_before = _LEARNING_STEPS // 2
    for number in range(60):
        bench.gpu.mark_ms = 0.01 if number < steps_before else 20
        bench.stage(Stage.FORWARD, gpu_ms=100, host_ms=10)
        bench.stage(Stage.OPTIMIZER, gpu_ms=1, host_ms=10)
    bench.gpu.host(10_000)
    bench.timer.stop()

    assert marked(bench) == list(range(60))
