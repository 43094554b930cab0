"""What a run folder holds of the environment and the command line."""

import random
import re
import shlex
import string
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from feedline.profiler.masks import is_name, is_plain
from feedline.profiler.record.privacy import (
    _ENVIRONMENT,
    MASK,
    environment,
    mask_argv,
    recorded_argv,
)

UNMASKED_ONCE = """-p --pw --pat --apitoken --creds --login --tok --license --kaggle-key --mykey --wandb --user --basic --password --token
    --api-key --hub_token --comet-key --passphrase --session --sig --cookie --note --comment --run-name --tag --entity""".split()

#: Command lines of well-known trainings, and what is recorded of each; None: all of it.
ORDINARY = {
    "timm": (
        """train.py /data/imagenet --model vit_base_patch16_224.augreg_in21k_ft_in1k -b 256 --opt adamw --opt-betas 0.9 0.999 --lr 5e-4
        --weight-decay 0.05 --sched cosine --epochs 300 --warmup-epochs 5 --aa rand-m9-mstd0.5-inc1 --reprob 0.25 --remode pixel --mixup 0.8
        --cutmix 1.0 --drop-path 0.1 --amp --amp-dtype bfloat16 --channels-last -j 8 --crop-pct 0.95 --model-ema --model-ema-decay 0.9998
        --img-size 224 --interpolation bicubic --mean 0.485 0.456 0.406""",
        None,
    ),
    "torchvision": (
        """train.py --data-path=/datasets01/imagenet_full_size/061417 --model resnet50 --batch-size 128 --lr 0.5 --lr-scheduler
        cosineannealinglr --lr-warmup-epochs 5 --lr-warmup-method linear --auto-augment ta_wide --epochs 600 --random-erase 0.1
        --norm-weight-decay 0.0 --label-smoothing 0.1 --val-resize-size 232 --ra-sampler --ra-reps 4 --device cuda:0 -p 10
        --weights ResNet50_Weights.IMAGENET1K_V2 --dist-url env:// --output-dir . --backend tensor --use-v2""",
        ("--data-path=/datasets01/imagenet_full_size/061417", "--data-path=***/061417"),
    ),
    "nanoGPT": (
        """train.py config/train_gpt2.py --batch_size=32 --compile=False --dtype=bfloat16 --block_size=1024 --learning_rate=6e-4
        --gradient_accumulation_steps=40 --out_dir=out-shakespeare-char --wandb_log=False --dataset=openwebtext --n_layer=12""",
        None,
    ),
    "run_glue": (
        """run_glue.py --model_name_or_path google-bert/bert-base-cased --task_name mrpc --do_train --max_seq_length 128
        --per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 --output_dir /tmp/mrpc/ --fp16 --report_to none
        --push_to_hub --hub_token hf_abcdefghijklmnopqrstuvwxyz""",
        ("hf_abcdefghijklmnopqrstuvwxyz", MASK),
    ),
    "hydra": (
        """train.py model=resnet50 +trainer.max_steps=10 ~optimizer.momentum ++data.loader.num_workers=8 optimizer.betas=[0.9,0.999]
        trainer.devices=[0,1] hydra.run.dir=/home/bob/runs logger.wandb.project=thesis seed=1,2,3 -m""",
        (
            "hydra.run.dir=/home/bob/runs logger.wandb.project=thesis",
            "hydra.run.dir=***/runs logger.wandb.project=***",
        ),
    ),
    "Lightning CLI": (
        """main.py fit --trainer.max_epochs=10 --trainer.accelerator gpu --trainer.devices 2 --model.encoder_layers 12
        --trainer.precision bf16-mixed --optimizer torch.optim.AdamW --optimizer.lr=1e-3 --data.batch_size 64 --config configs/default.yaml
        --trainer.logger.save_dir ../lightning_logs --lr_scheduler CosineAnnealingLR""",
        None,
    ),
    "JSON": (
        """train.py --deepspeed {"zero_optimization":{"stage":3,"offload":true},"lr":0.001,"note":"thesis"} --opts lr=0.1,name=thesis""",
        ('"note":"thesis"} --opts lr=0.1,name=thesis', '"note":"***"} --opts lr=0.1,name=***'),
    ),
}
TOKENS = [
    "ghp_" + "a1B2" * 9,
    "hf_" + "aBcD" * 9,
    "sk-ant-api03-" + "a1B2" * 10,
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "correct horse battery staple",
    "hunter2hunter2",
    "Adam!2024",
    "adam1985",
    "4111-1111-1111-1111",
    "0123456789abcdef0123456789abcdef01234567",
    "c2VjcmV0cGFzc3dvcmQ=",
    "10.20.30.40",
    "gpu07.cluster.example.org",
    "bob@example.org",
    "GPU-8f3c2a10-77aa-4e0b-9d2e-0f5f1c8f2c11",
]


def is_harmless(text):
    return is_name(text) or is_plain(text)


def is_mixed(text):
    return (
        any(one.islower() for one in text)
        and any(one.isupper() for one in text)
        and any(one.isdigit() for one in text)
    )


#: At least eight characters with lower and upper case and digits next to each other, as generated
#: passwords and keys have; not what would be an option, and not what chance makes like a name, or
#: like a list of numbers and known words: ``AaAaAaA0``, ``000:LL/a``.
tokens = st.text(
    string.ascii_letters + string.digits + "+/._~!$%^*@#=-,:;|?&", min_size=8, max_size=40
).filter(
    lambda text: (
        not text.startswith("-")
        and any(
            is_mixed(run) and not is_harmless(run) for run in re.findall("[A-Za-z0-9]{6,}", text)
        )
    )
)
names = st.from_regex(r"[a-z][a-z0-9]{0,12}([-_.][a-z0-9]{1,12}){0,3}", fullmatch=True)


@pytest.mark.parametrize("option", UNMASKED_ONCE)
@pytest.mark.parametrize("secret", ["x7Kq2Zp9", "bob:x7Kq2Zp9", "swordfish", *TOKENS])
def test_what_is_not_plainly_harmless_is_masked_after_any_option(option, secret):
    assert mask_argv(["train.py", option, secret, "--epochs", "3"]) == [
        "train.py",
        option,
        MASK,
        "--epochs",
        "3",
    ]
    assert mask_argv(["train.py", f"{option}={secret}"]) == ["train.py", f"{option}={MASK}"]


def test_a_value_that_touches_its_option_is_masked():
    assert mask_argv(["train.py", "-px7Kq2Zp9", "-j4", "-Dkey=x7Kq2Zp9", "-O2"]) == [
        "train.py",
        "-p***",
        "-j4",
        "-Dkey=***",
        "-O2",
    ]


@pytest.mark.parametrize(
    "option",
    "--pin --pass --pwd --token --license --user --login --api-keys --access_token "
    "--dbPassword".split(),
)
def test_a_plain_number_or_word_is_masked_after_a_name_that_says_it_is_private(option):
    assert mask_argv(["train.py", option, "4711", "adam", "--epochs", "3"]) == [
        "train.py",
        option,
        MASK,
        MASK,
        "--epochs",
        "3",
    ]
    assert mask_argv(["train.py", f"{option}=4711"]) == ["train.py", f"{option}={MASK}"]


@pytest.mark.parametrize("name", ["token", "hub.token", "pin", "PIN", "cfg.user"])
@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("N=87654321", "N=***"),
        ("+N=adam", "+N=***"),
        ("N=='87654321'", "N=***"),
        ("N=[4711,87654321]", "N=***"),
        ("lr=0.1,N=87654321", "lr=0.1,N=***"),
        ("lr=0.1,N=[4711,87654321],b=1", "lr=0.1,N=***,***,b=1"),
        ("lr=0.1 N = 87654321 b=1", "lr=***"),
        ("N:87654321", MASK),
        ("{N: 87654321}", MASK),
        ("{'N': 87654321}", MASK),
        ('{"N": 87654321, "lr": 0.1}', '{"N":"***","lr":0.1}'),
        ('{"N": [4711, 87654321], "lr": 0.1}', '{"N":["***","***"],"lr":0.1}'),
    ],
)
def test_a_plain_number_or_word_is_masked_after_such_a_name_within_an_argument(name, value, kept):
    value, kept = value.replace("N", name), kept.replace("N", name)

    assert mask_argv(["train.py", value, f"--opts={value}"]) == [
        "train.py",
        kept,
        f"--opts={kept}",
    ]


@pytest.mark.parametrize(
    "value", ["cuda:0", "tokens=512", '{"max_tokens": 512}', "pin_memory=True", "keys_per_step=8"]
)
def test_a_plain_number_stays_after_any_other_name_within_an_argument(value):
    assert mask_argv(["train.py", value, f"--opts={value}"]) == [
        "train.py",
        value,
        f"--opts={value}",
    ]


@pytest.mark.parametrize(
    "option",
    "--max-tokens --key-frames --tokenizer --num_tokens --user-batches --pin-memory "
    "--pass-rate".split(),
)
def test_a_plain_number_stays_after_any_other_name(option):
    assert mask_argv(["train.py", option, "512", f"{option}=512"]) == [
        "train.py",
        option,
        "512",
        f"{option}=512",
    ]


@pytest.mark.parametrize("length, at_most", [(8, 10), (12, 0), (20, 0)])
def test_hardly_a_token_made_by_chance_is_plainly_harmless(length, at_most):
    chance = random.Random(length)
    made = (
        "".join(chance.choices(string.ascii_letters + string.digits, k=length))
        for _ in range(20_000)
    )

    assert sum(map(is_plain, made)) <= at_most


@example("lr", "0000A00a")
@example("a", "0000Aaa0")
@given(names, tokens)
def test_no_token_is_left_of_any_option(name, token):
    shapes = [
        [f"--{name}", token],
        [f"--{name}={token}"],
        [f"-{name[0]}", token],
        [f"-{name[0]}{token}"],
        [token],
        [f"{name}={token}"],
    ]
    shapes += [
        [f'{{"{name}": "{token}"}}'],
        [f'{{"{token}": 1}}'],
        [f"{name}=[{token},sgd]"],
        [f"https://host/{token}?{name}={token}"],
    ]

    assert not [shape for shape in shapes if token in " ".join(mask_argv(["train.py", *shape]))]


@pytest.mark.parametrize("training", ORDINARY)
def test_the_command_line_of_a_known_training_stays_readable(training):
    command, changed = ORDINARY[training]
    expected = " ".join(command.split()).replace(*changed) if changed else " ".join(command.split())

    assert " ".join(mask_argv(command.split())) == expected


def test_paths_below_the_working_directory_are_relative_and_others_lose_their_folders(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/bob")
    monkeypatch.setenv("USER", "bob")
    for folder in ("sets/birds", "bob/birds", "aZ7xok4JQIx"):
        (tmp_path / folder).mkdir(parents=True)
    told = {
        f"{tmp_path}/sets/birds": "sets/birds",
        "./sets/birds": "sets/birds",
        "bob/birds": "***/birds",
        "aZ7xok4JQIx": MASK,
        "sets/fish": MASK,
        "sets/fish.yaml": "***.yaml",
        "/home/bob": "~",
        "/home/bob/imagenet": "~/***/imagenet",
        "/home/bob/thesis.tar.gz": "~/***.tar.gz",
        "/scratch/bob/best.pt": "***/best.pt",
        "/scratch/bob": MASK,
        "../other/train": "***/train",
        "/dev/shm": "/dev/shm",
    }

    assert mask_argv(["train.py", *told]) == ["train.py", *told.values()]


@pytest.mark.parametrize("folder", ["/", "/home"])
def test_a_working_directory_that_home_folders_lie_in_hides_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", "/home/bob")

    assert mask_argv(["train.py", "/home/bob/imagenet", "/home/alice/imagenet"]) == [
        "train.py",
        "~/***/imagenet",
        "***/imagenet",
    ]


def test_the_script_is_named_with_its_folders_below_the_working_directory_and_without_others(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    assert [
        mask_argv([name])
        for name in (
            f"{tmp_path}/tools/my_run.py",
            "/home/bob/my_run.py",
            "./my_run.py",
            "pkg.train",
        )
    ] == [
        ["tools/my_run.py"],
        ["my_run.py"],
        ["my_run.py"],
        ["pkg.train"],
    ]


@pytest.mark.parametrize(
    ("way", "kept"),
    [
        ("all", ["/x/train.py", "-p", "x7Kq2Zp9"]),
        ("masked", ["train.py", "-p", MASK]),
        ("none", ["train.py"]),
    ],
)
def test_how_much_is_recorded_is_for_the_user_to_say(way, kept):
    assert recorded_argv(["/x/train.py", "-p", "x7Kq2Zp9"], way) == kept


@pytest.mark.parametrize("way", ["all", "masked", "none"])
def test_a_word_that_the_program_made_a_path_is_recorded_as_text(way):
    words = [Path("/x/train.py"), Path("configs/vit.yaml"), 3]

    assert recorded_argv(words, way) == recorded_argv(list(map(str, words)), way)


texts = st.one_of(
    st.text(max_size=30),
    st.text("ab=:&?-_/@\"' .key*token{}[]0", max_size=40),
    st.sampled_from(TOKENS),
)


@given(st.lists(texts))
@example(["", "-A0A"])
@example(["", "-Asecret", "-pA0A", "word"])
def test_masking_keeps_the_number_of_arguments_and_masking_again_changes_nothing(argv):
    once = mask_argv(argv)

    assert len(once) == len(argv)
    assert mask_argv(once) == once


def test_a_long_argument_is_masked_in_time_that_grows_with_its_length_not_its_square():
    def spent(length: int) -> float:
        began = time.process_time()
        for piece in (
            "a",
            "a=",
            "--a ",
            "a://",
            "key:",
            "-",
            "a:",
            "a.",
            "eyJ-",
            "bearer ",
            "token  ",
            "'",
            "://a:b",
            "aA",
            "1",
            "[",
            "{",
        ):
            mask_argv(
                ["train.py", piece * length, "https://" + piece * length, "--" + piece * length]
            )
        return time.process_time() - began

    assert spent(24_000) < max(9 * spent(6_000), 0.5)


def test_only_variables_of_the_list_are_recorded():
    told = environment(
        {
            "RANK": "3",
            "OMP_NUM_THREADS": "4",
            "WANDB_API_KEY": "0123abcd",
            "HOME": "/home/me",
            "SLURM_JOB_USER": "me",
        }
    )

    assert told == {"OMP_NUM_THREADS": "4", "RANK": "3"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "PYTORCH_CUDA_ALLOC_CONF",
            "max_split_size_mb:128,expandable_segments:True,garbage_collection_threshold:0.8",
        ),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("OMP_PLACES", "{0:4}:4:4"),
        ("GOMP_CPU_AFFINITY", "0-3"),
        ("NCCL_SOCKET_IFNAME", "eth0,ib1"),
        ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1"),
        ("NCCL_ALGO", "Ring,Tree"),
        ("TORCH_LOGS", "+dynamo,graph_breaks,recompiles"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("SLURM_JOB_ID", "12345678"),
    ],
)
def test_a_listed_variable_keeps_a_value_of_numbers_and_known_words(name, value):
    assert environment({name: value}) == {name: value}


@given(st.sampled_from(sorted(_ENVIRONMENT)), tokens)
def test_a_listed_variable_with_any_other_value_is_masked(name, token):
    assert environment({name: token}) == {name: MASK}


@pytest.mark.parametrize("token", TOKENS)
def test_a_listed_variable_with_free_text_is_masked(token):
    assert environment({"TORCH_LOGS": token}) == {"TORCH_LOGS": MASK}
    assert "TORCHELASTIC_RUN_ID" not in environment({"TORCHELASTIC_RUN_ID": token})


@given(st.text("0123456789abcdef", min_size=16, max_size=64), st.sampled_from(["", "-", "_", "/"]))
def test_a_digest_is_not_plain(digest, between):
    assume(sum(map(digest.count, "abcdef")) > 2)

    assert not is_plain(between.join([digest[:8], digest[8:12], digest[12:]]))


def test_a_quoted_argument_reads_as_it_was_typed():
    assert mask_argv(shlex.split("train.py --betas '(0.9, 0.999)' --note 'my thesis'")) == [
        "train.py",
        "--betas",
        "(0.9, 0.999)",
        "--note",
        MASK,
    ]
