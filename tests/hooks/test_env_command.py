"""``feedline env`` as a program that reads its answer sees it."""

import json
import os

from feedline.cli import main
from feedline.profiler.session import selftest


def test_what_libraries_print_of_themselves_is_no_part_of_the_answer(monkeypatch, capfd):
    def noisy():
        os.write(1, b"[Gloo] Rank 0 is connected to 0 peer ranks.\n")
        return [selftest._SelfTest("torch", True, "2.8.0")]

    monkeypatch.setattr(selftest, "run_selftests", noisy)

    assert main(["env", "--json"]) == 0

    said = capfd.readouterr()
    assert json.loads(said.out) == [{"name": "torch", "works": True, "says": "2.8.0"}]
    assert "[Gloo]" in said.err


def test_with_a_file_the_answer_is_in_both(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(
        selftest, "run_selftests", lambda: [selftest._SelfTest("torch", True, "2.8.0")]
    )

    assert main(["env", "--json", str(tmp_path / "env.json")]) == 0

    assert json.loads((tmp_path / "env.json").read_text()) == [
        {"name": "torch", "works": True, "says": "2.8.0"}
    ]
    assert capfd.readouterr().out.startswith("yes torch")
    assert main(["env", "--json", str(tmp_path / "env.json")]) == 73
