"""Batch norm over ghosts against a loop of torch's batch norm over the same parts."""

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from feedline.convergence.fixes import ghost_bn
from feedline.convergence.fixes.ghost_bn import (
    FIX,
    GhostBatchNorm1d,
    GhostBatchNorm2d,
    GhostBatchNorm3d,
    _ghost_sizes,
    convert_ghost_batchnorm,
)

NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
SETTINGS = {
    "plain": {},
    "other numbers": {"momentum": 0.3, "eps": 0.1},
    "cumulative": {"momentum": None},
    "momentum 1": {"momentum": 1.0},
    "no weights": {"affine": False},
    "no running statistics": {"track_running_stats": False},
    "neither": {"affine": False, "track_running_stats": False},
}
#: Largest difference allowed, relative to the largest value.
NEAR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
WAYS = ["together", "one by one", "folded"]  # folded: on a GPU and where dynamo compiles
ways = pytest.mark.parametrize("way", WAYS, indirect=True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def way(request, monkeypatch):
    take(request.param, monkeypatch)
    return request.param


def take(way, monkeypatch):
    monkeypatch.setattr(ghost_bn, "TOGETHER_BELOW", 1 << 40 if way == "together" else 0)
    if way == "folded":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def looped(norm, x, ghost):
    return torch.cat([norm(part) for part in x.split(_ghost_sizes(len(x), ghost, x[0, 0].numel()))])


def pair(shape, ghost, dtype=torch.float32, **given):
    norm = NORMS[len(shape) - 2](shape[1], **given)
    if norm.affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    if dtype == torch.float64:
        norm = norm.double()
    return norm, convert_ghost_batchnorm(copy.deepcopy(norm), ghost)


def assert_same(norm, ghosted, x, ghost, steps=2):
    """Outputs, gradients and running statistics over some steps."""
    near = NEAR[x.dtype]
    for _ in range(steps):
        mine, theirs = (
            x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2)
        )
        wanted, found = looped(norm, theirs, ghost), ghosted(mine)
        grad = torch.randn_like(wanted)
        wanted.backward(grad)
        found.backward(grad)
        assert found.dtype == wanted.dtype and found.stride() == wanted.stride()
        pairs = [(wanted, found), (theirs.grad, mine.grad)]
        pairs += [
            (p.grad, q.grad) for p, q in zip(norm.parameters(), ghosted.parameters(), strict=True)
        ]
        pairs += list(zip(norm.buffers(), ghosted.buffers(), strict=True))
        for expected, got in pairs:
            scale = max(1.0, float(expected.detach().abs().max()))
            assert float((expected.double() - got.double()).detach().abs().max()) <= near * scale
        x = x * 1.5 + 0.5


@ways
@pytest.mark.parametrize("shape", [(64, 5), (70, 5), (70, 5, 7), (67, 5, 4, 4), (33, 3, 2, 2, 2)])
@pytest.mark.parametrize("given", SETTINGS)
def test_it_is_the_loop(way, shape, given):
    norm, ghosted = pair(shape, 16, **SETTINGS[given])

    assert_same(norm, ghosted, torch.randn(shape) * 3 + 1, 16)


@ways
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_it_is_the_loop_in_every_dtype_and_layout(way, dtype, memory):
    norm, ghosted = pair((48, 6, 5, 5), 16, dtype)

    assert_same(
        norm, ghosted, torch.randn(48, 6, 5, 5, dtype=dtype).contiguous(memory_format=memory), 16
    )


@ways
def test_it_is_the_loop_for_a_channels_last_volume(way):
    norm, ghosted = pair((20, 3, 2, 3, 4), 8)

    assert_same(
        norm,
        ghosted,
        torch.randn(20, 3, 2, 3, 4).contiguous(memory_format=torch.channels_last_3d),
        8,
    )


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 40),
    ghost=st.integers(1, 20),
    channels=st.integers(1, 4),
    spatial=st.lists(st.integers(1, 3), max_size=3),
    given=st.sampled_from(sorted(SETTINGS)),
    way=st.sampled_from(WAYS),
    shift=st.sampled_from([0.0, 5.0]),
)
def test_it_is_the_loop_whatever_the_shape(batch, ghost, channels, spatial, given, way, shift):
    shape = (batch, channels, *spatial)
    norm, ghosted = pair(shape, ghost, torch.float64, **SETTINGS[given])
    x = torch.randn(shape, dtype=torch.float64) + shift
    with pytest.MonkeyPatch.context() as monkeypatch:
        take(way, monkeypatch)
        if min(ghost, batch) * x[0, 0].numel() == 1:
            with pytest.raises(
                ValueError, match="Expected more than 1 value per channel when training"
            ):
                ghosted(x)
        else:
            assert_same(norm, ghosted, x, ghost)


@given(batch=st.integers(1, 2000), ghost=st.integers(2, 100), values=st.integers(1, 3))
def test_ghosts_make_up_the_batch_and_none_is_a_single_value(batch, ghost, values):
    sizes = _ghost_sizes(batch, ghost, values)

    assert sum(sizes) == batch
    assert max(sizes) <= ghost + 1
    assert batch * values == 1 or min(sizes) * values > 1


def test_a_single_sample_left_over_is_a_ghost_where_it_has_several_values():
    assert _ghost_sizes(65, 32, values=4) == [32, 32, 1]
    assert _ghost_sizes(65, 32, values=1) == [32, 33]


@pytest.mark.parametrize("batch", [1, 7, 16])
def test_a_batch_no_larger_than_a_ghost_is_batch_norm_to_the_bit(batch):
    norm, ghosted = pair((batch, 3, 4, 4), 16)
    x = torch.randn(batch, 3, 4, 4)

    assert torch.equal(norm(x), ghosted(x))
    assert all(map(torch.equal, norm.buffers(), ghosted.buffers()))


@pytest.mark.parametrize("given", SETTINGS)
def test_for_inference_it_is_batch_norm_to_the_bit(given):
    norm, ghosted = pair((64, 3), 16, **SETTINGS[given])
    x = torch.randn(64, 3)
    looped(norm, x, 16), ghosted(x)
    ghosted.load_state_dict(norm.state_dict())

    assert torch.equal(norm.eval()(x), ghosted.eval()(x))


@ways
def test_second_derivatives_are_those_of_the_loop(way):
    norm, ghosted = pair((20, 3, 2), 8, torch.float64)
    x = torch.randn(20, 3, 2, dtype=torch.float64, requires_grad=True)
    found = []
    for forward in (lambda: looped(norm, x, 8), lambda: ghosted(x)):
        module = norm if not found else ghosted
        (first,) = torch.autograd.grad(forward().pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), (x, module.weight)))

    for wanted, got in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@ways
def test_derivatives_are_right_against_differences(way):
    _, ghosted = pair((10, 2), 4, torch.float64, track_running_stats=False)
    x = torch.randn(10, 2, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(ghosted, (x,))
    assert torch.autograd.gradgradcheck(ghosted, (x,))


@ways
def test_frozen_weights_and_an_input_that_needs_no_gradient(way):
    norm, ghosted = pair((40, 3), 16)
    for module in (norm, ghosted):
        module.weight.requires_grad_(False)
    x = torch.randn(40, 3)

    looped(norm, x, 16).pow(2).sum().backward()
    ghosted(x).pow(2).sum().backward()

    assert ghosted.weight.grad is None
    torch.testing.assert_close(ghosted.bias.grad, norm.bias.grad)


@ways
def test_a_nan_stays_in_its_ghost(way):
    _, ghosted = pair((48, 3), 16, track_running_stats=False)
    x = torch.randn(48, 3)
    x[20] = torch.nan

    assert ghosted(x).isnan().any(1).nonzero().flatten().tolist() == [*range(16, 32)]


@ways
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_it_is_the_loop(way, dtype):
    norm, ghosted = pair((40, 6, 5, 5), 16)
    conv = nn.Conv2d(3, 6, 1)
    x = torch.randn(40, 3, 5, 5)
    with torch.autocast("cpu", dtype):
        wanted, found = looped(norm, conv(x), 16), ghosted(conv(x))

    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=0, atol=4e-2)
    torch.testing.assert_close(ghosted.running_var, norm.running_var, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_compiled_it_is_the_loop():
    norm, ghosted = pair((36, 3, 4, 4), 16)
    x = torch.randn(36, 3, 4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of its own parts
        compiled = torch.compile(ghosted, backend="aot_eager", fullgraph=True)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        wanted, found = looped(norm, theirs, 16), compiled(mine)
        wanted.pow(3).sum().backward()
        found.pow(3).sum().backward()

    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(ghosted.running_var, norm.running_var)
    assert ghosted.num_batches_tracked == 3


def model():
    return nn.Sequential(
        nn.Conv1d(2, 3, 3),
        nn.BatchNorm1d(3),
        nn.ReLU(),
        nn.Sequential(nn.Flatten(1, 1), nn.BatchNorm1d(3)),
    )


def test_a_model_keeps_its_modules_parameters_buffers_hooks_and_keys():
    net, calls = model(), []
    net[1].register_forward_hook(lambda *_: calls.append("hook"))
    before = [*map(id, [*net.modules(), *net.parameters(), *net.buffers()])]
    keys = [*net.state_dict()]

    assert convert_ghost_batchnorm(net, 4) is net
    net(torch.randn(10, 2, 8))

    assert [*map(id, [*net.modules(), *net.parameters(), *net.buffers()])] == before
    assert [*net.state_dict()] == keys
    assert calls == ["hook"]
    assert [type(module) for module in net.modules() if hasattr(module, "ghost")] == [
        GhostBatchNorm1d
    ] * 2
    assert net[1].num_batches_tracked == 3
    assert "ghost=4" in repr(net)


def test_converting_again_changes_the_size():
    assert convert_ghost_batchnorm(convert_ghost_batchnorm(model(), 4), 8)[1].ghost == 8


def test_a_converted_model_can_be_copied_pickled_and_loaded(tmp_path):
    net = convert_ghost_batchnorm(model(), 4)
    torch.save(net, tmp_path / "net.pt")
    plain = model()
    plain.load_state_dict(net.state_dict())
    x = torch.randn(9, 2, 8)
    wanted = copy.deepcopy(net)(x)

    assert torch.equal(torch.load(tmp_path / "net.pt", weights_only=False)(x), wanted)
    assert torch.equal(plain.eval()(x), copy.deepcopy(net).eval()(x))


@pytest.mark.parametrize(
    ("made", "x"),
    [
        (GhostBatchNorm1d, (8, 3)),
        (GhostBatchNorm2d, (8, 3, 2, 2)),
        (GhostBatchNorm3d, (8, 3, 2, 2, 2)),
    ],
)
def test_made_as_a_layer_it_takes_what_batch_norm_takes(made, x):
    layer = made(3, ghost=4, momentum=0.5, affine=False)

    assert layer(torch.randn(x)).shape == x
    assert (layer.momentum, layer.weight, int(layer.num_batches_tracked)) == (0.5, None, 2)
    with pytest.raises(ValueError, match="expected"):
        layer(torch.randn(3))


class Fancy(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).relu()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Linear(3, 3), "no batch norm"),
        (nn.SyncBatchNorm(3), "1 is a SyncBatchNorm.*Leave out convert_sync_batchnorm"),
        (nn.LazyBatchNorm1d(), "1 is a LazyBatchNorm1d that has seen no batch yet"),
        (Fancy(3), "1 is a Fancy, which has a forward of its own"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_left_as_it_was(layer, message):
    net = (
        nn.Sequential(nn.Identity(), layer)
        if "no batch norm" in message
        else nn.Sequential(nn.BatchNorm1d(3), layer)
    )

    with pytest.raises(ValueError, match=message):
        convert_ghost_batchnorm(net, 4)

    assert not any(hasattr(module, "ghost") for module in net.modules())


@pytest.mark.parametrize("ghost", [0, -1, 1.5])
def test_a_ghost_of_no_samples_is_refused(ghost):
    with pytest.raises(ValueError, match="a ghost cannot have"):
        convert_ghost_batchnorm(model(), ghost)
    with pytest.raises(ValueError, match="a ghost cannot have"):
        GhostBatchNorm1d(3, ghost=ghost)


def test_attached_it_converts_the_model_as_its_lines_do(training):
    by_hand, by_fix = model(), model()

    exec(FIX.lines(FIX.parse("8")), {"model": by_hand})
    FIX.attach(FIX.parse("8"), training)
    training.acts["model"](by_fix)

    assert repr(by_hand) == repr(by_fix)
    assert by_fix[1].ghost == 8


@pytest.mark.parametrize("text", ["", "0", "-3", "8.5", "all"])
def test_a_value_that_is_none_says_what_it_may_be(text):
    with pytest.raises(ValueError, match="expected 32"):
        FIX.parse(text)


def test_torch_func_differentiates_it():
    norm, ghosted = pair((8, 3, 5), 4, torch.float64, track_running_stats=False)
    x = torch.randn(8, 3, 5, dtype=torch.float64)

    found = torch.func.grad(lambda x: ghosted(x).pow(3).sum())(x)

    torch.testing.assert_close(found, torch.func.grad(lambda x: looped(norm, x, 4).pow(3).sum())(x))
