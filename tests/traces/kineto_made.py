"""A Kineto trace as torch.profiler writes it, small enough to know every number in it."""

import gzip
import json
from pathlib import Path

STEPS, STEP_US = 4, 10_000
EPOCH_US = 1_700_000_000_000_000


def kineto(path: Path, rank: int, late_us: int = 0, loader: bool = True) -> str:
    """Write one rank's trace: each step of 10 ms waits 2 ms for its loader, copies, computes 4 ms
    and sums gradients over two ranks.

    Args:
        late_us: so much later its kernel begins, and with it the sum.
        loader: whether there is an annotation of the loader.
    """
    events: list[dict[str, object]] = []
    for step in range(STEPS):
        at = EPOCH_US + step * STEP_US
        events += _step(step, at, rank, late_us, loader)
    text = json.dumps({
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "Made-up GPU"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    })  # fmt: skip
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def _step(step: int, at: int, rank: int, late: int, loader: bool) -> list[dict[str, object]]:
    def host(cat: str, name: str, start: int, length: int, **args: object) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": 10,
            "tid": 10,
            "ts": at + start,
            "dur": length,
            "args": args,
        }

    def device(
        cat: str, name: str, stream: int, start: int, length: int, **args: object
    ) -> dict[str, object]:
        place = {"device": rank, "stream": stream, **args}
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": rank,
            "tid": stream,
            "ts": at + start,
            "dur": length,
            "args": place,
        }

    number = step * 10
    group = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2, "Seq": step,
             "In msg nelems": 250_000, "Out msg nelems": 250_000, "dtype": "Float"}  # fmt: skip
    waits = (
        [
            host(
                "user_annotation",
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                0,
                2000,
            )
        ]
        if loader
        else []
    )
    summed = 6500 + 2000  # when the later rank is there, both move bytes
    return [
        host("user_annotation", f"ProfilerStep#{step}", 0, STEP_US),
        *waits,
        host("cuda_runtime", "cudaMemcpyAsync", 2000, 20, correlation=number),
        device(
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            7,
            2020,
            300,
            bytes=1_000_000,
            correlation=number,
        ),
        host(
            "cpu_op",
            "aten::mm",
            2300,
            60,
            **{"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]},
        ),
        host("cuda_runtime", "cudaLaunchKernel", 2310, 20, correlation=number + 1),
        device("kernel", "gemm_kernel", 7, 2400 + late, 4000, correlation=number + 1),
        device(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            9,
            6500 + late,
            summed + 900 - 6500 - late,
            **group,
        ),
    ]
