"""What is advised of a trace is in the trace: each fix with a trace that has what it takes for
granted, and one that has not.
"""

import json
from pathlib import Path

import pytest
from text.breath import advised
from traces.kineto_made import EPOCH_US, STEP_US, STEPS, kineto

from feedline.analysis.explain.reports_of_run import report_of
from feedline.analysis.ranks.ingest_traces import ingest
from feedline.analysis.ranks.many.rank_pool import here
from feedline.analysis.rules import TRACE
from feedline.analysis.traces.trace_budget import STEP_PARTS
from feedline.profiler.store.trainings import open_run

KERNEL_US = 100


def traced(
    path: Path,
    waits: str = "",
    wait_us: int = 0,
    kernel: str = "gemm_kernel",
    busy_us: int = 1000,
    copy: str = "",
    beside: tuple[str, ...] = (),
) -> str:
    """Write a trace of one rank whose steps wait in a call of the host, then compute in kernels of
    0.1 ms.

    Args:
        waits: name of the host's call, or of the loader's annotation; empty: operators run
            meanwhile.
        copy: memory from which 2 ms of copies to the device come; empty: none.
        beside: what the host does in each step, beside that.
    """
    events: list[dict[str, object]] = []

    def add(cat: str, name: str, at: int, us: int, stream: int = 0, **args: object) -> None:
        place = {"device": 0, "stream": stream} if stream else {}
        events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 0 if stream else 10,
                "tid": stream or 10,
                "ts": at,
                "dur": us,
                "args": place | args,
            }
        )

    for step in range(STEPS):
        at, number = EPOCH_US + step * STEP_US, step * 1000
        add("user_annotation", f"ProfilerStep#{step}", at, STEP_US)
        add("cpu_op", "aten::mm", at + wait_us, STEP_US - wait_us - 10)
        if waits:
            add("user_annotation" if "DataLoader" in waits else "cuda_runtime", waits, at, wait_us)
        for name in beside:
            add("user_annotation" if "#" in name else "cpu_op", name, at + wait_us, 20)
        if copy:
            add("cuda_runtime", "cudaMemcpyAsync", at + wait_us, 20, correlation=number)
            kind = f"Memcpy HtoD ({copy} -> Device)"
            add("gpu_memcpy", kind, at + wait_us + 20, 2000, 7, bytes=1_000_000, correlation=number)
        start = wait_us + 20 + (2000 if copy else 0)
        for index in range(busy_us // KERNEL_US):
            add(
                "cuda_runtime",
                "cudaLaunchKernel",
                at + wait_us + 30 + index,
                1,
                correlation=number + 1 + index,
            )
            add(
                "kernel",
                kernel,
                at + start + 40 + index * KERNEL_US,
                KERNEL_US,
                7,
                correlation=number + 1 + index,
            )
    text = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Made-up GPU"}],
        "traceEvents": events,
    }
    path.write_text(json.dumps(text))
    return str(path)


def fixes(tmp_path: Path, **trace: object) -> dict[str, str]:
    """Rule -> its fix."""
    run = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
    with here() as pool:
        ingest([traced(tmp_path / f"{run.name}.json", **trace)], run, pool)  # type: ignore[arg-type]
    return {finding.rule_id: advised(finding) for finding in report_of(open_run(run)).findings}


SYNC, LOADER = (
    "cudaStreamSynchronize",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
)


@pytest.mark.parametrize(
    ("rule_id", "words", "there", "missing"),
    [
        (
            "device_bound",
            "channels_last",
            {"kernel": "void cudnn::ops::nchwToNhwcKernel<float, float>", "busy_us": 9800},
            {"busy_us": 9800},
        ),
        (
            "synchronisation",
            "pinned memory",
            {"waits": SYNC, "wait_us": 5000, "copy": "Pageable"},
            {"waits": SYNC, "wait_us": 5000, "copy": "Pinned"},
        ),
        (
            "synchronisation",
            "Read results back",
            {"waits": SYNC, "wait_us": 5000},
            {"waits": "cudaDeviceSynchronize", "wait_us": 5000},
        ),
        (
            "synchronisation",
            "torch.cuda.synchronize()",
            {"waits": "cudaDeviceSynchronize", "wait_us": 5000},
            {"waits": SYNC, "wait_us": 5000},
        ),
        ("exposed_copy", "pin_memory=True", {"copy": "Pageable"}, {"copy": "Pinned"}),
        ("input_stall", "feedline run", {"waits": LOADER, "wait_us": 5000}, {"busy_us": 9800}),
        ("host_bound", "kernels", {}, {"busy_us": 9800}),
    ],
)
def test_a_fix_of_a_trace_takes_for_granted_only_what_was_traced(
    tmp_path, rule_id, words, there, missing
):
    assert words in fixes(tmp_path, **there)[rule_id]
    assert words not in fixes(tmp_path, **missing).get(rule_id, "")


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ((), "kernels: torch.compile, CUDA graphs, larger batches."),
        (
            ("Optimizer.step#Adam.step",),
            "torch.compile, CUDA graphs, fused optimizers (fused=True)",
        ),
        (("Optimizer.step#Shampoo.step",), "torch.compile, CUDA graphs, larger batches."),
        (("Optimizer.step#Adam.step", "aten::_fused_adam_"), "CUDA graphs, larger batches."),
        (("Optimizer.step#SGD.step", "aten::embedding_sparse_backward"), "graphs, larger batches."),
        (("Torch-Compiled Region: 0/0",), "kernels: CUDA graphs, larger batches."),
        (("Torch-Compiled Region: 0/0", "cudaGraphLaunch"), "kernels: larger batches."),
    ],
)
def test_a_host_is_told_only_ways_to_launch_less_that_the_trace_has_not(tmp_path, beside, words):
    assert words in fixes(tmp_path, busy_us=8000, beside=beside)["host_bound"]


def test_a_device_that_only_sums_gradients_is_not_said_to_run_no_kernels(tmp_path):
    path = traced(tmp_path / "a.json", kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")
    with here() as pool:
        ingest([path], tmp_path / "run", pool)

    (found,) = [
        finding
        for finding in report_of(open_run(tmp_path / "run")).findings
        if finding.rule_id == "host_bound"
    ]

    assert not any("kernels" in sentence and "on average" in sentence for sentence in found.more)
    assert not any("0 kernels" in sentence for sentence in found.more)


@pytest.mark.parametrize(
    ("beside", "words", "not_said"),
    [
        ((), "less to do: torch.compile, which fuses elementwise kernels.", "graph_breaks"),
        (
            ("Torch-Compiled Region: 0/0",),
            "less to do: torch.compile for remaining elementwise kernels.",
            "which fuses",
        ),
    ],
)
def test_a_program_that_is_compiled_is_told_to_compile_the_rest(tmp_path, beside, words, not_said):
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >()"

    told = fixes(tmp_path, kernel=add, busy_us=9800, beside=beside)["device_bound"]

    assert words in told and not_said not in told


def test_each_cause_of_a_trace_claims_a_part_of_its_steps():
    for rule in TRACE:
        assert set(rule.claims) <= set(STEP_PARTS), rule.rule_id


def of_two_ranks(folder: Path, name: str) -> str:
    """Return what is advised about all-reduces in traces with a range of this name."""
    folder.mkdir()
    paths = []
    for rank in range(2):
        path = Path(kineto(folder / f"rank{rank}.json", rank=rank))
        trace = json.loads(path.read_text())
        about = {"ph": "X", "cat": "user_annotation", "pid": 10, "tid": 10, "args": {}}
        trace["traceEvents"].append(about | {"name": name, "ts": EPOCH_US + 2400, "dur": 50})
        path.write_text(json.dumps(trace))
        paths.append(str(path))
    with here() as pool:
        ingest(paths, folder / "run", pool)
    (found,) = [
        advised(finding)
        for finding in report_of(open_run(folder / "run")).findings
        if finding.rule_id == "exposed_communication"
    ]
    return found


def test_all_reduces_of_a_trace_are_gradients_only_where_it_shows_who_reduces_them(tmp_path):
    shown = of_two_ranks(tmp_path / "ddp", "DistributedDataParallel.forward")
    unknown = of_two_ranks(tmp_path / "other", "Transformer.forward")

    assert "no_sync" in shown and "compression hook" in shown
    assert "no_sync" not in unknown and "gradients" not in unknown


def test_a_trace_is_not_told_that_a_recording_names_a_line(tmp_path):
    """`feedline run` names the line of a loader's settings only where one of them is the fix."""
    assert "which line" not in fixes(tmp_path, waits=LOADER, wait_us=5000)["input_stall"]
