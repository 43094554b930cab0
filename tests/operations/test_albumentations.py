"""albumentations: transforms by class."""

import albumentations
import numpy as np

from feedline.profiler.events import Stage

PICTURE = np.arange(16 * 8 * 3, dtype=np.uint8).reshape(16, 8, 3)


def test_each_transform_is_a_span_of_its_class_and_the_chain_is_none(spans):
    chain = albumentations.Compose(
        [albumentations.HorizontalFlip(p=1), albumentations.CenterCrop(4, 5, p=1)]
    )

    written = [
        span for span in spans(lambda: chain(image=PICTURE)) if not span.name.startswith("cv2.")
    ]

    assert [(span.stage, span.name, span.extra) for span in written] == [
        (Stage.AUGMENT, "HorizontalFlip", 128),
        (Stage.AUGMENT, "CenterCrop", 20),
    ]


def test_the_users_own_subclass_is_seen(spans):
    class Invert(albumentations.ImageOnlyTransform):
        def apply(self, img, **params):
            return 255 - img

    (span,) = spans(lambda: Invert(p=1)(image=PICTURE))

    assert (span.name, span.extra) == ("Invert", 128)


def test_results_are_the_same_with_and_without_us(spans):
    def run():
        chain = albumentations.Compose(
            [albumentations.RandomCrop(8, 4), albumentations.RandomBrightnessContrast()], seed=3
        )
        return chain(image=PICTURE)["image"]

    seen = []
    spans(lambda: seen.append(run()))

    assert np.array_equal(seen[0], run())
