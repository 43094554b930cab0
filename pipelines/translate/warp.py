"""The matrix of torchvision's affine transforms, for libraries that take a matrix."""

import math

import numpy as np
from numpy.typing import NDArray

from feedline.pipelines.translate.operations import Affine, Rotate, Size

Matrix = NDArray[np.float64]


def _moved(x: float, y: float) -> Matrix:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], dtype=np.float64)


def _linear(rows: list[list[float]]) -> Matrix:
    matrix = np.eye(3)
    matrix[:2, :2] = rows
    return matrix


def as_affine(operation: Rotate) -> Affine:
    """A rotation as an affine transform: torchvision rotates counter-clockwise in ``rotate`` and clockwise in ``affine``."""
    return Affine(-operation.angle, interpolation=operation.interpolation, fill=operation.fill, center=operation.center)


def source_matrix(operation: Affine, size: Size) -> Matrix:
    """Where each pixel of the result comes from.

    torchvision's definition (functional.affine): turn, scale and shear about the center, then move by whole pixels.

    Args:
        size: (height, width) of the image.

    Returns:
        float64 [3, 3], from (x, y) of the result to (x, y) of the image; the middle of the first pixel is at (0.5, 0.5).
    """
    height, width = size
    x, y = operation.center or (width / 2, height / 2)
    angle, along_x, along_y = (math.radians(degrees) for degrees in (operation.angle, *operation.shear))
    turn = _linear([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    shear_y = _linear([[1, 0], [-math.tan(along_y), 1]])
    shear_x = _linear([[1, -math.tan(along_x)], [0, 1]])
    scale = _linear([[operation.scale, 0], [0, operation.scale]])
    move = _moved(round(operation.translate[0] * width), round(operation.translate[1] * height))
    matrix: Matrix = move @ _moved(x, y) @ turn @ scale @ shear_y @ shear_x @ _moved(-x, -y)
    return np.linalg.inv(matrix).astype(np.float64)


def expanded(matrix: Matrix, size: Size) -> tuple[Matrix, Size]:
    """A result large enough for the whole rotated image, as in Pillow's ``rotate(expand=True)``.

    Returns:
        The matrix and (height, width).
    """
    height, width = size
    corners = np.array([[0, width, width, 0], [0, 0, height, height], [1, 1, 1, 1]], dtype=np.float64)
    x, y, _ = np.round(np.linalg.inv(matrix) @ corners, 9)
    columns, rows = math.ceil(x.max()) - math.floor(x.min()), math.ceil(y.max()) - math.floor(y.min())
    return matrix @ _moved((width - columns) / 2, (height - rows) / 2), (rows, columns)
