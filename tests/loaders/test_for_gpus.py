"""Loaders that need a GPU: why they refuse here, and as much of them as runs without one."""

from dataclasses import replace

import pytest
import torch
from loaders.conftest import COUNT, indices

from feedline.pipelines.compare import side_by_side
from feedline.pipelines.libraries import needs
from feedline.pipelines.loaders import LOADERS, dali_loaders, pillow_loaders, simplejpeg_loaders
from feedline.pipelines.loaders.protocol import LoaderKind

FOR_GPUS = [kind for kind in LOADERS if kind.name in ("dali-gpu", "dali-proxy", "gpu-augment")]


@pytest.mark.parametrize("kind", FOR_GPUS, ids=lambda kind: kind.name)
def test_they_say_why_they_refuse(kind):
    assert "CUDA device" in kind.refuses("cpu")


def test_a_library_that_is_not_there_is_named_with_the_way_to_install_it():
    assert (
        needs("cv2", "no_such_module", "nvidia.no_such.module")("cpu")
        == "not installed: pip install no_such_module nvidia-dali-cuda120"
    )


def on_the_cpu(task):
    return dali_loaders._DaliProxyLoader(task, "cpu")


@pytest.fixture
def without_cuda(monkeypatch):
    """DALI's proxy marks NVTX ranges, for which torch without CUDA has no functions.

    And it looks whether to end only every 5 s.
    """
    from nvidia.dali.plugin.pytorch.experimental import proxy

    asked = proxy.DALIServer._get_input_batches
    monkeypatch.setattr(proxy._nvtx, "range_push", lambda message: 0)
    monkeypatch.setattr(proxy._nvtx, "range_pop", lambda: 0)
    monkeypatch.setattr(
        proxy.DALIServer,
        "_get_input_batches",
        lambda self, most, timeout: asked(self, most, timeout and 0.1),
    )


@pytest.mark.parametrize(
    "make", [simplejpeg_loaders._make_gpu_augment, on_the_cpu], ids=["gpu-augment", "dali-proxy"]
)
def test_on_the_cpu_they_give_every_sample_once_with_the_right_images(
    make, task, without_cuda, loader_of
):
    fixed = side_by_side._frozen_task(task)
    kind = LoaderKind("under test", "", lambda device: None, make)

    assert sorted(index for batch in indices(loader_of(make, task)) for index in batch) == list(
        range(COUNT)
    )
    assert (
        side_by_side._compare_images(
            side_by_side._gray_images(kind, fixed),
            side_by_side._gray_images(pillow_loaders.PILLOW_V1, fixed),
        ).outside
        == ""
    )


def test_images_of_different_size_travel_as_one_tensor():
    images = [
        (torch.arange(12, dtype=torch.uint8).view(3, 2, 2), 5),
        (torch.arange(18, dtype=torch.uint8).view(3, 2, 3), 6),
    ]

    (together, shapes), index = simplejpeg_loaders._flatten_images(images)

    assert together.is_shared() and together.numel() == 30
    assert shapes == ((2, 2, 3), (2, 3, 3)) and index.tolist() == [5, 6]
    assert torch.equal(together[:12].view(2, 2, 3).permute(2, 0, 1), images[0][0])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FOR_GPUS, ids=lambda kind: kind.name)
def test_on_a_gpu_they_give_every_sample_once_with_the_right_images(kind, task, loader_of):
    if why := kind.refuses("cuda:0"):  # no GPU, or no DALI
        pytest.skip(why)
    on_gpu = replace(task, settings=replace(task.settings, device="cuda:0"))
    fixed = side_by_side._frozen_task(on_gpu)

    batches = list(loader_of(kind, on_gpu).epoch(0))

    assert all(batch.images.is_cuda for batch in batches)
    assert sorted(index for batch in batches for index in batch.index.tolist()) == list(
        range(COUNT)
    )
    assert (
        side_by_side._compare_images(
            side_by_side._gray_images(kind, fixed),
            side_by_side._gray_images(pillow_loaders.PILLOW_V1, fixed),
        ).outside
        == ""
    )
