"""Reasons why a hook is not attached, as identifiers. Code depends on these, not on the wording."""

from typing import Final

NO_GPU: Final = "no_gpu"
NO_CUDA: Final = "torch_without_cuda"
CUDA_NOT_USED: Final = "cuda_not_used"
NO_NVML: Final = "no_nvml"
NO_CPU_QUOTA: Final = "no_cpu_quota"
NO_DISK: Final = "no_disk"
NOT_REPLACED: Final = "seen_by_counters"  # too much goes through it for a tap
TOO_FEW_UPDATES: Final = "too_few_updates"
NO_FLOP: Final = "no_flop"
OTHER_LIBRARY: Final = "other_library"  # communication that does not pass torch's dispatcher
TURNED_OFF: Final = "turned_off"
ONE_GRADIENT: Final = "one_gradient"  # one rank and one micro-batch: no noise scale
