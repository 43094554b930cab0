"""What the user names as module:name, and what is said when it cannot be had."""

import sys

import pytest
import torch
from PIL import Image

from feedline.pipelines.user_modules import load_model, load_transforms
from feedline.profiler.errors import UserCodeError

SOURCE = """
import functools
import torch
from torch import nn
from torchvision import transforms

pipeline = transforms.Compose([transforms.Lambda(lambda image: image), transforms.ToTensor()])

def make_pipeline():
    return pipeline

def of_an_image(image):
    return transforms.functional.to_tensor(image)

class Pipeline:
    def __call__(self, image):
        return of_an_image(image)

as_list = [transforms.ToTensor()]

class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.head = nn.Linear(4, classes)

class Needs(nn.Module):
    def __init__(self, classes):
        super().__init__()

net = Net()
seven = functools.partial(Net, 7)

def make_net():
    return Net(5)

def breaks():
    raise RuntimeError("no weights here")

number = 3
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes modules into the working folder; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("mine", None)  # of another test
    before = set(sys.modules)

    def file(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    yield file
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


@pytest.fixture
def mine(write):
    write("mine.py", SOURCE)


@pytest.mark.parametrize("name", ["pipeline", "make_pipeline", "of_an_image", "Pipeline"])
def test_a_transform_may_be_an_object_a_function_that_gives_one_a_function_or_a_class(mine, name):
    transform = load_transforms(f"mine:{name}")

    assert transform(Image.new("RGB", (4, 3))).shape == (3, 3, 4)


@pytest.mark.parametrize(
    ("name", "classes"), [("net", 3), ("Net", 3), ("make_net", 5), ("seven", 7)]
)
def test_a_model_may_be_an_instance_a_class_a_function_or_a_partial(mine, name, classes):
    assert load_model(f"mine:{name}").head.out_features == classes


def test_a_module_in_a_package_of_the_working_folder_is_found(write):
    write("project/__init__.py", "")
    write(
        "project/nets.py",
        "import torch\nfrom project import sizes\nnet = torch.nn.Linear(1, sizes.classes)",
    )
    write("project/sizes.py", "classes = 9")

    assert load_model("project.nets:net").out_features == 9


def said(load, name) -> str:
    with pytest.raises(UserCodeError) as error:
        load(name)
    return str(error.value)


def test_a_name_without_a_colon_is_explained(mine):
    assert "expected MODULE:NAME" in said(load_model, "mine")


def test_a_module_that_is_not_there_is_named_with_the_folder_that_was_looked_into(write, tmp_path):
    assert f"no module absent in {tmp_path}" in said(load_model, "absent:net")


def test_a_module_that_imports_something_absent_is_named_with_its_line(write):
    write("mine.py", "import os\nimport not_installed_at_all")

    assert "mine.py:2: No module named 'not_installed_at_all'" in said(load_model, "mine:net")


def test_a_module_that_raises_is_named_with_its_line_and_the_way_out(write):
    write("deeper.py", "def work():\n    raise ValueError('no data')")
    write("mine.py", "import deeper\n\ndeeper.work()")

    text = said(load_transforms, "mine:pipeline")

    assert "raised ValueError: no data at deeper.py:2" in text
    assert '`if __name__ == "__main__":`' in text


def test_a_module_that_ends_the_program_does_not_end_ours(write):
    write("mine.py", "import sys\nsys.exit(3)")

    assert "raised SystemExit: 3 at mine.py:2" in said(load_model, "mine:net")


def test_a_syntax_error_is_named_with_its_line(write):
    write("mine.py", "net = 1\ndef (:\n")

    assert "mine.py:2" in said(load_model, "mine:net")


def test_a_name_that_is_not_there_gets_the_nearest_one(mine):
    assert "mine.py has no make_nett: did you mean make_net?" in said(load_model, "mine:make_nett")


def test_a_function_that_raises_is_named_with_its_line(mine):
    line = SOURCE.splitlines().index('    raise RuntimeError("no weights here")') + 1

    assert f"mine:breaks() raised RuntimeError: no weights here at mine.py:{line}" in said(
        load_model, "mine:breaks"
    )


def test_a_class_that_needs_arguments_is_told_to_be_wrapped(mine):
    line = SOURCE.splitlines().index("class Needs(nn.Module):") + 1

    assert f"mine:Needs at mine.py:{line} requires classes" in said(load_model, "mine:Needs")


def test_what_is_no_model_is_said(mine):
    assert "returns a int, not an nn.Module" in said(load_model, "mine:number")
    assert "returns a Compose, not an nn.Module" in said(load_model, "mine:make_pipeline")


def test_a_list_of_transforms_is_told_to_be_composed(mine):
    assert "torchvision.transforms.Compose" in said(load_transforms, "mine:as_list")


def test_a_model_that_is_loaded_can_be_trained(mine):
    model = load_model("mine:make_net")

    model.head(torch.zeros(1, 4)).sum().backward()
    assert model.head.weight.grad is not None
