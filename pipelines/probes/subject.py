"""What is probed: the user's files, transforms and model, and how long to measure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedline.pipelines.photos import Photo, Photos
from feedline.pipelines.probes.measure import FULL, Plan

if TYPE_CHECKING:
    from torch import nn

    from feedline.pipelines.translate.recipe import Recipe


@dataclass(frozen=True)
class Subject:
    """Attributes:
    photos: None: no dataset was given.
    transform: the user's own, PIL image -> tensor; ``recipe`` is the same as operations.
    model: the user's, on the CPU.
    device: that the model is to run on: ``cpu`` or ``cuda:0``.
    folder: whose disk is probed.
    """

    photos: Photos | None = None
    transform: Any = None
    recipe: "Recipe | None" = None
    model: "nn.Module | None" = None
    batch_size: int = 32
    device: str = "cpu"
    folder: Path = field(default_factory=Path.cwd)
    plan: Plan = FULL

    @property
    def sample(self) -> Sequence[Photo]:
        """At most ``plan.files`` photos, spread over all classes; the same at every call."""
        if self.photos is None:
            return ()
        photos = self.photos.photos
        return photos if len(photos) <= self.plan.files else random.Random(0).sample(photos, self.plan.files)

    @property
    def images(self) -> Sequence[Photo]:
        """The first images of ``sample`` that have ``plan.pixels`` in total, at least four."""
        sums = accumulate(photo.width * photo.height for photo in self.sample)
        return [photo for number, (photo, pixels) in enumerate(zip(self.sample, sums)) if number < 4 or pixels <= self.plan.pixels]
