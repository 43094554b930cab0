"""What every loader promises (protocol.py), asked of each that runs on this machine."""

import os
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from loaders.conftest import COUNT, RUNNING, indices, left_behind

from feedline.pipelines.compare import side_by_side
from feedline.pipelines.loaders import LOADERS, pillow_loaders
from feedline.pipelines.translate.recipe import read_recipe
from feedline.profiler.errors import DataError
from feedline.profiler.samplers.processes import descendants

every_loader = pytest.mark.parametrize("kind", RUNNING, ids=lambda kind: kind.name)
with_images = pytest.mark.parametrize(
    "kind",
    [kind for kind in RUNNING if kind.name != "synthetic"],
    ids=lambda kind: kind.name,
)


def test_the_loaders_of_a_cpu_all_run_here():
    here = {kind.name for kind in RUNNING}

    assert {kind.name for kind in LOADERS} - here == {"gpu-augment", "dali-proxy", "dali-gpu"}


@every_loader
def test_batches_are_those_of_the_common_order_epoch_after_epoch(kind, task, loader_of):
    loader = loader_of(kind, task, seed=7)

    for epoch in (0, 1, 0):
        assert indices(loader, epoch) == replace(task.settings, seed=7, batch_size=4).epoch_batches(
            COUNT, epoch
        )


@every_loader
def test_three_ranks_share_the_samples_out(kind, task, loader_of):
    ranks = [
        indices(loader_of(kind, task, rank=rank, world_size=3, batch_size=3)) for rank in range(3)
    ]

    assert sorted(index for rank in ranks for batch in rank for index in batch) == list(
        range(COUNT)
    )
    assert [len(batch) for batch in ranks[2]] == [3, 3, 1]


@every_loader
def test_a_batch_is_float32_of_the_size_that_the_transform_makes(kind, task, loader_of):
    batches = list(loader_of(kind, task).epoch(0))

    assert {batch.images.dtype for batch in batches} == {torch.float32}
    assert {batch.index.dtype for batch in batches} == {torch.int64}
    assert [tuple(batch.images.shape) for batch in batches] == [(4, 3, 48, 48)] * 5 + [
        (3, 3, 48, 48)
    ]


@every_loader
def test_a_batch_stays_as_it_is_when_others_follow_and_the_loader_is_closed(kind, task):
    loader = kind.make(task)
    kept = [(batch, batch.images.clone()) for batch in loader.epoch(0)]

    loader.close()

    assert all(torch.equal(batch.images, copy) for batch, copy in kept)


@with_images
def test_images_are_those_of_pillow_v1_when_nothing_is_random(kind, task):
    fixed = side_by_side._frozen_task(task)
    reference = side_by_side._gray_images(pillow_loaders.PILLOW_V1, fixed)

    found = side_by_side._compare_images(side_by_side._gray_images(kind, fixed), reference)

    assert found.images == COUNT
    assert found.outside == "" and found.mean < 1.0


@with_images
def test_random_transforms_differ_from_epoch_to_epoch(kind, task, loader_of):
    loader = loader_of(kind, task, shuffle=False)
    first, second = next(iter(loader.epoch(0))).images, next(iter(loader.epoch(1))).images

    assert (first - second).abs().mean() > 0.01


@with_images
def test_an_operation_without_a_translation_is_named_and_the_rest_is_done(kind, task, loader_of):
    from torchvision import transforms as T

    odd = read_recipe(T.Compose([T.Resize((48, 48)), T.Lambda(lambda image: image), T.ToTensor()]))
    loader = loader_of(kind, replace(task, recipe=odd, transform=None))

    assert len(loader.missing) == 1 and "Lambda" in loader.missing[0]
    assert next(iter(loader.epoch(0))).images.shape == (4, 3, 48, 48)


@with_images
def test_a_file_that_is_damaged_after_the_scan_is_named(kind, task, folder, tmp_path, loader_of):
    photo = next(photo for photo in task.photos.photos if photo.path.endswith("06.jpg"))
    broken = tmp_path / "06.jpg"
    broken.write_bytes(b"\xff\xd8 no image")
    photos = [replace(one, path=str(broken)) if one is photo else one for one in task.photos.photos]
    loader = loader_of(kind, replace(task, photos=replace(task.photos, photos=photos)))

    with pytest.raises(DataError, match=r"06\.jpg"):
        indices(loader)


@every_loader
@pytest.mark.parametrize("whole", [True, False], ids=["after an epoch", "within an epoch"])
def test_close_leaves_no_process_and_no_thread(kind, task, whole):
    threads, processes = set(threading.enumerate()), set(descendants(os.getpid()))
    loader = kind.make(task)
    batches = loader.epoch(0)
    next(batches)
    if whole:
        list(batches)

    loader.close()

    assert left_behind(threads, processes) == []


@every_loader
@pytest.mark.parametrize("workers", [0, 1])
def test_the_global_random_generators_are_left_alone(kind, task, workers, loader_of):
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    expected = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()

    indices(loader_of(kind, task, workers=workers))

    assert random.getstate() == expected[0]
    assert np.random.get_state()[1].tolist() == expected[1]
    assert torch.equal(torch.get_rng_state(), expected[2])
