"""Selects the folders of a launch's last start. torchrun restarts all ranks when one fails, and not all need come back."""

from collections.abc import Iterable, Sequence

from feedline.profiler.few import few

NAMED = 8  # ranks in a sentence


def said(places: Iterable[tuple[int, int]], last: int) -> list[str]:
    """Notes on a launch that was restarted.

    Args:
        places: (rank, restart) of every folder.
        last: the restart that is shown.
    """
    if not last:
        return []
    notes = [f"torchrun restarted the ranks {last} time{'s' * (last > 1)}: only the last start is shown"]
    places = set(places)
    gone = sorted({rank for rank, _ in places} - {rank for rank, restart in places if restart == last})
    return [*notes, f"{named(gone)} did not come back after the last restart"] if gone else notes


def named(ranks: Sequence[int]) -> str:
    """``rank 3``, or ``ranks 3, 4, 9 and 2 more``."""
    return f"rank{'s' * (len(ranks) > 1)} {few(ranks, NAMED)}"
