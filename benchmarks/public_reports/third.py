"""A third set of programs that were held out: 12, of causes that none of the sets before has.

Read once before anything was changed.
"""

from programs import CODE, Case

THIRD = [
    Case(
        "lungs",
        "milesial/Pytorch-UNet/issues/449",
        "a folder is searched for the files of each sample",
        CODE,
        ".glob(name",
        "once",
    ),
    Case(
        "readings",
        "uber/petastorm/pull/414",
        "rows are taken from the front of a list, which moves all others",
        CODE,
        "self.rows.pop(0)",
        "deque",
    ),
    Case(
        "tides",
        "Lightning-AI/pytorch-lightning/issues/17725",
        "a table of all losses so far is written again every ten steps",
        CODE,
        "writer.writerows( | self.save() | table.log(",
        "what is new",
    ),
    Case(
        "pendulum",
        "Toni-SM/skrl/pull/233",
        "distributions check their arguments and values",
        (*CODE, "call_in_model"),
        "return MultivariateNormal( | log_prob(",
        "validate_args",
    ),
    Case(
        "detector",
        "lyuwenyu/RT-DETR/issues/678",
        "attention returns weights that nobody uses",
        ("call_in_model", "unused_outputs"),
        "self.attention(seen",
        "need_weights",
    ),
    Case(
        "gestures",
        "Maghoumi/pytorch-softdtw-cuda/pull/23",
        "the differences of all pairs are kept, where a product of matrices is enough",
        ("call_in_model", "own_code"),
        "(guess - true).pow(2)",
        "product",
    ),
    Case(
        "proteins",
        "rampasek/GraphGPS/issues/43",
        "collate fills an index with all pairs of nodes, value by value",
        ("custom_collate", *CODE),
        "index[0, i * | index[1, i * | for j in range(",
    ),
    Case(
        "low_rank",
        "jiaweizzhao/GaLore/issues/16",
        "the optimizer decomposes each gradient in each step",
        ("optimizer_time", *CODE),
        "torch.linalg.svd(",
        "50 steps",
    ),
    Case(
        "answers",
        "lightseekorg/TorchSpec/issues/13",
        "ranks get answers of different length, and wait for each other",
        ("late_ranks", "late_rank"),
        "",
        "similar",
        ranks=2,
    ),
    Case(
        "spikes",
        "NeuroBench/neurobench/issues/184",
        "hooks that are never removed keep the outputs of all layers",
        ("memory_growth", "call_in_model"),
        "self.seen.append( | register_forward_hook( | Activity(model)",
        "hook",
    ),
    Case(
        "perplexity",
        "microsoft/Olive/pull/451",
        "evaluation makes lists of numbers of all scores, and tensors of these again",
        ("evaluation_time", *CODE),
        "scores.tolist() | torch.tensor(guesses)",
        "tensor",
    ),
    Case(
        "sketches",
        "ultralytics/ultralytics/pull/26085",
        "a worker is forked while a thread holds a lock, which it then waits for for ever",
        ("standstill", "too_short"),
        "with self.lock",
        "fork",
        hangs=True,
    ),
]
