"""What does feedline say of small programs, each written after a public report of a slow or dying training?

    python benchmarks/public_reports/bench.py [--held-out | --second] [--only xray,coder] [--keep FOLDER] [--json FILE]

Each program of this folder has in it, in a few lines of its own, the cause that a public thread found; ``--twin`` runs it
without. Both run under ``feedline run``, one after the other. Prints Markdown: the first finding, whether it is the cause,
whether its line is right, whether the twin's report names the same cause, how many times as fast the report says that the
program would be, and how many times as fast the twin was.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GITHUB = "https://github.com/"
#: What a busy machine adds to a report: it says nothing of the program.
MACHINE = ("busy_neighbors", "too_short")
MOST_S = 60.0  # of a run: one that hangs is interrupted


@dataclass(frozen=True)
class Case:
    """A program with a cause.

    Attributes:
        report: where it was found.
        cause: in words.
        expected: ids of findings, any of which names it.
        line: a part of the line to name, or of several, with " | " between them; empty: any.
        says: a word that the first finding has to have; empty: its id is enough.
        ranks: processes.
        hangs: it does not end by itself.
        files: that it may have open; None: as many as the shell allows.
    """

    name: str
    report: str
    cause: str
    expected: tuple[str, ...]
    line: str = ""
    says: str = ""
    ranks: int = 1
    hangs: bool = False
    files: int | None = None


CODE = ("user_code", "own_code")
CASES = [
    Case(
        "video_clips",
        "h5py/h5py/issues/293",
        "rows of an HDF5 data set are picked by a list of indices",
        CODE,
        "self.frames[list(",
    ),
    Case(
        "radiance",
        "yenchenlin/nerf-pytorch/issues/42",
        "anomaly detection was left on",
        ("anomaly_detection",),
        "set_detect_anomaly",
    ),
    Case(
        "centers",
        "pytorch/pytorch/issues/2769",
        "the state is not detached: each backward goes through all steps before",
        ("chained_graphs", "memory_growth"),
        "center = ",
        "detach",
    ),
    Case(
        "self_distill",
        "lightly-ai/lightly/pull/1899",
        "a teacher is updated by looking up each parameter by its name",
        CODE,
        "named_parameters",
    ),
    Case(
        "click_rate",
        "pytorch/pytorch/issues/1285",
        "Adam updates all rows of an embedding of which a batch has few",
        ("optimizer_time",),
        "EmbeddingBag(",
        "sparse",
    ),
    Case(
        "outputs",
        "pytorch/pytorch/issues/11201",
        "kept batches hold a file descriptor each",
        ("kept_batches",),
        "seen.append",
        "hold all files",
        files=1024,
    ),
    Case(
        "recommender",
        "guoyang9/NCF/issues/6",
        "np.random.choice without replacement shuffles all items for each sample",
        CODE,
        "np.random.choice(",
    ),
    Case(
        "xray",
        "mlmed/torchxrayvision/issues/11",
        "images are resized by scikit-image",
        CODE,
        "skimage.transform.resize(",
    ),
    Case(
        "volumes",
        "MIC-DKFZ/batchgenerators/issues/5",
        "volumes are deformed by scipy.ndimage",
        CODE,
        "map_coordinates(",
        "ndimage",
    ),
    Case(
        "coder",
        "EleutherAI/sparsify/pull/5",
        "only rank 0 enters the barrier after saving",
        ("standstill", "too_short"),
        "dist.barrier()",
        ranks=2,
        hangs=True,
    ),
    Case(
        "annealed",
        "pytorch/pytorch/issues/128319",
        "a counter of a compiled module changes a number in its graph",
        ("recompilation",),
        "",
        "updates",
    ),
    Case(
        "blocks",
        "NVIDIA/Model-Optimizer/pull/1111",
        "objects are gathered from all ranks in each step",
        (*CODE, "exposed_communication"),
        "dist.all_gather_object( | collect(stats)",
        ranks=2,
    ),
    Case(
        "molecules",
        "melloddy/SparseChem/pull/1",
        "a sparse matrix is made for each sample",
        CODE,
        "self.x[index]",
    ),
    Case(
        "ranking",
        "Georgetown-IR-Lab/cedr/pull/7",
        "all documents of a query are filtered and shuffled to take one",
        CODE,
        "others = [ | random.shuffle(",
    ),
    Case(
        "concepts",
        "mvandenhi/SCBM/pull/4",
        "the loss of each concept is computed on its own",
        ("loop_in_model", "own_code"),
        "for k in range(",
    ),
    Case(
        "slides",
        "kaiko-ai/eva/pull/388",
        "each worker keeps every slide that it has opened",
        ("memory_growth",),
        "lru_cache(maxsize",
        "worker",
    ),
    Case(
        "features",
        "luizalabs/shared-memory-dict/issues/10",
        "workers ask a Manager's process for each sample",
        ("blocked", "user_code"),
        "self.store[index % 1000]",
        "Manager",
    ),
    Case(
        "atoms",
        "deepmodeling/deepmd-kit/pull/4616",
        "a whole array file is read for each of its frames",
        ("oversize_reads", "user_code"),
        "np.load(",
    ),
    Case(
        "watched",
        "Oldpan/Pytorch-Memory-Utils/issues/21",
        "a memory tracker looks at every object in each step",
        ("own_code",),
        "gc.get_objects() | is_tensor(",
    ),
    Case(
        "projections",
        "eigenvivek/DiffDRR/issues/122",
        "the model computes in float64",
        ("double_precision",),
        ".double()",
    ),
    Case(
        "spectra",
        "pytorch/pytorch/issues/28761",
        "torch.tensor goes through an HDF5 data set value by value",
        CODE,
        "torch.tensor(spectrum)",
    ),
    Case(
        "pretrain",
        "karpathy/nanochat/issues/371",
        "the stream spins for ever once its shards are used up",
        ("standstill", "too_short"),
        "while len(buffer) < need",
        hangs=True,
    ),
    Case(
        "agent",
        "ageron/handson-ml/pull/204",
        "a replay memory is sampled from a deque",
        ("made_in_step",),
        "random.sample(",
        "deque",
    ),
    Case(
        "cells",
        "skhu101/GM-NAS/issues/4",
        "each step makes a new iterator, and starts the workers again",
        ("epoch_restart",),
        "next(iter(loader))",
        "iter",
    ),
    Case(
        "tuner",
        "Nerogar/OneTrainer/issues/40",
        "activation checkpointing of a model that fits",
        ("recomputed_forward",),
        "checkpoint(layer",
    ),
    Case(
        "recurrent",
        "georgeyiasemis/Recurrent-Neural-Networks-from-scratch-using-PyTorch/issues/1",
        "an LSTM written out in Python",
        ("loop_in_model",),
        "for t in range(",
    ),
]

#: Written, and read once, before anything was changed for them (docs/measured/public-reports.md).
#: Ids that no finding has stand for findings that are missing.
HELD_OUT = [
    Case(
        "balanced",
        "sung-yeon-kim/Proxy-Anchor-CVPR2020/issues/26",
        "the sampler makes an array of all labels for each class of a batch",
        ("slow_sampler",),
        "np.nonzero(",
    ),
    Case(
        "sentences",
        "QData/TextAttack/issues/737",
        "all batches are padded to the longest length that the model takes",
        ("padded_batches",),
        "else LONGEST | collate_fn=padded",
        "pad",
    ),
    Case(
        "corpus",
        "huggingface/datasets/pull/8268",
        "each worker encodes all texts, and drops those of the others",
        ("user_code", "made_and_dropped"),
        "self.share(map(encode | WORDS[word",
        "other workers",
    ),
    Case(
        "edges",
        "stellargraph/stellargraph/issues/70",
        "a list of all links is searched for each pair",
        CODE,
        "not in self.known",
        "set",
    ),
    Case(
        "descriptors",
        "ulissigroup/amptorch/issues/12",
        "the batch is copied for each atom that collate adds to it",
        ("custom_collate", *CODE),
        "torch.cat([atoms",
        "copied",
    ),
    Case(
        "ocr",
        "mindee/doctr/issues/1861",
        "the model is called twice for each batch",
        ("dropped_graphs",),
        "train_loss = model(",
        "remove this call",
    ),
    Case(
        "finetune",
        "roboflow/rf-detr/pull/1409",
        "the optimizer has a group for each parameter",
        ("optimizer_time",),
        "key = depth | optimizer = ",
        "group",
    ),
    Case(
        "robot",
        "liruiw/HPT/pull/14",
        "the table of places is computed again, in Python, in each forward",
        ("call_in_model", "loop_in_model"),
        "np.power( | angles(place) | place_table(*",
    ),
    Case(
        "sessions",
        "yhs968/pyGRU4REC/issues/4",
        "items are one-hot vectors that are multiplied by a table",
        ("call_in_model", "loop_in_model"),
        "one_hot(",
        "embedding",
    ),
    Case(
        "microbatches",
        "pytorch/pytorch/issues/43201",
        "gradients are exchanged in each of the eight batches of an update",
        ("exposed_communication",),
        "",
        "no_sync",
        ranks=2,
    ),
    Case(
        "causal_mask",
        "karpathy/nanoGPT/pull/151",
        "buffers that never change are sent to all ranks in each forward",
        ("exposed_communication",),
        "",
        "buffer",
        ranks=2,
    ),
    Case(
        "splats",
        "cgtuebingen/SSS-GS/pull/7",
        "itertools.cycle keeps all batches",
        ("memory_growth", "kept_batches"),
        "itertools.cycle(",
        "cycle",
    ),
    Case(
        "meta_learner",
        "pytorch/pytorch/issues/4661",
        "backward(create_graph=True) leaves a cycle of references",
        ("memory_growth",),
        "create_graph=True)",
        "create_graph",
    ),
    Case(
        "crops",
        "pytorch/pytorch/issues/1995",
        "a view is saved with all of the array that it is a part of",
        ("checkpoint_time",),
        "torch.save(",
        "clone",
    ),
    Case(
        "translate",
        "espnet/espnet/pull/2013",
        "the model computes a BLEU score in each forward",
        ("call_in_model", "loop_in_model"),
        "grams( | Counter( | bleu( | min(count | for n in range(",
    ),
    Case(
        "tiny_weights",
        "pytorch/pytorch/issues/63853",
        "weights become denormal numbers, which CPUs compute with slowly",
        ("denormal_numbers",),
        "",
        "denormal",
    ),
]
#: Another 16, written when the first two sets were done; read once before anything was changed.
SECOND = [
    Case(
        "eeg",
        "braindecode/braindecode/pull/89",
        "a row of a DataFrame is made for each sample",
        CODE,
        "self.table.iloc[",
        "DataFrame",
    ),
    Case(
        "dialogues",
        "huggingface/transformers/issues/1830",
        "sum() joins the lists of tokens, and copies all so far for each",
        CODE,
        "sum(words, [])",
        "copies all lists",
    ),
    Case(
        "aerial",
        "torchgeo/torchgeo/pull/3539",
        "whole photographs are changed at random, and then cropped",
        ("augmentation_bound",),
        "self.change = | self.change(",
        "final size",
    ),
    Case(
        "outlines",
        "facebookresearch/detectron2/issues/939",
        "the annotations of each sample are copied by copy.deepcopy",
        CODE,
        "copy.deepcopy(",
        "deepcopy",
    ),
    Case(
        "utterances",
        "SeanNaren/deepspeech.pytorch/issues/143",
        "the sampler reads all recordings in each epoch, for their lengths",
        ("slow_sampler",),
        "self.lengths() | len(recording) for",
        "length",
    ),
    Case(
        "masked_words",
        "facebookresearch/pytext/pull/957",
        "scores are computed for all words, though the loss needs those that are masked",
        ("unused_outputs", "call_in_model", "loop_in_model"),
        "self.words(hidden)",
        "ignore",
    ),
    Case(
        "orthogonal",
        "lezcano/geotorch/issues/34",
        "an orthogonal matrix is computed again for each step of a sequence",
        ("call_in_model", "loop_in_model"),
        "self.recall(state) | parametrizations.orthogonal(",
        "cached",
    ),
    Case(
        "faces",
        "yifanjiang19/Pedestrian-Synthesis-GAN/issues/32",
        "the critic's backward pass goes on through the generator",
        ("unused_gradients",),
        "loss.backward( | fake = | seen = ",
        "detach",
    ),
    Case(
        "screening",
        "Lightning-AI/torchmetrics/issues/1217",
        "a metric over all samples so far is computed in each step",
        CODE,
        "metric.compute().item()",
        "epoch",
    ),
    Case(
        "sprites",
        "AIS-Bonn/OCVP-object-centric-video-prediction/pull/3",
        "figures are not closed",
        ("memory_growth",),
        "pyplot.subplots(",
        "close",
    ),
    Case(
        "points",
        "isl-org/Open3D-ML/pull/385",
        "the validation set is larger than what is trained on between two validations",
        ("evaluation_time", *CODE),
        "validate(model, | model(points).argmax(1)",
        "often",
    ),
    Case(
        "norms",
        "allenai/OLMo/pull/326",
        "norms of all weights and gradients are computed in each step, one by one",
        CODE,
        "tensor.norm() | tensor.min() | tensor.max() | metrics(optimizer",
        "every",
    ),
    Case(
        "walker",
        "rail-berkeley/softlearning/issues/1",
        "the pool of experience is saved with each checkpoint",
        ("checkpoint_time",),
        "torch.save(",
        "leave out",
    ),
    Case(
        "tissue",
        "computational-cell-analytics/micro-sam/pull/1329",
        "each gradient is sent on its own, after the backward pass",
        CODE,
        "dist.all_reduce(gradient)",
        "DistributedDataParallel",
        ranks=2,
    ),
    Case(
        "arms",
        "huggingface/lerobot/issues/2549",
        "a column of a table is asked for rows, instead of rows for their column",
        CODE,
        'self.table["action"]',
        "rows first",
    ),
    Case(
        "clicks",
        "meta-pytorch/torchrec/pull/4294",
        "the thread that reads ahead has died, and its queue is waited for",
        ("standstill", "too_short"),
        "ahead.batches.get()",
        "thread",
        hangs=True,
    ),
]
CASES += [*HELD_OUT, *SECOND]


@dataclass(frozen=True)
class Row:
    """What was said of a program and its twin.

    Attributes:
        says: The verdict.
        named: the first finding is the cause.
        right: its line is.
    """

    name: str
    report: str
    cause: str
    first: str
    says: str
    place: str
    named: bool
    right: bool
    twin_accused: bool
    twin_first: str
    stated: float | None
    measured: float | None


def recorded(case: Case, folder: Path, *options: str) -> dict[str, Any]:
    """Run a program under feedline, and return its report.

    One that hangs is interrupted as a person would, with Ctrl-C.
    """
    run = folder / f"{case.name}{'-twin' if options else ''}"
    if not (run / "report.json").exists():
        program = [f"{case.name}.py", *options]
        if case.ranks > 1:
            torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(case.ranks)]
            program = ["--", *torchrun, *program]
        command = [sys.executable, "-m", "feedline", "run", "-o", str(run), *program]
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with (folder / f"{run.name}.txt").open("w") as said:
            process = subprocess.Popen(
                command,
                cwd=HERE,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": places},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _limit(case.files),
            )
            try:
                process.wait(30.0 if case.hangs else MOST_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)
                process.wait(120.0)
    return json.loads((run / "report.json").read_text())  # type: ignore[no-any-return]


def _limit(files: int | None) -> None:
    """Prepare a process: Ctrl-C ends it, also below a shell that ignores it in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def judged(case: Case, slow: dict[str, Any], twin: dict[str, Any]) -> Row:
    """Compare the two reports with what is known of the program."""
    first, of_twin = _first(slow), _first(twin)
    lines = (HERE / f"{case.name}.py").read_text().splitlines()
    wanted = case.line.split(" | ") if case.line else []
    right = {at for at, text in enumerate(lines, 1) if any(part in text for part in wanted)}
    place = first.get("place", "")
    words = json.dumps(first)
    rate, after = _rate(slow), (first.get("gain") or {}).get("after")
    return Row(
        case.name,
        case.report,
        case.cause,
        first.get("cause", ""),
        slow["verdict"]["limit"],
        place,
        first.get("cause") in case.expected and case.says.lower() in words.lower(),
        _line(place) in right if right else True,
        any(
            one["cause"] == first.get("cause") and one["place"] == place and place
            for one in twin["findings"]
            if one["severity"] != "info"
        ),
        of_twin.get("cause", ""),
        after / first["gain"]["before"] if after and first["gain"]["before"] else None,
        _rate(twin) / rate if rate and _rate(twin) else None,
    )


def _first(report: dict[str, Any]) -> dict[str, Any]:
    asking = [one for one in report["findings"] if one["cause"] not in MACHINE]
    return next((one for one in asking if one["severity"] != "info"), (asking or [{}])[0])


def _rate(report: dict[str, Any]) -> float:
    pace = report["throughput"]
    return float(pace["samples_per_s"] or pace["steps_per_s"] or 0.0)


def _line(place: str) -> int:
    number = place.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def rows(cases: list[Case], folder: Path) -> Iterator[Row]:
    """Run each program and its twin."""
    for case in cases:
        try:
            yield judged(case, recorded(case, folder), recorded(case, folder, "--twin"))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"| {case.name} | failed: {error} |", flush=True)


def main() -> None:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-out", action="store_true", help="only those that nobody tuned for")
    parser.add_argument("--second", action="store_true", help="only the second set of these")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument(
        "--keep", type=Path, help="folder for the runs; those in it are judged again"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = [*HELD_OUT, *SECOND] if given.held_out else SECOND if given.second else CASES
    cases = [case for case in cases if not given.only or case.name in given.only]
    found = []
    print("| program | cause | first | named | line | right | twin accused | stated | measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows(cases, folder):
            found.append(row)
            print(_text(row), flush=True)
    named, right = (sum(getattr(row, name) for row in found) for name in ("named", "right"))
    accused = sum(row.twin_accused for row in found)
    print(
        f"\n{len(found)} programs: {named} causes first, {right} lines right, {accused} twins accused"
    )
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in found], indent=1))


def _text(row: Row) -> str:
    def yes(true: bool) -> str:
        return "yes" if true else "no"

    def times(ratio: float | None) -> str:
        return f"{ratio:.2f}x" if ratio else ""

    where = f"[{row.report.partition('/')[2]}]({GITHUB}{row.report})"
    cells = [f"`{row.name}` ({where})", row.cause, row.first, yes(row.named), row.place]
    cells += [yes(row.right), yes(row.twin_accused), times(row.stated), times(row.measured)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
