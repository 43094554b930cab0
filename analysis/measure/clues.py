"""What rules read of a recorded rank beside what its report shows, as plain dataclasses.

The modules that measure it make them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feedline.analysis.intervals import IntArray


@dataclass(frozen=True)
class Skipped:
    """Batches at the beginning of each pass that nothing is trained on.

    Attributes:
        batches, of: how many of how many.
        place: file and line of the condition that skips them; empty: unknown.
    """

    batches: int
    of: int
    place: str = ""


@dataclass(frozen=True)
class DroppedForwards:
    """Forwards whose graph is gone before any backward pass, in each step.

    Attributes:
        seconds: that those of a step take, in the middle of the looks.
        looks: steps that were looked at.
        place: file and line that call the model; empty: unknown.
        unused: whether the result is overwritten before it is read, by the program's source.
    """

    seconds: float
    looks: int
    place: str
    unused: bool


@dataclass(frozen=True)
class Padding:
    """Batches of indices whose last, or first, columns are filled in every row.

    Attributes:
        needless: share (0 to 1) of the values of a batch that are in such columns.
        padded: share of the values that only fill rows, also in columns that some row needs.
        looks: batches that were looked at.
    """

    needless: float
    padded: float
    looks: int


@dataclass(frozen=True)
class Denormal:
    """Parameters or gradients that are nearly zero.

    Attributes:
        most: largest share (0 to 1) of the values of a look.
        looks, seen: updates that were looked at, and those with such values.
        longer: share (0 to 1) of the mean step by which it is longer than a step before there were
            any; None: it is not, or there were few such steps.
    """

    most: float
    looks: int
    seen: int
    longer: float | None


@dataclass(frozen=True)
class OneByOne:
    """A model that is called for each sample of a batch on its own.

    Attributes:
        calls, samples: of a step, in the middle.
        seconds: that these calls take of the mean step.
        place: file and line that call the model; empty: unknown.
    """

    calls: int
    samples: int
    seconds: float
    place: str


@dataclass(frozen=True)
class UnusedGradients:
    """Gradients that no update uses.

    Attributes:
        elements: of the parameters that they are of.
        share: of the parameters of all optimizers, from 0 to 1.
        backward_s: what the backward passes take that compute them, and others, for each update. s.
        place: file and line of the program that call these; empty: too few samples show it.
    """

    elements: int
    share: float
    backward_s: float
    place: str


@dataclass(frozen=True)
class SameSamples:
    """Workers that deliver the same samples.

    Attributes:
        times: how often each sample comes.
        workers: that were compared: all that delivered any.
        compared: samples of each of them that were compared.
        in_order: they come in the same order.
        by_labels: only their short parts are the same, such as labels: the rest is random.
    """

    times: int
    workers: int
    compared: int
    in_order: bool
    by_labels: bool = False


@dataclass(frozen=True)
class Parts:
    """Samples that the workers of a stream made, in passes that all of them ended.

    Attributes:
        most, least: of the worker with most samples, and of the one with fewest.
        as_workers: how many workers with even parts would take as long for an epoch.
    """

    most: int
    least: int
    as_workers: float


@dataclass(frozen=True)
class Making:
    """What makes the batches.

    Attributes:
        functions: with file and line; the one that takes longest first.
        looked: bool [steps], those in which they were timed.
        took: stage that it lies in -> int64 [steps], ns; 0 in steps that were not looked at.
        calls: per step that was looked at.
        working_share: of their time, on a CPU or waiting for one, at most. The rest they waited for
            something else.
    """

    functions: tuple[str, ...]
    looked: npt.NDArray[np.bool_]
    took: dict[str, IntArray]
    calls: float
    working_share: float

    @property
    def names(self) -> frozenset[str]:
        """Names of the functions, without their classes and places."""
        return frozenset(name.partition(" (")[0].rpartition(".")[2] for name in self.functions)
