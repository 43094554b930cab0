"""What taps hold, ask and replace, and what they must not."""

import gc
import multiprocessing
import pickle
import sys
import weakref
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import worker as of_torch

import feedline
from feedline.analysis.convergence.read_training import read
from feedline.profiler.events import Stage
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.batch_contents import describe
from feedline.profiler.taps.convergence import norms
from feedline.profiler.taps.patch import Patches
from feedline.profiler.taps.worker import WorkerEntry


def own_loop(*args):
    """A program's loop, put in the place of torch's."""
    of_torch._worker_loop(*args)


def test_a_worker_loop_of_the_program_comes_to_spawned_workers_and_torchs_is_looked_up():
    def sent(loop):
        entry = WorkerEntry("m", "_worker_loop", "", 0, 0, 1, None, 0, b"", loop)
        return pickle.loads(pickle.dumps(entry.__getstate__()))["_original"]

    assert sent(own_loop) is own_loop
    assert sent(of_torch._worker_loop) is None


class Logging(Dataset):
    """Puts numbered items of its own into a queue of its own."""

    def __init__(self, log):
        self.log = log

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.log.put((2**80 + index, bytes(5_000)))  # all of them fit into a pipe
        return torch.zeros(4)


def test_a_dataset_may_have_a_queue_of_its_own(tmp_path):
    log = multiprocessing.Queue()
    with feedline.record(tmp_path / "run"):
        loader = DataLoader(Logging(log), batch_size=4, num_workers=1)
        assert len(list(loader)) == 2
        assert sorted(log.get(timeout=60)[0] - 2**80 for _ in range(8)) == list(range(8))

    _, worker = open_run(tmp_path / "run").ranks[0].processes
    pickled = worker.view(Stage.PICKLE)
    assert (pickled["number"] & 0xFFFFFFFF).tolist() == [0, 1]
    assert pickled["nbytes"].max() < 5_000


class Lazy:
    """A sample whose data is read when it is asked for."""

    asked = 0

    @property
    def data(self):
        Lazy.asked += 1
        return {"image": torch.rand(4)}


def test_what_a_sample_reads_when_it_is_asked_is_not_asked_for():
    describe([Lazy(), SimpleNamespace(inner=Lazy())])

    assert Lazy.asked == 0


def test_gradients_that_fsdp_frees_are_not_held(monkeypatch):
    class Gradient(torch.Tensor):
        pass

    freed = []

    def foreach_reduce(params, unsharded):
        kept = weakref.ref(unsharded[0])
        unsharded.clear()
        freed.append(kept() is None)

    group = ModuleType(norms._FSDP2)
    group.foreach_reduce = foreach_reduce
    monkeypatch.setitem(sys.modules, norms._FSDP2, group)
    monkeypatch.setattr(norms.recorder, "convergence", SimpleNamespace())
    tap, patches = norms.GradientNormTap(None, None), Patches()
    tap._watch_fsdp(patches)
    try:
        group.foreach_reduce([], [torch.zeros(4).as_subclass(Gradient)])
    finally:
        patches.undo()

    assert freed == [True]


@pytest.fixture
def alone():
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "call",
    [
        lambda rows: functional.reduce_scatter_tensor(rows, "sum", 0, dist.group.WORLD),
        lambda rows: functional.all_gather_tensor(rows, 0, dist.group.WORLD),
    ],
    ids=["reduce_scatter", "all_gather"],
)
def test_tensors_of_functional_collectives_are_let_go(tmp_path, alone, call):
    with feedline.record(tmp_path / "run"):
        out = functional.wait_tensor(call(torch.ones(1 << 16)))
        storage = weakref.ref(out.untyped_storage())
        del out
        gc.collect()

        assert storage() is None


def test_an_embedding_without_a_gradient_can_be_swapped(tmp_path):
    net, table = torch.nn.Linear(4, 1), torch.nn.Embedding(10, 4)
    both = torch.nn.ModuleDict({"net": net, "table": table})
    both.forward = lambda rows: net(rows)
    with feedline.record(tmp_path / "run"):
        optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
        for _ in range(3):
            both(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        torch.utils.swap_tensors(table.weight, torch.nn.Parameter(torch.zeros(10, 4)))


def test_what_autograd_grad_is_called_on_is_no_part_of_the_loss(tmp_path):
    net = torch.nn.Linear(4, 1)
    with feedline.record(tmp_path / "run"):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for _ in range(4):
            rows = torch.ones(2, 4, requires_grad=True)
            (slope,) = torch.autograd.grad(1000 * net(rows).sum(), rows, create_graph=True)
            loss = slope.square().mean() / 1e6
            loss.backward()
            optimizer.step()

    curve = read(tmp_path / "run").curves["train loss"]
    assert curve.values.tolist() == pytest.approx([float(loss.detach())] * 4)


def test_a_loss_that_only_autograd_grad_is_called_on_is_the_loss(tmp_path):
    net = torch.nn.Linear(4, 1)
    with feedline.record(tmp_path / "run"):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for _ in range(4):
            loss = net(torch.ones(2, 4)).square().mean()
            parameters = list(net.parameters())
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                parameter.grad = gradient
            optimizer.step()

    curve = read(tmp_path / "run").curves["train loss"]
    assert curve.values.tolist() == pytest.approx([float(loss.detach())] * 4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_as_input_does_not_end_the_curves(tmp_path):
    class Padded(torch.nn.Linear):
        def forward(self, rows):
            return super().forward(torch.nested.to_padded_tensor(rows, 0.0))

    net = Padded(4, 1)
    with feedline.record(tmp_path / "run"):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
            net(rows).mean().backward()
            optimizer.step()

    recorded = read(tmp_path / "run")
    assert len(recorded.curves["train loss"].values) == 4 and recorded.samples == 8


class Wrapping(torch.optim.Optimizer):
    """An optimizer that steps another one, made of its groups, as SAM does."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1)

    def step(self, closure=None):
        self.inner.step()


def test_updates_of_a_wrapped_optimizer_count_once_in_steps_that_are_only_counted_too(tmp_path):
    net = torch.nn.Linear(4, 1)
    with feedline.record(tmp_path / "run"):
        optimizer = Wrapping(net.parameters())
        for _ in range(6000):
            net(torch.ones(2, 4)).mean().backward()
            optimizer.step()

    (main, *_) = open_run(tmp_path / "run").ranks[0].processes
    assert len(main.view(Stage.OPTIMIZER)) < 2 * 6000  # most steps were only counted
    assert read(tmp_path / "run").updates == pytest.approx(6000, rel=0.01)
