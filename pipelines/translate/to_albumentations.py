"""Translation to OpenCV and albumentations on uint8 arrays.

Random parameters are drawn as torchvision draws them, and albumentations' functions are called with
them: its own transform objects draw from ranges that are not all torchvision's. OpenCV has no
resize like Pillow's: where an image shrinks, INTER_AREA is used.
"""

import numpy as np
from numpy.typing import NDArray

from feedline.pipelines.libraries import load
from feedline.pipelines.random_states import TransformRng
from feedline.pipelines.translate.draw import draw
from feedline.pipelines.translate.recipe import Recipe, Translation


class _OnArrays:
    """Callable on uint8 [h, w, 3], RGB; returns the same type.

    Threads may share it.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.operations = recipe.images
        self.dice = TransformRng(seed)

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        from feedline.pipelines.translate.albumentations_calls import perform_albumentations

        dice = self.dice.here()
        for operation in self.operations:
            for fixed in draw(operation, dice, (image.shape[0], image.shape[1])):
                image = perform_albumentations(image, fixed)
        return np.ascontiguousarray(image)


def build_albumentations(recipe: Recipe, seed: int = 0) -> Translation:
    """Translate to OpenCV and albumentations.

    Args:
        recipe: the user's.
        seed: of the random operations; give every rank its own.

    Raises:
        MissingDependency: OpenCV or albumentations is not installed.
    """
    load("cv2", "albumentations", "feedline.pipelines.translate.albumentations_calls")
    does = recipe.known
    return Translation(_OnArrays(does, seed), recipe.missing, does=does)
