"""From uint8 images to the model's tensor."""

import random

import numpy as np
import pytest
import torch
from nvidia.dali import Pipeline, fn
from torchvision import transforms as v1

from feedline.pipelines.loaders import dali_loaders
from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate.recipe import Recipe, read_recipe
from feedline.pipelines.translate.to_torchvision import finish

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES = {
    "plain": read_recipe([v1.ToTensor()]),
    "normalised": read_recipe([v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "bytes": read_recipe([v1.PILToTensor()]),
    "erased after": Recipe((of.Erase(0.25, 0.5, 0.25, 0.5, (0.5, 1.0, 2.0)),), MEAN, STD),
    "erased before": Recipe((of.Erase(0.25, 0.5, 0.25, 0.5, (0.5,), normalised=False),), MEAN, STD),
}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 3, 8, 16), np.uint8))


def test_it_is_what_torchvision_does(images):
    ours = finish(RECIPES["normalised"], images)

    assert torch.allclose(ours, v1.Normalize(MEAN, STD)(images / 255), atol=1e-6)
    assert torch.equal(finish(RECIPES["bytes"], images), images.float())
    assert torch.allclose(finish(RECIPES["plain"], images), images / 255)


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("erased after", [0.5, 1.0, 2.0]),
        ("erased before", [(0.5 - m) / s for m, s in zip(MEAN, STD)]),
    ],
)
def test_a_rectangle_is_erased_and_the_rest_kept(images, what, value):
    ours, plain = finish(RECIPES[what], images), finish(RECIPES["normalised"], images)

    hole = ours[:, :, 2:4, 8:16]
    assert torch.allclose(hole, torch.tensor(value).view(3, 1, 1).expand_as(hole), atol=1e-6)
    plain[:, :, 2:4, 8:16] = hole
    assert torch.allclose(ours, plain, atol=1e-6)


def test_noise_is_normal_and_follows_the_dice(images):
    recipe = Recipe((of.RandomErasing(p=1.0, scale=(0.3, 0.5), value=None),), (0.5,), (0.5,))
    large = torch.zeros(4, 3, 64, 64, dtype=torch.uint8)

    first, again = (finish(recipe, large, random.Random(3)) for _ in range(2))

    noise = first[first != -1]
    assert abs(noise.mean()) < 0.05 and abs(noise.std() - 1) < 0.05
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])


def in_dali(recipe: Recipe, images: torch.Tensor, copies: int = 1) -> torch.Tensor:
    given = [image.permute(1, 2, 0).contiguous().numpy() for image in images] * copies
    pipeline = Pipeline(
        batch_size=len(given), num_threads=1, device_id=None, seed=1, prefetch_queue_depth=1
    )
    with pipeline:
        pipeline.set_outputs(
            dali_loaders._normalise_in_pipeline(
                fn.external_source(lambda: given, layout="HWC"), recipe
            )
        )
    pipeline.build()
    (batch,) = pipeline.run()
    return torch.from_numpy(np.array(batch.as_tensor()))


@pytest.mark.parametrize("what", RECIPES)
def test_dali_finishes_alike(images, what):
    assert torch.allclose(in_dali(RECIPES[what], images), finish(RECIPES[what], images), atol=1e-4)


def test_dali_s_random_erasing_has_the_share_and_area_of_torchvision_s(images):
    recipe = Recipe((of.RandomErasing(0.4, value=(-1.0,)),))
    white = torch.full((1, 3, 64, 64), 255, dtype=torch.uint8)

    areas = (in_dali(recipe, white, 600)[:, 0] == -1).float().mean((1, 2))

    erased = areas[areas > 0]
    assert abs(len(erased) / 600 - 0.4) < 0.07
    assert abs(erased.mean() - (0.02 + 0.33) / 2) < 0.03 and erased.max() < 0.36
