"""Parts of the made-up report of made_up.py: its step, loaders, workers, findings and gauges."""

import math

from feedline.analysis.ledger.finding import (
    SHARE,
    Evidence,
    Finding,
    PredictedRate,
    Severity,
)
from feedline.analysis.measure.model import (
    Cost,
    Gauge,
    Loader,
    Operation,
    Workers,
)
from feedline.analysis.measure.step_model import Flop, StepSeries, StepSummary
from feedline.profiler.ceilings import Ceiling, Ceilings

MS = 1e-3
STAGES = {
    "epoch_start": 2.31 * MS,
    "sampler": 0.38 * MS,
    "wait": 93.47 * MS,
    "transport": 4.12 * MS,
    "pin": 1.9 * MS,
    "copy": 6.05 * MS,
    "forward": 24.6 * MS,
    "loss": 0.61 * MS,
    "backward": 41.2 * MS,
    "optimizer": 5.33 * MS,
    "other": 1.44 * MS,
}
RATE = 32 / sum(STAGES.values())
WAITS = {
    "starved": 80.02 * MS,
    "head_of_line": 9.75 * MS,
    "in_transit": 2.6 * MS,
    "first_batch": 1.1 * MS,
}


def wobble(index: int, salt: int = 0) -> float:
    """The same "noise" in [0, 1) on every machine."""
    return math.sin(index * 12.9898 + salt * 78.233) * 43758.5453 % 1


def series(columns: int = 600, steps_a_column: int = 2) -> StepSeries:
    """A run whose wait falls after the first epoch's cold cache, with one slow step in each fifty
    columns.
    """
    means = [
        1 + 0.55 * math.exp(-i / (columns / 8)) + 0.1 * (wobble(i) - 0.5) for i in range(columns)
    ]
    stages = {}
    for salt, (stage, mean) in enumerate(STAGES.items()):
        factor = [
            m if stage == "wait" else 1 + 0.06 * (wobble(i, salt) - 0.5)
            for i, m in enumerate(means)
        ]
        if stage == "epoch_start":
            factor = [(columns / 5 if i % (columns // 5 or 1) == 0 else 0) for i in range(columns)]
        stages[stage] = [mean * f for f in factor]
    walls = [sum(values[i] for values in stages.values()) for i in range(columns)]
    return StepSeries(
        start_s=[i * steps_a_column * 0.181 for i in range(columns)],
        steps=[steps_a_column] * columns,
        wall_min_s=[w * (0.86 - 0.1 * wobble(i, 3)) for i, w in enumerate(walls)],
        wall_s=[w * (0.97 + 0.02 * wobble(i, 4)) for i, w in enumerate(walls)],
        wall_max_s=[
            w * (1.12 + 0.2 * wobble(i, 5) + (1.4 if i % 50 == 49 else 0))
            for i, w in enumerate(walls)
        ],
        stages=stages,
    )


def step(columns: int = 600) -> StepSummary:
    times = sum(STAGES.values()), 176.9 * MS, 243.8 * MS
    flop = Flop(32 * 1.82e9, 32 * 3.64e9, 32)
    return StepSummary(
        *times,
        dict(STAGES),
        dict(WAITS),
        "optimizer",
        21.4,
        series(columns),
        None,
        flop,
        0.52,
        2 * MS,
    )


def cost(
    cpu: float,
    runqueue: float,
    blocked: float,
    nbytes: float | None = None,
    error: float | None = 0.01,
) -> Cost:
    """A cost whose parts are given in ms."""
    wall = cpu + runqueue + blocked
    return Cost(
        wall * MS,
        cpu * MS,
        runqueue * MS,
        blocked * MS,
        nbytes,
        None if error is None else error * MS,
    )


def workers() -> Workers:
    return Workers(
        processes=4,
        busy_share=0.981,
        idle_share=0.007,
        batches=2400,
        samples=76_800,
        samples_in_detail=4_816,
        per_sample={
            "read": cost(0.31, 0.02, 1.44, 110_592),
            "decode": cost(7.92, 0.41, 0.03, 4_147_200),
            "augment": cost(2.64, 0.13, 0.01),
            "dataset": cost(0.22, 0.01, 0.02),
            "collate": cost(0.47, 0.03, 0.0, 602_112),
            "transport": Cost(0.09 * MS, None, None, None, 1_204, None),
            "total": cost(11.65, 0.6, 1.5, 96_300),
        },
        operations=[
            Operation("decode", "JpegImageFile.load", 8.36 * MS, 7.92 * MS, 1),
            Operation("augment", "RandomResizedCrop", 1.61 * MS, 1.55 * MS, 1),
            Operation("read", "ImageFile fp.read", 1.77 * MS, 0.31 * MS, 41.2),
            Operation("augment", "ToTensor", 0.62 * MS, 0.6 * MS, 1),
            Operation("augment", "Normalize", 0.44 * MS, 0.43 * MS, 1),
            Operation("augment", "RandomHorizontalFlip", 0.11 * MS, None, 0.5),
        ],
        fetch_mean_s=440 * MS,
        fetch_cv=0.21,
        decoded_pixels=1_382_400,
        output_pixels=50_176,
        sample_wall_histogram=[
            (1e-3 * 10 ** (i / 10), int(9000 * math.exp(-(((i - 11) / 3.2) ** 2))) + 3 * (i > 20))
            for i in range(30)
        ],
    )


def findings() -> list[Finding]:
    return [
        Finding(
            "oversize_images",
            Severity.HIGH,
            "images are decoded at 27.6x the pixels the model sees, and decoding takes 68 % of a "
            "sample's CPU time",
            [
                Evidence("decode_cpu_s", "decode CPU per sample", 7.92 * MS, "s"),
                Evidence("pixels_ratio", "decoded / used pixels", 27.55, "1"),
                Evidence("input_share", "share of the step without a batch", 0.551, SHARE),
                Evidence("busy_share", "workers busy, share of their time", 0.981, SHARE),
            ],
            "store the images near the training size (256 px on the short side), or decode only "
            "the crop",
            "decode time that does not fall when 50 of the files are resized ahead",
            73.865 * MS,
            predicted=PredictedRate(RATE, 262.4, 247.9, 277.3),
        ),
        Finding(
            "float32_on_host",
            Severity.LOW,
            "batches are float32 made from uint8 pictures: four times the bytes through "
            "transport, pinning and copy",
            [
                Evidence("batch_bytes", "batch size in memory", 19_267_584, "B"),
                Evidence("copy_s", "copy to the device", 6.05 * MS, "s"),
            ],
            "ship uint8 and normalise on the device",
            "transport and copy times that do not fall with uint8 batches",
            20.371 * MS,
            predicted=PredictedRate(RATE, 189.6, 183.8, 196.7),
        ),
        Finding(
            "epoch_restart",
            Severity.INFO,
            "each epoch restarts its workers, 1.4 s",
            [Evidence("first_batch_s", "start", 1.4, "s")],
            "persistent_workers=True",
            "",
            2.3228 * MS,
            refused="The recording is too short to predict from.",
        ),
    ]


def gauges(points: int = 400) -> list[Gauge]:
    kinds = [
        ("cpu/used", "CPUs", 3.4, 0.5), ("cpu/throttled", "%", 4, 8), ("cpu/pressure", "%", 22, 30), ("memory/used", "B", 9.4e9, 4e8),
        ("disk/read", "B/s", 61e6, 9e7), ("shm/used", "B", 154e6, 6e6), ("gpu0/sm", "%", 41, 30), ("gpu0/memory", "B", 6.1e9, 1e7),
        ("gpu0/pcie_rx", "B/s", 108e6, 3e7), ("gpu0/power", "W", 131, 60), ("gpu0/clock", "MHz", 1380, 0),
    ]  # fmt: skip
    made = []
    for salt, (name, unit, mean, swing) in enumerate(kinds):
        values = [max(0.0, mean + swing * (wobble(i, salt) - 0.5)) for i in range(points)]
        made.append(
            Gauge(
                name,
                unit,
                sum(values) / points,
                min(values),
                max(values),
                [i * 0.55 for i in range(points)],
                values,
            )
        )
    return made


def ceilings() -> Ceilings:
    """A probe and a comparison: with them the roofline has some twenty roofs, several of them close
    to each other.
    """
    doublings = [2**power for power in range(11)]
    rates = [2600 * size / (size + 44) for size in doublings]
    sweep = {
        "batches": doublings,
        "samples_per_s": rates,
        "low": [0.97 * r for r in rates],
        "high": [1.02 * r for r in rates],
    }
    loaders = {
        "pillow v1": 148.0,
        "pillow v2 uint8": 176.4,
        "opencv": 181.3,
        "simplejpeg": 201.7,
        "dali cpu": 277.9,
        "synthetic": 14_200.0,
    }
    return Ceilings(
        [
            Ceiling(
                "compute/specified float32",
                "compute",
                15.7e12,
                unit="FLOP/s",
                per="device",
                source="NVIDIA V100 data sheet, 2020",
            ),
            Ceiling(
                "read/files read cold x16",
                "read",
                233.0,
                201.0,
                240.0,
                settings={"pattern": "files", "cache": "cold"},
            ),
            Ceiling(
                "read/files mmap warm x4",
                "read",
                21_400.0,
                settings={"pattern": "files", "cache": "warm"},
            ),
            Ceiling(
                "transport/float32 shared",
                "transport",
                9_800.0,
                settings={"dtype": "float32", "how": "shared"},
            ),
            Ceiling(
                "copy/pinned 32 MiB",
                "copy",
                11.9e9,
                unit="B/s",
                per="device",
                settings={"pinned": True, "bytes": 32 << 20},
            ),
            *(
                Ceiling(f"loader/{name}", "loader", rate, source="feedline compare")
                for name, rate in loaders.items()
            ),
            Ceiling(
                "sweep/model",
                "sweep",
                max(rates),
                per="device",
                source="cached batches: the user's; SGD",
                settings=sweep,
            ),
        ],
        peak_flops=15.7e12,
    )


def loader(index: int, role: str = "training") -> Loader:
    settings = {
        "num_workers": 4,
        "batch_size": 32,
        "prefetch_factor": 2,
        "in_order": True,
        "persistent_workers": False,
    }
    more = {
        "start_method": "fork",
        "sampler": "RandomSampler",
        "collate": "default_collate",
        "pin_memory": True,
    }
    return Loader(
        f"loader {index}",
        "DataLoader",
        settings | more,
        role,
        2400,
        76_800,
        19_267_584.0,
        ["float32", "shared"],
        1_204.0,
        1.38,
    )
