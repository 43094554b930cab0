"""Reasons why a hook is not attached, as identifiers. Code depends on these, not on the wording."""

from typing import Final

NO_GPU: Final = "no_gpu"
NO_CUDA: Final = "torch_without_cuda"
CUDA_NOT_USED: Final = "cuda_not_used"
NO_NVML: Final = "no_nvml"
NO_CPU_QUOTA: Final = "no_cpu_quota"
NO_DISK: Final = "no_disk"
NOT_ON_A_DISK: Final = "not_on_a_disk"  # in old runs
NOT_REPLACED: Final = "seen_by_counters"  # too much goes through it for a tap
TOO_FEW_UPDATES: Final = "too_few_updates"
NO_FLOP: Final = "no_flop"
OTHER_LIBRARY: Final = "other_library"  # communication that does not pass torch's dispatcher
TURNED_OFF: Final = "turned_off"
ONE_GRADIENT: Final = "one_gradient"  # one rank and one micro-batch: no noise scale

#: Runs recorded before hooks had reasons tell them only by these words, in lower case. They are history: new words need no entry.
_IN_OLD_RUNS = {
    "no gpu": NO_GPU,
    "this torch is built without cuda": NO_CUDA,
    "never used cuda": CUDA_NOT_USED,
    "nvml shared library not found": NO_NVML,
    "no cpu quota is set": NO_CPU_QUOTA,
    "no physical disk": NO_DISK,
    "not on a block device": NOT_ON_A_DISK,
    "every import and log file goes through it": NOT_REPLACED,
    "before one step could be counted": TOO_FEW_UPDATES,
    "torch counts no flop": NO_FLOP,
    ": its time counts as the stage that it happens in, or as none": OTHER_LIBRARY,
    "gradient accumulation over two micro-batches or more": ONE_GRADIENT,
}


def in_old_run(why: str) -> str:
    """The reason in the wording of an old run; empty if no code depends on it."""
    return next((reason for words, reason in _IN_OLD_RUNS.items() if words in why.lower()), "")
