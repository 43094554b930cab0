"""The operations of one step: as many as torch's own counter finds, counted once, and none of the
training's numbers changed.
"""

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from flops.conftest import Recording, train
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from feedline.profiler.events import Arithmetic
from feedline.profiler.record.recorder import recorder
from feedline.profiler.taps import flops


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    from torchvision.models import resnet18

    return resnet18(num_classes=10), torch.randn(2, 3, 32, 32)


def small_resnet() -> tuple[nn.Module, torch.Tensor]:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), torch.randn(2, 3, 16, 16)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    return nn.Sequential(
        nn.Linear(16, 32),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Linear(32, 8),
    ), torch.randn(3, 7, 16)


def recurrent() -> tuple[nn.Module, torch.Tensor]:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.out = nn.GRU(8, 16, 2, batch_first=True, dropout=0.2), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.cells(x)[0][:, -1])

    return Last(), torch.randn(4, 6, 8)


def recomputed() -> tuple[nn.Module, torch.Tensor]:
    class Recomputed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.norm = (
                nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.3), nn.GELU()),
                nn.GroupNorm(2, 8),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(checkpoint(self.body, x, use_reentrant=False))

    return Recomputed(), torch.randn(2, 3, 9, 9)


def gathered() -> tuple[nn.Module, torch.Tensor]:
    class Gathered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mix, self.out = (
                nn.Embedding(20, 8, padding_idx=0),
                nn.Bilinear(8, 8, 4),
                nn.Linear(4, 4),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = self.table(x)
            return (
                self.out(self.mix(rows, rows))
                .gather(1, x[:, :, None].clamp(max=2))
                .cumprod(1)
                .std(0)
            )

    return Gathered(), torch.arange(12).reshape(4, 3)


MODELS = [small_resnet, transformer, recurrent, recomputed, gathered]


@pytest.mark.parametrize("make", [resnet18, transformer, recomputed])
def test_a_step_has_as_many_operations_as_torch_counts(
    recording: Recording, make: Callable[[], tuple[nn.Module, torch.Tensor]]
) -> None:
    model, inputs = make()
    train(model, inputs)
    with FlopCounterMode(display=False) as forward:
        output = model(inputs)
    with FlopCounterMode(display=False) as backward:
        output.square().mean().backward()

    assert recording.counted() == [(forward.get_total_flops(), backward.get_total_flops())]
    assert recording.said == [("FLOP", True, flops.GIVES)]


def test_attention_on_a_cpu_is_counted_though_torch_leaves_it_out(recording: Recording) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x * self.scale, x, x)

    train(Attention(), torch.randn(2, 3, 5, 8))

    product = 2 * (2 * 3) * 5 * 5 * 8  # heads of (5, 8) by (8, 5)
    assert recording.counted() == [(2 * product, 5 * product)]


def trained(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], cast: bool = False
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model, inputs = make()
    with torch.autocast("cpu", torch.bfloat16, enabled=cast):
        train(model, inputs, steps=4)
    return [*model.state_dict().values(), torch.get_rng_state()]


@pytest.mark.parametrize("cast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("make", MODELS)
def test_parameters_and_random_state_are_bit_identical(
    make: Callable, cast: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN's bfloat16 convolutions round according to where memory lies: plain trainings differ
    as well, in up to half of the runs.
    """
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", not cast)
    without = trained(make, cast)
    recording: Recording = request.getfixturevalue("recording")
    watched = trained(make, cast)

    assert len(recording.counted()) == 1
    assert all(a.dtype == b.dtype and a.equal(b) for a, b in zip(without, watched, strict=True))


def test_accumulated_gradients_are_counted_whole(recording: Recording) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        for _ in range(3):
            model(torch.ones(5, 4)).sum().backward()
        optimizer.step()

    assert recording.counted() == [(3 * 2 * 5 * 4 * 2, 3 * 2 * 5 * 4 * 2)]


def test_networks_that_are_trained_in_turns_are_counted_together(recording: Recording) -> None:
    first, second = nn.Linear(4, 2), nn.Linear(4, 8)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (first, second)]
    for _ in range(4):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()

    assert recording.counted() == [(2 * 5 * 4 * 10, 2 * 5 * 4 * 10)]


def test_evaluation_is_not_counted(recording: Recording) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        model.eval()(torch.ones(100, 4))
        with torch.no_grad():
            model.train()(torch.ones(100, 4))
        model(torch.ones(5, 4)).sum().backward()
        optimizer.step()

    assert recording.counted() == [(2 * 5 * 4 * 2, 2 * 5 * 4 * 2)]


def test_it_is_counted_once_and_then_no_operator_comes_by(recording: Recording) -> None:
    train(nn.Linear(4, 2), torch.ones(5, 4), steps=9)

    assert len(recording.counted()) == 1
    assert recorder.flops is None
    assert flops._flop_kernels.noted is None
    assert "GenericMode" not in str(torch._C._dispatch_tls_local_include_set())


def test_a_model_that_is_compiled_is_left_alone_and_said_to_be(recording: Recording) -> None:
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
    train(model, torch.ones(5, 4))

    assert recording.counted() == []
    assert recording.said[0][1] is False
    assert "torch.compile" in recording.said[0][2]


def test_a_part_that_is_compiled_is_seen_before_it_has_run(recording: Recording) -> None:
    part = nn.Linear(4, 4)
    part.compile(backend="eager")

    assert "Linear is compiled by torch.compile" in (
        flops._why_not_counted(nn.Sequential(part)) or ""
    )


def test_a_formula_that_raises_costs_the_count_and_not_the_training(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(flop_registry, torch.ops.aten.addmm, broken)
    model = nn.Linear(4, 2)
    train(model, torch.ones(5, 4))

    assert recording.counted() == []
    assert recording.said == [
        ("FLOP", False, "ZeroDivisionError (raised in the program's own code)")
    ]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_the_model_raises_comes_out_as_it_is(recording: Recording) -> None:
    model = nn.Linear(4, 2)
    train(model, torch.ones(5, 4), steps=2)

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        model(torch.ones(5, 3))
    assert "GenericMode" not in str(torch._C._dispatch_tls_local_include_set())
    train(model, torch.ones(5, 4), steps=2)


def test_a_counter_of_the_program_sees_what_it_saw_before(recording: Recording) -> None:
    model = nn.Linear(4, 2)
    with FlopCounterMode(display=False) as own:
        train(model, torch.ones(5, 4))

    assert own.get_total_flops() == 4 * 2 * (2 * 5 * 4 * 2)
    assert recording.counted() == [(80, 80)]


def test_a_scripted_module_is_counted(recording: Recording) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
    train(model, torch.ones(5, 4))

    assert recording.counted() == [(80, 80)]


def test_other_threads_do_not_pass_the_counter(recording: Recording) -> None:
    def elsewhere(output: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: torch.ones(50, 50) @ torch.ones(50, 50))
        thread.start()
        thread.join()
        return output.sum()

    class Threaded(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output = super().forward(x)
            elsewhere(output)
            return output

    train(Threaded(4, 2), torch.ones(5, 4))

    assert recording.counted() == [(80, 80)]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_of_jagged_layout_go_through(recording: Recording) -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    model = nn.Linear(4, 2)
    train(model, jagged, loss=lambda output: output.values().sum())

    assert recorder.flops is None
    assert model.weight.grad is not None


def test_a_training_that_is_too_short_says_so(recording: Recording) -> None:
    train(nn.Linear(4, 2), torch.ones(5, 4), steps=2)
    recorder.flops.stop()

    assert recording.said == [
        ("FLOP", False, "the training ended after 2 updates, before one step could be counted")
    ]


def test_distributed_data_parallel_keeps_its_numbers(recording: Recording, tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
        train(model, torch.ones(5, 4))
    finally:
        del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
        dist.destroy_process_group()

    assert recording.counted() == [(80, 80)]


class Cast(nn.Module):
    """A linear layer whose forward runs under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(inputs).float()


@pytest.mark.parametrize(
    ("model", "arithmetic"),
    [
        (nn.Linear(8, 8), Arithmetic.FLOAT32),
        (Cast(), Arithmetic.BFLOAT16),
        (nn.Linear(8, 8).bfloat16(), Arithmetic.BFLOAT16),
    ],
)
def test_what_the_operations_are_computed_in_is_told(
    recording: Recording, model: nn.Module, arithmetic: Arithmetic
) -> None:
    train(model, torch.randn(4, 8).to(next(model.parameters()).dtype))

    assert recording.computed_in() == [arithmetic]


def test_of_several_it_is_the_fastest_that_does_much() -> None:
    counted = Counter({Arithmetic.FLOAT32: 85, Arithmetic.TF32: 10, Arithmetic.BFLOAT16: 5})

    assert flops._fastest(counted) is Arithmetic.TF32
    assert flops._fastest(Counter()) is Arithmetic.UNKNOWN


@pytest.mark.parametrize(("precision", "allowed"), [("highest", False), ("high", True)])
def test_tf32_is_allowed_where_the_program_allows_it(precision: str, allowed: bool) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert flops.allows_tf32(convolves=False) is allowed
        assert flops.allows_tf32(convolves=True)  # torch's default
    finally:
        torch.set_float32_matmul_precision(before)
