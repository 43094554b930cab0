"""Parses VALUE of ``--fix NAME=VALUE``: words and ``key=number`` options separated by colons."""

import math
from dataclasses import dataclass

#: Older names of options, which still work.
_RENAMED = {"bc": "critical_batch", "b0": "base_batch"}


@dataclass(frozen=True)
class Value:
    """``noise:8:critical_batch=144`` is the words ``["noise", "8"]`` and the options ``{"critical_batch": 144.0}``."""

    words: list[str]
    options: dict[str, float]

    @classmethod
    def of(cls, text: str, may_be: str, options: tuple[str, ...] = ()) -> "Value":
        """Take a text apart.

        Args:
            may_be: what VALUE may be, for the message.
            options: the keys that it may have.

        Raises:
            ValueError: an unknown option, or a value that is not a number.
        """
        words, found = [], {}
        for part in text.strip().split(":"):
            key, equals, value = part.partition("=")
            key = _RENAMED.get(key, key)
            if not equals:
                words.append(part)
            elif key not in options:
                raise ValueError(f"unknown setting {key}=: expected {may_be}")
            else:
                found[key] = number(value, may_be)
        return cls(words, found)


def number(text: str, may_be: str) -> float:
    """A finite number.

    Raises:
        ValueError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a number: expected {may_be}")
    return value
