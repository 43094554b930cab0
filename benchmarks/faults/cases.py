"""The planted faults, each with the training that is free of it, and the healthy trainings.

What the first finding has to be is stated here, before any run. Two ids stand where both are right,
with the reason.
"""

import signal
from dataclasses import dataclass
from functools import partial
from typing import Any

IMAGES, ROWS, STREAMS_OF, RANKS, IN_STEP, KEPT, LOOP, HANGS, HEALTHY = (
    "images.py",
    "rows.py",
    "streams.py",
    "ranks.py",
    "in_step.py",
    "kept.py",
    "loop.py",
    "hangs.py",
    "healthy.py",
)


@dataclass(frozen=True)
class Side:
    """One of two twins.

    Attributes:
        arguments: of its program. ``{name}`` is a folder of files (files.py) or what a condition
            gives.
        conditions: that surround it (conditions.py).
        exit_code: with which it ends.
    """

    arguments: str
    conditions: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True)
class Fault:
    """A training with a fault, and the same without.

    Attributes:
        what: the fault, in words.
        expected: rule ids, any of which is right as the first finding; the first of them is what
            the fault is counted as.
        files: kinds of files that it reads.
        ranks: processes.
        names: a pattern that the finding's message or fix has to have, where its id alone does not name
            the cause.
        why: the reason where several ids are right.
        by_twin: what its finding predicts is the twin, with the settings of the loader that it
            names besides.
        fixed: arguments and conditions of the training with what the finding advises, where the
            twin is free of the fault in another way.
        short: arguments that make a training of a few seconds of it, for the tests; empty: it is
            for the suite alone.
    """

    name: str
    what: str
    expected: tuple[str, ...]
    program: str
    fault: Side
    twin: Side
    files: tuple[str, ...] = ()
    ranks: int = 1
    names: str = ""
    why: str = ""
    by_twin: bool = False
    fixed: Side | None = None
    short: str = ""


@dataclass(frozen=True)
class Healthy:
    """A training without a fault."""

    name: str
    what: str
    program: str
    side: Side
    files: tuple[str, ...] = ()
    ranks: int = 1


def fault(
    program: str,
    ranks: int,
    name: str,
    what: str,
    expected: str,
    both: str,
    own: str,
    twins: str,
    files: str = "",
    on: str = "",
    twin_on: str = "",
    exit_code: int = 0,
    **more: Any,
) -> Fault:
    """A line of the lists below.

    Args:
        both, own, twins: arguments of both sides, of the fault and of its twin.
        on, twin_on: their conditions.
        exit_code: of the fault.
    """
    sides = [
        Side(f"{both} {arguments}", tuple(conditions.split()), code)
        for arguments, conditions, code in ((own, on, exit_code), (twins, twin_on, 0))
    ]
    return Fault(
        name, what, tuple(expected.split()), program, *sides, tuple(files.split()), ranks, **more
    )


#: The memory of large images stays in the process: that it goes back to the system is a fault of
#: its own (``memory_given_back``).
KEEPING = {"on": "keeping:256", "twin_on": "keeping:256"}

images, rows, ranks = partial(fault, IMAGES, 1), partial(fault, ROWS, 1), partial(fault, RANKS, 2)
kept = partial(fault, KEPT, 1)
loop = partial(fault, LOOP, 1)
streams = partial(fault, STREAMS_OF, 1)
hangs = partial(fault, HANGS, 1)

WORKERS = [
    images("no_workers", "JPEGs are decoded in the main process while an accelerator waits", "too_few_workers",
           "{large} --size 512 --batch 4 --step-ms 15 --steps 160", "--workers 0", "--workers 2", "large", short="--steps 40"),
    images("one_worker_fork", "one worker, where two would keep pace", "too_few_workers",
           "{large} --size 512 --batch 4 --step-ms 4 --steps 400", "--workers 1", "--workers 2", "large", **KEEPING),
    images("one_worker_spawn", "the same with a worker that is spawned", "too_few_workers",
           "{large} --size 512 --batch 4 --step-ms 4 --steps 1200 --start spawn", "--workers 1", "--workers 2", "large", **KEEPING),
    images("one_worker_forkserver", "the same with a worker from a fork server", "too_few_workers",
           "{large} --size 512 --batch 4 --step-ms 4 --steps 1200 --start forkserver", "--workers 1", "--workers 2", "large", **KEEPING),
    rows("workers_for_texts", "workers for tokens that take less to make than to receive", "fewer_workers",
         "--source tokens --collate tokens --steps 6000", "--workers 2", "--workers 0"),
    rows("workers_for_rows", "the same for rows of a table", "fewer_workers",
         "--source rows --batch 32 --steps 5000", "--workers 1", "--workers 0"),
    rows("rows_one_by_one", "rows of a tensor are taken and collated one by one", "made_one_by_one",
         "--source rows --batch 64 --steps 12000 --workers 0", "", "--whole"),
    Fault("batches_in_the_loop", "a function makes each batch in the training's own thread", ("made_in_step",), IN_STEP,
          Side("--steps 1000"), Side("--steps 1000 --before")),
]  # fmt: skip

STARTS = [
    images("spawn_each_epoch", "new workers by spawn for each epoch", "epoch_restart",
           "{small} --steps 14 --epochs 2 --start spawn --workers 1", "--restart", "", "small"),
    images("fork_each_epoch", "new workers by fork for each epoch of eight steps", "epoch_restart",
           "{small} --steps 8 --epochs 60 --step-ms 2", "--restart", "", "small"),
    images("pickled_data_set", "a dataset of 300,000 Python objects is pickled for the workers of each epoch", "epoch_restart",
           "{small} --steps 14 --epochs 2 --start spawn --workers 1 --ballast 300000", "--restart", "", "small"),
    rows("sorted_for_each_batch", "a sampler of batches of similar length sorts all lengths again for each of them", "slow_sampler",
         "--batch 32 --steps 500 --step-ms 3 --workers 2", "--by-length sorted", "--by-length stored", short="--steps 100"),
    rows("list_copied_on_write", "workers copy the pages of a list of Python numbers that they "
                                 "look at, again in each epoch",
         "slow_for_its_bytes epoch_restart", "--mb 256 --pages 1500 --steps 20 --epochs 25 "
                                             "--restart",
         "--source lists", "--source columns",
         why="with arrays there is nothing to copy; with persistent workers, each page is copied only once", names="page faults|restarted"),
]  # fmt: skip

TRANSPORT = [
    rows("collate_copies", "a custom collate stacks pictures in ordinary memory", "custom_collate",
         "--source arrays --batch 64 --steps 120 --workers 2", "--collate stacked", "", short="--steps 25"),
    images("collate_by_cat", "a custom collate concatenates pictures", "custom_collate",
           "{usual} --size 320 --batch 32 --steps 90 --keep", "--collate concatenated", "", "usual"),
    rows("tensors_of_each_sample", "a batch has seven tensors for each of its samples", "many_tensors fewer_workers",
         "--source rows --batch 32 --steps 300 --workers 1", "--collate apart", "--collate default",
         why="without workers, no tensor is received", names="receiv"),
    rows("batches_passed_over", "the first 80 of 100 batches of each epoch are made, and passed over", "skipped_batches",
         "--source arrays --collate stacked --batch 16 --steps 100 --epochs 6 --workers 0", "--skip 80", "", names="trained on"),
    rows("arrays_in_the_queue", "batches leave the workers as numpy arrays", "objects_in_queue",
         "--source arrays --batch 64 --steps 60 --workers 2", "--collate arrays", "", short="--steps 25"),
    rows("objects_in_the_queue", "words and boxes of each sample go through the queue as Python "
                                 "objects",
         "objects_in_queue slow_for_its_bytes", "--source described --batch 32 --steps 60", "--collate beside", "--collate tensors",
         why="slow_for_its_bytes names Python objects in transport, objects_in_queue does from 1 MiB on", names="objects|pickled"),
    images("float32_on_host", "pictures become float32 one by one", "float32_on_host",
           "{usual} --size 320 --batch 32 --steps 110", "--transform floats", "--transform crop", "usual"),
]  # fmt: skip

WAITING = [
    images("rate_limit", "each sample sleeps 10 ms", "blocked", "{small} --steps 120 --workers 2", "--sleep-ms 10", "", "small",
           names="sleep", by_twin=True, short="--steps 20"),
    images("late_server", "a server answers each request after 12 ms", "blocked",
           "{small} --steps 100 --workers 2", "--server {server} --near-ms 12", "", "small", on="server:small", names="network"),
    images("lock", "workers take turns at one lock while they fetch and decode", "blocked",
           "{usual} --size 224 --steps 110 --workers 3 --server {server} --near-ms 4", "--lock", "", "usual",
           on="server:usual", twin_on="server:usual", names="lock"),
    rows("small_files", "each sample is 24 files of 2 kB", "small_files",
         "--steps 700 --workers 2", "--source pieces --folder {pieces}", "--source packed --folder {packed}", "pieces packed",
         short="--steps 60"),
    rows("small_files_cold", "the same from the disk", "small_files cold_storage",
         "--steps 40 --workers 2", "--source pieces --folder {pieces}", "--source packed --folder {packed}", "pieces packed",
         why="both have the same fix: files packed and read in order", on="cold:pieces", twin_on="cold:packed"),
    images("cold_photos", "JPEGs come from a disk that gives 8 MB/s", "cold_storage",
           "{many} --size 384 --steps 50 --workers 2", "", "", "many", on="disk:8 cold:many", twin_on="warm:many"),
    rows("cold_arrays", "arrays of 2 MB come from a disk that gives 60 MB/s", "cold_storage",
         "--source files --folder {arrays} --batch 4 --steps 45 --workers 2", "", "", "arrays",
         on="disk:60 cold:arrays", twin_on="warm:arrays"),
    rows("cold_map", "rows all over a memory map come from the disk", "cold_storage",
         "--source pages --folder {map} --pages 60 --steps 140 --workers 2", "", "", "map", on="cold:map", twin_on="warm:map"),
    rows("whole_file_for_a_row", "an array of 2 MB is read for each row of it", "oversize_reads",
         "--source whole --folder {arrays} --batch 32 --steps 600 --workers 2", "", "--keep", "arrays",
         on="warm:arrays", twin_on="warm:arrays"),
    rows("swap", "random rows of an array that is larger than the memory that is left", "swapping",
         "--source owned --mb 900 --pages 60 --steps 200 --workers 2", "", "", on="swap:600"),
    images("cache_in_swap", "each worker keeps all photographs that it decodes, which take more than the memory that is left", "swapping",
           "{many} --size 384 --steps 112 --epochs 5 --workers 2", "--cached", "", "many",
           on="swap:600", twin_on="swap:600", names="control group"),
]  # fmt: skip

CPU = [
    images("decode_jpeg", "large JPEGs, used nearly whole", "decode_bound cpu_saturated",
           "{large} --size 640 --steps 250", "", "--keep", "large", short="--steps 40", **KEEPING,
           why="where the decoding workers fill the CPUs, that is said, and that a faster decoder is the fix", names="decod"),
    images("decode_png", "PNG, which takes seven times as long as JPEG", "decode_bound",
           "--size 384 --steps 120", "{png}", "{usual}", "png usual"),
    images("decode_webp", "WebP with OpenCV", "decode_bound", "{webp} --decoder cv2 --size 384 --steps 220", "", "--keep", "webp"),
    images("decode_video", "the eighth frame of a video, for which those before it are decoded", "decode_bound",
           "{videos} --decoder video --size 224 --steps 120 --step-ms 15", "--frames 8", "--frames 1", "videos"),
    images("jpeg_2000", "JPEG 2000", "slow_for_its_bytes", "--size 224 --steps 60", "{jpeg2000}", "{jpeg320}", "jpeg2000 jpeg320",
           names="format"),
    images("oversize_crops", "64 px crops of 1500 x 1200", "oversize_images",
           "--transform resized --size 64 --steps 120", "{huge}", "{small}", "huge small"),
    images("oversize_opencv", "OpenCV scales 960 x 800 down to 96 px", "oversize_images",
           "--decoder cv2 --size 96 --steps 250", "{large}", "{small}", "large small"),
    images("augmentation", "blur, rotation and colors of whole photographs", "augmentation_bound",
           "{small} --size 64 --steps 350", "--transform heavy", "", "small"),
    images("augmentation_arrays", "blur, contrast and colors by albumentations", "augmentation_bound",
           "{usual} --size 224 --steps 120", "--decoder albumentations", "", "usual"),
    rows("parsing", "512 numbers of each sample are parsed in Python, on all CPUs", "cpu_saturated user_code",
         "--batch 32 --steps 1200 --workers 2", "--source parsed", "--source kept"),
    rows("parsing_in_time", "workers parse in time for each step, on CPUs that its model needs", "workers_hold_cpus",
         "--batch 64 --hidden 2048 --steps 400 --workers 2", "--source parsed", "--source kept"),
    rows("quota", "a control group gives half a CPU to a training that needs one", "quota_used_up",
         "--source parsed --batch 32 --steps 300 --step-ms 8 --workers 2", "", "", on="quota:0.5", names="quota"),
    images("quota_photos", "a control group gives half a CPU to a training that decodes", "quota_used_up "
                                                                                          "decode_bound",
           "{usual} --size 224 --steps 250 --step-ms 8 --workers 2", "", "", "usual", on="quota:0.5",
           why="the quota is too small for this decoding; either can be changed", names="quota|decod"),
    rows("threads", "eight threads of torch in each of two workers", "thread_oversubscription "
                                                                     "slow_for_its_bytes",
         "--source threaded --steps 800 --workers 2", "--threads 8", "",
         why="slow_for_its_bytes also names helper threads if one stage waits for them", names="helper threads"),
    rows("new_memory", "each sample works in 32 MB of new memory", "slow_for_its_bytes",
         "--source scratch --mb 32 --steps 35 --workers 1", "", "--keep", names="page faults"),
    images("memory_given_back", "memory of large photographs goes back to the system after each of them", "page_faults",
           "{huge} --size 1024 --steps 150 --workers 2", "", "", "huge", twin_on="keeping:256"),
    images("neighbors", "two busy programs beside two workers that decode", "busy_neighbors",
           "{usual} --size 224 --steps 600 --workers 2", "", "", "usual", on="neighbors:2", by_twin=True),
    rows("neighbor_without_workers", "two busy programs beside a training without workers", "busy_neighbors "
                                                                                                      "user_code",
         "--source parsed --steps 1200 --workers 0", "", "", on="neighbors:2", by_twin=True,
         why="parsing takes more than twice as much of the step as waiting for the CPUs of these programs"),
]  # fmt: skip

ORDER = [
    images("straggler", "a server answers one request in 20 after 150 ms", "straggler_in_order",
           "{small} --batch 4 --steps 180 --step-ms 20 --server {server} --far-ms 150", "", "--set in_order=False", "small",
           on="server:small", twin_on="server:small"),
    images("straggling_photo", "one photograph in 24 has 150 times the pixels of the others", "straggler_in_order "
                                                                                              "oversize_images",
           "--size 240 --batch 4 --steps 350 --step-ms 12", "{mixed}", "{usual}", "mixed usual",
           why="either fix helps: making the large photographs smaller, or batches in any order"),
]  # fmt: skip

STREAMS = [
    streams("stream_not_split", "each of two workers yields the whole stream", "same_samples",
            "--batch 32 --steps 150", "--split nothing", "--split samples", short="--steps 30"),
    streams("tars_not_split", "each of two workers reads and shuffles all tar archives (webdataset)", "same_samples",
            "--source tars --folder {tars} --batch 16 --epochs 3 --buffer 100", "--split nothing", "", "tars", short="--epochs 1"),
    streams("stream_of_one_file", "a stream of one file, for two workers", "workers_without_data",
            "--split files --batch 32 --steps 500", "--shards 1", "--shards 4"),
    streams("uneven_files", "one of four files has most of a stream for two workers", "workers_without_data",
            "--split files --shards 4 --batch 32 --steps 250 --times 48", "--first 0.85", "", names="uneven"),
    streams("table_of_one_shard", "a table of Hugging Face as a stream of one shard, for two workers", "workers_without_data",
            "--source table --batch 32 --steps 300", "--shards 1", "--shards 4"),
    streams("one_tar", "one tar archive, for two workers (webdataset)", "workers_without_data",
            "--source tars --batch 32 --epochs 6", "--folder {tar}", "--folder {tars}", "tar tars"),
    streams("shuffle_buffer", "a shuffle buffer of most of the data is filled before the first sample of each pass", "slow_first_batch",
            "--batch 32 --steps 40 --epochs 30", "--buffer 560", "--buffer 32", short="--epochs 8"),
    streams("tars_shuffle_buffer", "the same in webdataset", "slow_first_batch",
            "--source tars --folder {tars} --batch 32 --epochs 25", "--buffer 700", "--buffer 32", "tars"),
]  # fmt: skip

BETWEEN_RANKS = [
    ranks("late_loader", "rank 1 fetches its files from a server that answers after 8 ms", "late_rank",
          "{small} --steps 250 --step-ms 15 --workers 1", "--late loader --late-ms 8 --server {server}", "",
          "small", on="server:small", names="rank 1 is"),
    ranks("late_large", "rank 1 has larger photographs", "late_rank",
          "{small} --steps 250 --step-ms 20 --workers 1", "--late large --large {large}", "", "small large", names="rank 1 is", **KEEPING),
    ranks("late_compute", "rank 1 does something of its own in each step, for 40 ms", "late_rank",
          "{small} --steps 250 --step-ms 20 --workers 1", "--late compute --late-ms 40", "", "small", names="rank 1 is"),
    ranks("uneven_lengths", "0 to 80 ms per step and rank, depending on the text length", "late_ranks",
          "{small} --steps 80 --step-ms 10 --workers 1 --late-ms 80", "--late lengths", "--late even", "small"),
    ranks("collected_in_turns", "each rank collects the garbage of a large program in steps of its own", "late_ranks garbage_collection",
          "{small} --steps 80 --step-ms 20 --workers 1 --heap 400000", "--late garbage", "", "small", names="garbage|gc.collect",
          why="collections are what costs, and what makes the ranks wait"),
    ranks("slow_link", "4 MB of gradients through 100 Mbit/s", "exposed_communication slow_network",
          "{small} --steps 20 --step-ms 20 --workers 1 --mb 4", "", "", "small", on="link:100", twin_on="link:2000",
          fixed=Side("{small} --steps 20 --step-ms 20 --workers 1 --mb 4 --accumulate 4", ("link:100",)),
          why="without the nominal bandwidth of the link, feedline cannot know that it is slow"),
    ranks("large_gradients", "48 MB of gradients, little compute", "exposed_communication "
                                                                   "slow_network",
          "{small} --steps 25 --workers 1 --step-ms 5", "--mb 48", "--mb 0.5", "small", why="as above"),
    ranks("whole_data", "no DistributedSampler: each rank draws all samples", "whole_data_on_every_rank "
                                                                              "same_data",
          "{small} --steps 30 --samples 480 --epochs 2 --step-ms 30 --workers 1", "--sampler whole", "", "small",
          why="both ranks use the same seed, so they also draw the same data in the same order"),
    ranks("no_set_epoch", "set_epoch() is missing", "missing_set_epoch",
          "{small} --steps 30 --samples 480 --epochs 3 --step-ms 30 --workers 1", "--sampler no_set_epoch", "", "small"),
]  # fmt: skip

OBJECTS = [
    kept("collections", "records of each step make Python collect garbage among 500,000 objects", "garbage_collection",
         "--steps 400 --batch 64 --workers 0 --objects 500000 --records 8000", "", "--disabled", short="--steps 150"),
    kept("collected_each_step", "gc.collect is called in each step, among 200,000 objects", "garbage_collection",
         "--steps 150 --batch 64 --workers 0 --objects 200000", "--collect", "", names="gc.collect"),
    kept("graphs_kept", "the loss of each step is kept, with its graph", "memory_growth",
         "--steps 1500 --step-ms 8 --batch 64 --workers 0", "--keep loss", "--keep number", short="--steps 600"),
    kept("tensors_kept", "a megabyte is kept of each step", "memory_growth",
         "--steps 1500 --step-ms 8 --batch 64 --workers 0", "--keep buffer", "--keep number"),
    kept("workers_keep", "workers keep 4 kB of each sample", "memory_growth",
         "--steps 3000 --step-ms 8 --batch 64 --workers 2", "--worker-keeps 4", ""),
    kept("worker_killed", "workers keep 256 kB of each sample, until the memory of their control group is full", "killed_worker",
         "--steps 300 --step-ms 20 --batch 64 --workers 2", "--worker-keeps 256", "", on="memory:1200", twin_on="memory:1200",
         names="memory was full.*grew by", exit_code=1),
    kept("table_in_each_worker", "each worker loads a table of its own, and the memory of their control group is full", "killed_worker",
         "--steps 100 --step-ms 20 --batch 64 --workers 2 --start spawn", "--table-mb 560", "--table-mb 96",
         on="memory:1200", twin_on="memory:1200", names="memory was full.*first batch", exit_code=1),
    kept("huge_sample", "one sample takes all memory that their control group has left", "killed_worker",
         "--steps 200 --step-ms 20 --batch 64 --workers 2", "--huge-mb 1400", "", on="memory:1200", twin_on="memory:1200",
         names="memory was full.*unfinished batch", exit_code=1),
]  # fmt: skip

IN_THE_LOOP = [
    loop("recompiled_lengths", "each batch has another length, and the model is compiled", "recompilation",
         "--batch 64 --steps 300 --workers 0 --compiled", "--lengths 40", "", names="lengths", short="--steps 60"),
    loop("recompiled_numbers", "a number that changes is given to a compiled model", "recompilation",
         "--batch 64 --steps 300 --workers 0 --compiled", "--scales numbers", "--scales tensors", names="scale"),
    loop("saved_often", "60 MB are saved every five steps", "checkpoint_time",
         "--batch 64 --steps 200 --workers 0 --step-ms 10 --save-mb 60", "--save-every 5", "--save-every 150",
         names="every 5 steps"),
    loop("saved_each_step", "2 MB are saved in each step", "checkpoint_time",
         "--batch 64 --steps 400 --workers 0 --step-ms 4 --save-mb 2", "--save-every 1", ""),
    loop("tensors_one_by_one", "AdamW updates 2,000 small tensors one by one", "optimizer_time",
         "--batch 64 --steps 150 --workers 0 --tensors 2000", "", "--fused"),
    loop("clipped_by_items", "the norm of each gradient is read with .item()", "own_code",
         "--batch 64 --steps 250 --workers 0 --tensors 1000 --fused", "--clip items", "",
         names="clip_by_items"),
    loop("all_predictions", "the accuracy of all predictions so far is computed in each step", "own_code",
         "--batch 256 --steps 500 --workers 0", "--keep-predictions", "", names="accuracy"),
    loop("all_losses_written", "all losses so far are written to the disk in each step", "own_code",
         "--batch 64 --steps 500 --workers 0 --step-ms 2", "--write-every 1", "--write-every 250", names="write"),
    loop("log_flushed", "a log is flushed for 0.3 s every 40 steps", "periodic_stall",
         "--batch 64 --steps 900 --workers 0 --step-ms 10", "--stall-every 40", "", names="every 40 steps.*flush_log",
         short="--steps 330"),
    loop("tracked_every_50", "histograms of all parameters go to TensorBoard every 50 steps", "periodic_stall",
         "--batch 64 --steps 700 --workers 0 --step-ms 4 --tensors 300 --fused", "--track-every 50", "", names="every 50 steps.*track"),
    loop("tracked_each_step", "a histogram of each parameter goes to TensorBoard in each step", "own_code",
         "--batch 64 --steps 300 --workers 0 --step-ms 4", "--track-every 1", "--track-every 150", names="track"),
    loop("drawn_each_step", "a figure of all losses is saved in each step", "own_code",
         "--batch 64 --steps 150 --workers 0 --step-ms 10", "--draw-every 1", "", names="draw"),
    loop("printed_each_step", "all parameters are printed in each step", "own_code",
         "--batch 64 --steps 500 --workers 0 --step-ms 2", "--print-every 1", "--print-every 250", names="print"),
    loop("evaluated_often", "20 batches are evaluated every five steps", "evaluation_time",
         "--batch 512 --steps 300 --workers 0 --held 40", "--evaluate-every 5", "--evaluate-every 200", names="every 5 steps"),
    loop("evaluated_one_by_one", "10,240 rows are evaluated one by one, every 50 steps", "evaluation_time",
         "--batch 512 --steps 300 --workers 0 --held 20 --evaluate-every 50", "--held-batch 1", "", names="larger"),
]  # fmt: skip

STANDSTILLS = [
    hangs("lock_before_fork", "the program holds a lock when its workers are forked, and they wait for it", "standstill",
          "lock --batch 64 --steps 1200 --workers 2", "", "--free", names="worker.*lock", exit_code=-signal.SIGINT),
    hangs("queue_not_filled", "a thread that fills a queue ends too early, and the training waits", "standstill",
          "queue --batch 64 --steps 3000 --workers 0", "", "--free", names="queue", exit_code=-signal.SIGINT),
]  # fmt: skip

FAULTS: list[Fault] = [
    *WORKERS,
    *STARTS,
    *TRANSPORT,
    *WAITING,
    *CPU,
    *ORDER,
    *OBJECTS,
    *IN_THE_LOOP,
    *STANDSTILLS,
    *STREAMS,
    *BETWEEN_RANKS,
]


def healthy(kind: str, what: str, arguments: str, files: str = "") -> Healthy:
    return Healthy(kind, what, HEALTHY, Side(f"--kind {kind} {arguments}"), tuple(files.split()))


WELL = [
    healthy("vision", "ResNet-18 on the CPU, photographs", "{usual} --batch 4 --steps 30", "usual"),
    healthy("text", "a transformer of two layers", "--batch 16 --steps 40"),
    healthy("tabular", "a perceptron, rows in memory, no workers", "--batch 512 --steps 100"),
    healthy("stream", "a GRU on texts of an IterableDataset", "--batch 16 --steps 45"),
    healthy("gan", "two models in turns", "--batch 128 --steps 60"),
    healthy("accumulated", "four batches per update", "--batch 128 --steps 240"),
    healthy("mapped", "rows of a memory map that is in the page cache", "{map} --batch 256 --steps 60", "map"),
    healthy("trainer", "Hugging Face's Trainer", "--batch 16 --steps 100"),
    Healthy("accelerator", "photographs from two workers for an accelerator", IMAGES,
            Side("{usual} --size 224 --steps 80 --step-ms 90 --workers 1"), ("usual",)),
    Healthy("cheap_rows", "cheap rows without workers for an accelerator", ROWS,
            Side("--source rows --batch 32 --steps 250 --step-ms 25 --workers 0")),
    Healthy("ddp", "two ranks that compute", RANKS,
            Side("{small} --steps 60 --step-ms 70 --workers 1 --late even --late-ms 40"), ("small",), 2),
    healthy("lightning", "PyTorch Lightning's Trainer, rows in memory", "--batch 256 --steps 150"),
    healthy("chunked", "rows of an HDF5 file with a chunk for each", "--batch 16 --steps 60"),
    healthy("agent", "Q-learning on a replay memory of tensors", "--batch 256 --steps 300"),
    Healthy("saved", "an evaluation and a checkpoint every 200 steps", LOOP,
            Side("--batch 64 --steps 600 --step-ms 20 --workers 0 --fused --held 10 --evaluate-every 200 --save-every 200")),
]  # fmt: skip
