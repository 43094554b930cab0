import json
import sys
from dataclasses import replace
from xml.etree import ElementTree

import acceptance_table as command
import pytest
from acceptance import arms, data, race
from acceptance_table import chosen

from feedline.profiler.errors import Interrupted, MissingDependency, OutputError, ScriptError


def table(*words: str) -> int:
    return command.run(command.parser().parse_args([*words, "--processes", "1"]))


@pytest.fixture
def short(monkeypatch, small):
    """One epoch over an eighth of the data."""
    shorter = tuple(replace(arm, epochs=1) for arm in arms.ARMS)
    monkeypatch.setattr(command, "ARMS", shorter)
    monkeypatch.setattr(command, "BY_LETTER", {arm.letter: arm for arm in shorter})
    monkeypatch.setattr(data, "make", lambda: small)


def test_two_arms_with_two_seeds_give_a_table_and_json(short, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    kept = tmp_path / "table.json"

    assert table("--arms", "E,h", "--seeds", "2", "--json", str(kept)) == 0

    shown = capsys.readouterr().out
    assert "H  C + LAMB" in shown and "Not supported" in shown
    assert (
        max(len(line.rstrip()) for line in shown.splitlines() if str(tmp_path.name) not in line)
        <= 80
    )
    found = json.loads(kept.read_text())
    assert list(found["arms"]) == ["E", "H"] and found["seeds"] == [0, 1]
    lamb = found["arms"]["H"]
    assert {
        "name",
        "test_mean",
        "test_sd",
        "train_loss",
        "p_vs_control",
        "control",
        "updates",
        "epochs",
        "batch",
    } <= set(lamb)
    assert (
        lamb["test_mean"] == pytest.approx(sum(lamb["test"]) / 2)
        and lamb["updates"] == 2
        and len(lamb["train_losses"]) == 2
    )
    assert found["comparisons"][0]["against"] == "E" and found["versions"]["torch"]


def test_the_figure_alone_is_well_formed_and_for_light_and_dark(short, tmp_path):
    drawn = tmp_path / "table.svg"

    table("--arms", "A,B", "--seeds", "1", "-q", "-o", str(drawn))

    root = ElementTree.fromstring(drawn.read_text())
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert root.get("width") == "760" and "batch 256, nothing changed" in words
    assert "prefers-color-scheme:dark" in drawn.read_text()


def test_check_fails_with_the_gates_and_nothing_else_does(short):
    assert table("--arms", "A", "--seeds", "1", "-q") == 0
    assert (
        table("--arms", "A", "--seeds", "1", "-q", "--check") == 1
    )  # one epoch does not reach 83 %


def test_an_interrupt_shows_what_is_done(short, capsys, monkeypatch, tmp_path):
    trained = race.train

    def interrupted(arm, seed, data):
        if seed == 1:
            raise KeyboardInterrupt
        return trained(arm, seed, data)

    monkeypatch.setattr(race, "train", interrupted)

    with pytest.raises(Interrupted):
        table("--arms", "A,B", "--seeds", "3", "--json", str(tmp_path / "some.json"))

    assert "interrupted: A has 1, B has 1 of 3 seeds; arms" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert not (tmp_path / "some.json").exists()  # or the same command would refuse to overwrite it


def test_an_interrupt_before_anything_is_done_leaves_no_trace(short, capsys, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(race, "train", interrupted)

    with pytest.raises(Interrupted, match="no training was finished"):
        table("--arms", "A", "--json", str(tmp_path / "none.json"))
    assert not (tmp_path / "none.json").exists() and "Traceback" not in capsys.readouterr().err


def test_an_interrupt_while_the_data_are_made_ends_it(capsys, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "make", interrupted)

    with pytest.raises(Interrupted, match="no training was finished"):
        table("--arms", "A")
    assert not capsys.readouterr().out


def test_muon_is_left_out_where_torch_has_none(monkeypatch):
    import torch

    monkeypatch.delattr(torch.optim, "Muon", raising=False)

    assert "K" not in {arm.letter for arm in chosen(None, False)}
    assert [arm.letter for arm in chosen(["K"], False)] == ["K"]  # training it says what it needs


def test_what_is_there_already_is_kept_without_f(short, tmp_path):
    kept = tmp_path / "table.json"
    kept.write_text("mine")

    with pytest.raises(OutputError, match="already exists"):
        table("--arms", "A", "--json", str(kept))
    assert kept.read_text() == "mine"

    assert table("--arms", "A", "--seeds", "1", "-q", "-f", "--json", str(kept)) == 0
    assert json.loads(kept.read_text())["arms"]["A"]["test_sd"] is None


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path):
    with pytest.raises(OutputError):
        table("-o", str(tmp_path / "nowhere" / "table.svg"))


def test_an_unknown_arm_lists_them_all():
    with pytest.raises(ScriptError, match="(?s)unknown arm 'Z'.*H   C \\+ LAMB"):
        table("--arms", "A,Z")


def test_without_mnist1d_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)

    with pytest.raises(MissingDependency, match=r"feedline\[bench\]"):
        table("-q")


def test_the_arms_of_the_gates_are_trained_unless_others_are_named():
    assert {"A", "B", "C", "E", "F", "H", "I", "J", "L"} <= {
        arm.letter for arm in chosen(None, False)
    }
    assert len(chosen(None, True)) == len(arms.ARMS)
    assert [arm.letter for arm in chosen(["L", "A"], False)] == ["A", "L"]
