"""The programs of this folder: what is wrong in each, where that was found, and what names it."""

from dataclasses import dataclass


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
