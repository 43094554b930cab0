"""Fixes of rules about the training loop, as ``CASES`` of test_advice_fits.py has them."""

from dataclasses import replace

from rules.advice_runs import (
    AFTER,
    EACH,
    FORWARD_AGAIN,
    HOST,
    KEPT,
    LOGS,
    NO_IMAGES,
    TABLES,
    TENSORS,
    chained,
    collecting,
    evaluates,
    gpu,
    growing,
    in_ledger,
    in_loop,
    in_model,
    killed,
    of_dtype,
    only,
    own,
    stalling,
)
from rules.made_up import made_up_facts

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.clues import (
    Denormal,
    DroppedForwards,
    Padding,
    UnusedGradients,
)
from feedline.analysis.measure.model import (
    Holder,
    KeptGraphs,
)
from feedline.profiler.session.ending import ALL_OPEN

#: Workers decode on the CPUs that the step waits for.
SHARED = {
    "stages": HOST,
    "sample": {"decode": (5.0, 4.0, 0.0)},
    "used_cpus": 1.95,
    "effective_cpus": 2.0,
    "main_runqueue_share": 0.4,
    "settings": {"sample_code": "Rows.__getitem__ (train.py:18)"},
}
PARSED = only(dataset=(5.0, 4.0, 0.0))

OF_THE_LOOP: dict[str, list[tuple[str, RuleInputs, RuleInputs]]] = {
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
            "Put rows of similar length",
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
            replace(made_up_facts(), failed=f"failed with RuntimeError ({ALL_OPEN})"),
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
        (
            "Load once",
            killed(for_memory=True, batch_bytes=9e8, first_batch=True),
            killed(for_memory=True, batch_bytes=9e8),
        ),
        (
            "much larger than the others",
            killed(for_memory=True, batch_bytes=9e8),
            killed(for_memory=True, batch_bytes=9e8, first_batch=True),
        ),
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
    "workers_hold_cpus": [
        ("faster decoder", made_up_facts(**SHARED), made_up_facts(**{**SHARED, "maker": PARSED})),
        ("line by line", made_up_facts(**{**SHARED, "maker": PARSED}), made_up_facts(**SHARED)),
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
}
