"""FLOP and bytes of operators by the sizes of their inputs.

A multiplication and an addition are two FLOP. The formulas are those by which
torch.utils.flop_counter counts; for grouped convolutions' gradients it counts each group as if it
saw all channels, here they cost what the forward costs.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import BoolArray, FloatArray
from feedline.analysis.traces.trace_columns import Kind, Shape, Trace

_Size = tuple[int, ...]

_BYTES_OF_TYPE = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "c10::half": 2, "half": 2, "float16": 2, "c10::bfloat16": 2, "bfloat16": 2,
    "long": 8, "long int": 8, "int64": 8, "int": 4, "int32": 4, "short": 2, "short int": 2, "signed char": 1, "char": 1, "unsigned char": 1,
    "bool": 1, "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
_EIGHT_BIT_TYPE = re.compile(r"float8|_fnuz|_e[45]m[23]", re.IGNORECASE)
_Made = tuple[int, tuple[int, ...], int]  # FLOP, which inputs are read, elements of the result
#: Backward of a convolution -> which of its inputs are the result's gradient, the input and the
#: weight.
_BACKWARDS = {
    "aten::convolution_backward": (0, 1, 2),
    "aten::cudnn_convolution_backward": (1, 0, 2),
    "aten::miopen_convolution_backward": (1, 0, 2),
    "aten::mkldnn_convolution_backward": (1, 0, 2),
}
_CONVOLUTION_NAMES = (
    "convolution", "_convolution", "conv1d", "conv2d", "conv3d", "cudnn_convolution", "cudnn_convolution_relu", "miopen_convolution",
    "mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward", "_conv_depthwise2d", "conv_depthwise3d", "cudnn_convolution_transpose",
)  # fmt: skip


@dataclass(frozen=True)
class _Cost:
    """What one call takes.

    Attributes:
        flop: floating-point operations.
        nbytes: of its operands and its result, each once; -1: the trace does not say their types.
    """

    flop: int
    nbytes: int


@dataclass(frozen=True)
class _Convolutions:
    """Sizes of results, which a trace does not hold.

    A forward's is that of the gradient which its backward begins with.

    Attributes:
        results: (input, weight) -> size of the result; None: there are several.
    """

    results: dict[tuple[_Size, _Size], _Size | None] = field(default_factory=dict)

    @classmethod
    def of(cls, calls: Iterable[tuple[str, Shape]]) -> "_Convolutions":
        """Collect what the backwards among these operators tell."""
        weights: dict[tuple[_Size, _Size], _Size | None] = {}
        for name, shape in calls:
            gradient = _gradient(name, shape.inputs)
            if gradient is not None:
                result, key = gradient[0], gradient[1:]
                weights[key] = result if weights.get(key, result) == result else None
        return cls(weights)


def _cost(name: str, shape: Shape, convolutions: _Convolutions) -> _Cost | None:
    """Return what a call of this operator with these sizes costs.

    None: there is no formula, or the sizes are not enough.
    """
    formula = _FORMULAS.get(name)
    try:
        amounts = formula(name, shape.inputs, convolutions) if formula else None
    except (
        IndexError,
        ValueError,
        ZeroDivisionError,
    ):  # sizes of something else under the same name
        return None
    if amounts is None:
        return None
    flop, operands, result = amounts
    widths = [_width(shape.dtypes[at]) for at in operands if at < len(shape.dtypes)]
    if len(widths) < len(operands) or not all(widths):
        return _Cost(flop, -1)
    read = sum(math.prod(shape.inputs[at]) * width for at, width in zip(operands, widths))
    return _Cost(flop, read + result * max(widths))


def _known(name: str) -> bool:
    """Tell whether there is a formula for the operator."""
    return name in _FORMULAS


_Formula = Callable[[str, tuple[_Size, ...], _Convolutions], _Made | None]


def _product(left: _Size, right: _Size) -> tuple[int, int]:
    """Return the FLOP and elements of the product of two matrices, or of two batches of them."""
    *batch, m, k = left
    *same, other, n = right
    if k != other or batch != same:
        raise ValueError
    count = math.prod(batch) * m * n
    return 2 * count * k, count


def _multiply(first: int) -> _Formula:
    """Return a matrix product whose left side is the input of this number."""

    def formula(_: str, inputs: tuple[_Size, ...], __: _Convolutions) -> _Made | None:
        flop, result = _product(inputs[first], inputs[first + 1])
        return flop, tuple(range(first + 2)), result

    return formula


def _linear(_: str, inputs: tuple[_Size, ...], __: _Convolutions) -> _Made | None:
    *rows, k = inputs[0]
    n, other = inputs[1]
    if k != other:
        return None
    return 2 * math.prod(rows) * k * n, (0, 1), math.prod(rows) * n


def _convolve(image: _Size, weight: _Size, result: _Size) -> int:
    """Return the FLOP of a convolution, also of a transposed one.

    A transposed one has its weight the other way round, which equal channels do not show. Then it is
    the one whose result is larger than its input: an ordinary one shrinks it, but for its padding.
    """
    transposed = result[1] != weight[0] or (
        image[1] == weight[0] == weight[1] and math.prod(result[2:]) > math.prod(image[2:])
    )
    places = image[2:] if transposed else result[2:]
    return 2 * image[0] * math.prod(places) * math.prod(weight)


def _convolution(_: str, inputs: tuple[_Size, ...], convolutions: _Convolutions) -> _Made | None:
    result = convolutions.results.get((inputs[0], inputs[1]))
    if result is None:
        return None
    return _convolve(inputs[0], inputs[1], result), (0, 1), math.prod(result)


def _gradient(name: str, inputs: tuple[_Size, ...]) -> tuple[_Size, _Size, _Size] | None:
    """Return (result's gradient, input, weight) of a convolution's backward."""
    order = _BACKWARDS.get(name)
    if order is None or len(inputs) < 3 or any(len(inputs[at]) < 3 for at in order):
        return None
    return inputs[order[0]], inputs[order[1]], inputs[order[2]]


def _convolution_backward(name: str, inputs: tuple[_Size, ...], _: _Convolutions) -> _Made | None:
    gradient = _gradient(name, inputs)
    if gradient is None:
        return None
    result, image, weight = gradient
    return 2 * _convolve(image, weight, result), (0, 1, 2), math.prod(image) + math.prod(weight)


def _attention(first: int, products: tuple[int, int], heads_second: bool) -> _Formula:
    """Make the formula of attention.

    Args:
        first: number of the input that is the query.
        products: how many products over the query's and over the value's width: (1, 1) forward; (3,
            2) backward, which makes the scores again.
        heads_second: sizes are (batch, heads, length, width), else (batch, length, heads, width).
    """

    def formula(_: str, inputs: tuple[_Size, ...], __: _Convolutions) -> _Made | None:
        # now (batch, heads, length, width), whichever it was
        query, key, value = (
            (b, h, s, d) if heads_second else (b, s, h, d)
            for b, h, s, d in (inputs[first + at] for at in range(3))
        )
        batch, heads, length, width = query
        if key[2] != value[2] or key[3] != width:
            return None
        flop = 2 * batch * heads * length * key[2] * (products[0] * width + products[1] * value[3])
        written = (
            math.prod(query) if first == 0 else math.prod(query) + math.prod(key) + math.prod(value)
        )
        return flop, tuple(range(first + 3)), written

    return formula


def _width(dtype: str) -> int:
    """Return bytes of an element; 0: unknown."""
    return _BYTES_OF_TYPE.get(dtype.lower(), 1 if _EIGHT_BIT_TYPE.search(dtype) else 0)


_FORMULAS: dict[str, _Formula] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_scaled_mm", "aten::_int_mm"), _multiply(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"), _multiply(1)),
    "aten::linear": _linear,
    **dict.fromkeys((f"aten::{name}" for name in _CONVOLUTION_NAMES), _convolution),
    **dict.fromkeys(_BACKWARDS, _convolution_backward),
    "flash_attn::_flash_attn_forward": _attention(0, (1, 1), False),
    "flash_attn::_flash_attn_backward": _attention(1, (3, 2), False),
    **{
        f"aten::_scaled_dot_product_{kind}_attention{suffix}": _attention(first, products, True)
        for kind in ("flash", "efficient", "cudnn")
        for suffix, first, products in (("", 0, (1, 1)), ("_backward", 1, (3, 2)))
    },
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(0, (1, 1), True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, (3, 2), True),
}


class Costs:
    """Cost of each operator call, worked out once for each name and shape."""

    def __init__(self, trace: Trace, has_device: bool) -> None:
        self.has_device = has_device
        self._trace = trace
        self._known = np.array([_known(name) for name in trace.names] or [False])
        pairs = self._pairs(trace.events)
        self._convolutions = _Convolutions.of(
            (trace.names[name], trace.shapes[shape]) for name, shape in pairs
        )
        self._costs: dict[tuple[int, int], _Cost | None] = {}

    def of(self, mine: npt.NDArray[np.void]) -> tuple[FloatArray, FloatArray]:
        """Return FLOP and bytes, float64 [n]; -1: unknown."""
        flop, nbytes = np.full(len(mine), -1.0), np.full(len(mine), -1.0)
        rows = np.flatnonzero(self._countable(mine))
        key = mine["name"][rows].astype(np.int64) << 32 | mine["shape"][rows]
        each, place = np.unique(key, return_inverse=True)
        costs = [self._cost(int(value) >> 32, int(value) & 0xFFFFFFFF) for value in each.tolist()]
        flop[rows] = np.array([-1.0 if value is None else value.flop for value in costs] or [0.0])[
            place
        ]
        nbytes[rows] = np.array(
            [-1.0 if value is None else value.nbytes for value in costs] or [0.0]
        )[place]
        return flop, nbytes

    def _cost(self, name: int, shape: int) -> _Cost | None:
        if (name, shape) not in self._costs:
            self._costs[name, shape] = _cost(
                self._trace.names[name], self._trace.shapes[shape], self._convolutions
            )
        return self._costs[name, shape]

    def _countable(self, mine: npt.NDArray[np.void]) -> BoolArray:
        return np.asarray(
            (mine["kind"] == Kind.OPERATOR) & (mine["shape"] >= 0) & self._known[mine["name"]], bool
        )

    def _pairs(self, events: npt.NDArray[np.void]) -> list[tuple[int, int]]:
        rows = np.flatnonzero(self._countable(events))
        key = np.unique(events["name"][rows].astype(np.int64) << 32 | events["shape"][rows])
        return [(value >> 32, value & 0xFFFFFFFF) for value in key.tolist()]
