"""Options and commands by the names that they once had: hidden, and the same."""

import argparse

import pytest
from test_help import pages

from feedline.cli.arguments import bandwidth
from feedline.cli.commands import HIDDEN, parsed
from feedline.cli.parser import OldName
from feedline.cli.scale import noise_of

OLD = {
    "run --detail 7 train.py": "run --sample-interval 7 train.py",
    "run --window 20:5 train.py": "run --torch-profiler 20:5 train.py",
    "report runs/a --link-gbps 25": "report runs/a --link-bandwidth 25GB/s",
    "compare --data photos --only pillow-v1": "compare --data photos --loaders pillow-v1",
    "compare --data photos --limit 9": "compare --data photos --max-images 9",
    "probe --only read,decode": "probe --parts read,decode",
    "scale --table 1=100,2=190": "scale --throughput 1=100,2=190",
    "scale --throughput 1=100 --batch 8": "scale --throughput 1=100 --batch-size 8",
    "ingest a.json --limit 9": "ingest a.json --max-events 9",
    "converge advise runs/a --workers 1,2": "converge advise runs/a --ranks 1,2",
    "converge verify --fix warmup=1ep --from a.pt -- train.py": "converge verify --fix warmup=1ep --checkpoint a.pt -- train.py",
    "verify --fix warmup=1ep --from a.pt -- train.py": "verify --fix warmup=1ep --checkpoint a.pt -- train.py",
}


def asked(line: str) -> dict[str, object]:
    """What a command line comes to."""
    found = vars(parsed(line.split()))
    return {**found, "act": found["act"].__func__}


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_both_names_ask_for_the_same(old, new):
    assert asked(old) == asked(new)


def test_every_old_name_is_tried_and_none_is_shown():
    for command, parser in pages().items():
        for action in parser._actions:
            if isinstance(action, OldName):
                (old,) = action.option_strings
                assert any(line.startswith(f"{command} ") and f" {old} " in line for line in OLD), (command, old)
                assert old not in parser.format_help().replace("--batch-size", "")
    assert not set(HIDDEN) & {line.split()[0] for line in pages()[""].format_help().splitlines() if line.startswith("  ")}


def test_the_noise_scale_with_its_steps_in_one_word_still_works():
    old, new = parsed(["scale", "--noise-scale", "4096:3000"]), parsed(["scale", "--noise-scale", "4096", "--min-steps", "3000"])

    assert noise_of(old) == noise_of(new) != noise_of(parsed(["scale", "--noise-scale", "4096"]))


@pytest.mark.parametrize("text", ["25GB/s", "200Gbit/s", "200Gb/s", "200Gbps", "25 GB/s", "25e9B/s", "0.025TB/s", "25000MB/s"])
def test_a_bandwidth_is_bytes_whatever_its_unit(text):
    assert bandwidth(text) == pytest.approx(25e9)


@pytest.mark.parametrize("text", ["25", "25GB", "GB/s", "25 G", "1.2.3GB/s", "1e400GB/s", "-1GB/s", "0Gbit/s", "nanGB/s"])
def test_a_bandwidth_without_a_unit_or_a_number_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        bandwidth(text)
