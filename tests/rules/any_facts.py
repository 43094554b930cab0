"""Hypothesis strategies for facts: any mixture of faults, with any figures missing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from rules.made_up import SAME, SAMPLE, made_up_facts
from user_code.made_stacks import FETCHING, LIBRARIES, LOOP, process, stack, training

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.clues import Parts
from feedline.analysis.measure.code_tree import SampledCode
from feedline.analysis.measure.model import Certainty, Cost, KilledWorker, Moved, Traffic
from feedline.analysis.measure.step_model import PeriodicStall
from feedline.analysis.measure.waits import _WAIT_KINDS

ms = st.sampled_from([0.0, 0.3, 2.0, 9.0, 40.0, 300.0])
some_bytes = st.sampled_from([None, 0.0, 900.0, 70e3, 2e6, 40e6])
MOVED = [Moved(1.0, 5e5, 0.02, 0.0), Moved(3.0, 40e6, None, 1.0), Moved(0.0, 0.0, 0.0, 0.0)]
stages = st.dictionaries(
    st.sampled_from(
        [
            "epoch_start",
            "sampler",
            "read",
            "decode",
            "transport",
            "copy",
            "forward",
            "compile",
            "my stage",
        ]
    ),
    ms,
)
samples = st.dictionaries(st.sampled_from([*SAMPLE, "transport", "user"]), st.tuples(ms, ms, ms))
OPERATIONS = [
    "augment/ToTensor",
    "augment/a.Resize",
    "augment/cv2.resize",
    "decode/load",
    "decode/PIL.JPEG",
    "decode/cv2.VideoCapture.read",
]
operations = st.dictionaries(st.sampled_from([*OPERATIONS, "read/h5py.Dataset"]), ms)
settings = st.fixed_dictionaries(
    {"num_workers": st.integers(0, 8)},
    optional={
        "in_order": st.booleans(),
        "persistent_workers": st.booleans(),
        "start_method": st.sampled_from(["fork", "spawn"]),
        "collate": st.sampled_from(["default", "my_collate"]),
        "map_style": st.booleans(),
        "asks_for_worker": st.booleans(),
        "dataset_shards": st.sampled_from([1, 2, 64]),
        "dataset_changes": st.sampled_from([[], [""], ["epoch"]]),
        "sample_code": st.just("Rows.__getitem__ (train.py:18)"),
        "sampler": st.sampled_from(["RandomSampler", "WeightedRandomSampler", "ByLength"]),
        "torchs_sampler": st.booleans(),
        "replacement": st.booleans(),
    },
)
loader_fields = st.fixed_dictionaries(
    {},
    optional={
        "flags": st.lists(st.sampled_from(["float32", "shared", "pinned", "objects"]), unique=True),
        "batch_bytes": some_bytes,
        "pickle_bytes": some_bytes,
        "first_batch_s": st.sampled_from([None, 0.0, 0.2, 8.0]),
        "objects": st.sampled_from([1, 2, 9]),
    },
)
maker_fields = st.fixed_dictionaries(
    {},
    optional={
        "fetch_mean_s": st.sampled_from([None, 0.0, 0.01, 0.5]),
        "fetch_cv": st.sampled_from([None, 0.1, 1.5]),
        "idle_share": st.sampled_from([None, 0.0, 0.5]),
        "decoded_pixels": st.sampled_from([None, 0.0, 1e5, 2e6]),
        "output_pixels": st.sampled_from([None, 0.0, 5e4]),
        "batches": st.sampled_from([0, 200, 800]),
        "samples": st.sampled_from([0, 6400]),
    },
)
GETITEM = [*FETCHING, ("data.py", 20, "__getitem__")]
ROW = [*GETITEM, (LIBRARIES + "pandas/core/indexing.py", 9, "__getitem__")]
TAPPED = [*GETITEM, ("a tap (feedline; passed by)", 3, "wrapper"), (LIBRARIES + "PIL/x.py", 2, "y")]
FIGURE = [*LOOP, (LIBRARIES + "matplotlib/pyplot.py", 3, "savefig")]
WORKER_STACKS = [[stack(GETITEM, 50), stack(ROW, 50)], [stack(TAPPED, 90)], [stack(GETITEM, 3)]]
codes = st.builds(
    lambda worker, main: SampledCode.of([process("worker", *worker), training(*main)]),
    st.sampled_from([*WORKER_STACKS, []]),
    st.sampled_from([[], [stack(LOOP, 90)], [stack(FIGURE, 60)]]),
)
fact_fields = st.fixed_dictionaries(
    {"effective_cpus": st.sampled_from([0.0, 1.0, 2.5, 8.0]), "epochs": st.integers(0, 9)},
    optional={
        "used_cpus": st.sampled_from([None, 0.5, 7.9, 64.0]),
        "others": st.sampled_from([0.0, 0.3, 9.0]),
        "main_runqueue_share": st.sampled_from([None, 0.2, 0.9]),
        "process_cpu_s": st.sampled_from([None, 0.0, 0.005, 0.1]),
        "straggler_share": st.sampled_from([None, 0.4]),
        "ready_share": st.none(),
        "wait_share": st.sampled_from([0.0, 0.05, 0.6, 1.0]),
        "swapped_in": st.sampled_from([None, 0.0, 40e6]),
        "first_made_s": st.sampled_from([None, 0.2, 6.0]),
        "same_samples": st.sampled_from([None, SAME]),
        "worker_parts": st.sampled_from([None, Parts(most=700, least=20, as_workers=1.4)]),
        "order_s": st.sampled_from([None, 0.0, 4.0]),
        "glibc": st.sampled_from([(), (2, 36)]),
        "failed": st.sampled_from(["", "failed with ValueError (exit code 1)"]),
        "code": codes,
        "full_limit_bytes": st.sampled_from([None, 600e6]),
        "killed": st.sampled_from(
            [
                None,
                KilledWorker(None, 0),
                KilledWorker(1, 0, 3.0, 2e9),
                KilledWorker(1, 0, 3.0, 2e9, 1.5e9, batch_bytes=9e8),
            ]
        ),
        "certainty": st.sampled_from([None, Certainty(5, 0.1, 0.6), Certainty(200, 0.3, 0.4)]),
        "moved": st.dictionaries(
            st.sampled_from(["transport", "pin", "copy"]), st.sampled_from(MOVED)
        ),
    },
)


def within(stall: PeriodicStall | None, stages: Mapping[str, float]) -> PeriodicStall | None:
    """A stall of which no stage has more than it takes; None: none of it is left."""
    if stall is None:
        return None
    parts = {name: min(s, stages[name]) for name, s in stall.stages.items() if name in stages}
    return replace(stall, s=sum(parts.values()), stages=parts) if sum(parts.values()) else None


STALLS = [
    PeriodicStall(60, 9, 0.8, 0.013, {"other": 0.01, "forward": 0.003}),
    PeriodicStall(3, 90, 0.03, 0.01, {"backward": 0.01}, "main", "train.py:75", 0.9, "torch.x", 9),
    PeriodicStall(9, 30, 0.09, 0.01, {"other": 0.01}, "draw", "train.py:75", 0.9, "", 9),
]


@st.composite
def any_facts(draw: st.DrawFn) -> RuleInputs:
    changes: dict[str, Any] = draw(fact_fields)
    facts = made_up_facts(
        stages=draw(stages),
        waits=draw(st.dictionaries(st.sampled_from(_WAIT_KINDS), ms)),
        sample=draw(samples),
        operations=draw(operations),
        settings=draw(settings),
        loader=draw(loader_fields),
        maker=draw(maker_fields),
        traffic=Traffic(*draw(st.tuples(*[some_bytes] * 6))),
        **changes,
    )
    assert facts.workers is not None
    unmeasured = draw(st.sets(st.sampled_from(["cpu_s", "runqueue_s", "blocked_s"])))
    left_out = draw(st.sets(st.sampled_from([*facts.workers.per_sample])))
    costs = {
        name: without(cost, unmeasured)
        for name, cost in facts.workers.per_sample.items()
        if name not in left_out
    }
    facts = replace(facts, workers=replace(facts.workers, per_sample=costs))
    stall = draw(st.sampled_from([None, *STALLS]))
    facts = replace(facts, step=replace(facts.step, periodic=within(stall, facts.step.stages)))
    return replace(
        facts,
        **dict.fromkeys(
            draw(st.sets(st.sampled_from(["loader", "workers", "straggler_share"]), max_size=1))
        ),
    )


def without(cost: Cost, unmeasured: set[str]) -> Cost:
    return replace(cost, **dict.fromkeys(unmeasured))
