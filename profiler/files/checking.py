"""Checks decoded JSON against types, and names the member that does not fit.

``expected `int`, got `str` - at `$.place.rank```.
"""

from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

MOST_NS = 1 << 60  # of CLOCK_MONOTONIC: 36 years without a reboot
# since 1970: the year 2116; sums and differences of two times still fit into 64 bits
MOST_TIME_NS = 1 << 62
# more than any training has
MOST_RANKS = 1_000_000
Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


def checked(data: Any, kind: Any) -> Any:
    """Convert ``data`` to a type.

    Raises:
        ValueError: it does not fit; the text says where.
    """
    try:
        return convert(data, kind, strict=True, str_keys=True)
    except (ValidationError, RecursionError) as error:
        text = str(error)
        raise ValueError(text[:1].lower() + text[1:]) from error
