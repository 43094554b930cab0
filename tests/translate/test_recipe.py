"""What is read from torchvision's transforms."""

import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from feedline.pipelines.translate import image_operations as of
from feedline.pipelines.translate import to_albumentations, to_dali, to_torchvision
from feedline.pipelines.translate.recipe import Recipe, freeze_recipe, read_recipe

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EVERYTHING = [
    ("Resize", (256,), {}),
    ("Resize", ((200, 300),), {"interpolation": v1.InterpolationMode.BICUBIC}),
    ("Resize", (256,), {"max_size": 400}),
    ("CenterCrop", (224,), {}),
    ("RandomResizedCrop", (224,), {"scale": (0.3, 1.0)}),
    ("RandomCrop", (32,), {"padding": 4}),
    (
        "RandomCrop",
        ((32, 30),),
        {"padding": (1, 2), "pad_if_needed": True, "fill": 3, "padding_mode": "reflect"},
    ),
    ("Pad", ((1, 2, 3, 4),), {"fill": (9, 8, 7)}),
    ("RandomHorizontalFlip", (), {}),
    ("RandomVerticalFlip", (0.2,), {}),
    ("ColorJitter", (0.4, (0.5, 1.5), 0, 0.1), {}),
    ("Grayscale", (3,), {}),
    ("RandomGrayscale", (0.3,), {}),
    ("GaussianBlur", ((3, 5),), {"sigma": (0.5, 1.0)}),
    ("GaussianBlur", (3,), {"sigma": 0.7}),
    ("RandomAffine", (15,), {"translate": (0.1, 0.2), "scale": (0.8, 1.2), "shear": 5}),
    ("RandomAffine", ((1, 2),), {"shear": (1, 2, 3, 4), "fill": 3, "center": (3, 4)}),
    ("RandomRotation", (30,), {"expand": True, "interpolation": v1.InterpolationMode.BILINEAR}),
    ("RandAugment", (3, 5), {}),
    ("TrivialAugmentWide", (), {"fill": 128}),
]


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    EVERYTHING,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_v1_and_v2_are_read_alike(name, arguments, options):
    old = read_recipe(
        v1.Compose(
            [
                getattr(v1, name)(*arguments, **options),
                v1.ToTensor(),
                v1.Normalize(MEAN, STD),
                v1.RandomErasing(0.3),
            ]
        )
    )
    new = read_recipe(
        v2.Compose(
            [
                getattr(v2, name)(*arguments, **options),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
                v2.RandomErasing(0.3),
            ]
        )
    )

    assert old == new
    assert old.unknown == []
    assert old.operations[0].name == name
    assert (old.mean, old.std) == (MEAN, STD)


def test_settings_are_kept():
    (crop,) = read_recipe(
        v1.RandomCrop((32, 30), padding=(1, 2), pad_if_needed=True, fill=3, padding_mode="edge")
    ).operations

    assert crop == of.RandomCrop((32, 30), (1, 2, 1, 2), True, (3.0,), "edge")


def test_sequential_lists_and_random_apply_are_walked():
    recipe = read_recipe(
        nn.Sequential(
            v1.Resize(9), nn.Identity(), v1.RandomApply([v1.Grayscale(3), v1.Lambda(print)], 0.3)
        )
    )

    resize, some = recipe.operations
    assert resize == of.Resize(9)
    assert (
        isinstance(some, of.RandomApply) and some.p == 0.3 and some.operations[0] == of.Grayscale()
    )
    assert [unknown.what for unknown in recipe.unknown] == ["Lambda: builtin_function_or_method"]


class Twice(v1.Resize):
    """A user may override anything."""


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (v1.Lambda(lambda image: image), "<lambda>"),
        (lambda image: image, "<lambda>"),
        (Twice(3), "Twice"),
        (v1.RandomPerspective(), "RandomPerspective"),
        (v1.Grayscale(1), "one channel"),
        (
            v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomHorizontalFlip()]),
            "follows Normalize",
        ),
        (v2.RandomChoice([v2.RandomHorizontalFlip()]), "RandomChoice"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_kept(transform, message):
    recipe = read_recipe([v1.Resize((8, 8)), transform])

    (unknown,) = recipe.unknown
    assert message in f"{unknown.what}: {unknown.why}"
    assert recipe.operations[0] == of.Resize((8, 8))
    for built in (
        to_torchvision.build_v1(recipe),
        to_torchvision.build_v2(recipe),
        to_albumentations.build_albumentations(recipe),
        to_dali.build_dali(recipe, "cpu"),
    ):
        assert [missing for missing in built.missing if message in missing]
        assert built.does.unknown == []


def test_values_that_are_not_0_to_1_at_the_end_are_kept_so():
    as_bytes = read_recipe(
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize([127.5], [63.75])])
    )
    unscaled = read_recipe(v2.PILToTensor())
    scaled = read_recipe(v1.ToTensor())

    assert (as_bytes.mean, as_bytes.std) == ((0.5,), (0.25,))
    assert (unscaled.mean, unscaled.std) == ((0.0,), (1 / 255,))
    assert (scaled.mean, scaled.std) == (None, None)


@pytest.mark.parametrize(
    "transform",
    [v1.Pad(8, fill=0.5), v2.Pad(8, fill=(0.2, 0.4, 1.0)), v1.RandomRotation((45, 45), fill=1.0)],
)
def test_a_fill_after_to_tensor_is_in_units_of_the_tensor(transform, image):
    whole = v1.Compose([v1.ToTensor(), transform])

    ours = to_torchvision.build_v1(read_recipe(whole)).apply(image)

    assert (ours - whole(image)).abs().mean() < 0.01


def test_erasing_before_another_operation_is_named_because_translations_erase_last():
    late = read_recipe(
        v1.Compose([v1.ToTensor(), v1.RandomErasing(), v1.Resize(8), v1.RandomHorizontalFlip()])
    )
    last = read_recipe(
        v1.Compose(
            [
                v1.ToTensor(),
                v1.Resize(8),
                v1.RandomErasing(),
                v1.RandomHorizontalFlip(),
                v1.Normalize(MEAN, STD),
            ]
        )
    )

    assert [(unknown.what, unknown.why.split()[0]) for unknown in late.unknown] == [
        ("RandomErasing", "Resize")
    ]
    assert last.unknown == []


def test_erasing_some_is_named_and_the_rest_done(image):
    recipe = read_recipe(
        v1.Compose(
            [v1.ToTensor(), v1.RandomApply([v1.RandomVerticalFlip(1), v1.RandomErasing()], 1.0)]
        )
    )

    ours = to_torchvision.build_v1(recipe).apply(image)

    assert [unknown.what for unknown in recipe.unknown] == ["RandomErasing"]
    assert torch.equal(ours, v1.ToTensor()(image).flip(-2))


def test_a_resize_without_antialias_is_named_where_pillow_does_it():
    unlike = to_torchvision.build_v1(
        read_recipe(v1.Compose([v1.ToTensor(), v1.Resize(8, antialias=None)]))
    ).differs
    alike = to_torchvision.build_v1(
        read_recipe(v1.Compose([v1.Resize(8, antialias=None), v1.ToTensor()]))
    ).differs

    assert "Pillow always antialiases" in " ".join(unlike)
    assert alike == ()


@pytest.mark.parametrize(
    "transform",
    [
        v1.RandAugment(num_magnitude_bins=1, magnitude=0),
        v1.TrivialAugmentWide(num_magnitude_bins=1),
    ],
)
def test_automatic_augmentations_of_one_magnitude_are_done(transform, image):
    apply = to_torchvision.build_v1(read_recipe(transform)).apply

    assert {tuple(apply(image).shape) for _ in range(20)} == {(3, image.height, image.width)}


def test_the_preset_of_a_model_is_read():
    from torchvision.models import ResNet18_Weights

    recipe = read_recipe(ResNet18_Weights.DEFAULT.transforms())

    assert list(recipe.operations) == [of.Resize(256), of.CenterCrop((224, 224))]
    assert (recipe.mean, recipe.std) == (MEAN, STD)


@pytest.mark.parametrize(
    ("transforms", "size"),
    [
        ([], None),
        ([v1.Resize(256)], None),
        ([v1.Resize(256), v1.CenterCrop(224), v1.Pad(2)], (228, 228)),
        ([v1.Resize((20, 40)), v1.Resize(10)], (10, 20)),
        ([v1.Resize((20, 40)), v1.RandomRotation(10, expand=True)], None),
        ([v1.RandomResizedCrop((8, 9)), v1.RandomApply([v1.Resize((3, 3))])], None),
        ([v1.RandomCrop(32, padding=4), v1.RandomApply([v1.GaussianBlur(3)])], (32, 32)),
    ],
)
def test_output_size_is_known_when_all_images_get_the_same(transforms, size):
    assert read_recipe(transforms).output_size == size


def test_frozen_leaves_nothing_to_chance():
    recipe = read_recipe(
        [getattr(v1, name)(*arguments, **options) for name, arguments, options in EVERYTHING[4:]]
    )

    fixed = freeze_recipe(recipe, 3)

    assert recipe.random and not fixed.random
    assert fixed == freeze_recipe(recipe, 3)
    assert fixed != freeze_recipe(recipe, 4)


def test_what_is_built_can_be_sent_to_a_spawned_worker(image):
    recipe = read_recipe([v1.Resize((8, 8)), v1.RandomHorizontalFlip()])

    for built in (
        to_torchvision.build_v1(recipe),
        to_torchvision.build_v2(recipe),
        to_albumentations.build_albumentations(recipe),
        to_dali.build_dali(recipe, "cpu"),
    ):
        pickle.loads(pickle.dumps(built.apply))


def test_reading_imports_neither_torchvision_nor_pillow():
    program = """
import sys
from feedline.pipelines.translate.recipe import read_recipe
read_recipe([])
print({'torchvision', 'PIL'} & set(sys.modules))
"""

    said = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )

    assert said.stdout.strip() == "set()"


def test_a_crop_larger_than_the_image_is_an_error_as_in_torchvision(image):
    apply = to_torchvision.build_v1(Recipe((of.RandomCrop((5000, 5000)),))).apply

    with pytest.raises(ValueError, match="does not fit"):
        apply(image)
