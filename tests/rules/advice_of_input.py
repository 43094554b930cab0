"""Fixes of rules about the input, as ``CASES`` of test_advice_fits.py has them."""

from dataclasses import replace

from rules.advice_runs import (
    BEGINNING,
    BLOCKED,
    CHUNK,
    COLD,
    FLOATS,
    FULL,
    HOST,
    NO_IMAGES,
    NOTHING,
    RESTARTING,
    SMALL,
    STREAM,
    by_hand,
    gpu,
    in_code,
    lacking,
    looked,
    of_images,
    only,
    reading,
    reading_chunks,
    spinning,
    uneven,
    unpacking,
    unsure_by_hand,
)
from rules.made_up import SAME, made_up_facts, waiting, without_workers
from rules.test_made_one_by_one import rows

from feedline.analysis.ledger.facts import RuleInputs
from feedline.analysis.measure.clues import (
    Skipped,
)
from feedline.analysis.measure.model import (
    Certainty,
    Cpus,
    Operation,
    Traffic,
)

OF_INPUT: dict[str, list[tuple[str, RuleInputs, RuleInputs]]] = {
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
        (
            "raise the control group's memory limit",
            waiting(
                sample=BLOCKED,
                traffic=Traffic(0.0, 0.0, 400e3, 100.0),
                maker=looked("page fault"),
                swapped_in=90e6,
                full_limit_bytes=4e9,
            ),
            waiting(
                sample=BLOCKED,
                traffic=Traffic(0.0, 0.0, 400e3, 100.0),
                maker=looked("page fault"),
                swapped_in=90e6,
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
