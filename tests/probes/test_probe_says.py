"""What a probe comes to, in sentences that its own figures bear out."""

from dataclasses import replace

import pytest

from feedline.cli.probe.text import _batch_size, _fastest_only, conclusion
from feedline.profiler.ceilings import Ceiling, Ceilings

MS = 1e-3
INPUT = [
    Ceiling("read/files read warm x1", "read", 10_000.0, cpu_s=0.1 * MS, per="machine"),
    Ceiling("decode/Pillow", "decode", 250.0, cpu_s=3 * MS, per="core"),
    Ceiling("decode/simplejpeg", "decode", 500.0, cpu_s=1.5 * MS, per="core"),
    Ceiling("augment/all own transform", "augment", 1000.0, cpu_s=0.8 * MS, per="core"),
    Ceiling("collate/float32 shared", "collate", 9000.0, cpu_s=0.05 * MS, per="core"),
    Ceiling("transport/float32 shared", "transport", 9000.0, cpu_s=0.05 * MS, per="machine"),
]


def probed(*more: Ceiling, cores: float = 4) -> str:
    return conclusion(Ceilings([*INPUT, *more], cores=cores))


def model(rate: float, device: str, cpu_s: float) -> Ceiling:
    return Ceiling(
        "compute/model", "compute", rate, cpu_s=cpu_s, per="device", settings={"device": device}
    )


def sweep(rates: dict[int, float], stopped: str = "saturation") -> str:
    settings = {"batches": list(rates), "samples_per_s": list(rates.values()), "stopped": stopped}
    return _batch_size(
        Ceiling("sweep/model", "sweep", max(rates.values()), per="device", settings=settings)
    )


def test_the_costliest_part_is_named_with_what_the_cores_make_and_what_does_it_faster():
    assert probed() == (
        "4 cores load about 1,000 samples/s: with ImageFolder and DataLoader, a sample costs 4.00 "
        "ms of CPU time, 3.00 ms of it to "
        "decode. simplejpeg decodes in 1.50 ms (whole loaders: `feedline compare --data FOLDER`)."
    )


@pytest.mark.parametrize(("files", "named"), [(50, False), (100, True)])
def test_a_decoder_that_reads_a_part_of_the_files_is_not_held_against_all(files, named):
    decoders = [
        replace(one, settings={"files": number})
        for one, number in zip(INPUT[1:3], (100, files), strict=True)
    ]

    said = conclusion(Ceilings([INPUT[0], *decoders, *INPUT[3:]], cores=4))

    assert ("simplejpeg" in said) == named


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (2000.0, "2,000 samples/s, so the input limits this training."),
        (300.0, "300 samples/s, so the model limits this training."),
    ],
)
def test_a_model_on_a_device_is_held_against_what_the_cores_make(rate, message):
    assert message in probed(model(rate, "cuda:0", 0.1 * MS))


def test_a_model_on_the_cpu_shares_the_cores_with_the_input():
    said = probed(model(250.0, "cpu", 4 * MS - 1e-9))
    assert (
        "of CPU time per sample on the same cores: together about 500 samples/s, and the input "
        "takes the larger share" in said
    )


def test_a_cold_page_cache_is_named_where_it_gives_less():
    settings = {"pattern": "files", "cache": "cold"}
    cold = Ceiling(
        "read/files read cold x4", "read", 200.0, cpu_s=1e-4, per="machine", settings=settings
    )

    assert "reading gives about 200 samples/s" in probed(cold)


def test_only_the_fastest_number_of_readers_is_shown_and_everything_else_with_its_own_row():
    reads = [
        Ceiling(f"read/files read warm x{number}", "read", rate, settings={"readers": number})
        for number, rate in ((1, 100.0), (4, 300.0))
    ]
    namesakes = [Ceiling("augment/Pad v1 PIL", "augment", rate) for rate in (70.0, 50.0)]

    assert _fastest_only([*reads, *namesakes]) == [reads[1], *namesakes]


def test_what_was_not_measured_is_said_and_nothing_is_concluded_from_nothing():
    part = [one for one in INPUT if one.part == "decode"]

    assert "(read, augment, transport not measured)" in conclusion(Ceilings(part, cores=2))
    assert conclusion(Ceilings([], cores=2)) == ""


@pytest.mark.parametrize(
    ("of_model", "message"),
    [
        (model(3000.0, "cuda:0", 0.1 * MS), None),
        (model(90_000.0, "cuda:0", 0.1 * MS), "so the input limits this training"),
        (model(250.0, "cpu", 4 * MS), "together at most about 964 samples/s."),
        (model(9000.0, "cpu", 0.1 * MS), "and the input takes the larger share"),
    ],
)
def test_a_part_of_the_input_is_not_held_against_the_model_as_if_it_were_all(of_model, message):
    transport = [one for one in INPUT if one.part in ("collate", "transport")]
    longer = [replace(one, cpu_s=0.075 * MS) for one in transport]

    said = conclusion(Ceilings([*longer, of_model], cores=4))

    assert said.startswith("4 cores load at most about 26,667 samples/s: ")
    assert "the model limits" not in said and "the model takes" not in said
    assert message in said if message else "The model" not in said


def test_a_way_that_leaves_out_normalizing_is_not_named_without_that():
    augments = [
        replace(INPUT[3], cpu_s=9 * MS),
        Ceiling(
            "augment/all v2 uint8",
            "augment",
            500.0,
            cpu_s=2 * MS,
            per="core",
            settings={"finishes": False},
        ),
    ]

    said = conclusion(Ceilings([*INPUT[:3], *augments, *INPUT[4:]], cores=4))

    assert "v2 uint8 augments in 2.00 ms without converting and normalizing (whole loaders" in said


def test_larger_batches_are_never_said_to_bring_nothing_where_the_largest_was_the_best():
    said = sweep({1: 10, 2: 20, 4: 40, 8: 80, 16: 90})

    assert said == (
        "Batch size: throughput was best at 16, the largest that was tried (two doublings gained "
        "less than 3 % in a first look): "
        "a larger one may be faster"
    )
    assert sweep({1: 10, 2: 20, 4: 40}, "memory") == (
        "Batch size: throughput was best at 4, the largest that was tried (a larger batch does "
        "not fit into memory)"
    )
    assert sweep({1: 10, 2: 20, 4: 40}, "error").endswith("(a larger batch raises an error)")
    assert (
        sweep({1: 10, 2: 20, 4: 96, 8: 100}, "largest")
        == "Batch size: 4 is within 5 % of the best, which was at 8, the largest that was tried"
    )


def test_within_5_percent_is_said_only_where_every_larger_batch_is():
    assert sweep({1: 50, 2: 96, 4: 100, 8: 97}).startswith(
        "Batch size: from 2 up, throughput is within 5 % of its best (at 4), up to 8"
    )
    lower = (
        "Batch size: throughput is best at 2 and lower beyond: 60.0 samples/s at the worst, up to 8"
    )
    assert sweep({1: 50, 2: 100, 4: 99, 8: 60}).startswith(lower)
