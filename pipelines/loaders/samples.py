"""Decodes and augments a sample in separate steps, for a DataLoader and for a timer of the steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from feedline.pipelines.photos import Photos
from feedline.profiler.errors import DataError, UserCodeError


@dataclass(frozen=True)
class Users:
    """The user's own transform. It can be pickled if the transform can."""

    transform: Callable[[Any], Any]

    def __call__(self, image: Any) -> torch.Tensor:
        try:
            made = self.transform(image)
        except Exception as error:
            raise UserCodeError(f"the transform raises {type(error).__name__}: {error}") from error
        if not isinstance(made, torch.Tensor):
            raise UserCodeError(f"the transform returns a {type(made).__name__}, not a tensor: end it with ToTensor()")
        return made


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """Maps an index to (image, index).

    Attributes:
        decode: bytes -> image.
        augment: image -> tensor.
    """

    def __init__(self, photos: Photos, decode: Callable[[bytes], Any], augment: Callable[[Any], torch.Tensor]) -> None:
        self.paths = [photo.path for photo in photos.photos]
        self.decode = decode
        self.augment = augment

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> bytes:
        with open(self.paths[index], "rb") as file:
            return file.read()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        try:
            image = self.decode(self.read(index))
        except Exception as error:
            raise DataError(f"{self.paths[index]} cannot be loaded ({error}): remove it, or repair it") from error
        return self.augment(image), index
