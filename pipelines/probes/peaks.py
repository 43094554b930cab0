"""Peak compute of GPUs according to their makers, dense (no sparsity), each with its source page.

Where a data sheet gives only the figure with 2:4 sparsity, the dense one is half of it, as the sheets say in a footnote.
"""

import re
from typing import NamedTuple

_TFLOPS = 1e12


class Peak(NamedTuple):
    """Attributes:
    flops: FLOP/s; None: this GPU or this type of number is not in the table.
    source: the maker's page.
    """

    flops: float | None
    source: str


_A100 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE = "https://resources.nvidia.com/en-us-gpu-resources/h100-datasheet-24306"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_B200 = "https://www.nvidia.com/en-us/data-center/hgx/"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/"
_A10 = "https://www.nvidia.com/en-us/data-center/products/a10-gpu/"
_T4 = "https://www.nvidia.com/en-us/data-center/tesla-t4/"
_V100 = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"

# A pattern for torch.cuda.get_device_name(), the page, and TFLOP/s: float32 without and with TF32, bfloat16, float16. 0: there is none, or
# the page gives none. The first pattern that fits counts, so that the special cases of a name come before it.
_TABLE: list[tuple[str, str, tuple[float, float, float, float]]] = [
    (r"\bB200\b", _B200, (0, 1100, 2250, 2250)),
    (r"\bH200 NVL\b", _H200, (60, 417.5, 835.5, 835.5)),
    (r"\bH200\b", _H200, (67, 494.5, 989.5, 989.5)),
    (r"\bH100 PCIe\b", _H100_PCIE, (51, 378, 756.5, 756.5)),
    (r"\bH100 NVL\b", _H100, (60, 417.5, 835.5, 835.5)),
    (r"\bH100\b", _H100, (67, 494.5, 989.5, 989.5)),
    (r"\bA100\b", _A100, (19.5, 156, 312, 312)),
    (r"\bL40S\b", _L40S, (91.6, 183, 362.05, 362.05)),
    (r"\bL4\b", _L4, (30.3, 60, 121, 121)),
    (r"\bA10\b", _A10, (31.2, 62.5, 125, 125)),
    (r"\bT4\b", _T4, (8.1, 0, 0, 65)),
    (r"\bV100-PCIE\b", _V100, (14, 0, 0, 112)),
    (r"\bV100-SXM", _V100, (15.7, 0, 0, 125)),
    (r"\bRTX 4090$", _ADA, (82.6, 82.6, 165.2, 165.2)),
    (r"\bRTX 3090$", _GA102, (35.6, 35.6, 71, 71)),
]
_COLUMN = {"float32": 0, "bfloat16": 2, "float16": 3}


def of(name: str, dtype: str, tf32: bool = False) -> Peak:
    """The peak of a GPU.

    Args:
        name: as torch.cuda.get_device_name() gives it.
        dtype: float32, bfloat16 or float16.
        tf32: whether torch may use TF32 for float32 products (torch.backends.cuda.matmul.allow_tf32).
    """
    for pattern, page, figures in _TABLE:
        if re.search(pattern, name):
            column = 1 if dtype == "float32" and tf32 and figures[1] else _COLUMN.get(dtype)
            figure = figures[column] if column is not None else 0
            return Peak(figure * _TFLOPS if figure else None, page)
    return Peak(None, "")
