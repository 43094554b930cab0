"""FLOP of operators, against those that torch counts when it runs them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from feedline.analysis.traces.operands import _Convolutions, _cost
from feedline.analysis.traces.trace_columns import Shape

NOTHING = _Convolutions()


def shape(*inputs, dtype="float"):
    return Shape(tuple(tuple(size) for size in inputs), (dtype,) * len(inputs))


def counted(run):
    with FlopCounterMode(display=False) as mode:
        run()
    return mode.get_total_flops()


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("mm", [(3, 4), (4, 5)]),
        ("bmm", [(2, 3, 4), (2, 4, 5)]),
        ("addmm", [(5,), (3, 4), (4, 5)]),
        ("baddbmm", [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
    ],
)
def test_products_of_matrices_cost_what_torch_counts(name, sizes):
    wanted = counted(lambda: getattr(torch, name)(*(torch.zeros(size) for size in sizes)))

    assert _cost(f"aten::{name}", shape(*sizes), NOTHING).flop == wanted


def test_a_linear_layer_costs_what_torch_counts():
    wanted = counted(lambda: torch.nn.functional.linear(torch.zeros(2, 3, 4), torch.zeros(5, 4)))

    assert _cost("aten::linear", shape((2, 3, 4), (5, 4)), NOTHING).flop == wanted


@pytest.mark.parametrize("channels", [6, 8])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_costs_what_torch_counts_once_its_backward_tells_its_result(
    transposed, channels
):
    image, weight = (
        torch.zeros(2, 6, 9, 9, requires_grad=True),
        torch.zeros((6, channels, 3, 3) if transposed else (channels, 6, 3, 3), requires_grad=True),
    )
    function = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    result = function(image, weight, stride=2, padding=1)
    backward = shape(result.shape, image.shape, weight.shape)
    known = _Convolutions.of([("aten::convolution_backward", backward)])
    forward = counted(lambda: function(image, weight, stride=2, padding=1))
    both = counted(lambda: function(image, weight, stride=2, padding=1).sum().backward())

    assert _cost("aten::convolution", shape(image.shape, weight.shape), known).flop == forward
    assert _cost("aten::convolution_backward", backward, known).flop == both - forward


def test_a_grouped_convolution_costs_what_torch_counts():
    image, weight = torch.zeros(2, 6, 9, 9), torch.zeros(8, 3, 3, 3)
    result = torch.nn.functional.conv2d(image, weight, groups=2)
    known = _Convolutions.of(
        [("aten::convolution_backward", shape(result.shape, image.shape, weight.shape))]
    )

    assert _cost("aten::conv2d", shape(image.shape, weight.shape), known).flop == counted(
        lambda: torch.nn.functional.conv2d(image, weight, groups=2)
    )


def test_a_convolution_whose_result_is_unknown_or_ambiguous_has_no_cost():
    forward = shape((2, 6, 9, 9), (8, 6, 3, 3))
    strides = [
        ("aten::convolution_backward", shape((2, 8, side, side), (2, 6, 9, 9), (8, 6, 3, 3)))
        for side in (7, 4)
    ]

    assert _cost("aten::conv2d", forward, NOTHING) is None
    assert _cost("aten::conv2d", forward, _Convolutions.of(strides)) is None
    assert _cost("aten::conv2d", forward, _Convolutions.of(strides[:1])) is not None


def test_attention_costs_what_torch_counts():
    size = (2, 3, 16, 8)
    query = torch.zeros(size)
    key = torch.zeros(2, 3, 32, 8)
    torch_counts = torch.utils.flop_counter
    forward = torch_counts.sdpa_flop_count(query.shape, key.shape, key.shape)
    backward = torch_counts.sdpa_backward_flop_count(query.shape, query.shape, key.shape, key.shape)

    assert (
        _cost(
            "aten::_scaled_dot_product_flash_attention", shape(size, key.shape, key.shape), NOTHING
        ).flop
        == forward
    )
    assert (
        _cost(
            "aten::_scaled_dot_product_flash_attention_backward",
            shape(size, size, key.shape, key.shape),
            NOTHING,
        ).flop
        == backward
    )
    by_length = shape((2, 16, 3, 8), (2, 32, 3, 8), (2, 32, 3, 8))
    assert _cost("flash_attn::_flash_attn_forward", by_length, NOTHING).flop == forward


@pytest.mark.parametrize(
    "dtype, width",
    [
        ("float", 4),
        ("c10::Half", 2),
        ("c10::BFloat16", 2),
        ("double", 8),
        ("c10::Float8_e4m3fn", 1),
    ],
)
def test_bytes_are_operands_and_result_once(dtype, width):
    assert _cost("aten::mm", shape((3, 4), (4, 5), dtype=dtype), NOTHING).nbytes == width * (
        12 + 20 + 15
    )


@pytest.mark.parametrize("dtypes", [(), ("float",), ("", "")])
def test_bytes_are_unknown_where_types_are(dtypes):
    assert _cost("aten::mm", Shape(((3, 4), (4, 5)), dtypes), NOTHING).nbytes == -1


@pytest.mark.parametrize(
    "sizes", [[], [()], [(3, 4)], [(3, 4), (5, 6)], [(), ()], [(1, 2, 3), (3, 4)]]
)
@pytest.mark.parametrize("name", ["aten::mm", "aten::bmm", "aten::addmm", "aten::linear", "aten::conv2d", "aten::convolution_backward",
                                  "aten::_scaled_dot_product_flash_attention"])  # fmt: skip
def test_sizes_that_make_no_sense_have_no_cost(name, sizes):
    if name == "aten::linear" and sizes == [(1, 2, 3), (3, 4)]:
        sizes = [(1, 2, 3), (4, 4)]
    assert _cost(name, shape(*sizes), NOTHING) is None


def test_an_operator_without_a_formula_has_no_cost():
    assert _cost("aten::relu", shape((3, 4)), NOTHING) is None
