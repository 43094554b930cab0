"""Traces of trainings of several kinds, made up; and those of real ones that lie beside the
checkout.
"""

import gzip
import json
from pathlib import Path

from traces.kineto_made import EPOCH_US, STEP_US, STEPS, kineto
from traces.nsight.made_up import call, export, gpid, kernel, pushed

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
    """A trace whose steps are known from its optimizer, after a warm-up that is longer than they
    are and without a loader.
    """
    trace = json.loads(
        gzip.decompress(Path(kineto(path.with_suffix(".whole.gz"), rank=0)).read_bytes())
    )
    events = [one for one in trace["traceEvents"] if not one["name"].startswith("ProfilerStep")]
    host = {"ph": "X", "pid": 10, "tid": 10, "args": {}}
    events += [
        {
            **host,
            "cat": "cpu_op",
            "name": "Optimizer.step#SGD.step",
            "ts": EPOCH_US + step * STEP_US - 50,
            "dur": 40,
        }
        for step in range(STEPS + 1)
    ]
    events.append(
        {
            **host,
            "cat": "cpu_op",
            "name": "aten::cudnn_convolution",
            "ts": EPOCH_US - 20 * STEP_US,
            "dur": 19 * STEP_US,
        }
    )
    path.write_text(json.dumps({**trace, "traceEvents": events}))
    return str(path)


def stepless(path: Path) -> str:
    """A trace without anything that says where a step begins: one copy, one kernel, and a host that
    works in between.
    """
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
            {
                **about,
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": at,
                "dur": STEP_US,
            },
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


def busy(path: Path, kernels: list[tuple[str, int, int, int]], gpu: str = "NVIDIA H800") -> str:
    """A trace of a device that works all the time, without a loader.

    Args:
        kernels: and copies of each step of 10 ms: name, stream, start and duration in microseconds.
        gpu: its name.
    """
    events = []
    for step in range(STEPS):
        at = EPOCH_US + step * STEP_US
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 10,
                "tid": 10,
                "ts": at,
                "dur": STEP_US,
            }
        )
        for name, stream, begin, took in kernels:
            place = {"pid": 0, "tid": stream, "args": {"device": 0, "stream": stream}}
            cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            events.append(
                {"ph": "X", "cat": cat, "name": name, "ts": at + begin, "dur": took, **place}
            )
    path.write_text(
        json.dumps({"deviceProperties": [{"id": 0, "name": gpu}], "traceEvents": events})
    )
    return str(path)


def nsight(path: Path) -> str:
    """The export of a training that waits for its loader 2 ms of each step of 10 ms, copies, and
    computes for 4 ms.
    """
    us, place = 1000, {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": gpid(10)}
    kernels, copies, calls, ranges = [], [], [], []
    for step in range(STEPS + 1):
        at, number = (1000 + step * STEP_US) * us, 2 * step
        ranges.append(
            pushed(
                at, at + 2000 * us, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            )
        )
        calls += [
            call(at + 2000 * us, at + 2020 * us, number, 2),
            call(at + 2310 * us, at + 2330 * us, number + 1, 3),
        ]
        copy = {
            "start": at + 2020 * us,
            "end": at + 2320 * us,
            "correlationId": number,
            "bytes": 1_000_000,
            "copyKind": 1,
            "srcKind": 0,
        }
        copies.append({**place, **copy, "dstKind": 2})
        kernels.append(kernel(at + 2400 * us, at + 6400 * us, correlation=number + 1))
        ranges.append(pushed(at + 9000 * us, at + 9400 * us, "Optimizer.step#SGD.step"))
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "NVTX_EVENTS": ranges,
    }
    return export(
        path, tables, {1: "gemm", 2: "cudaMemcpyAsync_v3020", 3: "cudaLaunchKernel_v7000"}
    )


MADE = {
    "one rank": lambda place: [kineto(place / "rank0.json.gz", rank=0)],
    "two ranks, the first waits": lambda place: [
        kineto(place / f"rank{rank}.json", rank=rank, late_us=1500 * rank) for rank in range(2)
    ],
    "two ranks, the second waits": lambda place: [
        kineto(place / f"rank{rank}.json", rank=rank, late_us=1500 * (1 - rank))
        for rank in range(2)
    ],
    "a long warm-up before the steps": lambda place: [warmed_up(place / "warm.json")],
    "nsight": lambda place: [nsight(place / "report.sqlite")],
    "no steps": lambda place: [stepless(place / "bare.json")],
    "no device": lambda place: [on_the_cpu(place / "cpu.json")],
}
