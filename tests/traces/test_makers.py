"""Files of other programs: read where they hold what a report can tell, refused by name where they
do not.
"""

import json
import pickle
import zipfile

import pytest
import viztracer

from feedline.__main__ import main
from feedline.analysis.ranks.ingest_traces import _read_trace
from feedline.analysis.traces.trace_columns import Kind
from feedline.profiler.errors import TraceDamaged

CALL = {"name": "read", "ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 3}
WRITTEN = {  # file -> (what it holds, who wrote it)
    "speedscope.json": (
        {"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []},
        "py-spy or another sampler",
    ),
    "raw.json": ([{**CALL, "cat": "py-spy", "ph": phase} for phase in "BE"], "py-spy:"),
    "browser.json": (
        {"traceEvents": [{**CALL, "cat": "devtools.timeline"}], "metadata": {"source": "DevTools"}},
        "Chrome",
    ),
    "results.json": ({"rocprofiler-sdk-tool": [{"metadata": {}}]}, "rocprofv3"),
    "et.json": ({"schema": "1.1.0-chakra.0.0.4", "nodes": []}, "torch's ExecutionTraceObserver"),
    "memory.json": ({"segments": [], "device_traces": [[]]}, "torch.cuda.memory"),
    "nsys.json": (
        {"Type": 48, "CudaEvent": {"startNs": "1"}},
        "Nsight Systems, as JSON: export it as SQLite",
    ),
    "memory.pickle": (pickle.dumps({"segments": [], "device_traces": [[]]}), "torch.cuda.memory"),
    "dump.pickle": (
        pickle.dumps({"version": "2.9", "pg_config": {}, "entries": []}, protocol=2),
        "torch's Flight Recorder",
    ),
    "page.html": (b"<!DOCTYPE html><html>", "a program that writes HTML"),
    "app.pfw": (
        b"[\n" + b"\n".join([json.dumps({**CALL, "cat": "POSIX"}).encode()] * 3),
        "DFTracer",
    ),
    "vm.xplane.pb": (
        b"\x0a\x22\x08\x01\x12\x09/host:CPU" + bytes(60),
        "the profiler of JAX or TensorFlow",
    ),
    "out.pftrace": (b"\x0a\x04\x50\x01\x08\x05" * 4, "a program that writes Perfetto's protobuf"),
    "own.trace.json": (
        {"otherData": {"feedline": {"clocks": []}}, "traceEvents": [{**CALL}]},
        "feedline itself",
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_holds_no_device_and_no_training_is_refused_by_name(name, tmp_path):
    holds, who = WRITTEN[name]
    (tmp_path / name).write_bytes(holds if isinstance(holds, bytes) else json.dumps(holds).encode())

    with pytest.raises(TraceDamaged) as refused:
        _read_trace(str(tmp_path / name))
    assert f"{name} was written by {who}" in str(
        refused.value
    ) and "feedline ingest reads traces of torch.profiler" in str(refused.value)


def test_a_real_trace_of_viztracer_is_refused_with_the_way_out(tmp_path, capsys):
    with viztracer.VizTracer(output_file=str(tmp_path / "result.json"), verbose=0):
        sorted(json.loads("[3, 2, 1]"))

    assert main(["ingest", str(tmp_path / "result.json"), "-o", str(tmp_path / "run")]) == 65
    told = capsys.readouterr().err
    assert (
        "was written by viztracer: it holds Python calls of the host, and nothing of a device"
        in told
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("cats", "called"), [(["foo", "bar"], "'bar', 'foo'"), ([""], "missing")])
def test_events_of_unknown_categories_are_not_called_a_trace_without_a_device(
    cats, called, tmp_path
):
    (tmp_path / "t.json").write_text(json.dumps([{**CALL, "cat": cat} for cat in cats]))

    with pytest.raises(
        TraceDamaged, match=rf"none of a category that feedline knows \(here: {called}\)"
    ):
        _read_trace(str(tmp_path / "t.json"))


def test_an_archive_of_torch_save_is_no_trace(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", "x")

    with pytest.raises(TraceDamaged, match="is compressed with zip"):
        _read_trace(str(tmp_path / "model.pt"))


def test_a_trace_of_rocprof_is_read(tmp_path, capsys):
    """As ROCm/rocprofiler's bin/sqlitedb.py writes it: every value a text, no categories, an empty
    object first.
    """
    names = {2: "CPU HIP API", 1: "COPY", 6: "GPU0", 7: "GPU1"}
    events = [
        {},
        *(
            {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
            for pid, name in names.items()
        ),
    ]
    for step in range(10):
        at = 1000 * step
        events += [
            _rocprof("hipMemcpyAsync", 2, 4242, at, 20),
            _rocprof("CopyHostToDevice", 1, 0, at + 20, 100),
            _rocprof("Cijk_Ailk_Bljk_SB_MT64x64", 6, 0, at + 150, 700),
            _rocprof("<barrier packet>", 6, 0, at + 860, 5),
            _rocprof("hipDeviceSynchronize", 2, 4242, at + 900, 50),
        ]
    (tmp_path / "results.json").write_text(
        json.dumps({"traceEvents": events, "otherData": {"Name": "gfx90a"}})
    )

    (trace,) = _read_trace(str(tmp_path / "results.json"))
    kinds = [Kind(kind) for kind in trace.events["kind"]]
    assert trace.maker == "rocprof" and trace.notes == []
    assert [kinds.count(kind) for kind in (Kind.KERNEL, Kind.COPY, Kind.RUNTIME, Kind.SYNC)] == [
        10,
        10,
        20,
        10,
    ]
    assert main(["ingest", str(tmp_path / "results.json"), "-o", str(tmp_path / "run"), "-q"]) == 0
    main(["report", str(tmp_path / "run"), "--full"])
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "Cijk_Ailk_Bljk_SB_MT64x64" in told
        and "no device activity" not in told
        and "no host threads" not in told
    )


def _rocprof(name: str, pid: int, tid: int, at: int, took: int) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "pid": str(pid),
        "tid": str(tid),
        "ts": str(at),
        "dur": str(took),
        "args": {"BeginNs": str(1000 * at)},
    }


def test_a_trace_of_jax_is_read(tmp_path, capsys):
    """As openxla/xprof writes it: streams are work, lines like "XLA Ops" repeat it."""
    threads = {
        (1, 13): "Stream #13(Compute)",
        (1, 14): "Stream #14(MemcpyH2D)",
        (1, 90): "XLA Ops",
        (701, 5): "python",
    }
    events = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for pid, name in ((1, "/device:GPU:0"), (701, "/host:CPU"))
    ]
    events += [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for (pid, tid), name in threads.items()
    ]
    for step in range(5):
        at = 1000 * step
        for name, pid, tid, begin, took in (
            ("train_step", 701, 5, 0, 1000), ("$loader.py:7 next", 701, 5, 10, 300), ("get_next_batch", 701, 5, 5, 320),
            ("MemcpyH2D", 1, 14, 330, 50), ("fusion_3", 1, 13, 400, 500), ("fusion.3", 1, 90, 400, 500),
        ):  # fmt: skip
            events.append(
                {"ph": "X", "pid": pid, "tid": tid, "ts": at + begin, "dur": took, "name": name}
            )
    about = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    (tmp_path / "vm.trace.json").write_text(json.dumps({**about, "traceEvents": [*events, {}]}))

    assert (
        main(
            [
                "ingest",
                str(tmp_path / "vm.trace.json"),
                "-o",
                str(tmp_path / "run"),
                "-q",
                "--json",
                str(tmp_path / "out.json"),
            ]
        )
        == 0
    )
    report = json.loads((tmp_path / "out.json").read_text())
    own = report["ranks"]["0"]
    assert report["traces"]["files"][0]["maker"] == "xprof"
    assert [row["name"] for row in report["traces"]["kernels"]] == ["fusion_3"]
    assert report["traces"]["copies"][0]["direction"] == "HtoD"
    assert own["gpu"]["compute_pct"] == pytest.approx(50) and own["input"][
        "stall_pct"
    ] == pytest.approx(32)
