"""Self-test of all hooks on this machine: records a tiny training and checks the records.

For a process of its own: it imports what is installed, and starts worker processes.
"""

import enum
import gc
import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from feedline.profiler import masks
from feedline.profiler.clock import counters
from feedline.profiler.errors import FeedlineError
from feedline.profiler.events import Stage
from feedline.profiler.pool import sheltered
from feedline.profiler.store.segment_reader import Process, read_segment
from feedline.profiler.store.trainings import open_run
from feedline.profiler.taps.operations import LIBRARIES, attach
from feedline.profiler.taps.operations.library import UNTAPPED, Library


class HookKind(enum.Enum):
    """What a hook or counter is for; the value says what its absence means."""

    TRAINING = "a training is recorded only in part"
    COUNTER = "waiting for a CPU or a disk is not seen"
    LIBRARY = "matters only to a program that uses it"
    DETAIL = "a part of the report stays empty"
    GAUGE = "no curve in the report"


class SelfTest(NamedTuple):
    """Result for one hook or counter: what it records if it works, else what is wrong."""

    name: str
    works: bool
    message: str
    kind: HookKind = HookKind.TRAINING


#: What is tried, in order.
PARTS = (
    "counters",
    "a training",
    "torch.compile",
    "collectives",
    "workers by fork",
    "workers by spawn",
    "workers by forkserver",
    "libraries",
    "loaders of libraries",
    "gauges",
)


_START_METHODS = ("fork", "spawn", "forkserver")
_WORKER_STAGES = (Stage.START, Stage.IDLE, Stage.FETCH, Stage.SAMPLE, Stage.COLLATE, Stage.PICKLE)
_LOADER_STAGES = (Stage.EPOCH, Stage.NEXT, Stage.SAMPLER, Stage.ARRIVE, Stage.TRANSPORT)
_TRAINING_STAGES = {
    "nn.Module": (Stage.FORWARD, Stage.LOSS),
    "autograd": (Stage.BACKWARD,),
    "optimizer": (Stage.OPTIMIZER,),
    "gradients": (Stage.GRADIENTS,),
    "torch.save": (Stage.CHECKPOINT,),
    "Tensor.to": (Stage.COPY,),
}


#: Hooks of the same training without which only a part of the report is missing.
_DETAIL_STAGES = {"FLOP": (Stage.FLOP,), "gc": (Stage.GARBAGE,), "graphs": (Stage.KEPT,)}
_EPOCHS = 3  # graphs of past steps are looked at after nine updates


class _Numbers:
    """A map-style dataset that can be pickled."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(index)


def run_selftests(done: Callable[[], None] = lambda: None) -> list[SelfTest]:
    """Try everything once; a part that cannot be tried gives the reason.

    Args:
        done: called after each of ``PARTS``.
    """
    results = [*_counters()]
    done()
    try:
        import torch
    except ImportError as error:
        results.append(SelfTest("torch", False, f"cannot be imported: {error}"))
        for _ in PARTS[1:-3]:
            done()
    else:
        tries: list[Callable[[], list[SelfTest]]] = [
            _training,
            lambda: [_compiled()],
            lambda: [_collectives()],
        ]
        for attempt in [*tries, *map(_of_workers, _START_METHODS)]:
            results += attempt()
            done()
        results.append(SelfTest("torch", True, torch.__version__))
    results += _library_selftests()
    done()
    results += [_library_loader(*known) for known in _LIBRARY_LOADERS if _installed(known[1])]
    done()
    return [*results, *_sampled()]


def _counters() -> list[SelfTest]:
    queue, traffic = counters.runqueue_ns() >= 0, counters.traffic() is not None
    absent = counters.absent
    return [
        SelfTest(
            "run queue",
            queue,
            "time without a CPU, per thread" if queue else str(absent),
            HookKind.COUNTER,
        ),
        SelfTest(
            "file traffic",
            traffic,
            "bytes read, bytes from the disk, major faults" if traffic else str(absent),
            HookKind.COUNTER,
        ),
    ]


def _record(program: Callable[[], None]) -> tuple[list[Process], list[dict[str, object]]]:
    """Record a function; returns its processes and the status of the hooks."""
    from feedline.profiler.session.session import Session

    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "run", ["selftest"])
        try:
            program()
        finally:
            session.stop()
        rank = open_run(Path(folder) / "run").ranks[session.place.rank]
        return [
            read_segment(path) for path in sorted((rank.folder / "segments").glob("*.seg"))
        ], rank.manifest.hooks


def _train(loader: Any, epochs: int = 1) -> None:
    """Train a model with one parameter."""
    import torch

    model, criterion = torch.nn.Linear(1, 1, dtype=torch.float64), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(epochs):
        with sheltered():
            batches = iter(loader)
        for batch in batches:
            batch.to("meta")
            loss = criterion(model(batch[:, None]), batch[:, None])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    gc.collect()
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


def _missing(processes: list[Process], stages: tuple[Stage, ...]) -> list[str]:
    """Return the names of the stages without a record in any of these processes."""
    return [
        stage.name for stage in stages if not any(len(process.of(stage)) for process in processes)
    ]


def _training() -> list[SelfTest]:
    from torch.utils.data import DataLoader

    try:
        processes, hooks = _record(lambda: _train(DataLoader(_Numbers(), 2), _EPOCHS))  # type: ignore[arg-type]
    except FeedlineError as error:
        return [SelfTest("recording", False, str(error))]
    results = []
    for hook in hooks:
        name = str(hook["name"])
        lost = _missing(processes, (_TRAINING_STAGES | _DETAIL_STAGES).get(name, ()))
        if name in (*_TRAINING_STAGES, *_DETAIL_STAGES, "DataLoader", "fetcher", "pin_memory"):
            results.append(
                SelfTest(
                    name,
                    bool(hook["attached"]) and not lost,
                    f"missing: {', '.join(lost)}" if lost else str(hook["why"]),
                    HookKind.DETAIL if name in _DETAIL_STAGES else HookKind.TRAINING,
                )
            )
    return results


def _compiled() -> SelfTest:
    """Return one compilation."""
    import torch

    def program() -> None:
        torch.compile(torch.neg, backend="eager")(torch.ones(2))

    try:
        processes, _ = _record(program)
    except Exception as error:  # no compiler for this Python
        return SelfTest("torch.compile", False, masks.error(error), HookKind.DETAIL)
    lost = _missing(processes, (Stage.COMPILE,))
    says = f"missing: {', '.join(lost)}" if lost else "compilations"
    return SelfTest("torch.compile", not lost, says, HookKind.DETAIL)


def _collectives() -> SelfTest:
    """Return one all_reduce in a world of one rank, which needs no network."""
    import torch
    import torch.distributed as dist

    from feedline.profiler.taps.collectives.groups import COLLECTIVES_HOOK

    def program() -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            dist.all_reduce(torch.ones(10))
        finally:
            dist.destroy_process_group()

    if not dist.is_available() or not dist.is_gloo_available():
        return SelfTest(
            COLLECTIVES_HOOK, False, "this torch is built without torch.distributed or gloo"
        )
    try:
        processes, hooks = _record(program)
    except Exception as error:
        return SelfTest(COLLECTIVES_HOOK, False, f"{type(error).__name__}: {error}")
    hook_entry = next(
        (hook for hook in hooks if hook["name"] == COLLECTIVES_HOOK),
        {"attached": False, "why": "not tried"},
    )
    records = processes[-1].of(Stage.COLLECTIVE)
    if (
        not hook_entry["attached"]
        or len(records) != 1
        or records["nbytes"][0] != 40
        or records["wall"][0] < 0
    ):
        return SelfTest(
            COLLECTIVES_HOOK,
            False,
            f"recorded {len(records)} of 1 all_reduce ({hook_entry['why']})",
        )
    return SelfTest(COLLECTIVES_HOOK, True, str(hook_entry["why"]))


def _of_workers(method: str) -> Callable[[], list[SelfTest]]:
    return lambda: [_workers(method)]


def _workers(method: str) -> SelfTest:
    from torch.utils.data import DataLoader

    name = f"workers by {method}"
    try:
        numbers: Any = _Numbers()
        processes, _ = _record(
            lambda: _train(DataLoader(numbers, 2, num_workers=2, multiprocessing_context=method))
        )
    except Exception as error:
        return SelfTest(name, False, f"{type(error).__name__}: {error}")
    main, workers = processes[-1:], processes[:-1]
    batches = sum(len(worker.of(Stage.FETCH)) for worker in workers)
    lost = _missing(workers, _WORKER_STAGES) + _missing(main, _LOADER_STAGES)
    if lost or batches != 4:
        return SelfTest(
            name,
            False,
            f"recorded {batches} of 4 batches" + (f"; missing: {', '.join(lost)}" if lost else ""),
        )
    return SelfTest(name, True, "every batch: made, collated, pickled, transported")


def _loader_of_nodes() -> Any:
    import torch
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper

    numbers = Batcher(IterableWrapper([float(number) for number in range(8)]), 2)
    return Loader(Mapper(numbers, lambda batch: torch.tensor(batch, dtype=torch.float64)))


def _stateful_loader() -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(_Numbers(), 2)


#: Hooks of loaders of libraries: name, library, and what makes a loader of four batches.
_LIBRARY_LOADERS: tuple[tuple[str, str, Callable[[], Any]], ...] = (
    ("torchdata.nodes", "torchdata", _loader_of_nodes),
    ("StatefulDataLoader", "torchdata", _stateful_loader),
)


def _library_loader(name: str, library: str, make: Callable[[], Any]) -> SelfTest:
    """Train on four batches of a library's loader."""
    try:
        processes, hooks = _record(lambda: _train(make()))
    except Exception as error:
        return SelfTest(name, False, masks.error(error), HookKind.LIBRARY)
    why = next((str(hook["why"]) for hook in hooks if hook["name"] == name), "not imported")
    asked = sum(len(process.of(Stage.NEXT)) for process in processes)
    lost = _missing(processes, (Stage.EPOCH, Stage.NEXT))
    if lost or asked < 4:
        return SelfTest(name, False, f"recorded {asked} of 4 batches ({why})", HookKind.LIBRARY)
    return SelfTest(name, True, why, HookKind.LIBRARY)


def _sampled() -> list[SelfTest]:
    from feedline.profiler.samplers.sampler import default_sources

    return [
        SelfTest(
            source.name,
            (why := source.probe()) is None,
            why or "sampled once per second",
            HookKind.GAUGE,
        )
        for source in default_sources()
    ]


def _library_selftests() -> list[SelfTest]:
    """Import each installed library, attach its hook, exercise it, and detach again.

    Not for a process that trains.
    """
    reported: dict[str, tuple[bool, str]] = {}
    undo = attach(lambda name, attached, why: reported.update({name: (attached, why)}))
    # importing it would ask PyPI for a newer version
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    try:
        return [
            _try_library(library, reported)._replace(kind=HookKind.LIBRARY)
            for library in LIBRARIES
            if library not in UNTAPPED and _installed(library.module)
        ]
    finally:
        undo()


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _try_library(library: Library, reported: dict[str, tuple[bool, str]]) -> SelfTest:
    """Import and exercise one library; ``reported`` is what its hook reports."""
    try:
        importlib.import_module(library.module)
    except Exception as error:
        return SelfTest(library.name, False, f"cannot be imported: {type(error).__name__}: {error}")
    attached, why = reported.get(library.name, (False, "its import was not noticed"))
    if not attached:
        return SelfTest(library.name, False, why)
    try:
        failure = library.selftest()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return SelfTest(library.name, failure is None, failure or why)
