"""Runs in which what a fix takes for granted is there, or is not."""

from dataclasses import replace

import numpy as np
from rules.made_up import made_up_facts, per_sample, waiting
from rules.test_model_stages import BACK, CALL, NET
from user_code.made_stacks import FETCHING, FORWARD, PYTHON, TORCH, Frame, process, stack, training

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.clues import (
    Making,
    OneByOne,
    Parts,
)
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import (
    Certainty,
    Holder,
    KeptGraphs,
    KilledWorker,
    MemoryGrowth,
    Operation,
    Traffic,
    Unseen,
    Updated,
)
from feedline.analysis.measure.source_lines import SourceLines
from feedline.analysis.measure.step_model import (
    Flop,
    GarbageCollection,
    OwnCode,
    OwnFunction,
    PeriodicStall,
)
from feedline.analysis.traces.launching import GpuWork

BLOCKED = {"dataset": (0.5, 0.0, 12.0)}
NOTHING = Traffic(0.0, 0.0, 0.0, 0.0)
COLD = Traffic(110e3, 3.0, 119e3, 0.0)
SMALL = Traffic(24_000.0, 6.0, 0.0, 0.0)
FULL = {"used_cpus": 7.9, "process_cpu_s": 25e-3}
FLOATS = {"flags": ["float32", "shared"], "batch_bytes": 4 * 32 * 3 * 224 * 224}
NO_IMAGES = {"decoded_pixels": None, "output_pixels": None}
HOST = {"copy": 0.0}  # without a GPU
RESTARTING = {
    "stages": {"epoch_start": 40.0},
    "waits": {"starved": 0.5, "epoch_start": 10.0},
    "epochs": 10,
    "loader": {"first_batch_s": 1.0},
}
BEGINNING = {**RESTARTING, "waits": {"first_batch": 50.0}, "first_made_s": 0.9}
STREAM = {"map_style": False, "asks_for_worker": True}


TENSORS = Updated("AdamW", 2000, 8000, fused=False)
TABLES = Updated("Adam", 5, 12_810_000, fused=False, embedded=12_800_000, rows=400_000)
KEPT = [*CALL, ("net.py", 12, "forward"), (TORCH + "fx/traceback.py", 503, "format_stack")]
LOGS = [*CALL, ("net.py", 12, "forward"), (PYTHON + "logging/__init__.py", 1489, "info")]
AFTER = [*CALL, (TORCH + "nn/parallel/distributed.py", 1837, "_post_forward")]
FORWARD_AGAIN = [*BACK, (TORCH + "utils/checkpoint.py", 1657, "recompute_fn"), *FORWARD]


def in_model(frames: list[Frame]) -> RuleInputs:
    """A training on the host whose model spends most of its time there."""
    facts = made_up_facts(stages=HOST)
    return replace(facts, code=SampledCode.of([training(stack(frames, 300))]))


def of_dtype(dtype: str) -> RuleInputs:
    """A training whose products are of this dtype."""
    facts = made_up_facts(stages=HOST)
    return replace(facts, step=replace(facts.step, flop=Flop(1e6, 2e6, 32.0, dtype)))


EACH = OneByOne(32, 32, 24e-3, "train.py:20")


def in_loop(line: int) -> RuleInputs:
    """A training whose forward spends its time in this line: 6 is in a loop over a dimension."""
    source = SourceLines(2e9)
    source._files["net.py:forward"] = source._files["net.py:"] = NET.splitlines()
    code = SampledCode.of([training(stack([*CALL, ("net.py", line, "forward")], 300))], source)
    return replace(of_dtype("float32"), code=code)


def in_ledger(
    stage: str, ms: float, steps: float, updated: Updated | None = None, **loader: float
) -> RuleInputs:
    """A training whose stage lies in this share of its steps."""
    facts = made_up_facts(stages={stage: ms}, loader=dict(loader))
    row = LedgerRow(stage, facts.step.stages[stage], steps=steps, trend=1.0)
    return replace(
        facts, ledger=Ledger(LedgerTable("step", facts.step.mean_s, [row]), None), updated=updated
    )


def reading(nbytes: float, name: str) -> RuleInputs:
    """A training of which each sample reads so many bytes, and uses 1,200."""
    return waiting(
        sample={"read": (5.0, 0.0, 0.0)},
        traffic=Traffic(nbytes, 3.0, 0.0, 0.0),
        loader={"batch_bytes": 32 * 1200.0},
        maker=NO_IMAGES | {"operations": [Operation("read", name, 5e-3, 5e-3, 1.0)]},
    )


def chained(kept: KeptGraphs | None) -> RuleInputs:
    """A training whose backward pass gets four times as long."""
    facts = made_up_facts()
    row = LedgerRow("backward", facts.step.stages["backward"], steps=1.0, trend=4.0)
    table = LedgerTable("step", facts.step.mean_s, [row])
    return replace(facts, ledger=Ledger(table, None), kept=kept)


def collecting(**garbage: float) -> RuleInputs:
    """A training that collects garbage for 40 ms of its step."""
    facts = made_up_facts(stages={"other": 41.0})
    shares = {"full_share": 0.9, "called_share": 0.0, **garbage}
    of = GarbageCollection(0.04, {"other": 0.04}, 0.2, 0.2, **shares)
    return replace(facts, step=replace(facts.step, garbage=of))


def growing(holder: Holder | None = None, place: str = "") -> RuleInputs:
    """A training whose main process grows."""
    grown = MemoryGrowth(
        "main", 4e6, 4e6, 4e6, 1e9, 2e9, holder=holder, place=place, seconds_left=600.0
    )
    return replace(made_up_facts(epochs=2), growth=[grown])


def stalling(**line: object) -> RuleInputs:
    """A training of which every 60th step takes 1.2 s longer."""
    facts = made_up_facts(stages={"other": 40.0, "copy": 0.0})
    stall = PeriodicStall(60, 9, 1.2, 0.02, {"other": 0.02}, **line)
    return replace(facts, step=replace(facts.step, periodic=stall))


def killed(**known: object) -> RuleInputs:
    """A training that ended with a worker that was killed."""
    return replace(made_up_facts(), killed=KilledWorker(1, 0, size_bytes=2e9, **known))


def looked(kind: str) -> dict[str, object]:
    return {"blocked_by": {kind: 1.0}, "blocked_looks": 60}


def gpu(busy: float, facts: RuleInputs, products: float = 0.0) -> RuleInputs:
    mean_s = facts.step.mean_s
    work = GpuWork(busy * mean_s, 4000, busy * mean_s / 4000, 5, 1, products * mean_s)
    return replace(
        facts, step=replace(facts.step, gpu_work=work, flop=Flop(1e12, 2e12, 32.0, "float32"))
    )


def own(facts: RuleInputs, name: str, mainly: str = "") -> RuleInputs:
    code = OwnCode(0.04, 200, [OwnFunction(name, 0.03, 0.028, 0.032, mainly)])
    return replace(facts, step=replace(facts.step, own_code=code))


def of_images(facts: RuleInputs, nbytes: float = 5.76e6) -> RuleInputs:
    assert facts.workers is not None
    costs = facts.workers.per_sample
    return replace(
        facts,
        workers=replace(
            facts.workers, per_sample={**costs, "decode": replace(costs["decode"], bytes=nbytes)}
        ),
    )


def only(**parts: tuple[float, float, float]) -> dict[str, object]:
    """A sample that consists of these stages alone."""
    return {"per_sample": per_sample(parts), **NO_IMAGES}


def by_hand(input_ms: float, working: float) -> RuleInputs:
    found = made_up_facts(stages={"input": input_ms, "transport": 0.0}, waits={"starved": 0.0})
    making = Making(("get_batch (train.py:116)",), np.ones(20, bool), {}, 1.0, working)
    sure = Certainty(200, 0.15, 0.18)
    return replace(
        found, loader=None, workers=None, making=making, wait_share=0.167, certainty=sure
    )


def unsure_by_hand() -> RuleInputs:
    """A training whose batches a function makes, and whose other code may be input as well."""
    return replace(by_hand(20.0, 1.0), certainty=Certainty(200, 0.01, 0.5))


def without(facts: RuleInputs, resident: bool) -> RuleInputs:
    return replace(facts, loader=None, workers=None, unseen=Unseen(0.5, 0.6, resident))


def lacking(**settings: object) -> RuleInputs:
    """A stream of which two of four workers get nothing."""
    return waiting(
        sample={"dataset": (4.0, 0.0, 0.0)},
        maker={"without_batches": 2},
        settings=STREAM | settings,
    )


def uneven(**settings: object) -> RuleInputs:
    """A stream of whose samples one of four workers has most."""
    return waiting(
        sample={"dataset": (4.0, 0.0, 0.0)},
        settings=STREAM | settings,
        worker_parts=Parts(most=700, least=20, as_workers=1.4),
    )


SLOW_READ = Operation("read", "zarr.Array", 200e-3, 30e-3, 1.0)


CHUNK = ("/venv/lib/python3.11/site-packages/h5py/_hl/dataset.py", 800, "__getitem__")


def in_code(function: str, line: int, *below: tuple[str, int, str]) -> RuleInputs:
    """A training whose workers spend their time in a function of its own."""
    found = stack([*FETCHING, ("data.py", line, function), *below], 100)
    facts = waiting(60.0, sample={"dataset": (8.0, 0.0, 0.0)})
    return replace(facts, code=SampledCode.of([process("worker", found)]))


def unpacking(facts: RuleInputs, times: float) -> RuleInputs:
    """The same, where so many bytes of chunks are unpacked for each that is used."""
    read = Operation("read", "h5py.Dataset", 4e-3, 4e-3, 1.0, times)
    return replace(facts, workers=replace(facts.workers, operations=[read]))


def reading_chunks(times: float) -> RuleInputs:
    """A training on full CPUs whose samples are read from chunks."""
    return unpacking(waiting(**FULL, maker=only(read=(4.0, 0, 0))), times)


def spinning(name: str) -> RuleInputs:
    """Decoding of 160,000 pixels that takes 40 ms, most of it waiting for helper threads."""
    maker = {
        "operations": [Operation("decode", name, 31.5e-3, 10e-3, 1.0)],
        "blocked_by": {"lock": 1.0},
        "blocked_looks": 60,
    }
    return waiting(sample={"decode": (10.0, 21.5, 0.0)}, maker=maker, process_cpu_s=60e-3)


def evaluates(seconds: float, loads: bool) -> RuleInputs:
    """A run that only infers for so long, with a loader or without one."""
    facts = made_up_facts()
    step = replace(facts.step, evaluation_s=seconds, evaluation_loads=loads)
    return replace(facts, step=step)
