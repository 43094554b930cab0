"""Random operations: torchvision's distributions, and nobody else's random numbers."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1

from feedline.pipelines.random_states import TransformRng
from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate import to_albumentations, to_dali, to_torchvision
from feedline.pipelines.translate.difference import _in_pipeline
from feedline.pipelines.translate.draw import (
    _ADJUSTMENTS,
    _AUGMENT_NAMES,
    _RAND_SPACE,
    _WIDE_SPACE,
    _augment_step,
    draw,
)
from feedline.pipelines.translate.image_operations import ImageOperation
from feedline.pipelines.translate.recipe import Recipe, read_recipe

DRAWS = 4000
SHARES = np.linspace(0.05, 0.95, 10)


def many(
    operation: ImageOperation, size: tuple[int, int] = (400, 500), draws: int = DRAWS
) -> list[ImageOperation]:
    dice = random.Random(0)
    return [drawn for _ in range(draws) for drawn in draw(operation, dice, size)]


def alike(ours, theirs, span: float) -> bool:
    """Whether the ten quantiles of two samples are within 4 % of the range of values: three
    standard errors of 1000 draws.
    """
    return np.abs(np.quantile(ours, SHARES) - np.quantile(theirs, SHARES)).max() < 0.04 * span


@pytest.fixture
def torch_seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_crops_have_the_places_and_areas_of_torchvision_s(torch_seed):
    ours = [
        (one.top * 400, one.left * 500, one.height * 400, one.width * 500)
        for one in many(of.RandomResizedCrop((8, 8)))
        if isinstance(one, of.Crop)
    ]
    theirs = [
        v1.RandomResizedCrop.get_params(torch.empty(3, 400, 500), [0.08, 1.0], [3 / 4, 4 / 3])
        for _ in range(DRAWS)
    ]

    for mine, other in zip(np.array(ours).T, np.array(theirs).T):
        assert alike(mine, other, 500)
    assert np.allclose(ours, np.round(ours))


def test_a_crop_that_never_fits_is_the_middle():
    (crop, _) = draw(of.RandomResizedCrop((8, 8), scale=(1.0, 1.0)), random.Random(0), (100, 400))

    assert (crop.top, crop.left, crop.height, crop.width) == (0, 133 / 400, 1, 133 / 400)


def test_erased_rectangles_are_those_of_torchvision(torch_seed):
    holes = [one for one in many(of.RandomErasing(p=1.0)) if isinstance(one, of.Erase)]
    theirs = [
        v1.RandomErasing.get_params(torch.empty(3, 400, 500), (0.02, 0.33), (0.3, 3.3), [0.0])[:4]
        for _ in range(DRAWS)
    ]

    ours = [(one.top * 400, one.left * 500, one.height * 400, one.width * 500) for one in holes]
    for mine, other in zip(np.array(ours).T, np.array(theirs).T):
        assert alike(mine, other, 500)


def test_flips_and_erasing_happen_with_their_probability():
    assert abs(len(many(of.RandomHorizontalFlip(0.3))) / DRAWS - 0.3) < 0.03
    assert abs(len(many(of.RandomErasing(0.7))) / DRAWS - 0.7) < 0.03
    assert abs(len(many(of.RandomApply((of.Grayscale(),), 0.4))) / DRAWS - 0.4) < 0.03


def test_color_jitter_comes_in_every_order():
    jitter = of.ColorJitter((0.5, 1.5), (0.5, 1.5), (0.5, 1.5), (-0.1, 0.1))
    dice = random.Random(0)

    orders = {tuple(one.kind for one in draw(jitter, dice, (9, 9))) for _ in range(500)}

    assert len(orders) == 24


def test_affine_parameters_are_those_of_torchvision(torch_seed):
    settings = of.RandomAffine((-20, 20), (0.1, 0.3), (0.5, 2.0), (-5, 5, 1, 2))
    theirs = [
        v1.RandomAffine.get_params([-20, 20], [0.1, 0.3], [0.5, 2.0], [-5, 5, 1, 2], [500, 400])
        for _ in range(DRAWS)
    ]
    ours = [one for one in many(settings) if isinstance(one, of.Affine)]

    assert alike([one.angle for one in ours], [one[0] for one in theirs], 40)
    assert alike([one.translate[0] * 500 for one in ours], [one[1][0] for one in theirs], 100)
    assert alike([one.translate[1] * 400 for one in ours], [one[1][1] for one in theirs], 240)
    assert alike([one.scale for one in ours], [one[2] for one in theirs], 1.5)
    assert alike([one.shear[0] for one in ours], [one[3][0] for one in theirs], 10)
    assert alike([one.shear[1] for one in ours], [one[3][1] for one in theirs], 1)


@pytest.mark.parametrize(
    "space", [_RAND_SPACE, _WIDE_SPACE], ids=["RandAugment", "TrivialAugmentWide"]
)
def test_automatic_augmentations_have_torchvision_s_operations_and_magnitudes(space):
    if space is _RAND_SPACE:
        theirs = v1.RandAugment()._augmentation_space(31, (400, 500))
    else:
        theirs = v1.TrivialAugmentWide()._augmentation_space(31)
    assert sorted(_AUGMENT_NAMES) == sorted(theirs)
    for name, (magnitudes, _) in theirs.items():
        for place in (0, 9, 15, 30):
            wanted = float(magnitudes[place]) if magnitudes.ndim else 0.0
            for one in _augment_step(space, name, place / 30, 1, (400, 500), "nearest", (0.0,)):
                assert magnitude(name, one) == pytest.approx(
                    wanted, abs=1.0 if "Translate" in name else 1e-4
                ), (name, place)


def magnitude(name: str, one: ImageOperation) -> float:
    """What torchvision calls the magnitude of an operation."""
    match one:
        case of.Affine() if "Shear" in name:
            return float(np.tan(np.radians(max(one.shear))))
        case of.Affine():
            return one.translate[0] * 500 + one.translate[1] * 400
        case of.Rotate():
            return one.angle
        case of.Adjust():
            assert one.kind == _ADJUSTMENTS[name]
            return one.factor - 1
    assert isinstance(one, of.Tone)
    return one.magnitude


RANDOM = [
    v1.RandomResizedCrop(32),
    v1.RandomHorizontalFlip(),
    v1.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v1.RandomApply([v1.GaussianBlur(3)]),
    v1.RandAugment(),
    v1.RandomErasing(value="random"),
]


@pytest.mark.parametrize("library", ["pillow", "v2", "albumentations", "dali"])
def test_global_random_states_are_left_alone(library, image, photos):
    recipe = read_recipe(RANDOM)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()

    if library == "pillow":
        to_torchvision.build_v1(recipe).apply(image)
    elif library == "v2":
        to_torchvision.build_v2(recipe).apply(torch.zeros(2, 3, 40, 50, dtype=torch.uint8))
    elif library == "albumentations":
        to_albumentations.build_albumentations(recipe).apply(np.array(image))
    else:
        _in_pipeline(to_dali.build_dali(recipe, "cpu"), photos.photos, None)

    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_one_seed_gives_the_same_images_and_another_others(image):
    recipe = read_recipe(RANDOM)
    first, again, other = (
        torch.stack([built.apply(image) for _ in range(3)])
        for built in map(to_torchvision.build_v1, [recipe] * 3, [1, 1, 2])
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Numbers(torch.utils.data.Dataset):
    """Nothing but what the dice say."""

    def __init__(self) -> None:
        self.dice = TransformRng(0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return self.dice.here().random()


def test_every_worker_and_every_epoch_draws_other_numbers():
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=1, num_workers=2, generator=torch.Generator().manual_seed(0)
    )

    numbers = [float(batch) for _ in range(2) for batch in loader]

    assert len(set(numbers)) == 16


def test_images_of_a_batch_draw_one_by_one():
    batch = torch.arange(24, dtype=torch.uint8).expand(64, 3, 16, 24)

    flipped = to_torchvision.build_v2(Recipe((of.RandomHorizontalFlip(),))).apply(batch)
    cropped = to_torchvision.build_v2(Recipe((of.RandomCrop((4, 4)),))).apply(batch)

    assert {int(image[0, 0, 0]) for image in flipped} == {0, 23}
    assert len({int(image[0, 0, 0]) for image in cropped}) > 5


def on_the_map(operation: ImageOperation, map_photo, draws: int = 500) -> np.ndarray:
    """The operation in DALI on a picture whose colors are coordinates: float32 [draws, 3, h, w]."""
    return np.stack(
        _in_pipeline(to_dali.build_dali(Recipe((operation,)), "cpu"), [map_photo] * draws, None)
    )


def test_dali_s_crops_have_the_places_and_areas_of_torchvision_s(map_photo):
    nearest = of.RandomResizedCrop((8, 8), interpolation="nearest")
    found = on_the_map(nearest, map_photo)
    left, top = found[:, 0, 0, 0], found[:, 1, 0, 0]
    width, height = found[:, 0, 0, -1] - left, found[:, 1, -1, 0] - top

    boxes = [one for one in many(nearest, (256, 256)) if isinstance(one, of.Crop)]
    assert alike(width, [one.width * 256 * 7 / 8 for one in boxes], 400)
    assert alike(height, [one.height * 256 * 7 / 8 for one in boxes], 400)
    assert alike(left, [(one.left + one.width / 16) * 256 for one in boxes], 400)
    assert alike(top, [(one.top + one.height / 16) * 256 for one in boxes], 400)


def test_dali_s_crops_after_another_operation_do_too(map_photo):
    wide = of.RandomResizedCrop((8, 8), interpolation="nearest")
    found = np.stack(
        _in_pipeline(
            to_dali.build_dali(Recipe((of.Flip(False), wide)), "cpu"), [map_photo] * 500, None
        )
    )

    width = found[:, 0, 0, -1] - found[:, 0, 0, 0]
    assert alike(
        width,
        [one.width * 256 * 7 / 8 for one in many(wide, (256, 256)) if isinstance(one, of.Crop)],
        400,
    )


def test_dali_s_random_crop_is_anywhere_with_the_same_probability(small_map):
    found = on_the_map(of.RandomCrop((29, 28)), small_map, 1000)

    lefts, tops = (
        np.bincount(found[:, 0, 0, 0].astype(int)),
        np.bincount(found[:, 1, 0, 0].astype(int)),
    )
    assert len(lefts) == 5 and lefts.min() > 150 and len(tops) == 4 and tops.min() > 190


def test_dali_s_flips_and_gray_happen_with_their_probability(small_map):
    def share(operation: ImageOperation, changed) -> float:
        return float(np.mean([changed(image) for image in on_the_map(operation, small_map)]))

    assert abs(share(of.RandomHorizontalFlip(0.3), lambda image: image[0, 0, 0] == 31) - 0.3) < 0.08
    assert abs(share(of.RandomVerticalFlip(0.6), lambda image: image[1, 0, 0] == 31) - 0.6) < 0.08
    assert (
        abs(share(of.RandomGrayscale(0.2), lambda image: np.ptp(image, axis=0).max() <= 1) - 0.2)
        < 0.08
    )
    some = of.RandomApply((of.Flip(True), of.Adjust("brightness", 0.0)), 0.7)
    assert abs(share(some, lambda image: image.max() == 0) - 0.7) < 0.08


@pytest.mark.parametrize(
    "after",
    [of.Adjust("brightness", 10.0), of.Resize((64, 64), "nearest")],
    ids=lambda one: one.name,
)
def test_dali_s_operations_after_one_for_some_images_work_on_the_same_kind_of_number(
    after, small_map
):
    recipe = Recipe((of.RandomApply((of.Flip(True),), 0.5), after))

    found = np.stack(_in_pipeline(to_dali.build_dali(recipe, "cpu"), [small_map] * 200, None))

    assert abs(np.mean(found[:, 0, 0, 0] > 0) - 0.5) < 0.12
    assert found.max() == (31 if isinstance(after, of.Resize) else 255)


def test_dali_s_jitter_has_the_range_asked_for(small_map):
    found = on_the_map(of.ColorJitter(brightness=(1.0, 8.0)), small_map)

    assert alike(found[:, 0, 0, 30] / 30, np.linspace(1, 8, 100), 7)


def test_a_pillow_image_is_not_changed_in_place(image):
    before = np.array(image)

    to_torchvision.build_v1(read_recipe(RANDOM)).apply(image)

    assert np.array_equal(before, np.array(image)) and isinstance(image, Image.Image)
