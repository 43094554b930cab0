"""Roofs of runs whose figures are chosen by the test."""

from dataclasses import replace

import pytest

from feedline.analysis.explain.model import Hook, RankSummary, Report, Roofline
from feedline.analysis.explain.roofs import _NO_CEILINGS, roofline
from feedline.analysis.measure.model import Cost, Cpus, Loader, RunInfo, Throughput, Workers
from feedline.analysis.measure.step_model import Flop, StepSeries, StepSummary
from feedline.analysis.ranks.communication import RankParts
from feedline.analysis.traces.launching import GpuWork
from feedline.profiler.ceilings import Ceiling, Ceilings

MS = 1e-3


def run(
    stages: dict[str, float],
    per_sample: dict[str, Cost] | None = None,
    processes: int = 2,
    batch: float = 10,
    cpus: float = 4,
    flop: Flop | None = None,
    cpu_ms: float | None = None,
    runqueue_ms: float | None = None,
) -> Report:
    """A run whose mean step consists of these stages, in ms."""
    seconds = {name: time * MS for name, time in stages.items()}
    mean = sum(seconds.values())
    series = StepSeries(
        [0.0], [1], [mean], [mean], [mean], {name: [time] for name, time in seconds.items()}
    )
    cpu_s, runqueue_s = (None if time is None else time * MS for time in (cpu_ms, runqueue_ms))
    step = StepSummary(
        mean, mean, mean, seconds, {}, "optimizer", 0.0, series, None, flop, cpu_s, runqueue_s
    )
    workers = (
        Workers(processes, None, None, 100, 1000, 10, per_sample, [], None, None, None, None, [])
        if per_sample
        else None
    )
    loader = Loader(
        "loader 0", "DataLoader", {}, "training", 100, 1000, 1e6, ["float32", "shared"], None, None
    )
    return Report(
        run=RunInfo("run", "run", "finished", [], "", 1.0, 0, 1, {}, {"effective_cpus": cpus}),
        verdict="",
        findings=[],
        throughput=Throughput(batch / mean, 1 / mean, 1000, 100, 100, batch),
        step=step,
        workers=workers,
        loaders=[loader],
        ranks={},
        gauges=[],
        hooks=[],
    )


def cost(wall: float, cpu: float, runqueue: float = 0.0, nbytes: float | None = None) -> Cost:
    """In ms."""
    return Cost(wall * MS, cpu * MS, runqueue * MS, (wall - cpu - runqueue) * MS, nbytes, 0.0)


def waits(ms: float) -> RankSummary:
    """A rank that waits for another one, without moving bytes."""
    return RankSummary(
        100, 0.1, {}, "finished", RankParts(0.1 - ms * MS, 0.0, 0.0, 0.0, ms * MS, 0.0)
    )


def made(report: Report, ceilings: Ceilings | None = None) -> Roofline:
    found = roofline(report, ceilings)
    assert found is not None
    return found


def roof(report: Report, name: str, ceilings: Ceilings | None = None) -> float:
    return next(one.samples_per_s for one in made(report, ceilings).roofs if one.name == name)


INPUT_BOUND = run(
    {"wait": 60, "forward": 15, "backward": 20, "transport": 5},
    {"decode": cost(16, 12), "augment": cost(4, 4), "total": cost(20, 15)},
)


def test_the_step_without_waiting_is_a_roof() -> None:
    assert roof(INPUT_BOUND, "step") == pytest.approx(10 / (40 * MS))


def on_a_gpu(report: Report, busy_ms: float) -> Report:
    """The same, with this much work of the GPU per step."""
    assert report.step is not None
    return replace(
        report,
        step=replace(report.step, gpu_work=GpuWork(busy_ms * MS, 100, busy_ms * MS / 100, 5)),
    )


def test_the_gpus_work_is_a_roof_where_it_takes_longer_than_the_host() -> None:
    found = made(on_a_gpu(INPUT_BOUND, 80))

    assert (found.nearest, found.next, found.becomes) == (
        "workers",
        "GPU",
        pytest.approx(10 / (80 * MS)),
    )
    assert (
        "the GPU (80.0 ms of work per step of 10 samples, in the 5 steps that torch.profiler "
        "recorded)" in found.message
    )


def test_of_several_ranks_the_gpus_work_is_no_roof_for_it_waits_for_the_others() -> None:
    alone = on_a_gpu(INPUT_BOUND, 80)

    step = replace(alone.step, gpu_work=replace(alone.step.gpu_work, ranks=2))
    assert "gpu" not in [one.id for one in made(replace(alone, step=step)).roofs]


def test_a_gpu_that_needs_longer_than_the_mean_step_was_recorded_in_other_steps() -> None:
    assert "gpu" not in [one.id for one in made(on_a_gpu(INPUT_BOUND, 104)).roofs]


def test_no_limit_is_named_where_the_gpus_work_does_not_fit_into_the_mean_step() -> None:
    behind = on_a_gpu(INPUT_BOUND, 130)
    of_ranks = replace(
        behind, step=replace(behind.step, gpu_work=replace(behind.step.gpu_work, ranks=2))
    )

    assert made(behind).nearest is None and made(behind).next is None
    assert (
        "the 5 steps that torch.profiler recorded need 130 ms of the GPU's time each, and the "
        "mean step took only 100 ms" in made(behind).message
    )
    assert made(of_ranks).nearest == "workers"  # its GPU also waits for the others


def test_beyond_the_gpus_work_there_is_no_next_limit() -> None:
    found = made(on_a_gpu(INPUT_BOUND, 99.9))

    assert (found.nearest, found.next, found.becomes) == (
        "workers",
        "GPU",
        pytest.approx(10 / (99.9 * MS)),
    )
    faster = made(
        on_a_gpu(replace(INPUT_BOUND, workers=replace(INPUT_BOUND.workers, processes=8)), 90)
    )
    assert (faster.nearest, faster.next) == ("GPU", None)
    assert faster.message.endswith(
        "Only a faster GPU, or less GPU work per sample, raises that limit."
    )


def test_workers_over_wall_time_a_sample_is_a_roof() -> None:
    assert roof(INPUT_BOUND, "workers") == pytest.approx(2 / (20 * MS))


def test_each_stage_has_the_roof_of_all_cpus_and_binds_only_with_the_others() -> None:
    assert roof(INPUT_BOUND, "decode") == pytest.approx(4 / (12 * MS))
    assert roof(INPUT_BOUND, "loader on all CPUs") == pytest.approx(4 / (15 * MS))
    assert [one.name for one in made(INPUT_BOUND).roofs if not one.binds] == [
        "decode",
        "augment",
        "transport",
    ]


def test_the_lowest_roof_is_the_nearest_and_the_one_above_it_the_next() -> None:
    found = made(INPUT_BOUND)

    assert (found.nearest, found.next, found.becomes) == ("workers", "step", pytest.approx(250))
    assert found.message == (
        "100 samples/s is 100.0 % of the binding limit, workers (2 workers, 20.0 ms per sample). "
        "The next limit is the step "
        "itself (40.0 ms per step of 10 samples, excluding 60.0 ms waiting for batches): about "
        "250 samples/s or more."
    )


def test_a_run_that_never_waits_is_at_its_step() -> None:
    found = made(run({"forward": 15, "backward": 25}, {"total": cost(4, 4)}))

    assert (found.nearest, found.next) == ("step", "workers")


def test_time_without_a_cpu_is_the_cpus_roof_and_neither_the_workers_nor_the_steps() -> None:
    full = run(
        {"wait": 40, "forward": 60},
        {"total": cost(36, 16, 20)},
        cpus=1,
        batch=4,
        cpu_ms=96,
        runqueue_ms=20,
    )

    assert roof(full, "all CPUs") == pytest.approx(4 / (96 * MS))
    assert roof(full, "workers") == pytest.approx(2 / (16 * MS))
    assert roof(full, "step") == pytest.approx(4 / (40 * MS))
    assert made(full).nearest == "all CPUs"


def test_what_a_figure_leaves_out_is_in_its_sentence_and_sums_to_the_whole() -> None:
    full = run(
        {"wait": 40, "forward": 60}, {"total": cost(36, 16, 20)}, cpus=1, batch=4, runqueue_ms=20
    )
    message = {one.name: one.message for one in made(full).roofs}

    assert (
        message["workers"] == "2 workers, 16.0 ms per sample, excluding 20.0 ms waiting for a CPU"
    )  # of a sample of 36 ms
    left_out = "40.0 ms waiting for batches and 20.0 ms waiting for a CPU in forward and backward"
    assert message["step"] == f"40.0 ms per step of 4 samples, excluding {left_out}"


def test_limits_of_the_cpus_say_what_other_programs_hold_of_them() -> None:
    beside = replace(INPUT_BOUND, cpus=Cpus(4, None, 4, 1.0, 1.6, 1.4))

    messages = [one.message for one in made(beside).roofs]
    assert (
        "4 CPUs, if other programs left the 1.60 that they used; 12.0 ms of CPU time per sample"
        in messages
    )


def test_without_workers_making_and_computing_take_turns_until_there_is_one() -> None:
    inline = run(
        {"decode": 60, "collate": 5, "forward": 35},
        {"decode": cost(6, 6), "total": cost(6.5, 6.5)},
        processes=0,
    )
    found = made(inline)

    assert (found.nearest, found.next) == ("serialized", "making samples one after another")
    assert found.becomes == pytest.approx(1 / (6.5 * MS))
    assert roof(inline, "step") == pytest.approx(10 / (35 * MS))


def test_ranks_of_one_machine_share_its_cpus() -> None:
    two = replace(INPUT_BOUND, run=replace(INPUT_BOUND.run, ranks=2))

    assert roof(two, "decode") == pytest.approx(2 / (12 * MS))


PEAK = Ceilings(
    [Ceiling("compute/specified float32", "compute", 1e12, unit="FLOP/s", source="data sheet")],
    peak_flops=1e12,
)
COUNTED = replace(INPUT_BOUND, step=replace(INPUT_BOUND.step, flop=Flop(1e9, 2e9, 10)))


def test_the_device_is_its_peak_over_the_flop_of_a_sample() -> None:
    found = made(COUNTED, PEAK)

    assert roof(COUNTED, "device", PEAK) == pytest.approx(1e12 / 3e8)
    assert found.flop_per_sample == pytest.approx(3e8)
    assert found.mfu == pytest.approx(100 * 3e8 / 1e12)
    assert found.peak_source == "compute/specified float32: data sheet"


def product(how: str, dtype: str, flops: float, **settings: object) -> Ceiling:
    return Ceiling(
        f"compute/{how}",
        "compute",
        flops,
        high=flops,
        unit="FLOP/s",
        source="here",
        settings={"dtype": dtype, **settings},
    )


OF_AN_H100 = Ceilings(
    [
        product("specified float32", "float32", 67e12, tf32=False),
        product("specified tf32", "float32", 494.5e12, tf32=True),
        product("specified bfloat16", "bfloat16", 989.5e12),
        product("matmul float32", "float32", 48e12, tf32=False),
        product("matmul float16", "float16", 724e12),
    ],
    peak_flops=67e12,
)


@pytest.mark.parametrize(
    ("computed_in", "peak", "source"),
    [
        ("float32", 67e12, "compute/specified float32: here"),
        ("tf32", 494.5e12, "compute/specified tf32: here"),
        ("bfloat16", 989.5e12, "compute/specified bfloat16: here"),
        ("float16", 724e12, "compute/matmul float16: here"),
        ("", 67e12, "compute/specified float32: here"),
    ],
)
def test_the_peak_is_that_of_what_the_run_computes_in_and_not_of_the_model_that_was_probed(
    computed_in: str, peak: float, source: str
) -> None:
    run = replace(COUNTED, step=replace(COUNTED.step, flop=Flop(1e9, 2e9, 10, computed_in)))

    found = made(run, OF_AN_H100)

    assert (found.peak_flops, found.peak_source) == (peak, source)
    assert roof(run, "device", OF_AN_H100) == pytest.approx(peak / 3e8)


def test_without_a_peak_of_what_the_run_computes_in_there_is_none() -> None:
    run = replace(COUNTED, step=replace(COUNTED.step, flop=Flop(1e9, 2e9, 10, "tf32")))

    found = made(
        run, replace(OF_AN_H100, ceilings=[product("matmul float32", "float32", 48e12, tf32=False)])
    )

    assert (found.peak_flops, found.mfu) == (None, None)
    assert (
        found.peak_source == "the ceilings file gives no peak FLOP/s for TF32, which this run uses"
    )


def test_a_peak_below_what_the_run_reached_gives_no_share_of_it() -> None:
    found = made(COUNTED, replace(PEAK, peak_flops=1e10))

    assert found.mfu is None
    assert "the run reached 3.0 times that" in found.peak_source


def test_without_counted_operations_those_of_the_probe_are_used() -> None:
    found = made(INPUT_BOUND, replace(PEAK, flop_per_sample=5e8))

    assert found.flop_per_sample == 5e8
    assert "feedline probe" in found.flop_source


def test_what_is_missing_says_why() -> None:
    refused = replace(INPUT_BOUND, hooks=[Hook("FLOP", False, "torch.compile compiled something")])
    found = made(refused)

    assert (found.flop_per_sample, found.flop_source) == (None, "torch.compile compiled something")
    assert (found.peak_flops, found.peak_source) == (None, _NO_CEILINGS)
    assert "device" not in [one.name for one in found.roofs]


def test_bytes_a_second_become_samples_by_the_bytes_of_a_sample() -> None:
    disk = Ceilings(
        [
            Ceiling(
                "read/sequential",
                "read",
                1e8,
                unit="B/s",
                settings={"pattern": "sequential", "cache": "cold"},
            )
        ]
    )
    report = run(
        {"wait": 60, "forward": 40}, {"read": cost(20, 1, nbytes=5e5), "total": cost(20, 1)}
    )

    assert roof(report, "disk, cold cache", disk) == pytest.approx(200)


@pytest.mark.parametrize(("blocked", "nearest"), [(True, "disk, cold cache"), (False, "workers")])
def test_a_cold_disk_binds_a_run_whose_reads_are_blocked_and_no_other(
    blocked: bool, nearest: str
) -> None:
    disk = Ceilings(
        [Ceiling("read/files", "read", 98.0, settings={"pattern": "files", "cache": "cold"})]
    )
    read = cost(18, 1 if blocked else 18)
    report = run({"wait": 60, "forward": 40}, {"read": read, "total": cost(20, 20)}, cpus=8)

    assert made(report, disk).nearest == nearest


def test_a_roof_that_lies_below_the_run_did_not_hold() -> None:
    disk = Ceilings(
        [Ceiling("read/files", "read", 50.0, settings={"pattern": "files", "cache": "cold"})]
    )
    report = run({"wait": 60, "forward": 40}, {"read": cost(18, 1), "total": cost(20, 3)})

    assert made(report, disk).nearest == "workers"


def test_other_loaders_are_shown_and_never_the_nearest() -> None:
    compared = Ceilings(
        [Ceiling("loader/opencv", "loader", 101.0, 99.0, 103.0, source="feedline compare")]
    )
    found = made(INPUT_BOUND, compared)

    assert [one.name for one in found.roofs if one.kind == "loader"] == ["opencv"]
    assert found.nearest == "workers"


def test_transport_is_taken_from_batches_like_the_runs_and_scaled_to_their_size() -> None:
    about = {"how": "shared", "batch_bytes": 2e6, "batch_size": 10}
    rows = [
        Ceiling(f"transport/{dtype} shared", "transport", rate, settings={**about, "dtype": dtype})
        for dtype, rate in (("uint8", 9000.0), ("float32", 3000.0))
    ]

    assert roof(INPUT_BOUND, "transport alone", Ceilings(rows)) == pytest.approx(6000)


def test_what_could_not_be_measured_is_no_roof() -> None:
    nothing = Ceilings([Ceiling("loader/dali gpu", "loader", None, why="no GPU")])

    assert "dali gpu" not in [one.name for one in made(INPUT_BOUND, nothing).roofs]


def test_the_knee_is_the_smallest_batch_with_95_percent_of_the_best() -> None:
    rates = [1058.0, 1498.0, 1906.0, 2192.0, 2440.0, 2529.0]
    settings: dict[str, object] = {
        "batches": [32, 64, 128, 256, 512, 1024],
        "samples_per_s": rates,
        "low": rates,
        "high": rates,
    }
    found = made(
        INPUT_BOUND, Ceilings([Ceiling("sweep/model", "sweep", 2529.0, settings=settings)])
    ).sweep

    assert found is not None
    assert (found.batch_sizes, found.knee) == ([32, 64, 128, 256, 512, 1024], 512)


def test_a_sweep_with_a_broken_row_keeps_the_others() -> None:
    settings: dict[str, object] = {
        "batches": [1, 2, 4],
        "samples_per_s": [1.0, None, 3.0],
        "low": [1.0, 1.0, 3.0],
        "high": [1.0, 1.0, 3.0],
    }
    found = made(
        INPUT_BOUND, Ceilings([Ceiling("sweep/model", "sweep", 3.0, settings=settings)])
    ).sweep

    assert found is not None
    assert found.batch_sizes == [1, 4]


def test_a_run_without_steps_has_no_roofline() -> None:
    assert roofline(replace(INPUT_BOUND, step=None)) is None


def test_waiting_for_a_late_rank_is_no_work_of_the_step():
    alone = run({"forward": 20, "backward": 80})
    late = replace(alone, ranks={"0": waits(40), "1": waits(0)})

    assert roof(alone, "step") == pytest.approx(100)
    assert roof(late, "step") == pytest.approx(10 / 0.06)


def test_waiting_for_a_late_rank_is_no_turn_of_the_loader():
    alone = run({"decode": 50, "forward": 50}, {"total": cost(5, 5)}, processes=0)
    late = replace(alone, ranks={"0": waits(20)})

    assert roof(alone, "serialized") == pytest.approx(100)
    assert roof(late, "serialized") == pytest.approx(125)


def test_the_step_leaves_out_what_the_shown_rank_waits_for_others():
    ranks = {"0": waits(49), "1": waits(5)}
    shown = replace(run({"forward": 60, "backward": 40}), ranks=ranks, shown=1)

    assert next(roof.message for roof in made(shown).roofs if roof.name == "step").endswith(
        "95.0 ms per step of 10 samples, excluding 5.00 ms waiting for other ranks"
    )


def test_the_bytes_of_a_batch_are_of_its_samples_however_many_batches_a_step_takes() -> None:
    copies = Ceilings(
        [Ceiling("copy/pageable", "copy", 1e9, unit="B/s", settings={"pinned": False})]
    )
    stages = {"forward": 15.0, "copy": 5.0}

    once, accumulated = run(stages), run(stages, batch=160)

    assert roof(once, "copy alone", copies) == pytest.approx(1e9 / 100e3)
    assert roof(accumulated, "copy alone", copies) == pytest.approx(1e9 / 100e3)
