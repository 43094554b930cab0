"""MONAI: transforms by class."""

import numpy as np
import pytest

from feedline.profiler.events import Stage


@pytest.fixture(scope="module")
def transforms():
    """MONAI's, whose import takes four seconds."""
    from monai import transforms

    return transforms


def test_each_transform_is_augmentation_by_its_class_name(spans, transforms):
    chain = transforms.Compose(
        [transforms.ScaleIntensityd("image"), transforms.RandFlipd("image", prob=1)]
    )

    written = spans(lambda: chain({"image": np.random.rand(1, 8, 8).astype(np.float32)}))

    assert {(span.stage, span.name) for span in written} == {
        (Stage.AUGMENT, "ScaleIntensityd"),
        (Stage.AUGMENT, "RandFlipd"),
    }


def test_loading_an_image_is_decoding(spans, transforms, tmp_path):
    np.save(tmp_path / "image.npy", np.zeros((8, 8), np.float32))
    chain = transforms.Compose(
        [
            transforms.LoadImaged("image"),
            transforms.EnsureChannelFirstd("image", channel_dim="no_channel"),
        ]
    )

    written = spans(lambda: chain({"image": str(tmp_path / "image.npy")}))

    assert (Stage.DECODE, "LoadImaged") in {(span.stage, span.name) for span in written}
