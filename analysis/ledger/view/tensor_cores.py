"""How a GPU's tensor cores are put to use on matrix products of float32."""

import enum
import re
from collections.abc import Iterable


class TensorCores(enum.Enum):
    """What the tensor cores of a GPU take."""

    UNKNOWN = "unknown"
    NONE = "none"  #: before compute capability 7.0, and GTX cards after it
    FLOAT16 = "float16"  #: 7.0 and 7.5
    TF32 = "TF32"  #: 8.0 and later: float16, bfloat16 and TF32


#: Names as the driver gives them, by generation (developer.nvidia.com/cuda-gpus).
_NONE = re.compile(r"\bGTX\b|\bTesla [KMP]\d|\b(P100|P40|P4|K80|M60|M40|P\d000|TITAN Xp?)\b")
_FLOAT16 = re.compile(
    r"\b(V100\w*|GV100|TITAN V|TITAN RTX|T4G?|Quadro RTX|RTX 20\d\d|Tesla [VT]\d+\w*)\b",
    re.IGNORECASE,
)
_TF32 = re.compile(
    r"\b([AH][128]00\w*|A10G?|A16|A2|A30|A40|H20|GH200|L4|L20|L40S?|G?B[123]00|(?<!Quadro )RTX "
    r"[3-9]0\d\d\w*|RTX 2050|RTX A\d+|Ada)\b",
    re.IGNORECASE,
)
_TF32_CALL = (
    "Use tensor cores: call torch.set_float32_matmul_precision('high') at the start of the program "
    "(TF32)."
)
_BFLOAT16 = (
    "Or run the forward pass and the loss under torch.autocast('cuda', dtype=torch.bfloat16)."
)
_FLOAT16_CALL = "torch.autocast('cuda', dtype=torch.float16) with a GradScaler."
#: They round: compare the loss curves.
CONDITION = "only if training tolerates rounded inputs of matrix products"
#: What to do first, and more; there is nothing to use without them.
FIXES = {
    TensorCores.UNKNOWN: [
        _TF32_CALL,
        _BFLOAT16,
        "Both need an NVIDIA GPU of the Ampere generation or later.",
        f"On a V100 or T4, use {_FLOAT16_CALL}",
    ],
    TensorCores.FLOAT16: [
        f"Use tensor cores: run the forward pass and the loss under {_FLOAT16_CALL}",
        "Those of this GPU take neither TF32 nor bfloat16.",
    ],
    TensorCores.TF32: [_TF32_CALL, _BFLOAT16],
}


def tensor_cores(devices: Iterable[str]) -> TensorCores:
    """Return what the tensor cores of these GPUs take, by their names.

    GPUs that differ are unknown.
    """
    kinds = {_of(device) for device in devices}
    return kinds.pop() if len(kinds) == 1 else TensorCores.UNKNOWN


def _of(device: str) -> TensorCores:
    kinds = ((_TF32, TensorCores.TF32), (_FLOAT16, TensorCores.FLOAT16), (_NONE, TensorCores.NONE))
    return next((meant for pattern, meant in kinds if pattern.search(device)), TensorCores.UNKNOWN)


#: Of the step that such products take.
MIN_SHARE = 0.05
