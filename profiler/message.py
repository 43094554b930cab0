"""Text with an id, so that code does not depend on the wording.

Reasons why a hook is not attached are here, too, and how lists of things are shortened.
"""

from collections.abc import Callable, Sequence
from typing import Final

ReportHook = Callable[[str, bool, str], None]  # hook, attached?, what it gives or why not
# Why a hook is not attached: ids of messages. Code depends on these.
NO_GPU: Final = "no_gpu"
NO_CUDA: Final = "torch_without_cuda"
CUDA_NOT_USED: Final = "cuda_not_used"
NO_NVML: Final = "no_nvml"
NO_CPU_QUOTA: Final = "no_cpu_quota"
NO_MEMORY_LIMIT: Final = "no_memory_limit"
NO_DISK: Final = "no_disk"
NOT_REPLACED: Final = "seen_by_counters"  # too much goes through it for a tap
TOO_FEW_UPDATES: Final = "too_few_updates"
NO_FLOP: Final = "no_flop"
OTHER_LIBRARY: Final = "other_library"  # communication that does not pass torch's dispatcher
TURNED_OFF: Final = "turned_off"
ONE_GRADIENT: Final = "one_gradient"  # one rank and one micro-batch: no noise scale
_MAX_RANKS_NAMED = 8  # ranks in a sentence


class Message(str):
    """Text for people with an id for code; the wording may change.

    A string, so that it passes wherever plain ones do: into JSON, tables, and lists of notes.

    Attributes:
        id: a stable identifier such as ``no_gpu``.
    """

    id: str

    def __new__(cls, text: str, id: str) -> "Message":
        made = super().__new__(cls, text)
        made.id = id
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.id


def id_of(text: str) -> str:
    """Return the id of a message; empty for plain text."""
    return text.id if isinstance(text, Message) else ""


def reworded(old: str, new: str) -> str:
    """Return the new text with the id of the old one, for messages that are masked or shortened."""
    return Message(new, old.id) if isinstance(old, Message) else new


def few(things: Sequence[object], most: int) -> str:
    """Return ``a, b, c and 4 more``."""
    more = f" and {len(things) - most:,} more" if len(things) > most else ""
    return ", ".join(map(str, things[:most])) + more


def name_ranks(ranks: Sequence[int]) -> str:
    """Return ``rank 3``, or ``ranks 3, 4, 9 and 2 more``."""
    return f"rank{'s' * (len(ranks) > 1)} {few(ranks, _MAX_RANKS_NAMED)}"
