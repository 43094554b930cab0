"""``feedline scale``: a table, recorded runs, and a training that it starts itself."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from advisor.made_up import run

from feedline.__main__ import main
from feedline.cli import child, scale
from feedline.cli.converge import _step_times
from feedline.profiler.samplers import cgroup, nvml

TABLE = "1=67758,2=142704,4=235271,8=381000"


def test_the_source_table_is_shown_with_its_flag_and_its_shape(capsys):
    assert main(["scale", "--throughput", TABLE, "--predict", "16"]) == 0

    said = capsys.readouterr().out
    for figure in ("100.0 %", "105.3 % !", "86.8 %", "70.3 %", "-0.050", "predicted with Amdahl"):
        assert figure in said
    assert "linearly" in said
    assert max(map(len, said.splitlines())) <= 80


def test_quiet_it_writes_and_prints_nothing(tmp_path, capsys):
    assert main(["scale", "--throughput", TABLE, "-q", "-o", str(tmp_path / "out")]) == 0

    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "out" / "scale.json").exists()


def test_the_page_and_the_json_say_the_same(tmp_path, capsys):
    assert (
        main(
            [
                "scale",
                "--throughput",
                TABLE,
                "--batch-size",
                "256",
                "--noise-scale",
                "4096",
                "--min-steps",
                "3000",
                "-o",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )

    found = json.loads((tmp_path / "out" / "scale.json").read_text())
    page = (tmp_path / "out" / "scale.html").read_text()
    assert [round(row["efficiency"], 3) for row in found["rows"]] == [1.0, 1.053, 0.868, 0.703]
    assert found["shape"]["name"] == "linear"
    assert "105.3 %" in page and "<svg" in page and "http" not in page.replace("http-equiv", "")


def test_an_older_result_is_not_overwritten(tmp_path, capsys):
    arguments = ["scale", "--throughput", TABLE, "-o", str(tmp_path)]
    assert main(arguments) == 0
    assert main(arguments) == 73
    assert main([*arguments, "-f"]) == 0


@pytest.mark.parametrize("table", ["1", "1=0", "0=5", "1=5,1=6", "a=b", "1=inf"])
def test_a_table_that_is_none_is_refused(table, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["scale", "--throughput", table])

    assert ended.value.code == 2


@pytest.mark.parametrize(
    "arguments", [[], ["--"], ["--throughput", TABLE, "--", "train.py"], [".", "--", "train.py"]]
)
def test_it_wants_one_thing_to_look_at(arguments, capsys):
    assert main(["scale", *arguments]) == 2
    assert "give one of these" in capsys.readouterr().err


@pytest.fixture(scope="module")
def recorded(synthetic, tmp_path_factory) -> dict[int, Path]:
    """Runs of one, two and four synthetic ranks, whose steps all take 100 ms."""
    folder = tmp_path_factory.mktemp("recorded")
    for size in (1, 2, 4):
        for rank in range(size):
            synthetic.write_rank(folder / f"n{size}", synthetic.Plan(size, 20, 4), rank)
    return {size: folder / f"n{size}" for size in (1, 2, 4)}


@pytest.fixture
def feedline(warm_python, recorded):
    """The command as a user types it, beside the runs."""
    return lambda *words: warm_python.run("-m", "feedline", *words, folder=recorded[1].parent)


def test_options_may_follow_the_run_folders(feedline):
    ended = feedline("scale", "n1", "n2", "n4", "--predict", "8,16")

    assert ended.returncode == 0, ended.stderr
    assert "predicted with bucket replay" in " ".join(ended.stdout.split())


@pytest.mark.parametrize("words", [["n1", "n3"], ["n3", "--predict", "8"], ["n3", "--epochs", "1"]])
def test_what_is_no_run_folder_is_named_and_not_run(recorded, words, feedline):
    ended = feedline("scale", *words)

    assert ended.returncode == 2
    assert (
        "'n3' is not a run folder; a training goes after `--`: feedline scale -- n3 ..."
        in " ".join(ended.stderr.split())
    )
    assert not (recorded[1].parent / "runs").exists()


def test_recorded_runs_are_compared_and_more_ranks_predicted(recorded, tmp_path, capsys):
    out = tmp_path / "out.json"
    runs = [str(recorded[size]) for size in (4, 1, 2)]

    assert main(["scale", "--predict", "8,64", "--json", str(out), *runs]) == 0

    found = json.loads(out.read_text())
    assert found["kind"] == "weak"
    per_rank = (
        32 * 19 / 1.89
    )  # of 20 steps the first warms up, and the last ends 10 ms earlier, with its update
    assert [row["point"]["samples_per_s"] for row in found["rows"]] == pytest.approx(
        [per_rank, 2 * per_rank, 4 * per_rank]
    )
    eight, far = found["predictions"]
    assert eight["low"] < 2560 * 1.001 and eight["high"] > 2560 * 0.9
    assert far["samples_per_s"] is None and "more than 4 times the 4" in far["why"]


@pytest.fixture(scope="module")
def without_loader(synthetic, tmp_path_factory) -> Path:
    """Two ranks, steps of 100 ms, samples of which nobody saw."""
    path = tmp_path_factory.mktemp("without") / "n2"
    for rank in range(2):
        synthetic.write_rank(path, synthetic.Plan(2, 20, 4, loader=False), rank)
    return path


def test_where_samples_of_one_run_were_not_seen_steps_of_all_are_compared(
    recorded, without_loader, tmp_path, capsys
):
    out = tmp_path / "out"
    runs = [str(path) for path in (recorded[1], without_loader, recorded[4])]

    assert main(["scale", *runs, "--predict", "8", "--noise-scale", "4096", "-o", str(out)]) == 0

    said, page = " ".join(capsys.readouterr().out.split()), (out / "scale.html").read_text()
    found = json.loads((out / "scale.json").read_text())
    assert [row["point"]["samples_per_s"] for row in found["rows"]] == pytest.approx(
        [10, 20, 40], rel=0.01
    )
    assert [row["efficiency"] for row in found["rows"]] == pytest.approx([1, 1, 1], rel=0.01)
    assert found["unit"] == "steps/s" and found["notes"][0].startswith(
        "samples were not recorded: steps/s are compared"
    )
    assert (
        "time to accuracy is unknown: samples were not recorded" in found["notes"]
        and found["times"] == []
    )
    assert (
        "ranks steps/s interval" in said
        and "No samples were recorded" in said
        and "time per step" in said
    )
    assert "<h2>Steps per second</h2>" in page and "1 rank: 10.1 steps/s" in page
    assert "samples/s" not in said + page and "samples per second" not in page.lower()


def test_updates_with_more_workers_are_predicted_from_two_numbers_of_them(recorded):
    runs = [replace(run(), ranks=ranks, batch=32.0 * ranks, step_s=0.1) for ranks in (1, 4)]
    other = replace(runs[0], batch=256.0, step_s=0.9)

    one, eight = _step_times(
        [Path("other"), recorded[1], recorded[4]], [other, *runs], runs[0], [1, 8]
    )

    assert (one.workers, one.step_s, one.source) == (1, 0.1, "measured")
    assert (
        eight.workers == 8
        and eight.step_s == pytest.approx(0.1, rel=0.02)
        and eight.low <= eight.step_s < eight.high
    )
    (alone,) = _step_times([recorded[1]], runs[:1], runs[0], [2])
    assert alone.step_s is None and "two or more rank counts" in alone.source


def test_folders_of_two_nodes_are_one_launch(recorded, tmp_path, capsys):
    for node, ranks in enumerate(((0, 1), (2, 3))):
        for rank in ranks:
            shutil.copytree(recorded[4] / f"rank{rank}", tmp_path / f"node{node}" / f"rank{rank}")

    assert main(["scale", str(recorded[1]), str(tmp_path / "node0"), str(tmp_path / "node1")]) == 0

    said = capsys.readouterr().out
    assert "1,290" in said and "missing" not in said


def test_a_missing_rank_is_named(recorded, tmp_path, capsys):
    shutil.copytree(recorded[4], tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "rank2")

    assert main(["scale", str(recorded[1]), str(tmp_path / "run")]) == 0
    assert "1 of 4 ranks are missing (2)" in " ".join(capsys.readouterr().out.split())


TRAINING = """
import os, sys
assert sys.argv[2:] == ["--ranks", "--", "-f", "n"], sys.argv  # what a training is given is none of feedline's options
if os.environ["WORLD_SIZE"] == sys.argv[1]:
    sys.exit(3)
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(160, 64)), batch_size=8):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_training_is_run_with_more_and_more_ranks_until_it_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    code = main(
        ["scale", "--ranks", "2,3", "-o", "out", "--", "train.py", "3", "--ranks", "--", "-f", "n"]
    )

    said = capsys.readouterr()
    assert code == 1, said.err  # torchrun's, whose rank ended with 3
    assert re.search(
        r"with 3 ranks, rank \d ended with exit code 3 at train\.py:5; end of", said.err
    )
    assert "measure more with" not in said.out and "With 3 ranks, the training failed" in said.out
    found = json.loads(Path("out/scale.json").read_text())
    assert [(row["point"]["ranks"], row["point"]["batch"]) for row in found["rows"]] == [(2, 8.0)]


FAILING = """
import os, sys
from pathlib import Path
out = Path(sys.argv[1])
assert os.listdir(out) == [] and os.environ["FEEDLINE_OUT"] == str(out)
(out / "last.pt").write_text("a checkpoint")
Path("written").write_text(str(out))
raise FileNotFoundError(2, "No such file or directory", "last.pt.tmp")
"""


def test_out_is_a_new_folder_and_the_rank_that_failed_is_told_with_its_exception(
    tmp_path, warm_python
):
    (tmp_path / "train.py").write_text(FAILING)
    ended = warm_python.run(
        *("-m", "feedline", "scale", "--ranks", "1", "-o", "out", "--", "train.py", "{out}"),
        folder=tmp_path,
    )

    assert ended.returncode == 1
    beginning, log = ended.stderr.split(":\n", 1)
    assert beginning.splitlines()[0] == "feedline: 1 run of the whole training"
    assert beginning.endswith(
        "with 1 rank, rank 0 failed with FileNotFoundError at train.py:8 (exit code 1); end of "
        "out/ranks1.log"
    )
    assert "No such file or directory: 'last.pt.tmp'" in log
    assert "error_file" not in log and "torch/distributed" not in log
    assert "can overwrite" not in beginning
    assert not os.path.exists((tmp_path / "written").read_text())
    assert not (tmp_path / "{out}").exists()


def test_what_torchrun_writes_is_no_part_of_the_end_of_a_log(tmp_path):
    told = "E1130 23:46:46.137000 27241 torch/distributed/elastic/multiprocessing/api.py:1002] "
    box = [f"{told}failed (exitcode: -9) local_rank: 1 (pid: 27245)", "Traceback", "=====", "[0]:"]
    (tmp_path / "a.log").write_text("\n".join(["[rank1]:W1130 of torch", *box]))

    assert child.tail(tmp_path / "a.log") == f"  [rank1]:W1130 of torch\n  {box[0]}"


@pytest.mark.parametrize(
    ("gpus", "counts"), [(0, [1, 2, 4]), (2, [1, 2]), (3, [1, 2]), (8, [1, 2, 4, 8])]
)
def test_it_trains_with_as_many_ranks_as_there_are_gpus(gpus, counts, monkeypatch):
    monkeypatch.setattr(nvml, "visible_gpu_count", lambda: gpus)
    monkeypatch.setattr(cgroup, "effective_cpus", lambda: 4.0)

    assert scale._usual_rank_counts() == counts


def test_on_one_gpu_it_says_so_before_it_trains(tmp_path, monkeypatch, capsys):
    script = tmp_path / "train.py"
    script.write_text("open('trained', 'w')")
    monkeypatch.setattr(nvml, "visible_gpu_count", lambda: 1)
    monkeypatch.chdir(tmp_path)

    assert main(["scale", "-o", "out", "--", "train.py"]) == 2
    assert "give --ranks 1,2 if the training uses gloo" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_study_ends_with_what_it_comes_to(tmp_path, capsys):
    assert (
        main(["scale", "--throughput", "1=100,2=180,4=250,8=240", "-o", str(tmp_path / "out")]) == 0
    )

    found, page = (
        json.loads((tmp_path / "out" / "scale.json").read_text()),
        (tmp_path / "out" / "scale.html").read_text(),
    )
    assert found["conclusion"] == (
        "8 ranks reach 2.40 times the samples/s of 1 rank: 30.0 % scaling efficiency. Use 4 "
        "ranks: more ranks are slower."
    )
    assert found["conclusion"] in " ".join(capsys.readouterr().out.split())
    assert "<h1>8 ranks reach 2.40 times the samples/s of 1 rank" in page and "Use 4 ranks" in page


def test_a_bad_baseline_is_the_conclusion(capsys):
    assert main(["scale", "--throughput", TABLE]) == 0

    said = (
        "Measure 1 rank again (`feedline scale --ranks 1 -- SCRIPT`): 2 ranks cannot be 2.11 "
        "times as fast as 1."
    )
    assert said in " ".join(capsys.readouterr().out.split())
