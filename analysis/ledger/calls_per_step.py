"""Calls that are known to be slow in each step: of the loop, of optimizers and of evaluation.

Of several that fit a frame or a line, the first counts, as for each sample (calls_per_sample.py).
"""

from dataclasses import replace

from feedline.analysis.ledger.calls_per_sample import (
    COLLECTED,
    FILLED,
    FRONT,
    GROWN,
    SEARCHED,
    SUMMED,
)
from feedline.analysis.ledger.known_call import Calls, KnownCall, Sign
from feedline.profiler.masks import PYTHON

_RARELY = 1 / 50  # of a call that is made every 50 steps, as its fix says, in each step

#: Of values of any kind. What is true of gradients comes in its place (view/loop_code.py).
REDUCED = KnownCall(
    "reduced",
    "Values are reduced over all ranks in every step.",
    "Reduce all values together, every 50 steps or so",
    "https://github.com/meta-pytorch/torchtune/pull/522",
    (Sign("torch", r"distributed/distributed_c10d\.py"),),
    r"\ball_reduce\(|\ball_gather\w*\(",
    left=_RARELY,
)

_GRADIENTS = "https://github.com/computational-cell-analytics/micro-sam/pull/1329"
ONE_BY_ONE = replace(
    REDUCED,
    name="gradients_one_by_one",
    says="Gradients are reduced over all ranks after the backward pass, one tensor after another.",
    fix="Wrap the model in DistributedDataParallel, or reduce all gradients in one call",
    report=_GRADIENTS,
    left=None,
)
AFTER_BACKWARD = replace(
    REDUCED,
    name="gradients_after_backward",
    says="Gradients are reduced over all ranks only after the backward pass.",
    fix="Wrap the model in DistributedDataParallel, which reduces them during the backward pass",
    report=_GRADIENTS,
    left=None,
)
PARAMETRIZED = KnownCall(
    "parametrized",
    "A parametrized weight is computed again each time that the loop uses it.",
    "Put the forward pass into `with torch.nn.utils.parametrize.cached():`",
    "https://github.com/lezcano/geotorch/issues/34",
    (Sign("torch", r"nn/utils/parametrize\.py", "get_parametrized"),),
    in_graph=True,
)
FILLED_IN_STEP = replace(FILLED, name="filled_one_by_one_in_step")
#: Calls that it takes more than a frame or a line to tell.
TOLD_BY_MORE: Calls = (ONE_BY_ONE, AFTER_BACKWARD, PARAMETRIZED)

PER_STEP: Calls = (
    KnownCall(
        "tracker",
        "Values are sent to an experiment tracker in every step.",
        "Log every 50 steps or so",
        "https://github.com/wandb/wandb/issues/8666",
        (Sign("wandb"), Sign("mlflow"), Sign("comet_ml"), Sign("neptune"), Sign("clearml")),
        left=_RARELY,
    ),
    KnownCall(
        "tensorboard",
        "Values are written for TensorBoard in every step.",
        "Write to TensorBoard every 50 steps or so",
        "https://github.com/deepspeedai/DeepSpeed/pull/5135",
        (Sign("torch", r"utils/tensorboard/.*"), Sign("tensorboardX"), Sign("tensorboard")),
        left=_RARELY,
    ),
    KnownCall(
        "figure",
        "A figure is drawn and saved in the training loop.",
        "Keep the values, and draw the figure after training",
        "https://github.com/chainer/chainer/pull/2288",
        (Sign("matplotlib"), Sign("seaborn"), Sign("plotly")),
        left=0.05,
    ),
    KnownCall(
        "progress_bar",
        "The progress bar is redrawn in every step.",
        "Update the progress bar every 50 steps or so, or set mininterval",
        "https://github.com/openvdb/fvdb-reality-capture/pull/144",
        (Sign("tqdm"), Sign("rich")),
        left=_RARELY,
    ),
    KnownCall(
        "logging",
        "Messages are formatted and written in every step.",
        "Log every 50 steps or so",
        "https://github.com/EugenHotaj/pytorch-generative/issues/10",
        (Sign(PYTHON, r"logging/.*"), Sign("loguru")),
        r"^print\(",
        left=0.15,
    ),
    KnownCall(
        "formatted",
        "Tensors become text in every step, whether it is written or not.",
        "Format tensors only where they are written: log.debug('%s', tensor)",
        "https://github.com/NVIDIA-NeMo/Emerging-Optimizers/pull/255",
        (Sign("torch", r"_tensor_str\.py"),),
        left=_RARELY,
    ),
    KnownCall(
        "command_run",
        "A command is started, and waited for, in every step.",
        "Run the command every 50 steps or so, or in a thread",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/189",
        (Sign(PYTHON, r"subprocess\.py"),),
        r"\bos\.(system|popen)\(",
        left=_RARELY,
    ),
    KnownCall(
        "file_written",
        "Values are serialized, or written to a file, in the training loop.",
        "Write only what is new, every 50 steps or so",
        "https://github.com/m2lines/Samudra/pull/841",
        (
            Sign(PYTHON, r"(json/.*|csv\.py)", r"dumps?|encode|_?iterencode\w*|writerows?"),
            Sign("pandas", r"io/.*"),
        ),
        r"\b(json|pickle|yaml)\.dump\(|\bnp\.save(z\w*|txt)?\(|\.to_(csv|json|parquet)\("
        r"|\bos\.fsync\(|\.flush\(|\.write(lines|row|rows)?\(",
        left=_RARELY,
    ),
    KnownCall(
        "model_moved",
        "The model is moved or converted in every step.",
        "Move the model once, before the loop",
        "https://github.com/pytorch/pytorch/issues/23865",
        (Sign("torch", r"nn/modules/module\.py", "_apply|to|cuda|cpu|float|double|half"),),
    ),
    KnownCall(
        "list_to_tensor_in_step",
        "torch.tensor and np.array copy their data, and read lists value by value.",
        "Keep tensors instead of lists, made once before the loop",
        "https://github.com/pytorch/pytorch/issues/13918",
        text=r"\btorch\.(as_)?tensor\(|\btorch\.\w*Tensor\(|\bnp\.(as)?array\(",
    ),
    KnownCall(
        "objects_counted",
        "Every object of the program is looked at in every step.",
        "Remove gc.get_objects(), or call it once per epoch",
        "https://github.com/Oldpan/Pytorch-Memory-Utils/issues/21",
        text=r"\bgc\.get_objects\(",
        with_loop=True,
    ),
    KnownCall(
        "parameters_looked_up",
        "Parameters are collected from all modules again and again in every step.",
        "Collect the parameters once, and update them together, such as with torch._foreach_lerp_",
        "https://github.com/lightly-ai/lightly/pull/1899",
        (
            Sign(
                "torch",
                r"nn/modules/module\.py",
                "(named_)?(parameters|buffers|modules)|_named_members|state_dict|get_parameter",
            ),
        ),
    ),
    replace(COLLECTED, name="garbage_collected_in_step"),
    KnownCall(
        "cache_emptied",
        "torch.cuda.empty_cache gives memory back that the next step asks for again.",
        "Remove empty_cache(), or call it every few hundred steps",
        "https://github.com/huggingface/transformers/issues/31372",
        (Sign("torch", r"(cuda|xpu|mps)/.*", "empty_cache"),),
        r"\bempty_cache\(",
    ),
    KnownCall(
        "synchronized",
        "torch.cuda.synchronize makes the host wait for the GPU in every step.",
        "Remove synchronize(), or call it only when the time is logged",
        "https://github.com/pytorch/torchtitan/pull/134",
        (Sign("torch", r"(cuda|xpu|mps)/.*", "synchronize"),),
        r"\bsynchronize\(",
    ),
    KnownCall(
        "metric_object",
        "A metric is updated and computed in every step.",
        "Call update() in the step, and compute() once per epoch",
        "https://github.com/Lightning-AI/torchmetrics/issues/485",
        (Sign("torchmetrics"), Sign("evaluate")),
        left=0.2,
    ),
    KnownCall(
        "metric_of_sklearn",
        "scikit-learn computes metrics on the CPU in every step.",
        "Compute metrics once per epoch, or with tensor operations",
        "https://github.com/ViTAE-Transformer/RSP/pull/20",
        (Sign("sklearn"),),
    ),
    KnownCall(
        "objects_gathered",
        "Python objects are pickled and sent between the ranks in every step.",
        "Send tensors instead, and not in every step",
        "https://github.com/NVIDIA/Model-Optimizer/pull/1111",
        (
            Sign(
                "torch",
                r"distributed/distributed_c10d\.py",
                r"(all_)?gather_object|\w+_object_list|_object_to_tensor|_tensor_to_object",
            ),
        ),
        r"\b(all_)?gather_object\(|_object_list\(",
    ),
    KnownCall(
        "barrier",
        "All ranks wait for each other in every step.",
        "Remove the barrier: gradients are exchanged in step anyway",
        "https://github.com/dylanyunlon/Neuron_SP/pull/80",
        (Sign("torch", r"distributed/distributed_c10d\.py", "(monitored_)?barrier"),),
        r"\bbarrier\(",
    ),
    REDUCED,
    KnownCall(
        "state_copied",
        "The model or its state is copied in the training loop.",
        "Copy the state only when it is saved, or keep a running average in place",
        "https://github.com/huggingface/datasets/pull/8387",
        (Sign(PYTHON, r"copy\.py"),),
        statement=r"(?i)state_dict|model|network|(\b|_)([a-z]?net|ema)s?(\b|_|\d)",
        left=0.4,
    ),
    KnownCall(
        "norms",
        "Norms of parameters or gradients are computed one by one in every step.",
        "Clip with torch.nn.utils.clip_grad_norm_, and log norms every 50 steps or so",
        "https://github.com/facebookresearch/metaseq/issues/327",
        (Sign("torch", r"(functional|_tensor|linalg/.*)\.py", "norm"),),
        r"\.norm\(|linalg\.\w*norm\(",
    ),
    KnownCall(
        "read_back",
        "Reading a value from the GPU makes the host wait for all its work.",
        "Keep losses on the GPU, and read them every 50 steps or so",
        "https://github.com/meta-pytorch/torchtune/pull/522",
        text=r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|\.numpy\(\)",
        on_gpu=True,
        left=_RARELY,
    ),
    KnownCall(
        "values_checked",
        "Distributions check all of their arguments and values, each time.",
        "Create distributions with validate_args=False, once the program is known to be right",
        "https://github.com/Toni-SM/skrl/pull/233",
        (
            Sign("torch", r"distributions/constraints\.py"),
            Sign("torch", r"distributions/distribution\.py", "__init__|_validate_sample"),
        ),
        left=0.1,
    ),
    KnownCall(
        "attention_weights",
        "Attention also gives out its weights, which are not used, so no fused kernel computes it.",
        "Call attention with need_weights=False",
        "https://github.com/lyuwenyu/RT-DETR/issues/678",
        (Sign("torch", r"nn/functional\.py", "multi_head_attention_forward"),),
        unless=(Sign("torch", r"nn/modules/transformer\.py"),),  # it does not ask for them
        statement=r"^(?!.*need_weights)(.*\)\s*\[0\]|[\w.]+,\s*_\w*\s*=)",
        in_graph=True,
        left=0.5,
    ),
    KnownCall(
        "pairs_kept",
        "The differences of all pairs are made and kept, to be squared and summed.",
        "Use torch.cdist, or a product of matrices: |a|² + |b|² - 2 a·b",
        "https://github.com/Maghoumi/pytorch-softdtw-cuda/pull/23",
        text=r" - .*\)\s*(\.pow\(2\)|\.square\(\)|\*\*\s*2)\s*\)*(\.sum\(|,\s*(dim|axis|-?\d))",
        function=r"\b(\w+)\s*=[^\n]*(unsqueeze\(|\[[^\]\n]*None)(?s:.*)\(\1 - "
        r"|\([^()\n]*\[[^\]\n]*None[^()\n]* - [^()\n]*\[",
        in_graph=True,
    ),
    replace(FRONT, name="taken_from_the_front_in_step"),
    FILLED_IN_STEP,
    replace(GROWN, name="grown_by_copying_in_step"),
    replace(SUMMED, name="lists_summed_in_step"),
    replace(SEARCHED, name="list_searched_in_step"),
    KnownCall(
        "one_hot",
        "One-hot vectors are made, of which all but one value is zero.",
        "Keep the indices, and use nn.Embedding, or indexing, instead of a product",
        "https://github.com/yhs968/pyGRU4REC/issues/4",
        text=r"\bone_hot\(|\b(torch|np)\.eye\([^)]*\)\[",
        in_graph=True,
    ),
)

#: Of a decomposition that is made in each step; what is in a model is computed from what changes.
_DECOMPOSED = KnownCall(
    "decomposed",
    "A matrix is decomposed or inverted in every step.",
    "Decompose matrices every 50 steps or so, and use the last result in between",
    "https://github.com/jiaweizzhao/GaLore/issues/16",
    text=r"\blinalg\.(svd\w*|eig\w*|qr|inv\w*|pinv|matrix_power|matrix_exp|cholesky\w*|solve\w*|lstsq)\("
    r"|\btorch\.(svd\w*|eig\w*|qr|inverse|pinverse|matrix_exp|cholesky\w*|svd_lowrank|lobpcg)\(",
    left=_RARELY,
)
#: What optimizers compute themselves, with what is known only then.
_OF_UPDATES = ("norms", "reduced", "barrier", "values_checked", "list_to_tensor_in_step")
#: Of an optimizer's own step.
PER_UPDATE: Calls = (
    _DECOMPOSED,
    *(call for call in PER_STEP if not call.on_gpu and call.name not in _OF_UPDATES),
)

#: Of loops that only infer, such as evaluation.
PER_EVALUATION: Calls = (
    KnownCall(
        "numbers_in_lists",
        "Results become lists of Python numbers, or tensors of such lists, value by value.",
        "Keep tensors in a list, and join them once, with torch.cat",
        "https://github.com/microsoft/Olive/pull/451",
        text=r"\.tolist\(\)|\btorch\.(as_)?tensor\(|\btorch\.\w*Tensor\(|\bnp\.(as)?array\(",
    ),
    COLLECTED,
    FRONT,
    FILLED,
    GROWN,
    SUMMED,
    SEARCHED,
)
