"""A second list of programs that were chosen and fixed, with what is true of them, before feedline
was run on any of them.

Those of ``unseen`` had been measured by then. Of a longer list, those stayed that run here as they
are in less than half a minute.
"""

import json
from pathlib import Path

import numpy as np

from programs_of_others.data import (
    WORDS,
    Maker,
    command,
    cora,
    gpt2,
    graphs,
    mnist,
    photos,
    planetoid,
    text,
)
from programs_of_others.manifest.libraries import ACCELERATE, MRPC
from programs_of_others.program import Program

CLASSES = "--dataset path --data_folder photos --mean (0.5,0.5,0.5) --std (0.5,0.5,0.5)"
GEOMETRIC = "pyg-team/pytorch_geometric"


def lines(
    where: str, count: int, ends: tuple[str, ...] = ("",), words: int = 9, seed: int = 0
) -> Maker:
    """Lines of words, each with one of these ends after a tab."""

    def make(folder: Path) -> None:
        (folder / where).parent.mkdir(parents=True, exist_ok=True)
        drawn = np.random.default_rng(seed)
        made = [
            f"{' '.join(drawn.choice(WORDS, words))}\t{ends[number % len(ends)]}"
            for number in range(count)
        ]
        (folder / where).write_text("\n".join(made) + "\n")

    return make


def sentences(where: str, count: int) -> Maker:
    """Two sentences per line, with a tab between them."""
    drawn = np.random.default_rng(1)
    return lines(where, count, tuple(" ".join(drawn.choice(WORDS, 7)) for _ in range(count)), 7)


def preferences(where: str, count: int = 200) -> Maker:
    """A prompt, a chosen and a rejected answer per row, as a set of the Hub."""

    def make(folder: Path) -> None:
        drawn = np.random.default_rng(0)
        made = [
            {name: " ".join(drawn.choice(WORDS, 12)) for name in ("prompt", "chosen", "rejected")}
            for _ in range(count)
        ]
        (folder / where).mkdir(parents=True, exist_ok=True)
        (folder / where / "train.jsonl").write_text("\n".join(map(json.dumps, made)) + "\n")

    return make


def shapes(where: str, train: int = 8, test: int = 1, points: int = 2000) -> Maker:
    """Files of points with normals for ten shapes, as those of ModelNet10."""

    def make(folder: Path) -> None:
        noise, into = np.random.default_rng(0), folder / where
        names = [f"shape{number}" for number in range(10)]
        for name in names:
            (into / name).mkdir(parents=True, exist_ok=True)
            for number in range(train + test):
                np.savetxt(
                    into / name / f"{name}_{number:04d}.txt",
                    noise.normal(size=(points, 6)),
                    "%.6f",
                    ",",
                )
        (into / "modelnet10_shape_names.txt").write_text("\n".join(names) + "\n")
        for part, numbers in (("train", range(train)), ("test", range(train, train + test))):
            listed = [f"{name}_{number:04d}" for name in names for number in numbers]
            (into / f"modelnet10_{part}.txt").write_text("\n".join(listed) + "\n")

    return make


def digits(train: int = 50, test: int = 20) -> Maker:
    """Pictures of 16 by 16 with ten targets each, as tensors in files."""

    def make(folder: Path) -> None:
        import torch

        for name, count in (("train1989.pt", train), ("test1989.pt", test)):
            torch.save(
                (
                    torch.rand(count, 1, 16, 16) * 2 - 1,
                    torch.eye(10)[torch.arange(count) % 10] * 2 - 1,
                ),
                folder / name,
            )

    return make


def script(where: str, module: str, function: str) -> Maker:
    """The script that pip makes of an entry point."""

    def make(folder: Path) -> None:
        (folder / where).write_text(
            f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )

    return make


def cached_mnist(where: str, train: int) -> Maker:
    """Files as those of MNIST, where a class of this name looks for them."""

    def make(folder: Path) -> None:
        mnist(where, train)(folder)
        (folder / where / "MNIST").rename(folder / where / "MNISTCached")

    return make


PICTURES = [
    Program(
        "StarGAN",
        "yunjey/stargan",
        "",
        "main.py --mode train --dataset RaFD --rafd_image_dir photos --c_dim 2 --rafd_crop_size "
        "200 --image_size 32 --batch_size 4 "
        "--num_iters 40 --num_iters_decay 20 --n_critic 1 --use_tensorboard False --g_conv_dim 16 "
        "--d_conv_dim 16 --g_repeat_num 2 "
        "--d_repeat_num 4",
        ((40, 160),),
        "40 iterations of 4 photographs, 1 worker",
        (photos("photos", 20),),
        files=True,
    ),
    Program(
        "PyTorch-GAN cyclegan",
        "eriklindernoren/PyTorch-GAN",
        "implementations/cyclegan",
        "cyclegan.py --n_epochs 2 --decay_epoch 1 --img_height 32 --img_width 32 "
        "--n_residual_blocks 1 --n_cpu 2 --sample_interval 1000",
        ((40, 40),),
        "2 epochs of 20 pairs of pictures, as it prints, 2 workers",
        tuple(
            photos(f"../../data/monet2photo/{part}", count, 128, 96, 0)
            for part, count in (("train/A", 20), ("train/B", 20), ("test/A", 5), ("test/B", 5))
        ),
        files=True,
        printed=r"\[Epoch \d+/2\] \[Batch \d+/20\]",
    ),
    Program(
        "SupContrast",
        "HobbitLong/SupContrast",
        "",
        f"main_supcon.py {CLASSES} --size 32 --model resnet18 --batch_size 4 --num_workers 2 "
        f"--epochs 2",
        ((40, 160),),
        "2 epochs of 20 batches of 4 photographs, 2 workers",
        (photos("photos", 40),),
        ("tensorboard_logger",),
        files=True,
        environment=(("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python"),),
    ),
    Program(
        "PointNet",
        "yanx27/Pointnet_Pointnet2_pytorch",
        "",
        "train_classification.py --use_cpu --num_category 10 --num_point 256 --batch_size 8 "
        "--epoch 12 --log_dir out",
        ((120, 960),),
        "12 epochs of 10 batches of 8 of the 80 files of points, 10 workers",
        (shapes("data/modelnet40_normal_resampled"),),
        files=True,
    ),
    Program(
        "lecun1989-repro",
        "karpathy/lecun1989-repro",
        "",
        "repro.py",
        ((1150, 1150),),
        "23 passes over 50 pictures, one per step",
        (digits(),),
        ("tensorboardX",),
    ),
]
TEXTS = [
    Program(
        "BERT-pytorch",
        "codertimo/BERT-pytorch",
        "",
        "bert.py -c corpus.txt -v vocab.bin -o bert.model -hs 64 -l 2 -a 2 -b 8 -e 2 -w 2",
        ((40, 320),),
        "2 epochs of 20 batches of 8, 2 workers",
        (
            sentences("corpus.txt", 160),
            script("bert.py", "bert_pytorch.__main__", "train"),
            script("bert_vocab.py", "bert_pytorch.dataset.vocab", "build"),
            command("bert_vocab.py", "-c", "corpus.txt", "-o", "vocab.bin"),
        ),
    ),
    Program(
        "Chinese-Text-Classification TextCNN",
        "649453932/Chinese-Text-Classification-Pytorch",
        "",
        "run.py --model TextCNN --embedding random",
        ((40, 5120),),
        "20 epochs of 2 batches of 128",
        tuple(
            lines(f"THUCNews/data/{part}.txt", count, tuple("0123456789"), seed=count)
            for part, count in (("train", 256), ("dev", 130), ("test", 140))
        ),
        ("tensorboardX", "sklearn"),
        input=("utils:DatasetIterater.__next__",),
    ),
    Program(
        "ng-video-lecture bigram",
        "karpathy/ng-video-lecture",
        "",
        "bigram.py",
        ((3000, 96_000),),
        "3,000 iterations of 32 rows",
        input=("__main__:get_batch",),
    ),
    Program(
        "nlp-tutorial Word2Vec-Skipgram",
        "graykode/nlp-tutorial",
        "1-2.Word2Vec",
        '"Word2Vec-Skipgram(Softmax).py"',
        ((5000, 10_000),),
        "5,000 steps of 2 pairs of words",
        needs=("matplotlib",),
        input=("__main__:random_batch",),
    ),
    Program(
        "opacus char-lstm, without privacy",
        "pytorch/opacus",
        "examples",
        "char-lstm-classification.py --data-root names --device cpu --disable-dp -b 20 --epochs 2",
        ((80, 1600),),
        "2 epochs of 40 batches of 20 of the 800 of 1,000 names that are not for the test, 1 "
        "worker",
        tuple(text(f"names/kind{number}.txt", 249, 249, number) for number in range(4)),
        ("opacus",),
    ),
    Program(
        "accelerate complete_nlp_example",
        "huggingface/accelerate",
        "examples",
        "complete_nlp_example.py --cpu --output_dir out",
        ((30, 480),),
        "3 epochs of 10 batches of 16",
        MRPC,
        ACCELERATE,
    ),
    Program(
        "trl dpo",
        "package:trl",
        "scripts",
        "dpo.py --model_name_or_path tiny --dataset_name answers --output_dir out --max_steps 40 "
        "--per_device_train_batch_size 4 "
        "--report_to none --use_cpu --bf16 False",
        ((40, 160),),
        "40 steps of 4 rows",
        (gpt2("tiny"), preferences("answers")),
        ("trl", "transformers", "datasets"),
    ),
]
NUMBERS = [
    Program(
        "dlrm",
        "facebookresearch/dlrm",
        "",
        "dlrm_s_pytorch.py --mini-batch-size=64 --num-batches=60 --nepochs=2 "
        "--data-generation=random --arch-sparse-feature-size=16 "
        "--arch-embedding-size=1000-1000-1000-1000 --arch-mlp-bot=13-64-16 --arch-mlp-top=64-1",
        ((120, 7680),),
        "2 epochs of 60 batches of 64, as it prints",
        needs=("tensorboard", "sklearn"),
        printed=r"^Finished training it \d+/60",
    ),
    Program(
        "tiny-diffusion",
        "tanelp/tiny-diffusion",
        "",
        "ddpm.py --dataset moons --num_epochs 2 --save_images_step 100",
        ((500, 16_000),),
        "2 epochs of 250 batches of 32 of the 8,000 points",
        needs=("matplotlib", "pandas", "sklearn"),
    ),
    Program(
        "torchdiffeq ode_demo",
        "rtqichen/torchdiffeq",
        "",
        "examples/ode_demo.py --niters 100 --data_size 200",
        ((100, 2000),),
        "100 iterations of 20 pieces",
        needs=("scipy",),
        input=("__main__:get_batch",),
        on_path=("",),
        code=("__main__:odeint",),
    ),
    Program(
        "TCN adding_problem",
        "locuslab/TCN",
        "",
        "add_test.py --cuda --epochs 1 --batch_size 500 --seq_len 50 --levels 4 --nhid 16",
        ((100, 50_000),),
        "an epoch of 100 batches of 500",
        start="TCN/adding_problem",
    ),
    Program(
        "pyro lda",
        "pyro-ppl/pyro",
        "examples",
        "lda.py -n 200 -d 100 -w 64 -b 16",
        ((200, 3200),),
        "200 steps of 16 of the 100 documents",
        needs=("pyro",),
        code=("pyro.infer.traceenum_elbo:_compute_dice_elbo",),
    ),
    Program(
        "pyro vae",
        "pyro-ppl/pyro",
        "examples/vae",
        "vae.py -n 15",
        ((60, 15_360),),
        "15 epochs of 4 batches of 256",
        (cached_mnist("utils/.data", 1024),),
        ("pyro", "matplotlib", "visdom"),
    ),
    Program(
        "PyG proteins_topk_pool",
        GEOMETRIC,
        "examples",
        "proteins_topk_pool.py",
        ((600, 24_200),),
        "200 epochs of 3 batches of the 121 of 134 graphs that are not for the test",
        (graphs("../data/PROTEINS", "PROTEINS", 134),),
        ("torch_geometric",),
    ),
    Program(
        "PyG super_gat",
        GEOMETRIC,
        "examples",
        "super_gat.py",
        ((500, None),),
        "500 epochs over one graph",
        (planetoid("../data/Cora"),),
        ("torch_geometric",),
        no_input=True,
        printed=r"^Epoch: \d+",
    ),
    Program(
        "pyGAT",
        "Diego999/pyGAT",
        "",
        "train.py --epochs 30 --nb_heads 2 --no-cuda",
        ((30, None),),
        "30 epochs over one graph",
        (cora("data/cora", 1600),),
        ("scipy",),
        no_input=True,
        printed=r"^Epoch: \d+",
    ),
]
REINFORCEMENT = [
    Program(
        "cleanrl pqn",
        "vwxyzjn/cleanrl",
        "cleanrl",
        "pqn.py --total-timesteps 2048 --no-cuda",
        ((64, 8192),),
        "4 rollouts, 4 epochs of 4 minibatches of 128 each",
        needs=("gymnasium", "tyro", "tensorboard"),
        on_path=("",),
        code=("gymnasium.vector.sync_vector_env:SyncVectorEnv.step",),
    ),
    Program(
        "rl_zoo3 a2c",
        "package:rl_zoo3",
        "hyperparams",
        "-m rl_zoo3.train --algo a2c --env CartPole-v1 -n 12000 --eval-freq -1 --log-folder out",
        ((300, 12000),),
        "300 rollouts of 40 steps, one update each",
        input=(
            "stable_baselines3.common.buffers:RolloutBuffer._get_samples",
            "stable_baselines3.common.policies:preprocess_obs",
        ),
        needs=("rl_zoo3", "stable_baselines3"),
        code=("stable_baselines3.common.vec_env.base_vec_env:VecEnv.step",),
    ),
]
UNSEEN_SECOND = [*PICTURES, *TEXTS, *NUMBERS, *REINFORCEMENT]
