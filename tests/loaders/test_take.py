"""The loader that a comparison recommends, in a training: the printed lines run as they are."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from loaders.conftest import COUNT, RUNNING
from PIL import Image

from feedline.cli.compare.text import program_lines
from feedline.pipelines.loaders.take import ComparedLoader, _current_device

MINE = """from torchvision import transforms as T

crop = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])


def make():
    return crop


class Kept:
    one = crop
"""


@pytest.mark.parametrize("kind", [kind.name for kind in RUNNING if kind.name != "synthetic"])
def test_an_epoch_has_every_image_once_with_its_label(kind, folder, transform):
    loader = ComparedLoader(kind, str(folder), transform, batch_size=5, workers=1)
    try:
        epochs = [[(images, labels) for images, labels in loader] for _ in range(2)]
    finally:
        loader.close()

    for batches in epochs:
        assert len(batches) == len(loader) and all(
            images.shape[1:] == (3, 48, 48) for images, _ in batches
        )
        assert Counter(label for _, labels in batches for label in labels.tolist()) == {
            0: 8,
            1: 8,
            2: 7,
        }
    assert COUNT == 23 and loader.classes == ["class-0", "class-1", "class-2"]
    assert [labels.tolist() for _, labels in epochs[0]] != [
        labels.tolist() for _, labels in epochs[1]
    ]


def test_files_that_are_not_used_are_named(folder, transform, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(folder, images)
    Image.new("CMYK", (64, 64)).save(images / "class-0" / "print.jpg")

    with pytest.warns(UserWarning, match=r"print\.jpg: not used"):
        loader = ComparedLoader("pillow-v1", str(images), transform, workers=0)

    assert sum(len(labels) for _, labels in loader) == COUNT


def test_a_kept_scan_gives_the_same_epochs_and_still_names_what_is_not_used(
    folder, transform, tmp_path
):
    images = tmp_path / "images"
    shutil.copytree(folder, images)
    Image.new("CMYK", (64, 64)).save(images / "class-0" / "print.jpg")

    seen = []
    for kept in (None, str(tmp_path / "photos.json"), str(tmp_path / "photos.json")):
        with pytest.warns(UserWarning, match=r"print\.jpg: not used"):
            loader = ComparedLoader("pillow-v1", str(images), transform, workers=0, scan_file=kept)
        seen.append([labels.tolist() for _, labels in loader])

    assert seen[0] == seen[1] == seen[2] and sum(map(len, seen[0])) == COUNT


@pytest.mark.parametrize("spec", [None, "mine:make"])
def test_the_lines_run_as_they_are_printed(spec, folder, tmp_path, monkeypatch, warm_python):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program = tmp_path / "train.py"
    program.write_text("\n".join(program_lines("pillow-v2", folder, spec, 8, 1)))
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    done = warm_python.run(program, folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_transform_is_named_as_it_was_given_and_called_where_it_is_a_function_that_makes_one(
    tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = [
        program_lines("spdl", Path("photos"), f"mine:{name}", 8, 1)
        for name in ("crop", "make", "Kept.one")
    ]
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    assert [line for text in said for line in text if line.startswith("transform")] == [
        "transform = mine.crop", "transform = mine.make()", "transform = mine.Kept.one",
    ]  # fmt: skip


def test_lines_name_what_was_compared():
    said = "\n".join(program_lines("dali-cpu", Path("photos"), None, 32, 4))

    assert (
        "ComparedLoader('dali-cpu', 'photos', transform, batch_size=32, workers=4)" in said
        and "RandomResizedCrop(224)" in said
    )


def test_each_rank_gets_its_batches_on_the_gpu_that_it_has_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)  # as after torch.cuda.set_device

    assert _current_device() == "cuda:3"


def test_a_loader_that_does_not_exist_is_answered_with_the_list(folder, transform):
    with pytest.raises(
        ValueError, match=r"unknown loader 'dali'; the loaders are synthetic, .*dali-cpu"
    ):
        ComparedLoader("dali", str(folder), transform)
