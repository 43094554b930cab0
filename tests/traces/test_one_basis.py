"""Every figure of a report of traces is of one basis, the steps: each is worked out again from the bar of the mean step."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from traces.kineto_made import EPOCH_US, STEP_US, STEPS, kineto
from truth import one_number
from truth.costs import PART

from feedline.analysis.quantities import share
from feedline.cli import main

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
REAL = [
    *(f"kineto/{name}" for name in (
        "a100_rank0of16_prewindow_kernels.json.gz", "a100_rank0of2_nccl_args.json.gz", "a100_rank3of8_healthy.json.gz",
        "h100_owlv2_input_bound.json.gz", "resnet50_autograd_workers0_2021.json.gz", "resnet50_autograd_workers4_2021.json.gz",
        "sampled_rank*of128.json.gz", "v100_ns_resolution.json.gz",
    )),
    "nsys/h100_2gpu_sendrecv.sqlite",
    "nsys/saxpy_mpi_2022_non_utf8.sqlite",
    "dlrm8/*",
]  # fmt: skip


def warmed_up(path: Path) -> str:
    """A trace whose steps are known from its optimizer, after a warm-up that is longer than they are and without a loader."""
    trace = json.loads(gzip.decompress(Path(kineto(path.with_suffix(".whole.gz"), rank=0)).read_bytes()))
    events = [one for one in trace["traceEvents"] if not one["name"].startswith("ProfilerStep")]
    host = {"ph": "X", "pid": 10, "tid": 10, "args": {}}
    events += [
        {**host, "cat": "cpu_op", "name": "Optimizer.step#SGD.step", "ts": EPOCH_US + step * STEP_US - 50, "dur": 40}
        for step in range(STEPS + 1)
    ]
    events.append({**host, "cat": "cpu_op", "name": "aten::cudnn_convolution", "ts": EPOCH_US - 20 * STEP_US, "dur": 19 * STEP_US})
    path.write_text(json.dumps({**trace, "traceEvents": events}))
    return str(path)


def stepless(path: Path) -> str:
    """A trace without anything that says where a step begins: one copy, one kernel, and a host that works in between."""
    about = {"ph": "X", "pid": 10, "tid": 10, "args": {}}
    device = {"ph": "X", "pid": 0, "tid": 7}
    events = [
        {**about, "cat": "cpu_op", "name": "aten::mm", "ts": EPOCH_US, "dur": 4000},
        {**device, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": EPOCH_US + 5000, "dur": 3000,
         "args": {"device": 0, "stream": 7, "bytes": 1000}},
        {**device, "cat": "kernel", "name": "gemm", "ts": EPOCH_US + 9000, "dur": 1000, "args": {"device": 0, "stream": 7}},
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


def on_the_cpu(path: Path) -> str:
    """A trace of a training without a device, which waits for its loader half of each step."""
    about = {"ph": "X", "pid": 10, "tid": 10, "args": {}}
    events = []
    for step in range(STEPS):
        at = EPOCH_US + step * STEP_US
        events += [
            {**about, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": STEP_US},
            {
                **about,
                "cat": "user_annotation",
                "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                "ts": at,
                "dur": 5000,
            },
            {**about, "cat": "cpu_op", "name": "aten::mm", "ts": at + 5000, "dur": 5000},
        ]
    path.write_text(json.dumps({"traceEvents": events}))
    return str(path)


MADE = {
    "one rank": lambda place: [kineto(place / "rank0.json.gz", rank=0)],
    "two ranks, the first waits": lambda place: [kineto(place / f"rank{rank}.json", rank=rank, late_us=1500 * rank) for rank in range(2)],
    "two ranks, the second waits": lambda place: [
        kineto(place / f"rank{rank}.json", rank=rank, late_us=1500 * (1 - rank)) for rank in range(2)
    ],
    "a long warm-up before the steps": lambda place: [warmed_up(place / "warm.json")],
    "no steps": lambda place: [stepless(place / "bare.json")],
    "no device": lambda place: [on_the_cpu(place / "cpu.json")],
}


def reported(paths: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str, str]:
    """The report of traces: as JSON, the short one of the terminal, and the full one."""
    assert main(["ingest", *paths, "-o", str(place / "run"), "--processes", "1"]) == 0
    short = capsys.readouterr().out
    one_number.check_run(place / "run")
    assert main(["report", str(place / "run"), "--full"]) == 0
    return json.loads((place / "run" / "report.json").read_text()), short, capsys.readouterr().out


def one_basis(report: dict[str, Any], short: str, full: str) -> None:
    """Fail where two figures of a report cannot be of the same steps."""
    shown = min(report["ranks"], key=int)
    for own in report["ranks"].values():
        device_of(own)
        if own["comm"] is not None:
            unmet = own["comm"]["exposed_wait_s"] is None
            assert unmet == any("cannot have met" in note for note in report["notes"])
            for part, stage in (("exposed_wait_s", "waiting_for_rank"), ("exposed_transfer_s", "exposed_transfer")):
                assert (own["comm"][part] or 0.0) == pytest.approx(own["stages"][stage], rel=1e-6, abs=1e-9)
    assert report["step"]["mean_s"] == pytest.approx(report["ranks"][shown]["mean_s"])
    for stage, part_s in report["step"]["stages"].items():
        assert part_s == pytest.approx(report["ranks"][shown]["stages"][stage])
    for finding in report["findings"]:
        if finding["cause"] in PART:
            finding_of(report, finding, shown)
    pace, steps = report["throughput"], report["ranks"][shown]["steps"]
    assert pace["steps"] == steps
    assert pace["steps_per_s"] == (pytest.approx(1 / report["step"]["mean_s"]) if steps else None)
    told = " ".join(full.split())
    assert f"All figures are of {report['traces']['basis']}." in told
    assert ("per step" in short) <= bool(steps) and ("Mean step" in short) == bool(steps)
    told_once(report, shown, told)


def device_of(own: dict[str, Any]) -> None:
    """Device and input of a rank against its bar."""
    gpu, stages, mean_s = own["gpu"], own["stages"], own["mean_s"]

    def pct(*names: str) -> Any:
        return pytest.approx(100 * sum(stages[name] for name in names) / mean_s, abs=1e-6)

    if gpu["span_s"] is not None:
        assert gpu["span_s"] == pytest.approx(max(own["steps"], 1) * mean_s)
        assert gpu["compute_pct"] == pct("compute")
        assert gpu["other_pct"] == pct("waiting_for_rank", "exposed_transfer", "exposed_copy")
        assert gpu["idle_pct"] == pct("input", "synchronisation", "host_launch", "unexplained")
        assert gpu["exposed_comm_pct"] == pct("waiting_for_rank", "exposed_transfer")
        assert gpu["exposed_comm_s"] == pytest.approx(gpu["exposed_comm_pct"] / 100 * gpu["span_s"])
    if own["input"]["stall_pct"] is not None:
        assert own["input"]["stall_pct"] == pct("input")
        assert own["input"]["speedup_ceiling"] == pytest.approx(mean_s / (mean_s - stages["input"]))


def finding_of(report: dict[str, Any], finding: dict[str, Any], shown: str) -> None:
    """A finding's cost, evidence and sentence against the bar of the rank that it names, or of the one that is shown."""
    named = re.match(r"rank (\d+) waits", finding["says"])
    own = report["ranks"][named[1] if named else shown]
    part_s = own["stages"][PART[finding["cause"]]]
    wanted_s = part_s if own["steps"] and finding["severity"] != "info" else 0.0
    assert finding["cost_s"] == pytest.approx(wanted_s), finding["says"]
    assert finding["evidence"][0]["value"] == pytest.approx(part_s / own["mean_s"]), finding["says"]
    assert share(part_s / own["mean_s"]) in finding["says"]
    for of in re.findall(r"(\d[\d.]*) % of the (step|trace)", finding["says"]):
        assert of == (share(part_s / own["mean_s"]).split(" ")[0], "step" if own["steps"] else "trace")


def told_once(report: dict[str, Any], shown: str, told: str) -> None:
    """The tables of the shown rank against its bar: kernels never ran longer than the device was busy, on one stream."""
    own, traces = report["ranks"][shown], report["traces"]
    if own["gpu"]["span_s"] is not None:
        busy_s = (own["gpu"]["compute_pct"] + own["gpu"]["other_pct"]) / 100 * own["gpu"]["span_s"]
        for row in traces["kernels"]:
            assert row["busy_share"] == pytest.approx(row["total_s"] / busy_s)
        computing = sum(row["total_s"] for row in traces["kernels"] if not row["communication"])
        if len(traces["kernels"]) < 100:  # else some rows are left out
            assert computing >= own["stages"]["compute"] * max(own["steps"], 1) * (1 - 1e-9)
    for stage, part_s in own["stages"].items():
        assert not part_s or f"{stage} " in told and share(part_s / own["mean_s"]) in told


@pytest.mark.parametrize("kind", MADE)
def test_every_figure_of_a_made_trace_is_of_its_steps(kind, tmp_path, capsys):
    one_basis(*reported(MADE[kind](tmp_path), tmp_path, capsys))


@pytest.mark.parametrize("pattern", REAL)
def test_every_figure_of_a_real_trace_is_of_its_steps(pattern, tmp_path, capsys):
    paths = sorted(map(str, SHARED.glob(pattern)))
    if not paths:
        pytest.skip(f"{pattern} is not beside the checkout: real traces are not part of the repository")
    one_basis(*reported(paths, tmp_path, capsys))


def test_a_long_warm_up_does_not_dilute_what_the_steps_wait_for(tmp_path, capsys):
    report, short, _ = reported([warmed_up(tmp_path / "warm.json")], tmp_path, capsys)

    stall = next(one for one in report["findings"] if one["cause"] == "input_stall")
    assert stall["cost_s"] == pytest.approx(2e-3, rel=0.01)  # of each step of 10 ms
    assert "all figures are of the trace's 4 steps: 40.0 ms of 240 ms" in short


def test_a_training_without_a_device_is_told_that_it_waits_for_its_loader(tmp_path, capsys):
    report, _, _ = reported([on_the_cpu(tmp_path / "cpu.json")], tmp_path, capsys)

    assert report["verdict"].startswith("The training stands still 50.0 % of the step because the main thread waits for its loader")


def test_a_rank_that_is_late_itself_is_not_said_to_wait(tmp_path, capsys):
    report, _, _ = reported(MADE["two ranks, the second waits"](tmp_path), tmp_path, capsys)

    late = next(one for one in report["findings"] if one["cause"] == "late_rank")
    assert late["blame"]["rank"] == 0
    assert late["says"].startswith("rank 1 waits 15.0 % of the step for other ranks, above all for rank 0")
