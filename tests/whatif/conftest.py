"""A recorded training to predict from: the demonstration of the documentation, a ResNet behind one
worker.
"""

import shutil
from pathlib import Path

import pytest

RECORDED = Path(__file__).resolve().parents[2] / "docs" / "recorded"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, not to be changed."""
    return Path(shutil.copytree(RECORDED / "demo", tmp_path_factory.mktemp("recorded") / "demo"))


@pytest.fixture(scope="module")
def decode_bound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, of images of 640 x 480 that Pillow decodes."""
    return Path(
        shutil.copytree(
            RECORDED / "decode-bound", tmp_path_factory.mktemp("recorded") / "decode-bound"
        )
    )


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of several ranks, which are not replayed."""
    return Path(shutil.copytree(RECORDED / "ddp", tmp_path_factory.mktemp("recorded") / "ddp"))
