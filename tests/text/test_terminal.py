"""What feedline writes to a terminal: the sequences that rich makes, and none that stood in a name,
a trace or somebody's file.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from planted import photos
from text.conftest import RUN
from text.hostile import (
    BIDI,
    C1,
    CLEAR,
    CLIPBOARD,
    MARKUP,
    NAME,
    NOT_UTF8,
    TITLE,
    each,
    feedline,
    in_terminal,
    one_line,
    plain,
    unsafe,
)

from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.printable import printable

ESCAPED = r"\x1b]52;c;ZXZpbA==\x07"


def check(said: str) -> None:
    """Nothing of ours is left once what rich makes is taken out."""
    assert not unsafe(plain(said)), repr(plain(said))


def test_a_report_in_a_terminal_obeys_no_name(run: Path) -> None:
    (_, short), (code, said) = each([["report", run], ["report", run, "--full"]], folder=run.parent)

    assert code == 0, said
    check(short)
    check(said)
    assert "\x1b[1" in said  # it was a terminal: rich wrote in bold
    told = one_line(said)
    assert f"{ESCAPED}[red]" in told  # the name of the run
    assert "because" + one_line(printable(NAME)) in told  # of a refused hook
    assert "[link=http://evil]l[/link]:smile:" in told
    assert r"\x1b[2J[bold]" in told  # a stage


def test_no_line_of_it_becomes_wider_than_the_terminal_by_what_is_written_out(run: Path) -> None:
    _, said = feedline("report", run, "-q", "-o", run / "report.txt", folder=run.parent)

    lines = (run / "report.txt").read_text().splitlines()
    assert max(len(line) for line in lines if not line.startswith("Next")) <= 80, (
        said
    )  # a command is not cut, to be copied
    assert any(r"\x1b[2J[bold]" in line for line in lines)
    assert not unsafe("\n".join(lines))


def test_a_name_of_two_lines_is_shown_in_one(run: Path) -> None:
    _, said = feedline("report", run, "--full", folder=run.parent)

    assert any(line.strip().startswith(r"two\nlines") for line in plain(said).splitlines())


def test_traces_with_hostile_kernels_threads_devices_and_file_names(traces: list[Path]) -> None:
    code, said = feedline(
        "ingest", "--processes", "1", *traces, "-o", f"out{TITLE}[red]", folder=traces[0].parent
    )

    assert code == 0, said
    check(said)
    _, full = feedline("report", f"out{TITLE}[red]", "--full", folder=traces[0].parent)
    check(full)
    assert f"gemm_kerneln{ESCAPED}" in one_line(full)
    assert r"out\x1b]0;owned\x07[red]/report.html" in one_line(said)


def test_a_trace_that_cannot_be_read_is_named_harmlessly(traces: list[Path]) -> None:
    traces[0].write_text(NAME)
    code, said = feedline(
        "ingest", "--processes", "1", *traces, "-o", "out", folder=traces[0].parent
    )

    assert code == 65
    check(said)
    assert "skipped: " in said and rf"rank0{ESCAPED}[red]\udcff.json" in one_line(said)


def test_ceilings_and_an_nccl_log_of_somebody_else(run: Path) -> None:
    one = Ceiling(
        f"read/files {NAME}", "read", 1e9, 9e8, 1.1e9, "B/s", source=NAME, settings={NAME: NAME}
    )
    none = Ceiling(f"decode/x {NAME}", "decode", None, why=f"because {NAME}")
    Ceilings([one, none], notes=[f"photo {NAME}: zero bytes"]).write(run / "ceilings.json")
    log, head = run / f"nccl{CLEAR}[red].log", "host:1:1 [0] NCCL INFO"
    log.write_text(
        f"{head} NCCL version 2.27.3+cuda12{NAME}\n{head} Channel 00/0 : 0[0] -> 1[1] via {NAME}\n"
    )
    code, said = feedline("report", run, "--nccl-log", log, folder=run.parent)

    assert code == 0, said
    check(said)


def test_a_run_speaks_of_its_folder_and_leaves_the_output_of_the_training_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        f"import sys\nprint({(CLEAR + '[red]')!r})\nsys.exit({TITLE!r})\n"
    )
    code, said = feedline("run", "-o", RUN, "train.py", folder=tmp_path)

    assert code == 1
    assert said.count(CLEAR + "[red]\r\n") == 1 and said.count(TITLE + "\r\n") == 1
    check(said.replace(CLEAR, "").replace(TITLE, ""))
    assert f"recording into run{ESCAPED}[red]" in said


def test_packing_images_with_hostile_names(tmp_path: Path) -> None:
    data = tmp_path / f"data{CLEAR}[red]"
    photos.write(data / f"cat{C1}[bold]", 64, 48, 3)
    (data / f"cat{C1}[bold]" / f"broken{CLIPBOARD}{NOT_UTF8}[red].jpg").write_text(NAME)
    (data / f"beside{BIDI}.txt").write_text("")
    code, said = feedline(
        "pack", data, "-o", f"store{TITLE}[red]", "--kind", "tar", folder=tmp_path
    )

    assert code == 0, said
    check(said)
    assert rf"cat\x9b2J[bold]/broken{ESCAPED}\udcff[red].jpg: " in said
    assert r"beside\u202egnp..txt: " in said


def test_the_log_of_a_training_that_fails_is_shown_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(f"raise SystemExit({(NAME + chr(10) + 'second line')!r})")
    code, said = feedline(
        "scale", "--ranks", "1", "-o", f"out{TITLE}", "--", "fails.py", NAME, folder=tmp_path
    )

    assert code == 1
    check(said)
    assert r"end of out\x1b]0;owned\x07/ranks1.log:" in said
    assert "it can overwrite files: {out} in its arguments is a new folder" in said
    assert f"fails.pyn{ESCAPED}" in one_line(said)


def test_ranks_scaling_and_advice_of_a_hostile_run(run: Path) -> None:
    commands = [
        ["report", "--by-rank", run],
        ["scale", run, run],
        ["converge", "advise", run],
        ["converge", "advise", run, "--target", f"{NAME}=1"],
    ]
    for code, said in each(commands, folder=run.parent):
        check(said)
        assert ESCAPED in one_line(said) or code in (0, 65)
        assert "Traceback" not in said


def test_an_ascii_terminal_gets_names_of_other_scripts_as_escapes(run: Path) -> None:
    path = run / "rank0" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(
        json.dumps(manifest | {"hooks": [{"name": "日本", "attached": False, "why": "é"}]})
    )
    code, said = in_terminal(
        "env",
        "PYTHONIOENCODING=ascii",
        sys.executable,
        "-m",
        "feedline",
        "report",
        run,
        "--full",
        folder=run.parent,
    )

    assert code == 0, said
    assert said.isascii() and "####" in said
    assert r"\u65e5\u672c: \xe9" in said


HOSTILE_ARGUMENTS = [
    [NAME],
    ["report", NAME],
    ["report", ".", "--" + NAME],
    ["report", ".", "--wait", NAME],
    ["run", f"{NAME.replace('/', '')}.py"],
    ["run", "-m", NAME],
    ["run", "--torch-profiler", NAME, "x.py"],
    ["run", "--fix", NAME, "train.py"],
    ["ingest", NAME],
    ["ingest", "x.json", "--rank", NAME],
    ["ingest", f"x{NOT_UTF8}{CLEAR}.json"],
    ["pack", NAME, "-o", "out", "--kind", "tar"],
    ["pack", ".", "-o", "out", "--kind", NAME],
    ["env", NAME],
    ["compare", "--data", NAME],
    ["compare", "--data", ".", "--loaders", NAME],
    ["compare", "--data", ".", "--workers", NAME],
    ["compare", "--data", ".", "--transforms", NAME],
    ["probe", "--parts", NAME],
    ["probe", "--data", NAME, "--parts", "read"],
    ["probe", "--model", NAME, "--parts", "compute"],
    ["scale", NAME],
    ["scale", "--throughput", NAME],
    ["report", "--by-rank", NAME],
    ["converge", NAME],
    ["converge", "advise", NAME],
    ["converge", "advise", ".", "--target", NAME],
    ["verify", "--fix", NAME, "--", "x.py"],
    ["verify", "--fix", "warmup=5ep", "--checkpoint", NAME, "--", "x.py"],
    ["verify", NAME, "--set", "num_workers=2", "--", "x.py"],
    ["verify", "--set", NAME, "--", "x.py"],
    ["verify", "--set", "num_workers=2", "--writable", NAME, "--", "x.py"],
    ["run", "--set", "num_workers=2", "--set-at", NAME, NAME],
]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    folder = tmp_path_factory.mktemp("errors")
    (folder / "train.py").write_text("")
    return each(HOSTILE_ARGUMENTS, folder=folder)


@pytest.mark.parametrize(
    "at",
    range(len(HOSTILE_ARGUMENTS)),
    ids=lambda at: ascii(" ".join(HOSTILE_ARGUMENTS[at]).replace(NAME, "NAME")),
)
def test_an_error_repeats_hostile_arguments_harmlessly(
    errors: list[tuple[int, str]], at: int
) -> None:
    code, said = errors[at]

    assert code != 0, said
    assert "Traceback" not in said
    check(said)
    assert r"\x1b" in said


def test_what_is_wrong_with_an_edited_run_is_told_harmlessly(run: Path) -> None:
    text = (run / "rank0" / "manifest.json").read_text()
    edits = {
        "schema": json.dumps(json.loads(text) | {"schema_version": 9}),
        "version": json.dumps(json.loads(text) | {"schema_version": f"9{NAME}"}),
        "field": json.dumps(json.loads(text) | {"hooks": [{NAME: NAME}]}),
        "broken": text[:100] + NAME,
    }
    for name, edit in edits.items():
        copy = run.parent / f"{name}{CLIPBOARD}"
        (copy / "rank0").mkdir(parents=True)
        (copy / "rank0" / "manifest.json").write_text(edit)
    for code, said in each(
        [["report", run.parent / f"{name}{CLIPBOARD}"] for name in edits], folder=run.parent
    ):
        assert code in (65, 76)
        check(said)
        assert ESCAPED in said


def test_a_file_name_cannot_begin_a_line_of_its_own(tmp_path: Path) -> None:
    code, said = feedline("report", "-q", "x\nfeedline: all is well", folder=tmp_path)

    assert code == 66
    assert r"x\nfeedline: all is well" in said
    assert len(said.splitlines()) == 1


def test_lines_that_belong_to_an_error_stay_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    ((_, fix),) = each([["run", "--fix", "local_sgd=4", "train.py"]], folder=tmp_path)

    assert "add it to the program:\r\n\r\nfrom feedline.convergence" in fix
    assert r"\n" not in fix


def test_traces_of_torch_profiler_are_announced_harmlessly(tmp_path: Path) -> None:
    script, folders = tmp_path / "profiled.py", (f"traces{CLIPBOARD}[red]", f"/proc/{TITLE}")
    script.write_text(
        "import sys, torch, feedline\n"
        "for folder in sys.argv[1:]:\n"
        "    with torch.profiler.profile(on_trace_ready=feedline.on_trace_ready(folder)):\n"
        "        torch.ones(2)\n"
    )
    code, said = in_terminal(sys.executable, script, *folders, folder=tmp_path)

    assert code == 0, said
    check(said)
    assert f"feedline: next: feedline ingest traces{ESCAPED}[red]/rank0" in said
    assert r"cannot write the trace into /proc/\x1b]0;owned\x07" in said


def test_without_standard_error_it_goes_on(tmp_path: Path) -> None:
    code = os.spawnlp(
        os.P_WAIT,
        "sh",
        "sh",
        "-c",
        f"cd {tmp_path} && {sys.executable} -m feedline report nowhere 2>&-",
    )

    assert code == 66


def test_markup_in_a_progress_bar_is_text(tmp_path: Path) -> None:
    script = tmp_path / "bar.py"
    script.write_text(
        "import sys, time\nfrom feedline.cli.outputs import progress_bar\n"
        "with progress_bar(False) as tell:\n    tell(sys.argv[1], 1, 2)\n    time.sleep(0.3)\n"
    )
    code, said = in_terminal(
        sys.executable, script, CLEAR + MARKUP + "\nx", folder=tmp_path, columns=200
    )

    assert code == 0, said
    check(said)
    assert r"\x1b[2J" + MARKUP + r"\nx" in plain(said)
