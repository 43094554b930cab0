"""``feedline env`` as a program that reads its answer sees it."""

import json
import os

import pytest

from feedline.__main__ import main
from feedline.profiler.session import selftest


def test_what_libraries_print_of_themselves_is_no_part_of_the_answer(monkeypatch, capfd):
    def noisy(done):
        os.write(1, b"[Gloo] Rank 0 is connected to 0 peer ranks.\n")
        return [selftest.SelfTest("torch", True, "2.8.0")]

    monkeypatch.setattr(selftest, "run_selftests", noisy)

    assert main(["env", "--json", "-"]) == 0

    said = capfd.readouterr()
    assert json.loads(said.out) == [{"name": "torch", "works": True, "says": "2.8.0"}]
    assert "[Gloo]" in said.err


def test_with_a_file_the_answer_is_in_both(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(
        selftest, "run_selftests", lambda done: [selftest.SelfTest("torch", True, "2.8.0")]
    )

    assert main(["env", "--json", str(tmp_path / "env.json")]) == 0

    assert json.loads((tmp_path / "env.json").read_text()) == [
        {"name": "torch", "works": True, "says": "2.8.0"}
    ]
    assert capfd.readouterr().out.startswith("yes torch")
    assert main(["env", "--json", str(tmp_path / "env.json")]) == 73


TRAINING, LIBRARY, GAUGE = (
    selftest.SelfTest("torch.save", False, "missing: CHECKPOINT"),
    selftest.SelfTest("zarr", False, "cannot be imported", selftest.HookKind.LIBRARY),
    selftest.SelfTest("gpu", False, "no NVML", selftest.HookKind.GAUGE),
)


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([], "All well: everything that feedline can record works here."),
        (
            [LIBRARY, GAUGE],
            "Ready: 1 of 3 work. Missing: zarr (matters only to a program that uses it); gpu (no curve "
            "in the report).",
        ),
        (
            [TRAINING],
            "Not ready: 1 of 2 work. Missing: torch.save (a training is recorded only in part).",
        ),
    ],
)
def test_the_last_line_says_whether_what_is_missing_matters(monkeypatch, capfd, results, line):
    works = selftest.SelfTest("torch", True, "2.8.0")
    monkeypatch.setattr(selftest, "run_selftests", lambda done: [works, *results])

    assert main(["env"]) == 0

    assert capfd.readouterr().out.splitlines()[-1] == line


@pytest.mark.long
def test_the_real_one_tries_every_part_and_ends_with_one_line(env_command):
    *lines, blank, last = env_command["out"].splitlines()
    assert env_command["code"] == 0, env_command["err"]
    assert env_command["err"].startswith("feedline: trying every measurement takes 5 to 30 s")
    assert blank == "" and last.startswith(("All well: ", "Ready: "))
    names = {line.split("  ")[0].removeprefix("yes ").removeprefix("NO  ") for line in lines}
    assert {"run queue", "autograd", "collectives", "workers by spawn", "cpu"} <= names
