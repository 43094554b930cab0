"""Operations of the user's recipe, in each library."""

import dataclasses

import pytest
import torch
from torchvision import transforms

from feedline.pipelines.probes import augment, run_probe
from feedline.pipelines.translate.recipe import read_recipe

OWN = transforms.Compose(
    [
        transforms.RandomResizedCrop(64),
        transforms.Lambda(lambda image: image),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.3, 0.3),
        transforms.ToTensor(),
    ]
)


def test_each_operation_has_a_row_in_each_library(subject, named):
    found = named(augment.probe(subject(transform=OWN, recipe=read_recipe(OWN))))

    for operation in ("RandomResizedCrop", "RandomHorizontalFlip", "ColorJitter", "all"):
        for library in ("v1 PIL", "v2 uint8", "v2 float32", "albumentations", "DALI CPU"):
            assert found[f"augment/{operation} {library}"].value, found[
                f"augment/{operation} {library}"
            ].why
            assert found[f"augment/{operation} {library}"].cpu_s
    assert found["augment/all own transform"].value


def test_two_operations_of_one_name_are_told_apart(subject, named):
    twice = [
        transforms.RandomApply([transforms.ColorJitter(0.4)]),
        transforms.RandomApply([transforms.GaussianBlur(3)]),
    ]

    found = named(augment.probe(subject(recipe=read_recipe(twice))))

    assert found["augment/RandomApply v1 PIL"].value
    assert found["augment/RandomApply 2 v1 PIL"].settings["operation"] == "RandomApply 2"


def test_a_lambda_is_named_and_the_rest_is_measured(subject, named):
    found = named(augment.probe(subject(transform=OWN, recipe=read_recipe(OWN))))

    [row] = [one for name, one in found.items() if "ambda" in name]
    assert row.value is None and "cannot be translated" in row.why


def test_a_library_that_gives_another_picture_is_refused(subject, named, monkeypatch):
    upside_down = dataclasses.replace(
        augment._TRANSFORM_LIBRARIES[1],
        name="upside down",
        make=lambda operations: lambda images: (image.flip(-2) for image in images),
    )
    monkeypatch.setattr(
        augment, "_TRANSFORM_LIBRARIES", [augment._TRANSFORM_LIBRARIES[0], upside_down]
    )
    flip = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])

    row = named(augment.probe(subject(recipe=read_recipe(flip))))[
        "augment/RandomHorizontalFlip upside down"
    ]

    assert row.value is None
    assert "differs from torchvision on PIL images by" in row.why


def test_a_transform_that_raises_is_a_row(subject, named):
    def broken(image: object) -> torch.Tensor:
        raise ValueError("this transform is broken")

    found = named(
        augment.probe(
            subject(
                transform=broken, recipe=read_recipe(transforms.Compose([transforms.Resize(32)]))
            )
        )
    )

    assert found["augment/all own transform"].why == "ValueError: this transform is broken"
    assert found["augment/Resize v1 PIL"].value


def test_the_global_generators_are_left_alone(subject):
    torch.manual_seed(3)
    before = torch.get_rng_state()

    run_probe(subject(transform=OWN, recipe=read_recipe(OWN)), "augment")

    assert torch.equal(before, torch.get_rng_state())


def test_without_transforms_there_is_one_row_that_says_so(subject):
    [row] = augment.probe(subject())

    assert "--transforms" in row.why


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_images_of_both_kinds_of_number_are_compared_in_grey_levels(kind):
    image = torch.full((3, 2, 2), 51, dtype=torch.uint8)

    assert (
        augment._as_array(image if kind == torch.uint8 else image.float() / 255).round().tolist()
        == [[[51.0] * 3] * 2] * 2
    )
