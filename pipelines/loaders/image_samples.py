"""Reads, decodes and augments a sample in separate steps.

They are for a DataLoader and for a timer of the steps. No decoder applies the EXIF orientation,
like torchvision's ImageFolder.
"""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from feedline.pipelines.photos import Photos
from feedline.profiler.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

RgbArray = npt.NDArray[np.uint8]  # [h, w, 3], RGB


def decode_pillow(data: bytes) -> "Image":
    """Decode as torchvision's ImageFolder does.

    Raises:
        OSError: the file is damaged.
    """
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def decode_opencv(data: bytes) -> RgbArray:
    """Decode with OpenCV.

    Raises:
        ValueError: OpenCV cannot read it.
    """
    import cv2

    rgb = getattr(cv2, "IMREAD_COLOR_RGB", None)  # OpenCV 4.11
    image = cv2.imdecode(
        np.frombuffer(data, np.uint8),
        (cv2.IMREAD_COLOR if rgb is None else rgb) | cv2.IMREAD_IGNORE_ORIENTATION,
    )
    if image is None:
        raise ValueError("OpenCV cannot decode it")
    return image if rgb is not None else cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)  # type: ignore[return-value,no-any-return,unused-ignore]


def decode_libjpeg(data: bytes) -> RgbArray:
    """Decode with libjpeg-turbo through simplejpeg; files that are not JPEGs with Pillow.

    Raises:
        ValueError, OSError: the file is damaged.
    """
    import simplejpeg

    if data[:2] == b"\xff\xd8":
        return simplejpeg.decode_jpeg(data, colorspace="RGB")  # type: ignore[no-any-return,unused-ignore]
    return np.array(decode_pillow(data))


def as_tensor(pixels: RgbArray) -> torch.Tensor:
    """Return uint8 [3, h, w] that shares the memory of ``pixels`` [h, w, 3]."""
    return torch.from_numpy(pixels).permute(2, 0, 1)


class ImageSamples(Dataset[tuple[torch.Tensor, int]]):
    """Maps an index to (image, index).

    Attributes:
        decode: bytes -> image.
        augment: image -> tensor.
    """

    def __init__(
        self, photos: Photos, decode: Callable[[bytes], Any], augment: Callable[[Any], torch.Tensor]
    ) -> None:
        """Keep the paths of the photos, and the two functions."""
        self.paths = [photo.path for photo in photos.photos]
        self.decode = decode
        self.augment = augment

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.paths)

    def read(self, index: int) -> bytes:
        """Return the bytes of a file. Raises OSError."""
        with open(self.paths[index], "rb") as file:
            return file.read()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Read, decode and augment a sample.

        Raises:
            DataError: it cannot be read or decoded.
        """
        try:
            image = self.decode(self.read(index))
        except Exception as error:
            raise DataError(
                f"{self.paths[index]} cannot be loaded ({error}): remove it, or repair it"
            ) from error
        return self.augment(image), index
