"""The loaders that are a DataLoader with worker processes."""

import multiprocessing
import pickle
from dataclasses import dataclass

import pytest
import torch
from loaders.conftest import COUNT, RUNNING, indices

from feedline.pipelines.loaders import opencv_loader, pillow_loaders
from feedline.pipelines.loaders.workers import WorkerLoader
from feedline.profiler.errors import UserCodeError

FAMILY = [
    "pillow-v1",
    "pillow-v1-uint8",
    "pillow-v2",
    "simplejpeg-v2",
    "opencv-albu",
    "simplejpeg-albu",
]


@pytest.fixture(params=["fork", "spawn"])
def start_method(request):
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(request.param, force=True)
    yield request.param
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.parametrize(
    "kind",
    [
        pillow_loaders.PILLOW_V1,
        *(pytest.param(one, marks=pytest.mark.long) for one in opencv_loader.LOADERS),
    ],
    ids=lambda kind: kind.name,
)
def test_workers_start_by_fork_and_by_spawn(kind, start_method, task, loader_of):
    assert sorted(index for batch in indices(loader_of(kind, task)) for index in batch) == list(
        range(COUNT)
    )


def test_the_samples_of_each_pickle_as_spawn_needs_it(task, loader_of):
    family = {kind.name: loader_of(kind, task, workers=0) for kind in RUNNING}
    found = {
        name: loader.samples for name, loader in family.items() if isinstance(loader, WorkerLoader)
    }

    assert sorted(found) == sorted(FAMILY)
    for samples in found.values():
        image, index = pickle.loads(pickle.dumps(samples))[3]
        assert tuple(image.shape) == (3, 48, 48) and index == 3


@pytest.mark.parametrize("name", FAMILY)
def test_ready_images_leave_the_workers_as_uint8_except_where_the_users_transform_makes_floats(
    name, task, loader_of
):
    samples = loader_of(
        next(kind for kind in RUNNING if kind.name == name), task, workers=0
    ).samples

    assert samples[0][0].dtype == (torch.float32 if name == "pillow-v1" else torch.uint8)


@dataclass
class Raises:
    what: Exception

    def __call__(self, image):
        raise self.what


@pytest.mark.parametrize("workers", [0, 1])
def test_a_transform_that_raises_is_told_in_one_line(task, workers, loader_of):
    from dataclasses import replace

    loader = loader_of(
        pillow_loaders.PILLOW_V1, replace(task, transform=Raises(KeyError("mask"))), workers=workers
    )

    with pytest.raises(UserCodeError, match=r"^the transform raises KeyError: 'mask'$"):
        indices(loader)


def test_random_transforms_without_workers_go_on_from_batch_to_batch(task, loader_of):
    from dataclasses import replace

    photos = replace(task.photos, photos=[task.photos.photos[0]] * 8)
    first, second = [
        batch.images
        for batch in loader_of(
            pillow_loaders.PILLOW_V1, replace(task, photos=photos), workers=0
        ).epoch(0)
    ]

    assert not torch.equal(first, second)


def test_two_loaders_of_one_seed_give_the_same_images(task, loader_of):
    first, second = [
        [batch.images for batch in loader_of(pillow_loaders.PILLOW_V1, task, workers=1).epoch(0)]
        for _ in range(2)
    ]

    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
