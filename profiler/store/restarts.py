"""Selects the folders of a launch's last start. torchrun restarts all ranks when one fails, and not all need come back."""

from collections.abc import Iterable, Sequence


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


def named(ranks: Sequence[int], most: int = 8) -> str:
    """``rank 3``, or ``ranks 3, 4, 9 and 2 more``."""
    return f"rank{'s' * (len(ranks) > 1)} {numbers(ranks, most)}"


def numbers(of: Sequence[object], most: int = 8) -> str:
    """``1, 2, 3`` and the number of the others."""
    more = f" and {len(of) - most} more" if len(of) > most else ""
    return ", ".join(map(str, of[:most])) + more
