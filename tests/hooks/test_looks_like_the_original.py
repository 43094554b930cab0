"""What taps replace has the name, documentation, signature and source of the original, and pickles
as it: datasets and models hold it.
"""

import base64
import importlib
import importlib.util
import json
import pickle
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from warm_python import WarmPython

import feedline
from feedline.profiler.events import Stage
from feedline.profiler.store.segment_reader import read_segment

#: Looks at every place that is replaced and prints what it finds there. It runs plain, with the
#: places of the second run.
LOOK = """
    import base64, importlib, inspect, json, pickle, re, sys
    import torch, torch.distributed, torch._dynamo
    from torch.utils.data import DataLoader

    LIBRARIES = json.loads(sys.argv[1])
    for name in LIBRARIES:
        importlib.import_module(name)

    def places():
        if sys.argv[2] != "-":
            return json.loads(open(sys.argv[2]).read())
        from types import ModuleType
        from feedline.profiler.taps.patch import Patches
        found = []
        for patch in Patches.standing():
            if isinstance(patch.owner, ModuleType):
                found.append((patch.owner.__name__, "", patch.name))
            elif isinstance(patch.owner, type):
                found.append((patch.owner.__module__, patch.owner.__qualname__, patch.name))
        return sorted(set(found))

    def look(module, owner, name):
        place = sys.modules[module]
        for part in owner.split(".") if owner else ():
            place = getattr(place, part)
        one = getattr(place, name)
        about = {"type is a method descriptor": inspect.ismethoddescriptor(one), "callable": callable(one)}
        for what in ("__name__", "__qualname__", "__module__", "__doc__"):
            about[what] = repr(getattr(one, what, None))
        for what in (inspect.signature, inspect.getsource):
            try:
                about[what.__name__] = re.sub(" at 0x[0-9a-f]+", "", str(what(one)))
            except (TypeError, ValueError, OSError) as error:
                about[what.__name__] = type(error).__name__
        try:
            about["pickle"] = base64.b64encode(pickle.dumps(one)).decode()
            about["returns"] = pickle.loads(base64.b64decode(about["pickle"])) == one
        except Exception as error:
            about["pickle"] = about["returns"] = f"{type(error).__name__}: {error}"
        return about

    found = places()
    print(json.dumps([[place, look(*place)] for place in found]))
"""
LIBRARIES = [
    name
    for name in (
        "PIL.Image",
        "PIL.ImageFile",
        "cv2",
        "numpy",
        "h5py",
        "torchvision.transforms",
        "torchvision.io",
        "webdataset",
        "torchdata",
    )
    if importlib.util.find_spec(name.partition(".")[0]) is not None
]


@pytest.fixture(scope="module")
def looks(
    tmp_path_factory: pytest.TempPathFactory, warm_python: WarmPython
) -> list[tuple[list[str], dict[str, object], dict[str, object]]]:
    """(place, as it is without feedline, as it is under it) of everything that is replaced."""
    folder = tmp_path_factory.mktemp("looks")
    script, places = folder / "look.py", folder / "places.json"
    script.write_text(textwrap.dedent(LOOK))

    def run(*command: object) -> list[tuple[list[str], dict[str, object]]]:
        done = warm_python.run(*command, folder=folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    under = run(
        "-m", "feedline", "run", "-q", "-o", folder / "run", script, json.dumps(LIBRARIES), "-"
    )
    places.write_text(json.dumps([place for place, _ in under]))
    plain = run(script, json.dumps(LIBRARIES), places)
    return [
        (place, before, after) for (place, before), (_, after) in zip(plain, under, strict=True)
    ]


def test_everything_that_is_replaced_looks_like_the_original(looks):
    """What is replaced under another name than its own (nn.Module.__call__ is _wrapped_call_impl)
    is pickled under that one.
    """
    assert len(looks) > 40
    different = []
    for (module, owner, name), before, after in looks:
        own_name = (before["__module__"], before["__qualname__"]) == (
            repr(module),
            repr(f"{owner}.{name}" if owner else name),
        )
        built_in = before["getsource"] == "TypeError"
        skipped = set() if own_name else {"__name__", "__qualname__", "__module__", "pickle"}
        if (module, owner) != (
            "torch",
            "Tensor",
        ):  # a built-in function, or a method of Cython, becomes one of Python
            skipped |= {"type is a method descriptor"} | ({"pickle"} if built_in else set())
        different += [
            (module, owner, name, what)
            for what in before
            if what not in skipped and before[what] != after[what]
        ]
    assert not different


def test_everything_that_can_be_pickled_without_feedline_can_be_pickled_under_it(looks):
    lost = [
        place
        for place, before, after in looks
        if before["returns"] is True and after["returns"] is not True
    ]
    assert not lost


def test_what_was_pickled_under_feedline_is_read_without_it(looks):
    for name in LIBRARIES:
        importlib.import_module(name)
    for (module, owner, name), before, after in looks:
        if before["returns"] is True:
            place: object = sys.modules[module]
            for part in filter(None, owner.split(".")):
                place = getattr(place, part)
            assert pickle.loads(base64.b64decode(str(after["pickle"]))) == getattr(place, name), (
                module,
                owner,
                name,
            )


#: A program that holds what feedline replaces: in a dataset whose workers are spawned, in a model
#: that is saved, in tables.
HOLDS = """
    import copy, importlib.util, io, pickle, warnings
    import torch
    from torch import save
    from torch.autograd import backward
    from torch.nn.utils import clip_grad_norm_
    from torch.utils.data import DataLoader, Dataset

    class Holds(Dataset):
        def __init__(self):
            self.held = [torch.Tensor.to, torch.Tensor.cuda, torch.save, save, backward, clip_grad_norm_, torch.nn.Module.__call__]

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return self.held[0](torch.tensor(index), torch.float64)

    class Sub(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            Sub.seen.append((func.__name__, func is torch.Tensor.to, func == torch.Tensor.to))
            return super().__torch_function__(func, types, args, kwargs or {})

    def main():
        data = Holds()
        print(list(DataLoader(data, num_workers=1, multiprocessing_context="spawn")))
        model = torch.nn.Linear(2, 2)
        model.held = data.held
        file = io.BytesIO()
        save(model, file)
        file.seek(0)
        print([a == b for a, b in zip(torch.load(file, weights_only=False).held, data.held)])
        print(copy.deepcopy(data.held) == data.held, copy.copy(torch.Tensor.to) == torch.Tensor.to)
        if importlib.util.find_spec("cloudpickle"):
            import cloudpickle
            print(len(cloudpickle.dumps(data.held)) < 1000, pickle.loads(cloudpickle.dumps(data.held)) == data.held)
        print(torch.overrides.is_tensor_method_or_property(torch.Tensor.to), torch.Tensor.to in torch.overrides.get_testing_overrides())
        table = {torch.Tensor.to: 1}
        print(table[torch._C.TensorBase.to], repr(torch.Tensor.to), torch.ones(2).to.__name__)
        torch.ones(2).as_subclass(Sub).to(torch.float64)
        print(Sub.seen)
        model.register_full_backward_hook(lambda *_: None)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(6):
            model(torch.ones(4, 2)).sum().backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as caught:
            model(torch.ones(4, 2)).sum().backward()
        print([(warning.filename == __file__, warning.lineno) for warning in caught])

    if __name__ == "__main__":
        main()
"""


@pytest.mark.long
def test_a_program_that_holds_what_is_replaced_does_what_it_did(
    tmp_path: Path, warm_python: WarmPython
):
    script = tmp_path / "holds.py"
    script.write_text(textwrap.dedent(HOLDS))
    plain = warm_python.run(script, folder=tmp_path)
    under = warm_python.run(
        "-m", "feedline", "run", "-q", "-o", tmp_path / "run", script, folder=tmp_path
    )

    assert plain.returncode == 0, plain.stderr
    assert "False" not in plain.stdout
    assert (under.returncode, under.stdout) == (0, plain.stdout), under.stderr
    assert under.stderr == plain.stderr


def test_functions_that_were_taken_before_the_recording_began_are_watched_and_can_be_pickled(
    tmp_path: Path,
):
    from torch import save
    from torch.autograd import backward

    codes = save.__code__, backward.__code__
    with feedline.record(tmp_path / "run"):
        assert pickle.loads(pickle.dumps([save, backward])) == [torch.save, torch.autograd.backward]
        save({}, tmp_path / "saved")
        with (tmp_path / "file").open("wb") as file:
            save({"weight": torch.zeros(1000)}, file)

    assert (save.__code__, backward.__code__) == codes
    (segment,) = (tmp_path / "run").rglob("main*.seg")
    sizes = read_segment(segment).view(Stage.CHECKPOINT)["nbytes"].tolist()
    assert sizes == [(tmp_path / name).stat().st_size for name in ("saved", "file")]
