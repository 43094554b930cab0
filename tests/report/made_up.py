"""A made-up report of a loader-bound ResNet training, and variants of it.

Exact figures, no randomness.
"""

import math
from dataclasses import replace

from report import made_up_training
from report.made_up_parts import (
    MS,
    RATE,
    STAGES,
    ceilings,
    findings,
    gauges,
    loader,
    step,
    wobble,
    workers,
)

from feedline.analysis.explain.model import (
    Hook,
    OperatorTime,
    RankSummary,
    Report,
    Traces,
    Verdict,
)
from feedline.analysis.explain.next_limit import with_gains
from feedline.analysis.explain.roofs import roofline
from feedline.analysis.ledger.finding import (
    Blame,
    CostKind,
    Evidence,
    Finding,
    Gain,
    GainKind,
    PredictedRate,
    Severity,
)
from feedline.analysis.measure.model import (
    Cost,
    RunInfo,
    Throughput,
)
from feedline.analysis.measure.step_model import StepSeries
from feedline.analysis.ranks.communication import (
    CollectiveKind,
    Communication,
    LateRank,
    Prediction,
    RankParts,
)
from feedline.profiler.ceilings import Ceiling, Ceilings
from feedline.profiler.message import NO_NVML

NASTY = """<script>alert("x")</script> & 'a very long stage name' </style>"""


VERDICT = Verdict(
    limit="Input-bound: Input takes 53 % of each step.",
    cause="Images are decoded to 9 times as many pixels as the model sees.",
    fix="Store the images near the training size, or decode only the crop.",
    place="train.py:41",
    condition="only if no larger crop is taken later",
    gain=Gain(GainKind.PREDICTED, "samples/s", RATE, 262.4, 247.9, 277.3),
    finding="oversize_images",
)


def report(columns: int = 600) -> Report:
    """The whole of it: 1,200 steps of which all 600 columns are drawn, 4 workers, 3 findings, a
    roofline with ceilings.
    """
    made = without_roofline(columns)
    found = with_gains(made.findings, made.throughput, made.step)
    return replace(made, findings=found, roofline=roofline(made, ceilings()))


def without_roofline(columns: int = 600) -> Report:
    mean = sum(STAGES.values())
    return Report(
        run=RunInfo(
            "resnet-0412", "runs/resnet-0412", "finished", ["train.py", "--epochs", "5", "--api-key=***"],
            "2026-11-02T09:14:07+00:00", 239.6, 0, 1,
            {"feedline": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "torchvision": "0.28.0"},
            {"cpus": 8, "effective_cpus": 4.0, "memory_bytes": 33_567_834_112, "shm_bytes": None, "system": "Linux 6.1.0 "
                                                                                                            "x86_64"},
        ),
        verdict=VERDICT,
        findings=findings(),
        together=PredictedRate(RATE, 280.5, 264.1, 297.2),
        throughput=Throughput(32 / mean, 1 / mean, 38_400, 1_200, 412, 32.0),
        step=step(columns),
        workers=workers(),
        loaders=[loader(0), replace(loader(1, "evaluation"), batches=200, samples=6_400)],
        ranks={"0": RankSummary(1200, mean, dict(STAGES), "finished")},
        gauges=gauges(),
        hooks=[
            Hook("DataLoader", True, "batches, waits, settings"),
            Hook("PIL", True, "read and decode"),
            Hook("cv2.imread", False, "cv2 was imported as `from cv2 import imread` before "
                                      "feedline could see it; "
                 "read and decode of train.py:41 are one span"),
            Hook("gpu", False, "nvmlInit: NVML Shared Library Not Found", NO_NVML),
            Hook("schedstat", True, "waiting for CPU"),
        ],
        notes=["physical bytes are those of the worker threads; reads by helper threads are not "
               "in them"],
    )  # fmt: skip


def refused() -> Report:
    """Nothing is predicted."""
    made, why = (
        report(),
        "How fast images of the training size are read is unknown. Store 50 of them so, and "
        "record again.",
    )
    found = with_gains(
        [
            replace(finding, predicted=None, refused=why, cost_kind=CostKind.ESTIMATED)
            for finding in made.findings
        ],
        made.throughput,
        made.step,
    )
    verdict = replace(made.verdict, gain=found[0].gain)
    return replace(made, verdict=verdict, findings=found, together=None)


def without_steps() -> Report:
    nothing = Throughput(None, None, 0, 0, 0, None)
    return replace(
        report(),
        roofline=None,
        together=None,
        step=None,
        throughput=nothing,
        findings=[],
        ranks={},
        verdict=Verdict("The run never made a training step."),
    )


def without_workers() -> Report:
    made = replace(report(), workers=None, loaders=[], gauges=[], hooks=[], notes=[])
    return replace(made, roofline=roofline(made))


def one_step() -> Report:
    made = report(1)
    assert made.step
    return replace(
        made, throughput=replace(made.throughput, samples=32, steps=1, steps_in_detail=1)
    )


def empty_series() -> Report:
    made = report()
    assert made.step
    step = replace(made.step, series=StepSeries([], [], [], [], [], {}), waits={})
    return replace(made, step=step, gauges=[replace(made.gauges[0], at_s=[], values=[])])


def unmeasured() -> Report:
    """A machine without schedstat, and a figure that is no number."""
    made = report()
    assert made.workers
    blind = {
        stage: Cost(c.wall_s, None, None, None, None, None)
        for stage, c in made.workers.per_sample.items()
    }
    gauge = replace(made.gauges[0], values=[math.nan, *made.gauges[0].values[1:]])
    evidence = Finding(
        "x", Severity.LOW, "a figure is missing", [Evidence("ratio", "ratio", math.inf, "1")]
    )
    unknown = replace(
        made.workers,
        per_sample=blind,
        busy_share=None,
        idle_share=None,
        fetch_cv=None,
        sample_wall_histogram=[],
    )
    return replace(
        made,
        workers=unknown,
        gauges=[gauge],
        findings=[evidence],
        run=replace(made.run, state="cut", exit_code=None),
    )


def nasty() -> Report:
    """Names that try to be markup, a terminal sequence, or just too long."""
    made = report()
    assert made.step and made.workers
    stages = made.step.stages | {NASTY: 8 * MS, "\x1b[31mred": 3 * MS, "[bold]q": 2 * MS}
    columns = made.step.series.stages | {NASTY: [8 * MS] * 600}
    summary = replace(
        made.step,
        stages=stages,
        mean_s=sum(stages.values()),
        series=replace(made.step.series, stages=columns),
    )
    operations = [replace(operation, name=NASTY * 3) for operation in made.workers.operations]
    return replace(
        made,
        step=summary,
        verdict=Verdict(NASTY, NASTY, fix=NASTY, place=NASTY),
        run=replace(
            made.run, name="undecodable\udcff", path="runs/it's <here>", command=[NASTY, "\u2028"]
        ),
        workers=replace(made.workers, operations=operations),
        findings=[
            replace(
                made.findings[0],
                rule_id=NASTY,
                message=NASTY,
                fix=NASTY,
                evidence=[Evidence(NASTY, NASTY, 1.0, NASTY)],
            )
        ],
        loaders=[replace(loader(0), kind=NASTY, settings={NASTY: object(), "dataset": NASTY})],
        gauges=[replace(made.gauges[0], name=NASTY, unit=NASTY)],
        hooks=[Hook(NASTY, False, NASTY, NASTY)],
        convergence=replace(
            made_up_training.summary(),
            curves=[made_up_training.curve(NASTY, [1.0, 2.0, 3.0])],
            fixes=NASTY,
            notes=[NASTY],
        ),
        notes=[NASTY, "x" * 300],
    )


def many_loaders() -> Report:
    loaders = [loader(i, "training" if i == 0 else "evaluation") for i in range(24)]
    ranks = {
        str(i): RankSummary(
            1200, 0.1814 + 0.004 * i, STAGES | {"wait": (93.47 + 4 * i) * MS}, "finished"
        )
        for i in range(8)
    }
    made = report()
    return replace(made, loaders=loaders, ranks=ranks, run=replace(made.run, ranks=8))


def without_flop() -> Report:
    """A compiled model and no file of ceilings: level roofs only."""
    made = without_roofline()
    assert made.step
    hooks = [
        *made.hooks,
        Hook(
            "FLOP",
            False,
            "torch.compile compiled something, and the operations of compiled code are not seen",
        ),
    ]
    made = replace(made, step=replace(made.step, flop=None), hooks=hooks)
    return replace(made, roofline=roofline(made))


def crowded() -> Report:
    """Twenty roofs within two percent of each other, with long names."""
    made = without_roofline()
    near = [
        Ceiling(
            f"loader/a loader with a very long name {i}",
            "loader",
            460.0 + 0.5 * i,
            source="feedline compare",
        )
        for i in range(20)
    ]
    return replace(made, roofline=roofline(made, Ceilings(near, peak_flops=2.6e12)))


def four_ranks() -> Report:
    """Rank 3's loader makes the others wait."""
    made = replace(report(), run=replace(report().run, ranks=4))
    kinds = [CollectiveKind("all_reduce", 26_214_400, 4, "nccl", 4_800, 9.1 * MS, 2.88, 4.32),
             CollectiveKind("broadcast", 4_096, 4, "gloo", 12, None, None, None)]  # fmt: skip
    late = LateRank(
        3,
        1_160,
        1_171,
        1_200,
        52.1 * MS,
        49.7 * MS,
        "wait",
        51.8 * MS,
        "decode",
        46.2 * MS,
        True,
        False,
    )
    answers = [
        Prediction("as_it_was", None, "the run itself", 0.1803, 0.179, 0.182, 0.0, ""),
        Prediction("no_late_rank", None, "no late rank", 0.135, 0.131, 0.139, 46.2 * MS, ""),
        Prediction(
            "bucket_size",
            100.0,
            "buckets of 100 MiB",
            None,
            None,
            None,
            0.0,
            "all buckets are about as large, so what one more costs cannot be told",
        ),
    ]
    network = (
        "all_reduce of 26.2 MB over 4 ranks moves 4.32 GB/s on the bus, 91.0 % of the "
        "link's 4.75 GB/s: as much as it can give"
    )
    comm = Communication(
        kinds, 31e-6, "measured", [late], network, 0.91, answers, ["NCCL 2.27.3: 4 ranks"], []
    )
    total = sum(STAGES.values())
    parts = RankParts(*(share * total for share in (0.55, 0.08, 0.05, 0.1, 0.215, 0.005)))
    late_parts = replace(parts, compute_s=0.865 * total, hidden_wait_s=0.0, exposed_wait_s=0.0)
    one = RankSummary(1200, total, dict(STAGES), "finished", parts)
    ranks = {str(rank): replace(one, comm=late_parts) if rank == 3 else one for rank in range(4)}
    moving = [Evidence("transfer_s", "bytes moving", 9.1 * MS, "s")]
    blame = Finding("late_rank", Severity.HIGH, "rank 3 and its decode make the others wait", moving,
                    "give it what the others have", "the same elsewhere", 46.2 * MS, Blame(3, "wait", "decode"),
                    refused="The steps cannot be replayed without the delay.")  # fmt: skip
    verdict = Verdict("Bound by a late rank: Rank 3 makes the others wait.", finding="late_rank")
    found = [blame, *made.findings[1:]]
    return replace(made, ranks=ranks, comm=comm, findings=found, verdict=verdict, together=None)


def operator(
    name: str, flop_per_s: float | None, flop_per_byte: float | None, device_s: float = 10 * MS
) -> OperatorTime:
    return OperatorTime(
        name, "operator", 100, 2 * MS, MS, device_s, None, None, flop_per_s, flop_per_byte
    )


def operators() -> Report:
    """A trace: an operator that stands alone, one at each corner, and twenty with long names that
    crowd around one place.
    """
    alone = operator("aten::mm", 30e12, 70.0, 42 * MS)
    corners = [
        operator(f"aten::corner_of_the_plane_{rate:g}_{byte:g}", rate, byte)
        for rate in (1e9, 5e13)
        for byte in (0.1, 900.0)
    ]
    crowd = [
        operator(
            f"aten::one_of_the_crowd_{i}",
            1e12 * (1 + 0.3 * wobble(i, 7)),
            9 + wobble(i, 8),
            (20 - i) * MS,
        )
        for i in range(20)
    ]
    unknown = [
        operator("aten::cudnn_convolution", 6e12, None, 0.5),
        operator("aten::copy_", None, None),
    ]
    return replace(
        report(),
        traces=Traces(
            [],
            "the 20 steps in the trace (2 s of 3 s)",
            [],
            [],
            [*unknown, alone, *crowd, *corners],
            [],
        ),
    )


def training() -> Report:
    """Curves, a noise scale, and a price."""
    return replace(report(), convergence=made_up_training.summary())


def training_without_scale() -> Report:
    return replace(report(), convergence=made_up_training.without_scale())


def training_mistaken() -> Report:
    """Its worst mistake is the first finding."""
    wrong = made_up_training.wrong()
    return replace(
        report(), convergence=made_up_training.mistaken(), findings=[wrong[0], *findings()[:2]]
    )


VARIANTS = {
    "full": report,
    "refused": refused,
    "no steps": without_steps,
    "no workers": without_workers,
    "one step": one_step,
    "empty series": empty_series,
    "unmeasured": unmeasured,
    "nasty names": nasty,
    "many loaders": many_loaders,
    "without flop": without_flop,
    "crowded": crowded,
    "four ranks": four_ranks,
    "operators": operators,
    "training": training,
    "training without scale": training_without_scale,
    "training mistaken": training_mistaken,
}
