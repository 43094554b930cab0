"""What a run says of its rests."""

from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import Process


def rested(main: Process) -> int:
    """Steps that were only counted."""
    return int(main.of(Stage.REST)["extra"].sum())
