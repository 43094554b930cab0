"""No advice about what is not there: each fix with a run in which what it takes for granted is
there, and one in which it is not.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from rules.any_facts import any_facts
from rules.made_up import SAME, made_up_facts, per_sample, waiting, without_workers
from rules.test_made_one_by_one import rows
from rules.test_model_stages import BACK, CALL, NET
from text.breath import advised
from user_code.made_stacks import FETCHING, FORWARD, PYTHON, TORCH, Frame, process, stack, training

from feedline.analysis.explain.diagnose import diagnose
from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.ledger.finding import Finding
from feedline.analysis.ledger.table import Ledger, LedgerRow, LedgerTable
from feedline.analysis.measure.clues import (
    Denormal,
    DroppedForwards,
    Making,
    OneByOne,
    Padding,
    Parts,
    Skipped,
    UnusedGradients,
)
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import (
    Certainty,
    Cpus,
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
from feedline.analysis.rules import BY_ID, CROSS_RANK, DATA, INPUT, LOOP, MACHINE, TRACE
from feedline.analysis.traces.gpu_work import GpuWork
from feedline.profiler.session.ending import ALL_OPEN

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


#: Rule -> words of its fix, a run that has what they take for granted, and one that has not: then
#: it is silent, or says something else.
def evaluates(seconds: float, loads: bool) -> RuleInputs:
    """A run that only infers for so long, with a loader or without one."""
    facts = made_up_facts()
    step = replace(facts.step, evaluation_s=seconds, evaluation_loads=loads)
    return replace(facts, step=step)


CASES: dict[str, list[tuple[str, RuleInputs, RuleInputs]]] = {
    "slow_for_its_bytes": [
        ("DEFAULT_MAX_THREADS", spinning("PIL.AVIF"), spinning("cv2.imread")),
        ("cv2.setNumThreads", spinning("cv2.imread"), spinning("PIL.AVIF")),
    ],
    "too_few_workers": [
        ("num_workers=", without_workers(), waiting(**FULL, sample={"decode": (2.0, 9.0, 0.0)})),
        (
            "num_workers=",
            waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}, settings=STREAM),
            waiting(
                260.0,
                sample={"decode": (40.0, 0.0, 0.0)},
                settings=STREAM | {"asks_for_worker": False},
            ),
        ),
        (
            "num_workers=",
            waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}, settings=STREAM),
            waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}, settings=STREAM, same_samples=SAME),
        ),
        (
            "num_workers=",
            waiting(260.0, sample={"decode": (40.0, 0.0, 0.0)}, settings=STREAM),
            waiting(
                260.0,
                sample={"decode": (40.0, 0.0, 0.0)},
                settings=STREAM | {"dataset_shards": 4},
            ),
        ),
        (
            "persistent_workers=True",
            without_workers(epochs=3),
            without_workers(epochs=3, settings={"dataset_changes": ["epoch"]}),
        ),
    ],
    "same_samples": [
        (
            "split_by_worker",
            waiting(settings=STREAM | {"dataset_library": "webdataset"}, same_samples=SAME),
            waiting(settings=STREAM | {"dataset_library": "datasets"}, same_samples=SAME),
        ),
        (
            "StreamingDataLoader itself",
            waiting(settings=STREAM | {"wrapped_library": "litdata"}, same_samples=SAME),
            waiting(settings=STREAM | {"wrapped_library": "datasets"}, same_samples=SAME),
        ),
        (
            "in Texts.__iter__",
            waiting(
                settings=STREAM | {"sample_code": "Texts.__iter__ (a.py:3)"}, same_samples=SAME
            ),
            waiting(settings=STREAM | {"sample_code": "Texts.__iter__ (a.py:3)"}),
        ),
    ],
    "workers_without_data": [
        (
            "tar files",
            lacking(dataset_library="webdataset"),
            lacking(dataset_library="datasets"),
        ),
        ("a part of the data", lacking(), waiting(settings=STREAM)),
        ("as many samples", uneven(), waiting(settings=STREAM)),
        (
            "tar files of even size",
            uneven(dataset_library="webdataset"),
            uneven(dataset_library="datasets"),
        ),
    ],
    "fewer_workers": [
        (
            "num_workers=0",
            made_up_facts(
                stages={"transport": 60.0},
                sample={"decode": (0.1, 0, 0)},
                maker={"fetch_mean_s": 5e-3},
            ),
            without_workers(),
        )
    ],
    "made_one_by_one": [
        ("takes a list of indices", rows(3.0), rows(3.0, settings={"whole_batches": True})),
        ("takes a list of indices", rows(3.0), rows(3.0, settings={"map_style": False})),
    ],
    "epoch_restart": [
        (
            "persistent_workers=True)  #",
            made_up_facts(**RESTARTING),
            made_up_facts(**RESTARTING, settings={"dataset_changes": ["epoch"]}),
        ),
        (
            "Make the loader once",
            made_up_facts(**{**RESTARTING, "loader": {"first_batch_s": 1.0, "objects": 10}}),
            made_up_facts(
                **{**RESTARTING, "loader": {"first_batch_s": 1.0, "objects": 10}},
                settings={"dataset_changes": [""]},
            ),
        ),
    ],
    "slow_first_batch": [
        (
            "initial=",
            made_up_facts(**BEGINNING, settings=STREAM | {"dataset_library": "webdataset"}),
            made_up_facts(**BEGINNING, settings=STREAM | {"dataset_library": "datasets"}),
        ),
        (
            "shuffle buffer",
            made_up_facts(**BEGINNING, settings=STREAM),
            made_up_facts(**{**BEGINNING, "first_made_s": 0.2}, settings=STREAM),
        ),
    ],
    "slow_sampler": [
        (
            "in one call",
            made_up_facts(stages={"sampler": 60.0}, settings={"sampler": "ByLength"}),
            made_up_facts(stages={"sampler": 60.0}, settings={"sampler": "RandomSampler"}),
        ),
        (
            "in one call",
            made_up_facts(
                stages={"sampler": 60.0},
                settings={"sampler": "RandomSampler", "torchs_sampler": False},
            ),
            made_up_facts(
                stages={"sampler": 60.0},
                settings={"sampler": "WeightedRandomSampler", "torchs_sampler": True},
                order_s=12.0,
            ),
        ),
        (
            "replacement=True",
            made_up_facts(
                stages={"sampler": 60.0},
                settings={"sampler": "WeightedRandomSampler"},
                order_s=12.0,
            ),
            made_up_facts(
                stages={"sampler": 60.0},
                settings={"sampler": "WeightedRandomSampler", "replacement": True},
                order_s=12.0,
            ),
        ),
        (
            "Passes end before",
            made_up_facts(
                stages={"sampler": 60.0},
                order_s=12.0,
                loader={"epochs": 1},
                settings={"sampler": "RandomSampler", "epoch_samples": 30_000_000},
            ),
            made_up_facts(
                stages={"sampler": 60.0},
                order_s=12.0,
                loader={"epochs": 1},
                settings={"sampler": "RandomSampler", "epoch_samples": 6400},
            ),
        ),
    ],
    "skipped_batches": [
        (
            "only in the pass",
            replace(waiting(60.0), skipped=Skipped(40, 60, "train.py:9")),
            replace(waiting(60.0), skipped=Skipped(3, 600)),
        ),
    ],
    "many_tensors": [
        (
            "torch.cat",
            waiting(batch_tensors=60.0, stages={"transport": 40.0}),
            waiting(batch_tensors=6.0, stages={"transport": 40.0}),
        ),
    ],
    "objects_in_queue": [
        (
            "Return tensors",
            waiting(
                loader={"flags": ["objects"], "pickle_bytes": 38.5e6}, stages={"transport": 40.0}
            ),
            waiting(stages={"transport": 40.0}),
        ),
    ],
    "custom_collate": [
        (
            "default_collate",
            waiting(
                loader={"flags": [], "batch_bytes": 38.5e6},
                sample={"transport": (3.6, 0, 0)},
                settings={"collate": "mine"},
            ),
            waiting(
                loader={"flags": [], "batch_bytes": 38.5e6},
                sample={"transport": (3.6, 0, 0)},
                settings={"collate": "default"},
            ),
        ),
    ],
    "blocked": [
        (
            "Find what the dataset sleeps for",
            waiting(sample=BLOCKED, traffic=NOTHING, maker=looked("sleep")),
            waiting(sample=BLOCKED, traffic=NOTHING, maker=looked("network")),
        ),
        (
            "connections",
            waiting(sample=BLOCKED, traffic=NOTHING, maker=looked("network")),
            waiting(sample=BLOCKED, traffic=NOTHING, maker=looked("sleep")),
        ),
        (
            "num_workers=",
            waiting(sample=BLOCKED, traffic=NOTHING, maker=looked("network"), settings=STREAM),
            waiting(
                sample=BLOCKED,
                traffic=NOTHING,
                maker=looked("network"),
                settings=STREAM,
                same_samples=SAME,
            ),
        ),
    ],
    "small_files": [
        (
            "packs images",
            waiting(sample={"read": (0.2, 0.0, 5.3)}, traffic=SMALL),
            waiting(sample={"read": (0.2, 0.0, 5.3)}, traffic=SMALL, maker=NO_IMAGES),
        ),
        (
            "tar",
            waiting(sample={"read": (0.2, 0.0, 5.3)}, traffic=SMALL),
            waiting(sample={"read": (0.2, 0.0, 5.3)}, traffic=NOTHING),
        ),
    ],
    "cold_storage": [
        (
            "faster or local disk",
            waiting(sample={"read": (0.3, 0.0, 12.0)}, traffic=COLD, maker=looked("file")),
            waiting(sample={"read": (0.3, 0.0, 12.0)}, maker=looked("file")),
        ),
        (
            "num_workers=",
            waiting(
                sample={"read": (0.3, 0.0, 12.0)},
                traffic=COLD,
                maker=looked("file"),
                settings=STREAM,
            ),
            waiting(
                sample={"read": (0.3, 0.0, 12.0)},
                traffic=COLD,
                maker=looked("file"),
                settings=STREAM | {"asks_for_worker": False},
            ),
        ),
    ],
    "swapping": [
        (
            "less memory",
            waiting(
                sample=BLOCKED,
                traffic=Traffic(0.0, 0.0, 400e3, 100.0),
                maker=looked("page fault"),
                swapped_in=90e6,
            ),
            waiting(
                sample=BLOCKED,
                traffic=Traffic(0.0, 0.0, 400e3, 100.0),
                maker=looked("page fault"),
                swapped_in=0.0,
            ),
        ),
    ],
    "thread_oversubscription": [
        (
            "cv2.setNumThreads",
            waiting(used_cpus=7.8, process_cpu_s=14.4e-3, operations={"augment/cv2.resize": 1.0}),
            waiting(used_cpus=7.8, process_cpu_s=14.4e-3),
        ),
        (
            "which trains on the CPU",
            waiting(used_cpus=7.8, process_cpu_s=14.4e-3, stages=HOST),
            waiting(used_cpus=7.8, process_cpu_s=14.4e-3),
        ),
    ],
    "page_faults": [
        (
            "MALLOC_",
            of_images(
                waiting(
                    sample={"decode": (17.2, 0, 0)},
                    glibc=(2, 36),
                    traffic=Traffic(110e3, 3.0, 0.0, 0.0, 3700.0, 6.3e-3),
                )
            ),
            of_images(
                waiting(
                    sample={"decode": (17.2, 0, 0)},
                    glibc=(),
                    traffic=Traffic(110e3, 3.0, 0.0, 0.0, 3700.0, 6.3e-3),
                )
            ),
        ),
    ],
    "oversize_images": [
        (
            "decode JPEGs",
            waiting(maker={"decoded_pixels": 1.8e6}, operations={"decode/PIL.JPEG": 2.0}),
            waiting(maker={"decoded_pixels": 1.8e6}, operations={"decode/PIL.PNG": 2.0}),
        ),
        (
            "cropped",
            waiting(maker={"decoded_pixels": 1.8e6}),
            waiting(maker={"decoded_pixels": 1.8e6}, operations={"augment/Resize": 1.0}),
        ),
        (
            "cropped",
            waiting(maker={"decoded_pixels": 1.8e6}, operations={"augment/RandomResizedCrop": 1.0}),
            waiting(maker={"decoded_pixels": 1.8e6}, operations={"augment/Resize": 1.0}),
        ),
        ("training size", waiting(maker={"decoded_pixels": 1.8e6}), waiting(maker=NO_IMAGES)),
    ],
    "oversize_reads": [
        ("mmap_mode", reading(4.8e6, "numpy.load"), reading(4.8e6, "open")),
        ("file of its own", reading(4.8e6, "open"), reading(20e3, "open")),
    ],
    "decode_bound": [
        (
            "on the GPU",
            waiting(sample={"decode": (9.0, 0, 0)}),
            waiting(sample={"decode": (9.0, 0, 0)}, stages=HOST),
        ),
        (
            "simplejpeg",
            waiting(sample={"decode": (9.0, 0, 0)}, operations={"decode/PIL.JPEG": 9.0}),
            waiting(sample={"decode": (9.0, 0, 0)}, operations={"decode/PIL.PNG": 9.0}),
        ),
        (
            "smaller images",
            waiting(sample={"decode": (9.0, 0, 0)}),
            waiting(sample={"decode": (9.0, 0, 0)}, maker={"output_pixels": 160_000}),
        ),
        (
            "smaller images",
            waiting(sample={"decode": (9.0, 0, 0)}),
            waiting(sample={"decode": (9.0, 0, 0)}, maker=NO_IMAGES),
        ),
        (
            "torchcodec",
            waiting(
                sample={"decode": (9.0, 0, 0)}, operations={"decode/cv2.VideoCapture.read": 9.0}
            ),
            waiting(
                sample={"decode": (9.0, 0, 0)},
                operations={"decode/cv2.VideoCapture.read": 9.0},
                stages=HOST,
            ),
        ),
    ],
    "float32_on_host": [
        (
            "on the device",
            waiting(loader=FLOATS, operations={"augment/ToTensor": 1.5}),
            waiting(loader=FLOATS, operations={"augment/ToTensor": 1.5}, stages=HOST),
        ),
        (
            "normalize",
            waiting(loader=FLOATS, operations={"augment/Normalize": 1.5}),
            waiting(loader=FLOATS, operations={"augment/ToTensor": 1.5}),
        ),
        (
            "uint8",
            waiting(loader=FLOATS, operations={"augment/ToTensor": 1.5}),
            waiting(loader=FLOATS, operations={"augment/ToTensor": 1.5}, maker=NO_IMAGES),
        ),
    ],
    "augmentation_bound": [
        (
            "to their final size",
            replace(waiting(sample={"augment": (9.0, 0, 0)}), cut_first=False),
            replace(waiting(sample={"augment": (9.0, 0, 0)}), cut_first=True),
        ),
        (
            "on the GPU",
            waiting(sample={"augment": (9.0, 0, 0)}),
            waiting(sample={"augment": (9.0, 0, 0)}, stages=HOST),
        ),
        (
            "transforms.v2",
            waiting(sample={"augment": (9.0, 0, 0)}, operations={"augment/ToTensor": 1.0}),
            waiting(sample={"augment": (9.0, 0, 0)}, operations={"augment/RandomCrop": 1.0}),
        ),
        (
            "images",
            waiting(sample={"augment": (9.0, 0, 0)}),
            waiting(sample={"augment": (9.0, 0, 0)}, maker=NO_IMAGES),
        ),
    ],
    "cpu_saturated": [
        ("decoder", waiting(**FULL), waiting(**FULL, maker=only(dataset=(4.0, 0, 0)))),
        ("smaller images", waiting(**FULL), waiting(**FULL, maker=only(decode=(4.0, 0, 0)))),
        ("on the GPU", waiting(**FULL), waiting(**FULL, stages=HOST)),
        ("cheaper transforms", waiting(**FULL), waiting(**FULL, maker=only(read=(4.0, 0, 0)))),
        ("decoder", waiting(**FULL), waiting(**FULL, sample={"dataset": (80.0, 0, 0)})),  # 2 %
        (
            "chunks",
            waiting(
                **FULL,
                maker=only(read=(4.0, 0, 0))
                | {"operations": [Operation("read", "h5py.Dataset", 4e-3, 4e-3, 1.0)]},
            ),
            waiting(
                **FULL,
                maker=only(read=(4.0, 0, 0))
                | {"operations": [Operation("read", "numpy.load", 4e-3, 4e-3, 1.0)]},
            ),
        ),
        ("Use chunks", reading_chunks(64.0), reading_chunks(1.0)),
        ("less compression, or a faster", reading_chunks(1.0), reading_chunks(64.0)),
        (
            "line by line",
            waiting(
                **FULL,
                maker=only(dataset=(4.0, 0, 0)),
                settings={"sample_code": "Rows.__getitem__ (train.py:18)"},
            ),
            waiting(**FULL, maker=only(dataset=(4.0, 0, 0))),
        ),
    ],
    "quota_used_up": [
        (
            "Raise the CPU quota",
            replace(
                waiting(used_cpus=0.5, effective_cpus=0.5), cpus=Cpus(0.5, 0.5, 2.0, 0.5, 0.0, 0.0)
            ),
            waiting(**FULL),
        ),
    ],
    "user_code": [
        ("data.py:88", in_code("tokenize", 88), in_code("tokenize", 12)),
        ("chunks of about", in_code("crop", 9, CHUNK), in_code("crop", 9)),
        (
            "uncompressed",
            unpacking(in_code("crop", 9, CHUNK), 1.0),
            unpacking(in_code("crop", 9, CHUNK), 64.0),
        ),
    ],
    "straggler_in_order": [
        (
            "in_order=False",
            waiting(
                5.0, waits={"head_of_line": 50.0}, straggler_share=0.3, maker={"fetch_cv": 1.4}
            ),
            waiting(
                5.0,
                waits={"head_of_line": 50.0},
                straggler_share=0.3,
                maker={"fetch_cv": 1.4},
                settings={"in_order": False},
            ),
        ),
    ],
    "busy_neighbors": [
        (
            "other programs",
            waiting(used_cpus=1.0, others=6.5, main_runqueue_share=0.4),
            waiting(used_cpus=1.0, main_runqueue_share=0.4),
        ),
    ],
    "gpu_waits": [
        (
            "torch.compile",
            gpu(0.3, made_up_facts()),
            gpu(0.3, made_up_facts(stages={"compile": 1.0})),
        ),
        ("kernels", gpu(0.3, made_up_facts()), made_up_facts()),
    ],
    "float32_products": [
        ("tensor cores", gpu(0.9, made_up_facts(), 0.6), gpu(0.9, made_up_facts()))
    ],
    "own_code": [
        (
            "Profile project",
            own(made_up_facts(), "project (train.py:20)"),
            own(made_up_facts(), "dumps (python3.11/json/__init__.py:183)"),
        ),
        (
            "line by line",
            own(made_up_facts(), "lines 20 to 24 (train.py)"),
            own(
                made_up_facts(),
                "lines 20 to 24 (train.py)",
                "cross_entropy (torch…/functional.py:3472)",
            ),
        ),
        (
            "smaller images",
            own(
                made_up_facts(loader={"batch_bytes": 40e6}, stages={"other": 60.0}),
                "project (train.py:20)",
            ),
            own(
                made_up_facts(
                    loader={"batch_bytes": 40e6}, stages={"other": 60.0}, maker=NO_IMAGES
                ),
                "project (train.py:20)",
            ),
        ),
    ],
    "anomaly_detection": [("set_detect_anomaly", in_model(KEPT), in_model(FORWARD_AGAIN))],
    "recomputed_forward": [("for fewer layers", in_model(FORWARD_AGAIN), in_model(KEPT))],
    "unused_gradients": [
        (
            "fake.detach()",
            replace(made_up_facts(), unused_gradients=UnusedGradients(900, 0.9, 0.08, "gan.py:50")),
            replace(made_up_facts(), unused_gradients=UnusedGradients(10, 0.01, 0.08, "gan.py:50")),
        ),
    ],
    "unused_parameters": [
        (
            "Leave out find_unused",
            replace(in_model(AFTER), finds_unused=True),
            in_model(AFTER),
        ),
    ],
    "chained_graphs": [
        (
            "state.detach()",
            chained(KeptGraphs(8, 8, "train.py:20")),
            chained(None),
        ),
    ],
    "dropped_graphs": [
        (
            "Remove this call",
            replace(made_up_facts(), dropped=DroppedForwards(0.02, 9, "train.py:20", True)),
            replace(made_up_facts(), dropped=DroppedForwards(0.02, 9, "train.py:20", False)),
        ),
        (
            "torch.no_grad()",
            replace(made_up_facts(), dropped=DroppedForwards(0.02, 9, "train.py:20", False)),
            replace(made_up_facts(), dropped=DroppedForwards(0.001, 9, "train.py:20", False)),
        ),
    ],
    "padded_batches": [
        (
            "collate_fn",
            replace(made_up_facts(), padding=Padding(0.6, 0.7, 9)),
            replace(made_up_facts(), padding=Padding(0.2, 0.3, 9)),
        ),
        (
            "similar length",
            replace(made_up_facts(), padding=Padding(0.2, 0.7, 9)),
            replace(made_up_facts(), padding=Padding(0.6, 0.7, 9)),
        ),
    ],
    "denormal_numbers": [
        (
            "set_flush_denormal",
            replace(made_up_facts(stages=HOST), denormal=Denormal(0.6, 9, 4, 0.3)),
            replace(made_up_facts(stages=HOST), denormal=Denormal(0.6, 9, 9, None)),
        ),
    ],
    "kept_batches": [
        (
            "tensor.clone()",
            replace(made_up_facts(), failed=f"failed with RuntimeError, {ALL_OPEN}"),
            replace(made_up_facts(), failed="failed with RuntimeError"),
        ),
    ],
    "double_precision": [("float32", of_dtype("float64"), of_dtype("float32"))],
    "call_in_model": [("Log every 50 steps", in_model(LOGS), in_model(KEPT))],
    "loop_in_model": [
        ("whole tensor at once", in_loop(6), in_loop(8)),
        ("Compute it once", in_loop(14), in_loop(6)),
        ("Call the model once", replace(of_dtype("float32"), one_by_one=EACH), in_loop(6)),
    ],
    "recompilation": [
        ("TORCH_LOGS", in_ledger("compile", 60.0, 0.5), in_ledger("compile", 60.0, 0.005))
    ],
    "checkpoint_time": [
        (
            "Save less often",
            in_ledger("checkpoint", 60.0, 0.5),
            in_ledger("checkpoint", 60.0, 0.005),
        ),
        (
            "leave out data",
            replace(in_ledger("checkpoint", 60.0, 0.5, TENSORS), saved_bytes=50e6),
            replace(in_ledger("checkpoint", 60.0, 0.5, TENSORS), saved_bytes=100e3),
        ),
    ],
    "garbage_collection": [
        ("gc.freeze", collecting(), collecting(full_share=0.1)),
        ("Call gc.collect() rarely", collecting(called_share=1.0), collecting()),
    ],
    "memory_growth": [
        ("detach", growing(holder=Holder.GRAPHS), growing()),
        ("arrays (NumPy", growing(holder=Holder.COPIES), growing(holder=Holder.OWN)),
        ("tensors or arrays", growing(holder=Holder.PIECES), growing(holder=Holder.OBJECTS)),
        ("this line", growing(holder=Holder.PIECES, place="a.py:3"), growing(holder=Holder.PIECES)),
    ],
    "periodic_stall": [
        ("Run flush()", stalling(function="flush", place="a.py:3"), stalling()),
        ("only every 60 steps", stalling(), stalling(function="flush", place="a.py:3")),
    ],
    "killed_worker": [
        ("Use fewer workers", killed(for_memory=True), killed(for_memory=False)),
        ("get longer", killed(for_memory=True, per_second_bytes=2e8), killed(for_memory=True)),
        ("sent the signal", killed(for_memory=False), killed(for_memory=True)),
    ],
    "optimizer_time": [
        (
            "fused=True",
            in_ledger("optimizer", 90.0, 1.0, TENSORS),
            in_ledger("optimizer", 90.0, 1.0, replace(TENSORS, fused=True)),
        ),
        (
            "sparse=True",
            in_ledger("optimizer", 90.0, 1.0, TABLES, batch_bytes=40e3),
            in_ledger("optimizer", 90.0, 1.0, replace(TABLES, embedded=0), batch_bytes=40e3),
        ),
        (
            "closure",
            in_ledger("optimizer", 90.0, 1.0, replace(TENSORS, tensors=4)),
            in_ledger("optimizer", 90.0, 1.0, TENSORS),
        ),
        (
            "into one group",
            in_ledger("optimizer", 90.0, 1.0, replace(TENSORS, groups=2000)),
            in_ledger("optimizer", 90.0, 1.0, TENSORS),
        ),
    ],
    "evaluation_time": [
        ("Run evaluation less often", evaluates(60.0, loads=True), evaluates(60.0, loads=False)),
        ("environments", evaluates(60.0, loads=False), evaluates(60.0, loads=True)),
        ("less often", evaluates(60.0, loads=True), evaluates(0.0, loads=True)),
        (
            "Give each rank a part",
            replace(evaluates(60.0, loads=False), not_evaluating=1),
            evaluates(60.0, loads=False),
        ),
    ],
    "nothing_trained": [
        (
            "Let it train",
            (
                lambda facts: replace(
                    facts, step=replace(facts.step, boundary="loader", stages={"wait": 0.1})
                )
            )(made_up_facts()),
            made_up_facts(),
        ),
    ],
    "too_short": [
        (
            "Train for 16 steps",
            waiting(certainty=Certainty(5, 0.1, 0.5)),
            waiting(
                certainty=Certainty(5, 0.1, 0.5), failed="failed with ValueError (exit code 1)"
            ),
        ),
    ],
    "made_in_step": [("fewer and larger operations", by_hand(20.0, 1.0), by_hand(20.0, 0.2))],
    "input_not_seen": [
        ("into a function", replace(made_up_facts(), loader=None), made_up_facts()),
        ("(feedline finds", replace(made_up_facts(), loader=None), unsure_by_hand()),
    ],
    "borderline_input": [
        (
            "the rest of the step",
            made_up_facts(waits={"starved": 5.0}, certainty=Certainty(100, 0.04, 0.06)),
            waiting(certainty=Certainty(100, 0.3, 0.4)),
        ),
    ],
    "gpu_bound": [
        (
            "smaller images",
            gpu(0.96, made_up_facts(waits={"transport": 7.0})),
            gpu(0.96, made_up_facts(waits={"transport": 7.0}, maker=NO_IMAGES)),
        ),
        (
            "torch.compile",
            gpu(0.96, made_up_facts(waits={"transport": 7.0})),
            gpu(0.96, made_up_facts(waits={"transport": 7.0}, stages={"compile": 1.0})),
        ),
    ],
    "input_bound_unexplained": [
        ("stages of a sample", waiting(), waiting(workers=None)),
        (
            "mp_prefetch",
            waiting(workers=None, settings={"library": "Grain"}),
            waiting(workers=None, settings={"library": "Ray Data"}),
        ),
    ],
}


def finding_of(rule_id: str, facts: RuleInputs) -> Finding | None:
    """What a run is told by one rule; of those that speak where no other does, what the engine
    tells by them.
    """
    rule = BY_ID[rule_id]
    if rule in (*INPUT, *MACHINE, *LOOP):
        return rule.check(facts)
    return next((finding for finding in diagnose(facts) if finding.rule_id == rule_id), None)


@pytest.mark.parametrize(
    ("rule_id", "words", "there", "missing"),
    [(rule_id, *case) for rule_id, cases in CASES.items() for case in cases],
)
def test_a_fix_takes_for_granted_only_what_the_run_has(rule_id, words, there, missing):
    finding, other = finding_of(rule_id, there), finding_of(rule_id, missing)

    assert finding is not None and words in advised(finding)
    assert other is None or words not in advised(other)
    assert other is None or (other.fix and other.how_to_check)


def test_every_rule_about_a_recorded_run_has_such_a_pair():
    elsewhere = {rule.rule_id for rule in (*CROSS_RANK, *TRACE)} - {
        "input_not_seen"
    }  # tests/ranks, tests/traces

    assert set(CASES) == set(BY_ID) - elsewhere - {"compute_bound"}  # which advises nothing


def decodes(facts: RuleInputs) -> bool:
    staged = "decode" in facts.costs or "decode" in facts.step.stages
    return staged or facts.decodes_images or operations(facts, "decode/")


def images(facts: RuleInputs) -> bool:
    return facts.decodes_images or operations(facts, "decode/cv2.VideoCapture")


def operations(facts: RuleInputs, start: str) -> bool:
    return facts.workers is not None and any(
        f"{one.stage}/{one.name}".startswith(start) for one in facts.workers.operations
    )


#: What advice speaks of -> what a run must have for it.
TAKES_FOR_GRANTED: dict[str, Callable[[RuleInputs], bool]] = {
    r"decod": decodes,
    r"\bimages?\b|JPEG|[Pp]ixel|\bcrop": images,
    r"\btransforms?\b": lambda facts: (
        "augment" in facts.costs or "augment" in facts.step.stages or operations(facts, "augment/")
    ),
    r"\bGPU\b|the device|DALI|CUDA": lambda facts: facts.on_gpu,
    r"cv2\.": lambda facts: operations(facts, "decode/cv2.") or operations(facts, "augment/cv2."),
    r"chunks": lambda facts: operations(facts, "read/h5py.") or operations(facts, "read/zarr."),
    r"MALLOC_": lambda facts: bool(facts.glibc),
    r"num_workers=(?!1\b)[1-9]": lambda facts: facts.may_be_split and facts.shards != 1,
    r"(?<!not set )persistent_workers=True": lambda facts: not facts.dataset_changes,
    r"replacement=True": lambda facts: not facts.setting("replacement"),
    r"iterable dataset": lambda facts: facts.is_stream,
    r"^Train for": lambda facts: not facts.failed,
}


@settings(max_examples=250)
@given(any_facts())
def test_no_rule_advises_what_is_not_there(facts):
    alone = [
        finding
        for rule in (*INPUT, *DATA, *MACHINE, *LOOP)
        if (finding := rule.check(facts)) is not None
    ]
    for finding in [*alone, *diagnose(facts)]:
        for words, there in TAKES_FOR_GRANTED.items():
            assert not re.search(words, advised(finding), re.MULTILINE) or there(facts), (
                finding.rule_id,
                words,
                advised(finding),
            )
        assert facts.may_be_split or finding.settings.get("num_workers", 0) <= 1
        now = int(facts.setting("num_workers", 0) or 0)
        assert finding.settings.get("num_workers", 0) <= max(now, facts.shards or 1024)
        assert (
            not facts.dataset_changes
            or "persistent_workers" not in finding.settings
            or not finding.settings["persistent_workers"]
        )
