"""What a replay is asked: by an identifier and a number, and in words."""

from dataclasses import dataclass
from typing import Literal

from feedline.analysis.formatting import number, size

QuestionId = Literal["as_it_was", "no_late_rank", "rank_on_time", "faster_link", "half_gradients", "bucket_size", "accumulation", "no_sync"]


@dataclass(frozen=True)
class Question:
    """One change to the communication of a run.

    Attributes:
        id: which change.
        value: the rank (``rank_on_time``), how many times as fast (``faster_link``), MiB (``bucket_size``), batches (``accumulation``),
            backward passes per update (``no_sync``).
        limit: bytes/s that the ranks reach themselves, which a faster link does not change; None: they are not what limits it.
    """

    id: QuestionId
    value: float | None = None
    limit: float | None = None


def text(asked: Question) -> str:
    """As a report puts it, after "with"."""
    value = asked.value if asked.value is not None else 0.0
    if asked.id == "faster_link":
        itself = f" (the ranks themselves reach {size(asked.limit)}/s)" if asked.limit is not None else ""
        return f"a link {number(value, 2)} times as fast{itself}"
    return {
        "as_it_was": "the run itself",
        "no_late_rank": "no late rank",
        "rank_on_time": f"rank {value:.0f} on time",
        "half_gradients": "an fp16 or bf16 compression hook",
        "bucket_size": f"buckets of {number(value, 2)} MiB",
        "accumulation": f"gradients accumulated over {value:.0f} batches",
        "no_sync": f"no_sync in all but the last of {value:.0f} backward passes per update",
    }[asked.id]
