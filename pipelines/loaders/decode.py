"""From the bytes of a file to an RGB image, by library. None turns an image by its EXIF tag, as torchvision's ImageFolder does not."""

import io
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]  # [h, w, 3], RGB


def pillow(data: bytes) -> "Image":
    """As torchvision's ImageFolder decodes. Raises OSError: the file is damaged."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def opencv(data: bytes) -> Pixels:
    """With OpenCV. Raises ValueError: OpenCV cannot read it."""
    import cv2

    rgb = getattr(cv2, "IMREAD_COLOR_RGB", None)  # OpenCV 4.11
    found = cv2.imdecode(np.frombuffer(data, np.uint8), (cv2.IMREAD_COLOR if rgb is None else rgb) | cv2.IMREAD_IGNORE_ORIENTATION)
    if found is None:
        raise ValueError("OpenCV cannot decode it")
    return found if rgb is not None else cv2.cvtColor(found, cv2.COLOR_BGR2RGB, dst=found)  # type: ignore[return-value,no-any-return,unused-ignore]


def libjpeg_turbo(data: bytes) -> Pixels:
    """With libjpeg-turbo through simplejpeg; what is no JPEG, with Pillow. Raises ValueError, OSError: the file is damaged."""
    import simplejpeg

    if data[:2] == b"\xff\xd8":
        return simplejpeg.decode_jpeg(data, colorspace="RGB")  # type: ignore[no-any-return,unused-ignore]
    return np.array(pillow(data))


def as_tensor(pixels: Pixels) -> torch.Tensor:
    """uint8 [3, h, w] that shares the memory of ``pixels`` [h, w, 3]."""
    return torch.from_numpy(pixels).permute(2, 0, 1)
