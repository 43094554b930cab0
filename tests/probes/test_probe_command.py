"""``feedline probe``: the table, the file, and what it refuses."""

import sys

import pytest

from feedline.__main__ import main
from feedline.cli import outputs
from feedline.pipelines import probes
from feedline.pipelines.names import PROBES
from feedline.pipelines.probes import decoders
from feedline.profiler.ceilings import Ceiling, Ceilings

MINE = """
import torch
from torchvision import transforms

transform = transforms.Compose([transforms.Resize((16, 16)), transforms.Lambda(lambda image: image), transforms.ToTensor()])

def model():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))

class OfThree(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def forward(self, left, middle, right):
        return left

class OfEight(torch.nn.Linear):
    def __init__(self):
        super().__init__(8 * 3 * 224 * 224, 4)

    def forward(self, images):
        return super().forward(images.view(1, self.in_features))
"""


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine_for_probe.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine_for_probe", None)


def test_twenty_photos_are_probed_quickly_into_a_table_and_a_file(working_folder, folder, capsys):
    code = main(
        [
            "probe",
            "--data",
            str(folder),
            "--transforms",
            "mine_for_probe:transform",
            "--model",
            "mine_for_probe:model",
        ]
        + [
            "--parts",
            "compute,decode,augment,transport",
            "--batch-size",
            "8",
            "--quick",
            "-o",
            "ceilings.json",
        ]
    )

    printed = capsys.readouterr().out
    found = Ceilings.read(working_folder / "ceilings.json")
    names = [one.name for one in found.ceilings]
    assert code == 0
    assert [line for line in printed.splitlines() if line.strip().startswith("simplejpeg")]
    assert "Not measured" in printed and "MFU" in printed
    said = " ".join(printed.split())
    assert "(read not measured)" in said and "on the same cores: together at most about" in said
    assert {one.part for one in found.ceilings} == {
        "decode",
        "augment",
        "collate",
        "transport",
        "compute",
    }
    assert (
        names.index("decode/Pillow")
        < names.index("collate/uint8 shared")
        < names.index("compute/model")
    )
    assert found.flop_per_sample == 2 * 2 * 768 * 4
    assert found.peak_flops in [one.high for one in found.ceilings if one.unit == "FLOP/s"]
    assert found.sample_bytes == pytest.approx(
        sum(path.stat().st_size for path in folder.rglob("*.jpg")) / 20
    )
    assert found.cores and found.machine["torch"]
    assert (
        found.conclusion.startswith(f"{found.cores:g} cores load at most about ")
        and found.conclusion in said
    )


def test_how_long_all_parts_take_is_said_before_and_each_ceiling_is_progress(
    working_folder, folder, capsys, monkeypatch
):
    monkeypatch.setattr(outputs, "_LOG_EVERY_S", 0.0)

    assert main(["probe", "--data", str(folder), "--parts", "decode,copy", "--quick"]) == 0

    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("feedline: probing 2 parts takes about 3 s: every way in 3 rounds")
    assert "feedline: probing: decode/Pillow (0/2)" in said
    assert "feedline: probing: memory/copy (1/2)" in said


def test_a_part_that_lacks_what_it_measures_takes_no_time():
    def all_of(data: bool, model: bool) -> float:
        return sum(probes.expected_s(part, data, model, False) for part in PROBES)

    assert all_of(False, False) < all_of(True, False) < all_of(True, True)
    assert probes._USUAL_S.keys() == PROBES.keys()


def test_a_probe_that_breaks_is_a_row_and_the_others_go_on(
    working_folder, folder, capsys, monkeypatch
):
    def breaks(_: object) -> None:
        raise RuntimeError("the probe itself is broken")

    monkeypatch.setattr(decoders, "probe", breaks)

    assert main(["probe", "--data", str(folder), "--parts", "decode,copy", "--quick"]) == 0

    printed = capsys.readouterr().out
    assert "decode: RuntimeError: the probe itself is broken" in printed
    assert "memory, of the machine" in printed


def test_a_file_that_is_there_is_not_overwritten(working_folder, capsys):
    (working_folder / "ceilings.json").write_text("mine")

    assert main(["probe", "--parts", "copy", "-o", "ceilings.json"]) == 73
    assert (working_folder / "ceilings.json").read_text() == "mine"
    assert "-f" in capsys.readouterr().err


def test_a_part_that_is_not_there_is_refused_with_those_that_are(capsys):
    with pytest.raises(SystemExit):
        main(["probe", "--parts", "reading"])

    assert "unknown part reading; the parts are read, decode," in capsys.readouterr().err


def test_a_folder_that_is_not_there_and_code_that_is_not_there_have_their_exit_codes(
    working_folder, capsys
):
    assert main(["probe", "--data", "nowhere", "--parts", "copy"]) == 66
    assert main(["probe", "--model", "nowhere:model", "--parts", "copy"]) == 1


def test_a_model_that_cannot_be_probed_ends_the_command_before_anything_is_measured(
    working_folder, capsys
):
    assert (
        main(["probe", "--model", "mine_for_probe:OfThree", "--parts", "compute", "--quick"]) == 1
    )
    said = capsys.readouterr()
    assert said.out == "" and "probing" not in said.err
    assert "TypeError: OfThree.forward() missing 2 required positional arguments" in said.err
    assert "Its forward must take one batch of images: wrap a model of other inputs" in said.err

    eight = ["--model", "mine_for_probe:OfEight", "--batch-size", "8", "--parts", "compute"]
    assert main(["probe", *eight, "--quick"]) == 0  # made for this number of images
    assert "TypeError" not in capsys.readouterr().err

    assert main(["probe", "--model", "mine_for_probe:nothing", "--parts", "compute"]) == 1
    assert "probing" not in capsys.readouterr().err


def test_a_model_is_not_tried_for_parts_that_do_not_train_it(working_folder, capsys):
    assert main(["probe", "--model", "mine_for_probe:OfThree", "--parts", "copy", "--quick"]) == 0


def test_of_several_numbers_of_readers_the_table_shows_the_fastest():
    from feedline.cli.probe.text import _fastest_only

    rows = [
        Ceiling(f"read/files read cold x{n}", "read", value, settings={"readers": n})
        for n, value in ((1, 5.0), (4, 9.0), (16, 7.0))
    ]

    assert [one.name for one in _fastest_only(rows)] == ["read/files read cold x4"]
