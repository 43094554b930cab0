"""Programs that were chosen, with what is true of them, before feedline was run on any of them.

Of a longer list, those stayed that run here as they are in less than half a minute: others use a
torch of long ago, or download something.
"""

from pathlib import Path

import numpy as np

from programs_of_others.data import Maker, mnist, photos, planetoid
from programs_of_others.manifest.libraries import ACCELERATE, MRPC
from programs_of_others.manifest.pytorch_gan import gan
from programs_of_others.program import Program

ZERO_TO_ALL = "hunkim/PyTorchZeroToAll"
GEOMETRIC = "pyg-team/pytorch_geometric"
CORA = (planetoid("../data/Cora"),)


def tokens(where: str, files: int = 3, count: int = 20_000, words: int = 256) -> Maker:
    """Files of token ids, of noise."""

    def make(folder: Path) -> None:
        (folder / where).mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0)
        for number in range(files):
            noise.integers(0, words, count, np.uint16).tofile(folder / where / f"{number}.bin")

    return make


def graph(name: str, epochs: int, **others: object) -> Program:
    """An example of PyG that trains on one whole graph."""
    counts = f"{epochs} epochs over one graph"
    return Program(
        f"PyG {name}",
        GEOMETRIC,
        "examples",
        f"{name}.py",
        ((epochs, None),),
        counts,
        CORA,
        ("torch_geometric",),
        no_input=True,
        printed=r"^Epoch: \d+",
        **others,  # type: ignore[arg-type]
    )


UNSEEN = [
    Program(
        "PyTorchZeroToAll 07 logistic regression",
        ZERO_TO_ALL,
        "",
        "07_diabets_logistic.py",
        ((100, 75_900),),
        "100 epochs of one batch of all 759 rows",
        no_input=True,
        printed=r"^Epoch: \d+/100",
    ),
    Program(
        "PyTorchZeroToAll 08 loader",
        ZERO_TO_ALL,
        "",
        "08_2_dataset_loade_logistic.py",
        ((48, 1518),),
        "2 epochs of 24 batches of the 759 rows, 2 workers",
        printed=r"^Epoch \d+ \| Batch: \d+",
    ),
    Program(
        "PyTorchZeroToAll 09 softmax",
        ZERO_TO_ALL,
        "",
        "09_2_softmax_mnist.py",
        ((45, 2880),),
        "9 epochs of 5 batches of 64",
        (mnist("mnist_data"),),
    ),
    Program(
        "PyTorchZeroToAll 10 cnn",
        ZERO_TO_ALL,
        "",
        "10_1_cnn_mnist.py",
        ((45, 2880),),
        "9 epochs of 5 batches of 64",
        (mnist("data"),),
    ),
    Program(
        "jcjohnson two_layer_net_optim",
        "jcjohnson/pytorch-examples",
        "nn",
        "two_layer_net_optim.py",
        ((500, 32_000),),
        "500 steps on the same 64 rows, as it prints",
        no_input=True,
        printed=r"^\d+ [\d.e-]+$",
    ),
    Program(
        "jcjohnson dynamic_net",
        "jcjohnson/pytorch-examples",
        "nn",
        "dynamic_net.py",
        ((500, 32_000),),
        "500 steps on the same 64 rows, as it prints",
        no_input=True,
        printed=r"^\d+ [\d.e-]+$",
    ),
    Program(
        "llama2.c",
        "karpathy/llama2.c",
        "",
        "train.py --compile=False --device=cpu --dtype=float32 --max_iters=30 --eval_iters=2 "
        "--eval_interval=1000 --batch_size=8 "
        "--max_seq_len=64 --dim=64 --n_layers=2 --n_heads=4 --n_kv_heads=4 "
        "--gradient_accumulation_steps=2 --vocab_source=custom "
        "--vocab_size=256 --warmup_iters=2 --out_dir=out",
        ((31, 496),),
        "iterations 0 to 30 of 2 batches of 8 rows, as it prints",
        (tokens("data/tok256"),),
        ("sentencepiece",),
        printed=r"^\d+ \| loss",
    ),
    gan("sgan"),
    graph("arma", 400),
    graph("infomax_transductive", 300),
    Program(
        "Lightning imagenet",
        "Lightning-AI/pytorch-lightning",
        "examples/pytorch/domain_templates",
        "imagenet.py fit --model.data_path photos --model.batch_size 8 --model.workers 2 "
        "--trainer.max_epochs 2 "
        "--trainer.accelerator cpu --trainer.devices 1 --trainer.strategy auto",
        ((40, 320),),
        "2 epochs of 20 batches of 8 photographs, 2 workers",
        (photos("photos/train", 80, 320, 240), photos("photos/val", 16, 320, 240)),
        ("lightning", "torchmetrics", "jsonargparse"),
        files=True,
    ),
    Program(
        "accelerate tracking",
        "huggingface/accelerate",
        "examples/by_feature",
        "tracking.py --cpu --project_dir logs",
        ((30, 480),),
        "3 epochs of 10 batches of 16",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "cleanrl ddpg",
        "vwxyzjn/cleanrl",
        "cleanrl",
        "ddpg_continuous_action.py --env-id Pendulum-v1 --total-timesteps 190 --learning-starts "
        "20 --batch-size 64 --no-cuda",
        ((169, 10_816),),
        "an update of 64 transitions at each of 169 steps",
        needs=("gymnasium", "tyro", "tensorboard"),
        input=("cleanrl_utils.buffers:ReplayBuffer.sample",),
        on_path=("",),
        code=("gymnasium.vector.sync_vector_env:SyncVectorEnv.step",),
    ),
    Program(
        "pykeen distmult",
        "package:pykeen",
        "experiments",
        "-m pykeen train distmult --dataset nations --number-epochs 10 --batch-size 128",
        ((130, None),),
        "10 epochs of 13 batches",
        causes=("garbage_collection",),  # gc.collect() at the end of each epoch
        needs=("pykeen",),
    ),
]
