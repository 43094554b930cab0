"""A fourth set of programs that were held out: 12, of kinds that the sets before lack.

Written before feedline ran on any of them, and read once before anything was changed.
"""

from programs import CODE, Case

FOURTH = [
    Case(
        "traffic",
        "roboflow/rf-detr/pull/1399",
        "each image brings seven small tensors of its own through the loader's queue",
        ("many_tensors", "objects_in_queue", "custom_collate", *CODE),
        "list(targets) | collate_fn=collate | DataLoader( | Traffic(), batch_size",
        "tensor",
    ),
    Case(
        "warm_up",
        "pytorch/pytorch/issues/107076",
        "the compiled update is compiled again for each learning rate",
        ("recompilation",),
        "@torch.compile | def update | optimizer.step() | else 0.01 | update()",
        "tensor",
    ),
    Case(
        "resumed",
        "allenai/open-instruct/pull/681",
        "batches before the checkpoint are made again in each epoch, and dropped",
        ("skipped_batches",),
        "if number < DONE | continue | enumerate(loader)",
        "skip",
    ),
    Case(
        "streets",
        "dgrauet/ltx-2-mlx/issues/92",
        "a worker waits for a program that waits until its full pipe is read",
        ("standstill", "too_short"),
        "decoder.wait()",
        "communicate",
        hangs=True,
    ),
    Case(
        "citations",
        "pyg-team/pytorch_geometric/pull/8880",
        "rank 0 evaluates alone, and the other rank waits for it",
        ("evaluation_time", "late_rank", *CODE),
        "model(some) | correct(model | dist.barrier() | evaluate(net",
        "rank",
        ranks=2,
    ),
    Case(
        "shampoo",
        "NVIDIA-NeMo/Emerging-Optimizers/pull/255",
        "tensors are formatted for a log that is turned off",
        ("optimizer_time", *CODE),
        'log.debug(f"',
        "format",
    ),
    Case(
        "crystals",
        "dials/dials/pull/3271",
        "all objects are searched for garbage after each image",
        ("garbage_collection", *CODE),
        "gc.collect()",
        "collect",
    ),
    Case(
        "entities",
        "entity-neural-network/incubator/pull/15",
        "the model is called for each sample of a batch",
        (*CODE, "call_in_model", "loop_in_model"),
        "torch.cat([model(view",
        "batch",
    ),
    Case(
        "parking",
        "Lightning-AI/torchmetrics/issues/677",
        "evaluation compares all pairs of boxes in Python, again for each level",
        ("evaluation_time", *CODE),
        "ious(guess, true) > | found(guesses, true) | width = | height = | areas = | return width"
        " | for level in LEVELS | for true in",
        "loop",
    ),
    Case(
        "stems",
        "biolab/orange3-text/pull/709",
        "the same words are stemmed again and again",
        CODE,
        "word.endswith( | stem(word) for | word[: -len | for ending in",
        "keep its results",
    ),
    Case(
        "homes",
        "nestauk/asf_heat_pump_suitability/issues/33",
        "a whole table is compared with the number of each sample",
        CODE,
        'self.table[self.table["home"] == index]',
        "dict",
    ),
    Case(
        "snippets",
        "JetBrains-Research/code2seq/pull/112",
        "a metric that keeps all values is never reset",
        ("memory_growth",),
        "metric.update( | metric.compute( | SpearmanCorrCoef()",
        "reset",
    ),
]
