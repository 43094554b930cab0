"""Measures all-reduce: gloo with two processes on this machine, and NCCL if it has two GPUs."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from feedline.pipelines.probes.probe_rounds import (
    CannotMeasure,
    MeasuredRate,
    ProbePlan,
    Subject,
    TimedPass,
    as_ceiling,
    error_reason,
    summarise_rounds,
)
from feedline.profiler.ceilings import Ceiling
from feedline.profiler.pool import sheltered

_MEBIBYTE = 1 << 20
_MESSAGE_SIZES = (_MEBIBYTE, 25 * _MEBIBYTE)  # 25 MiB: DistributedDataParallel's default bucket
# of the model's gradients: a larger message is no faster, and each process holds all of it
_MAX_MESSAGE = 256 * _MEBIBYTE
_ANSWER_TIMEOUT_S = 120.0


def probe(subject: Subject) -> Iterator[Ceiling]:
    """Measure bytes of gradient that are summed a second, per size of the message.

    ``settings``: ranks, bytes of the message, and the bus bandwidth, which is 2 (n - 1) / n times
    as much (nccl-tests, PERFORMANCE.md). Of a large model's gradients, 256 MiB are sent;
    gradient_bytes is all of them.
    """
    yield from _backend("gloo", 2, subject)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus < 2:
        yield as_ceiling(
            "all_reduce/nccl",
            f"needs two GPUs, and there {'is one' if gpus else 'is none'}",
            unit="B/s",
        )
    else:
        yield from _backend("nccl", gpus, subject)


def _backend(backend: str, ranks: int, subject: Subject) -> Iterator[Ceiling]:
    sizes, gradient_bytes = list(_MESSAGE_SIZES), 0
    if subject.model is not None:
        gradient_bytes = sum(
            parameter.numel() * 4
            for parameter in subject.model.parameters()
            if parameter.requires_grad
        )
        sizes.append(min(max(4, gradient_bytes), _MAX_MESSAGE))
    try:
        rates: dict[int, MeasuredRate | str] = dict(
            _measure_all_reduce(backend, ranks, sizes, subject.plan)
        )
    except Exception as error:
        rates = dict.fromkeys(sizes, error_reason(error))
    for number, size in enumerate(sizes):
        measured = rates[size]
        what = f"{size // _MEBIBYTE} MiB"
        settings: dict[str, object] = {"backend": backend, "ranks": ranks, "bytes": size}
        if number == len(_MESSAGE_SIZES):
            what = f"{what} of " * (size < gradient_bytes) + "the model's gradients"
            settings["gradient_bytes"] = gradient_bytes
        if isinstance(measured, MeasuredRate):
            settings["bus_bytes_per_s"] = measured.value * 2 * (ranks - 1) / ranks
        source = (
            f"torch.distributed.all_reduce, float32, {ranks} processes of this machine; the "
            f"slowest rank's time"
        )
        yield as_ceiling(
            f"all_reduce/{backend} {what}", measured, unit="B/s", source=source, settings=settings
        )


def _measure_all_reduce(
    backend: str, ranks: int, sizes: list[int], plan: ProbePlan
) -> dict[int, MeasuredRate]:
    """Start the processes, measure all sizes in alternation, end them.

    Raises:
        CannotMeasure: a process failed or gave no answer; its own reason.
    """
    context = torch.multiprocessing.get_context(
        "spawn" if torch.cuda.is_initialized() or backend == "nccl" else None
    )
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, backend, Path(folder, "store"), sizes, plan, answers)
        processes = [
            context.Process(target=_rank, args=(rank, *arguments), daemon=True)
            for rank in range(ranks)
        ]
        try:
            with sheltered():
                for process in processes:
                    process.start()
            rows = [_answer(answers, processes) for _ in range(ranks)]
        except BaseException:
            for process in _started(processes):
                process.kill()
            raise
        finally:
            for process in _started(processes):
                process.join(5.0)
                if process.is_alive():
                    process.kill()
                    process.join()
            answers.close()
    return {
        size: summarise_rounds([_slowest(rows, number, at) for at in range(plan.rounds)])
        for number, size in enumerate(sizes)
    }


def _started(processes: list[Any]) -> list[Any]:
    """List the processes started so far: Ctrl-C can arrive before the last one."""
    return [process for process in processes if process.pid is not None]


def _slowest(rows: list[list[list[TimedPass]]], number: int, at: int) -> TimedPass:
    """Combine one round of one size over all ranks.

    It has the longest wall time, and the CPU of all.
    """
    each = [row[number][at] for row in rows]
    return TimedPass(
        each[0].units, max(timed.wall_s for timed in each), sum(timed.cpu_s for timed in each)
    )


def _answer(answers: Any, processes: list[Any]) -> list[list[TimedPass]]:
    import queue

    until = time.monotonic() + _ANSWER_TIMEOUT_S
    while time.monotonic() < until:
        try:
            answer = answers.get(timeout=1.0)
        except queue.Empty:
            if all(process.exitcode not in (None, 0) for process in processes):
                raise CannotMeasure(
                    f"its processes ended with exit code {processes[0].exitcode}"
                ) from None
            continue
        if isinstance(answer, str):
            raise CannotMeasure(answer)
        rows: list[list[TimedPass]] = answer
        return rows
    raise CannotMeasure(f"its processes did not respond for {_ANSWER_TIMEOUT_S:.0f} s")


def _rank(
    rank: int,
    ranks: int,
    backend: str,
    store: Path,
    sizes: list[int],
    plan: ProbePlan,
    answers: Any,
) -> None:
    """Run one process; it answers with the rounds of every size, or why there are none."""
    try:
        torch.set_num_threads(1)
        with _group(rank, ranks, backend, store):
            device = f"cuda:{rank}" if backend == "nccl" else "cpu"
            messages = [torch.ones(size // 4, device=device) for size in sizes]
            for message in messages:
                _check(message, ranks)
            repeats = [_repeats(message, plan) for message in messages]
            rounds: list[list[TimedPass]] = [[] for _ in messages]
            for number in range(plan.rounds):
                order = list(range(len(messages)))
                for at in order if number % 2 == 0 else reversed(order):
                    rounds[at].append(_round(messages[at], repeats[at]))
        answers.put(rounds)
    except Exception as error:
        answers.put(error_reason(error))


@contextmanager
def _group(rank: int, ranks: int, backend: str, store: Path) -> Iterator[None]:
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a container may have no name that resolves
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _check(message: torch.Tensor, ranks: int) -> None:
    """Check that ones summed over all ranks are the number of ranks."""
    import torch.distributed as dist

    dist.all_reduce(message)
    if not bool((message == ranks).all()):
        raise CannotMeasure("the sum over all ranks is wrong")
    message.fill_(0.0)  # summing zeros again and again stays zero


def _repeats(message: torch.Tensor, plan: ProbePlan) -> int:
    """Choose how often a round repeats the call.

    It is the same number on all ranks, or they would wait for each other for ever.
    """
    import torch.distributed as dist

    took = torch.tensor([_round(message, 2).wall_s / 2], device=message.device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return max(1, min(1000, int(plan.seconds / max(took.item(), 1e-6))))


def _round(message: torch.Tensor, repeats: int) -> TimedPass:
    import torch.distributed as dist

    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        dist.all_reduce(message)
    if message.is_cuda:
        torch.cuda.synchronize()
    return TimedPass(
        repeats * message.numel() * 4, time.perf_counter() - wall, time.process_time() - cpu
    )
