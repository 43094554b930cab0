"""Attaching, detaching, libraries that come later or came too early."""

import functools
import importlib
import subprocess
import sys
import threading
from types import ModuleType

import cv2
import numpy as np
import pytest
import webdataset  # noqa: F401
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2

from feedline.profiler.record.detail import detail
from feedline.profiler.taps import operations
from feedline.profiler.taps.operations import cv2_, pil_, torchvision_
from feedline.profiler.taps.operations.library import AttachedTaps, Library
from feedline.profiler.taps.operations.span import collect

REPLACED = [
    *(
        f"PIL.Image:{name}"
        for name in ("open", "Image.convert", *(f"Image.{name}" for name in pil_._METHODS))
    ),
    "PIL.ImageFile:ImageFile.load",
    "PIL.WebPImagePlugin:WebPImageFile.load",
    *(
        f"torchvision.transforms.transforms:{name}.__call__"
        for name in ("Resize", "ToTensor", "Lambda", "Normalize")
    ),
    "torchvision.transforms.v2:Transform.__call__",
    *(
        f"{module}:{name}"
        for module in ("torchvision.io", "torchvision.io.image")
        for name in ("read_file", *torchvision_.DECODERS)
    ),
    *(f"cv2:{name}" for name in (*cv2_.DECODERS, *cv2_.OPERATIONS)),
    *(
        f"numpy:{name}"
        for name in ("load", "fromfile", "memmap.__new__", "lib.npyio.NpzFile.__getitem__")
    ),
    "h5py:Dataset.__getitem__",
    "webdataset.tariterators:tar_file_iterator",
    "webdataset.autodecode:Decoder.__call__",
    "albumentations:BasicTransform.__call__",
]


def originals():
    """Where -> what is there: the class's own entry, or None where it only inherits."""
    found = {}
    for place in REPLACED:
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        found[place] = id(vars(owner).get(name))
    return found


def test_undo_restores_every_original():
    before = originals()
    undo = operations.attach(lambda *_: None)
    during = originals()
    undo()

    assert [place for place in REPLACED if during[place] == before[place]] == []
    assert originals() == before


def test_attaching_twice_wraps_once_and_the_last_undo_restores():
    before = originals()
    first = operations.attach(lambda *_: None)
    once = originals()
    told = {}
    second = operations.attach(lambda name, attached, why: told.update({name: attached}))

    assert originals() == once
    assert told["numpy"] and told["cv2"] and told["PIL.Image"]
    first()
    first()
    assert originals() == once
    second()
    assert originals() == before


def test_what_cannot_be_seen_is_said(taps):
    attached, why = taps["open"]

    assert not attached
    assert "counters" in why


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_attaching_imports_no_library():
    python(
        "import sys\n"
        "from feedline.profiler.taps import operations\n"
        "undo = operations.attach(lambda *_: None)\n"
        "assert not {'PIL', 'torch', 'cv2', 'h5py', 'torchvision', 'webdataset'} & "
        "set(sys.modules)\n"
    )


def test_a_library_imported_later_is_tapped_before_anybody_can_take_its_functions():
    python(
        "from feedline.profiler.taps import operations\n"
        "from feedline.profiler.taps.operations.span import collect\n"
        "said = {}\n"
        "undo = operations.attach(lambda name, attached, why: said.update({name: attached}))\n"
        "assert 'cv2' not in said\n"
        "from cv2 import flip\n"
        "import cv2, numpy\n"
        "assert said['cv2']\n"
        "assert [span.name for span in collect(lambda: flip(numpy.zeros((4, 4)), 1))] == "
        "['cv2.flip']\n"
        "undo()\n"
        "assert type(cv2.flip) is type(len) and type(cv2._native.flip) is type(len)\n"
        "import h5py\n"
        "assert 'h5py' not in said\n"
        "operations.attach(lambda name, attached, why: said.update({name: attached}))\n"
        "assert said['h5py'] and hasattr(h5py.Dataset.__getitem__, '__wrapped__')\n"
    )


def test_a_function_that_somebody_took_before_us_is_left_alone_and_named():
    out = python(
        "import pickle, cv2\n"
        "from cv2 import imread\n"
        "class Data:\n"
        "    def __init__(self): self.flip = cv2.flip\n"
        "data = Data()\n"
        "from feedline.profiler.taps import operations\n"
        "undo = operations.attach(lambda name, attached, why: print(name, attached, why))\n"
        "assert cv2.imread is imread and cv2.flip is data.flip\n"
        "pickle.dumps(data), pickle.dumps(imread)\n"
        "assert hasattr(cv2.resize, '__wrapped__')\n"
    )

    (line,) = [line for line in out.splitlines() if line.startswith("cv2 ")]
    assert line.startswith("cv2 True ")
    assert "cv2.imread was taken by module __main__ before feedline could replace it" in line
    assert "cv2.flip was taken by " in line
    assert "cv2.resize was" not in line


def test_a_function_that_only_installed_libraries_hold_is_told_apart(tmp_path):
    """scipy, for one, takes every function of numpy by name."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "other.py").write_text("from numpy import fromfile, load")
    python(
        f"import sys; sys.path.append({str(tmp_path / 'site-packages')!r})\n"
        "import numpy, other\n"
        "from feedline.profiler.taps import operations\n"
        "said = {}\n"
        "operations.attach(lambda name, attached, why: said.update({name: why}))\n"
        "assert 'taken' not in said['numpy'], said\n"
        "assert numpy.load is not other.load and numpy.fromfile is not other.fromfile\n"
    )


def test_what_a_library_took_from_a_recording_is_no_hindrance_to_the_next_one():
    """torchvision.datasets takes decode_png by name, and keeps what was there while the first
    recording went on.
    """
    python(
        "import pickle\n"
        "from feedline.profiler.taps import operations\n"
        "undo = operations.attach(lambda *_: None)\n"
        "import numpy\n"
        "from numpy import fromfile, load\n"
        "undo()\n"
        "assert (numpy.load, numpy.fromfile) != (load, fromfile)\n"
        "said = {}\n"
        "undo = operations.attach(lambda name, attached, why: said.update({name: why}))\n"
        "assert 'taken' not in said['numpy'], said\n"
        "assert (numpy.load, numpy.fromfile) == (load, fromfile)\n"
        "assert pickle.loads(pickle.dumps([load, fromfile])) == [load, fromfile]\n"
        "undo()\n"
        "mine = numpy.load\n"
        "operations.attach(lambda name, attached, why: said.update({name: why}))\n"
        "assert numpy.load is mine and 'numpy.load was taken by module __main__' in "
        "said['numpy'], said\n"
        "assert numpy.fromfile is fromfile\n"
    )


def test_a_library_of_another_shape_is_refused_and_left_as_it_was():
    strange = ModuleType("strange")
    strange.first = first = lambda: None

    def install(tap, module):
        tap.function(module, "first", lambda: None)
        tap.function(module, "second", lambda: None)

    library = Library("strange", "strange", "", install, lambda: None)
    sys.modules["strange"] = strange
    said = []
    try:
        AttachedTaps([library]).attach(lambda *what: said.append(what))
    finally:
        del sys.modules["strange"]

    assert said == [("strange", False, "AttributeError (raised in the program's own code)")]
    assert strange.first is first


def test_a_report_that_raises_hurts_nobody():
    def report(*_):
        raise RuntimeError

    operations.attach(report)()


def test_spans_are_written_by_the_thread_that_is_looked_at_only(taps):
    def elsewhere():
        thread = threading.Thread(target=lambda: Image.new("L", (8, 8)).resize((4, 4)))
        thread.start()
        thread.join()

    assert detail.write is None
    assert collect(elsewhere) == []


def test_outside_of_a_sample_nothing_is_written(taps):
    before = collect(lambda: None)
    Image.new("L", (8, 8)).resize((4, 4))

    assert before == [] and detail.write is None


def test_spans_carry_all_clocks(spans):
    (span,) = spans(lambda: cv2.GaussianBlur(np.zeros((256, 256), np.uint8), (9, 9), 0))

    assert span.wall_ns > 0 and span.cpu_ns > 0 and span.runqueue_ns >= 0
    assert span.start_ns > 0


def test_a_chain_of_everything_is_bit_identical(encoded, tmp_path):
    import torch

    path = tmp_path / "a.jpg"
    path.write_bytes(encoded("JPEG", quality=90))
    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(24),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            v2.RandomErasing(p=1),
        ]
    )

    def run():
        torch.manual_seed(1)
        picture = chain(Image.open(path).convert("RGB"))
        return picture, torch.get_rng_state(), np.random.get_state()[1].copy()

    plain = run()
    undo = operations.attach(lambda *_: None)
    idle, looked_at = run(), []
    collect(lambda: looked_at.append(run()))
    undo()

    for seen in (idle, looked_at[0]):
        assert (
            torch.equal(seen[0], plain[0])
            and torch.equal(seen[1], plain[1])
            and np.array_equal(seen[2], plain[2])
        )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_an_object_that_holds_tapped_functions_and_methods_reaches_a_worker(method, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), method], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "cv2.flip numpy.load PIL.resize\n"), done.stderr


SCRIPT = """
import functools, io, multiprocessing, sys
from feedline.profiler.taps import operations
from feedline.profiler.taps.operations.span import collect

if __name__ == "__main__":
    undo = operations.attach(lambda *_: None)

import cv2
import numpy as np
from PIL import Image


class Data:
    def __init__(self):
        self.flip, self.load, self.picture = functools.partial(cv2.flip, flipCode=1), np.load, Image.new("L", (8, 8))

    def use(self):
        file = io.BytesIO()
        np.save(file, self.flip(np.zeros((4, 4))))
        file.seek(0)
        self.load(file)
        self.picture.resize((2, 2))


class Work:
    def __setstate__(self, state):  # comes before the arguments are unpickled, which look their functions up
        operations.attach(lambda *_: None)

    def __getstate__(self):
        return "not empty"

    def __call__(self, data):
        print(*(span.name for span in collect(data.use)))


if __name__ == "__main__":
    worker = multiprocessing.get_context(sys.argv[1]).Process(target=Work(), args=(Data(),))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
"""
