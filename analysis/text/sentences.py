"""The catalogue of sentences: templates with typed slots.

Each template is written beside the rule that uses it and enters the catalogue when it is made, so
that a test can fill all of them with the smallest, usual and largest values and read the result.
"""

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from feedline.analysis.text.formatting import (
    called,
    count,
    number,
    percent,
    seconds,
    share_range,
    size,
)

#: Words of a sentence at most, and the pairs of brackets in it: more has to be read twice.
MAX_WORDS, MAX_BRACKETS = 22, 1


@dataclass(frozen=True)
class Slot:
    """A kind of value in a sentence.

    Attributes:
        write: Returns the value as people read it, with its unit.
        examples: The smallest, a usual and the largest value.
    """

    write: Callable[[Any], str]
    examples: tuple[Any, ...]


PERCENT = Slot(percent, (0.0004, 0.0712, 0.594, 1.0))
TIME = Slot(seconds, (8.3e-7, 0.0123, 1.24, 7320.0))
COUNT = Slot(count, (1, 4, 1_281_167))
NUMBER = Slot(number, (0.0123, 2.0, 12_345.6))
SIZE = Slot(size, (1, 110e3, 1.24e12))
#: A name of the program or of a library: a function, a class, a stage.
NAME = Slot(str, ("f", "backward", "Parsed.__getitem__", "DistributedSampler"))
#: A function, which gets brackets if it has a name.
FUNCTION = Slot(called, ("f", "Parsed.__getitem__", "lambda of line 1217"))
#: A piece of code without blanks.
CODE = Slot(str, ("num_workers=2", "torch.utils.data.default_collate"))
#: CPUs that may be used: few, and a quota may give a part of one.
CPUS = Slot(lambda x: f"{x:g}", (0.5, 8, 256))
#: Two shares, as in ``28 to 51 %``.
RANGE = Slot(lambda ends: share_range(*ends), ((0.0, 0.01), (0.28, 0.51), (0.5, 1.0)))
#: A part of a sentence that is made elsewhere: ``16 workers``, or nothing.
PART = Slot(str, ("", "16 workers"))


class Sentence:
    """A sentence with typed slots, which is called with their values."""

    catalogue: "list[Sentence]" = []

    def __init__(self, template: str, **slots: Slot) -> None:
        """Enter a template into the catalogue.

        Args:
            template: The text, with a ``{name}`` for each slot and without a full stop.
            slots: What each slot holds.

        Raises:
            ValueError: The names in the template are not those of the slots.
        """
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name}
        if names != slots.keys():
            raise ValueError(f"{template!r} has the slots {sorted(names)}, not {sorted(slots)}")
        self.template, self.slots = template, slots
        self.catalogue.append(self)

    def __call__(self, **values: Any) -> str:
        """Return the sentence with these values."""
        written = {name: slot.write(values.pop(name)) for name, slot in self.slots.items()}
        if values:
            raise TypeError(f"{self.template!r} has no slot {', '.join(values)}")
        return self.template.format(**written)

    def examples(self) -> Iterator[str]:
        """Return the sentence with every combination of its slots' examples."""
        for values in product(*(slot.examples for slot in self.slots.values())):
            yield self(**dict(zip(self.slots, values)))
