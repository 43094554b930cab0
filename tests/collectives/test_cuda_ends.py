"""Ends of collectives by CUDA events, on a made-up GPU; on a real one where there is one."""

import time

import pytest
import torch
import torch.distributed as dist
from gpu.made_up import MS, MadeUpGpu, on_its_clock

from feedline.profiler import clock
from feedline.profiler.events import UNMEASURED, Stage
from feedline.profiler.session.session import Session
from feedline.profiler.store.segment import Segment
from feedline.profiler.store.segment_reader import read_segment
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.collectives.ends import CudaEnds, StartedCollective
from feedline.profiler.taps.collectives.tap import CollectiveTap, _collective_operations

DEVICE = torch.device("cuda", 0)


class Done:
    """A work whose future calls back at once, as NCCL's does."""

    def get_future(self):
        return self

    def add_done_callback(self, callback):
        callback(self)


@pytest.fixture
def gpu(monkeypatch):
    gpu = MadeUpGpu()
    on_its_clock(gpu, monkeypatch)
    return gpu


@pytest.fixture
def segment(tmp_path):
    segment = Segment(tmp_path / "main.seg", {"role": "main"})
    yield segment
    segment.close()


class Later:
    """A work of NCCL's that is launched together with others."""

    def get_future(self):
        return None


class Futureless:
    """gloo's send."""

    def get_future(self):
        raise RuntimeError("not implemented")


def collective(ends, gpu, segment, ms, work=Done):
    timed = ends.begin(DEVICE)
    start = clock.wall_ns()
    row = StartedCollective(
        segment, segment.add(Stage.COLLECTIVE, start, UNMEASURED), start, None, None
    )
    gpu.launch(ms)
    if timed is not None:
        ends.watch(row, work(), timed)


def seen(segment):
    return [
        (int(one["wall"]), int(one["extra"]))
        for one in read_segment(segment.path).of(Stage.COLLECTIVE)
    ]


def test_it_begins_when_the_gpu_comes_to_it_and_ends_when_the_gpu_is_done(gpu, segment):
    ends = CudaEnds(gpu)
    gpu.launch(7)  # what came before
    collective(ends, gpu, segment, 3)
    gpu.host(20)
    ends.stop()

    assert seen(segment) == [(10 * MS, 7 * MS)]


def test_nothing_waits_for_the_gpu(gpu, segment):
    ends = CudaEnds(gpu)
    collective(ends, gpu, segment, 3)
    collective(ends, gpu, segment, 3)
    assert seen(segment) == [(-1, 0), (-1, 0)]
    gpu.host(4)
    collective(ends, gpu, segment, 3)

    assert seen(segment) == [(3 * MS, 0), (-1, 0), (-1, 0)]


def test_what_a_graph_captures_is_not_timed(gpu, segment):
    ends = CudaEnds(gpu)
    collective(ends, gpu, segment, 3)
    gpu.capturing = True
    collective(ends, gpu, segment, 3)
    gpu.capturing = False
    gpu.host(10)
    ends.stop()

    assert seen(segment) == [(3 * MS, 0), (-1, 0)]


def test_a_collective_that_nobody_asked_a_work_of_ends_in_the_current_stream(gpu, segment):
    ends = CudaEnds(gpu)
    gpu.launch(7)
    collective(ends, gpu, segment, 3, work=lambda: None)
    gpu.host(20)

    assert ends.stop() == 0
    assert seen(segment) == [(10 * MS, 7 * MS)]


@pytest.mark.parametrize(("name", "unknown"), [("all_reduce", 0), ("send", 1)])
def test_works_come_boxed_from_the_dispatcher(gpu, segment, monkeypatch, name, unknown):
    """A real one of gloo's, and a null one as NCCL gives it: of a collective in the current stream,
    of a send that is launched later.
    """
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        told = []
        tap = CollectiveTap(lambda *said: told.append(said))
        tap._cuda = CudaEnds(gpu)
        pg, operation = (
            dist.group.WORLD,
            next(one for one in _collective_operations() if one.name == name),
        )
        work = dist.all_reduce(torch.ones(4), async_op=True)
        for null in (False, True):
            monkeypatch.setattr(tap, "_unbox_work", (lambda _: None) if null else dist.Work.unbox)
            timed = tap._cuda.begin(DEVICE)
            row = StartedCollective(
                segment, segment.add(Stage.COLLECTIVE, 0, UNMEASURED), 0, None, None
            )
            gpu.launch(3)
            tap.complete((row, pg, 16, timed, False), operation, ([], work.boxed()))
            work.wait()
        gpu.host(20)
        until = time.monotonic() + 5.0
        while len(tap._cuda._pending) < 2 - unknown and time.monotonic() < until:
            time.sleep(0.001)  # gloo's callback comes from a thread of its own
        assert (tap.stop(), told) == (unknown, [])
        assert sum(wall == -1 for wall, _ in seen(segment)) == unknown
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("work", [Later, Futureless])
def test_a_work_without_a_future_has_no_end_and_the_others_have(gpu, segment, work):
    ends = CudaEnds(gpu)
    collective(ends, gpu, segment, 3, work)
    collective(ends, gpu, segment, 3)
    gpu.host(20)

    assert ends.stop() == 1
    assert [wall for wall, _ in seen(segment)] == [-1, 6 * MS]


def test_what_the_gpu_has_not_passed_in_the_end_has_no_end(gpu, segment):
    ends = CudaEnds(gpu)
    collective(ends, gpu, segment, 3)

    assert ends.stop() == 1
    assert seen(segment) == [(-1, 0)]


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or not dist.is_nccl_available(),
    reason="no CUDA device, or no NCCL",
)
def test_nccl_with_one_rank_is_timed(tmp_path):
    session = Session(tmp_path / "run", ["nccl"])
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    begun = clock.wall_ns()
    for _ in range(5):
        dist.all_gather([torch.empty(1 << 24, device="cuda")], torch.ones(1 << 24, device="cuda"))
    torch.cuda.synchronize()
    took = clock.wall_ns() - begun
    dist.all_reduce(torch.ones(1, device="cuda"))  # ends are read when something begins
    dist.destroy_process_group()
    session.stop()

    rank = open_run(tmp_path / "run").ranks[0]
    assert not any("missing" in str(hook["why"]) for hook in rank.manifest.hooks)
    found = rank.main.of(Stage.COLLECTIVE)[:5]
    assert (found["nbytes"] == 4 << 24).all()
    assert (found["wall"] > found["extra"]).all()
    assert (found["wall"] - found["extra"]).sum() <= took
