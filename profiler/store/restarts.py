"""Which folders are of a launch's last start: torchrun starts all ranks again when one of them fails, and not all need come back."""

from collections.abc import Iterable, Sequence


def said(places: Iterable[tuple[int, int]], last: int) -> list[str]:
    """What to know of a launch that was started again.

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


def numbers(of: Sequence[int], most: int = 8) -> str:
    """``1, 2, 3`` and how many more."""
    more = f" and {len(of) - most} more" if len(of) > most else ""
    return ", ".join(map(str, of[:most])) + more
