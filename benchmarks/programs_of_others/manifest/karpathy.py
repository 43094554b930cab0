"""github.com/karpathy: nanoGPT at 3adf61e, minGPT at 37baab7, makemore at 988aa59."""

from programs_of_others.data import command, text
from programs_of_others.program import Program

NANO = (
    "train.py config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=2 "
    "--log_interval=1 --block_size=32 --batch_size=8 "
    "--n_layer=2 --n_head=2 --n_embd=32 --max_iters=40 --eval_interval=20 --dropout=0.0"
)
SHAKESPEARE = (
    text("data/shakespeare_char/input.txt", 20000, 500),
    command("data/shakespeare_char/prepare.py"),
)

KARPATHY = [
    Program(
        "nanoGPT",
        "karpathy/nanoGPT",
        "",
        NANO,
        ((41, 328),),
        "iterations 0 to 40 of 8 rows, as it prints",
        SHAKESPEARE,
        ("requests",),
        input=("__main__:get_batch",),
        printed=r"^iter \d+: loss",
    ),
    Program(
        "nanoGPT, 4 batches per step",
        "karpathy/nanoGPT",
        "",
        NANO.replace("max_iters=40", "max_iters=20") + " --gradient_accumulation_steps=4",
        ((21, 672),),
        "iterations 0 to 20 of 4 batches of 8 rows, as it prints",
        SHAKESPEARE,
        ("requests",),
        input=("__main__:get_batch",),
        printed=r"^iter \d+: loss",
    ),
    Program(
        "minGPT chargpt",
        "karpathy/minGPT",
        "",
        "projects/chargpt/chargpt.py --model.model_type=gpt-nano --trainer.max_iters=60 "
        "--trainer.num_workers=1 --trainer.batch_size=8 "
        "--data.block_size=32",
        ((60, 480),),
        "60 iterations of 8 rows",
        (text("input.txt", 4000, 100),),
        on_path=("",),
    ),
    Program(
        "minGPT adder",
        "karpathy/minGPT",
        "",
        "projects/adder/adder.py --trainer.max_iters=60 --trainer.num_workers=0 "
        "--trainer.batch_size=16",
        ((60, 960),),
        "60 iterations of 16 sums",
        on_path=("",),
    ),
    Program(
        "makemore transformer",
        "karpathy/makemore",
        "",
        "makemore.py --max-steps 60 --num-workers 0 --n-layer 2 --n-embd 16 --n-embd2 16",
        ((60, 1920),),
        "60 steps of 32 names",
        needs=("tensorboard",),
        input=("__main__:InfiniteDataLoader.next",),
    ),
    Program(
        "makemore bigram, 1 worker",
        "karpathy/makemore",
        "",
        "makemore.py --max-steps 200 --num-workers 1 --type bigram",
        ((200, 6400),),
        "200 steps of 32 names",
        needs=("tensorboard",),
        input=("__main__:InfiniteDataLoader.next",),
    ),
]
