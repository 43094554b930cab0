"""Small made data in the forms that programs read: every maker is given the folder that the program
runs in.
"""

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

Maker = Callable[[Path], None]
WORDS = "the of a to in time is was that it he for as with his at be this on had not but her by which have from they".split()


def mnist(where: str, train: int = 320, test: int = 64) -> Maker:
    """Files as those of MNIST, of noise, below ``where``/MNIST/raw."""

    def make(folder: Path) -> None:
        raw = folder / where / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0)
        for name, count in (("train", train), ("t10k", test)):
            images = (
                struct.pack(">4i", 0x803, count, 28, 28)
                + noise.integers(0, 255, count * 784, np.uint8).tobytes()
            )
            labels = (
                struct.pack(">2i", 0x801, count)
                + (np.arange(count) % 10).astype(np.uint8).tobytes()
            )
            for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
                (raw / f"{name}-{kind}-ubyte").write_bytes(data)
                if count <= 1000:
                    (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))

    return make


def unet(where: str) -> Maker:
    """The configuration of a small model of diffusion."""

    def make(folder: Path) -> None:
        blocks = {
            "down_block_types": ["DownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "UpBlock2D"],
        }
        sizes = {
            "sample_size": 16,
            "block_out_channels": [16, 32],
            "layers_per_block": 1,
            "norm_num_groups": 8,
        }
        (folder / where).mkdir(parents=True, exist_ok=True)
        (folder / where / "config.json").write_text(
            json.dumps({"_class_name": "UNet2DModel", **blocks, **sizes})
        )

    return make


def rows(where: str, count: int = 200) -> Maker:
    """Rows of text as a set of the Hub."""

    def make(folder: Path) -> None:
        drawn = np.random.default_rng(0)
        lines = [json.dumps({"text": " ".join(drawn.choice(WORDS, 24))}) for _ in range(count)]
        (folder / where).mkdir(parents=True, exist_ok=True)
        (folder / where / "train.jsonl").write_text("\n".join(lines) + "\n")

    return make


def gpt2(where: str) -> Maker:
    """A GPT-2 of two layers with random weights, and a tokenizer of the made texts' words."""

    def make(folder: Path) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

        words = ["<unk>", "<eos>", *WORDS]
        tokenizer = Tokenizer(
            models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>"
        ).save_pretrained(folder / where)
        settings = GPT2Config(
            vocab_size=len(words),
            n_embd=64,
            n_layer=2,
            n_head=2,
            n_positions=128,
            bos_token_id=1,
            eos_token_id=1,
        )
        GPT2LMHeadModel(settings).save_pretrained(folder / where)

    return make


def photos(where: str, count: int, width: int = 320, height: int = 240, classes: int = 2) -> Maker:
    """A folder of JPEGs for each class, one without classes: smooth noise, which decodes at the
    cost of a photograph.
    """

    def make(folder: Path) -> None:
        from PIL import Image

        noise = np.random.default_rng(0)
        for into in [folder / where / f"class{label}" for label in range(classes)] or [
            folder / where
        ]:
            into.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                small = noise.integers(0, 255, (height // 8, width // 8, 3), np.uint8)
                Image.fromarray(small).resize((width, height)).save(
                    into / f"{number:03d}.jpg", quality=90
                )

    return make


def text(where: str, words: int = 20000, lines: int = 1, seed: int = 0) -> Maker:
    """Words of English in random order, in one file; ``lines`` of them."""

    def make(folder: Path) -> None:
        (folder / where).parent.mkdir(parents=True, exist_ok=True)
        drawn = np.random.default_rng(seed).choice(WORDS, words)
        (folder / where).write_text(
            "\n".join(" ".join(part) for part in np.array_split(drawn, lines)) + "\nO God, O God!\n"
        )  # minGPT begins with it

    return make


def command(*words: str) -> Maker:
    """A program of the repository that makes its data itself."""

    def make(folder: Path) -> None:
        import subprocess
        import sys

        subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True)

    return make


def empty(where: str) -> Maker:
    """A folder that the program expects."""
    return lambda folder: (folder / where).mkdir(parents=True, exist_ok=True)


def cora(where: str, papers: int = 1800, words: int = 32) -> Maker:
    """The files of Cora as pytorch/examples unpacks it: papers with words, a label, and who cites
    whom.
    """

    def make(folder: Path) -> None:
        into = folder / where
        into.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0)
        features = noise.integers(0, 2, (papers, words))
        labels = [f"class{number % 7}" for number in range(papers)]
        rows = [
            "\t".join([str(paper), *map(str, features[paper]), labels[paper]])
            for paper in range(papers)
        ]
        (into / "cora.content").write_text("\n".join(rows) + "\n")
        pairs = noise.integers(0, papers, (4 * papers, 2))
        (into / "cora.cites").write_text(
            "\n".join(f"{first}\t{second}" for first, second in pairs if first != second) + "\n"
        )

    return make


def planetoid(where: str, name: str = "Cora", nodes: int = 1000, words: int = 128) -> Maker:
    """Raw files of a citation graph as PyTorch Geometric reads them."""

    def make(folder: Path) -> None:
        import scipy.sparse

        raw = folder / where / name / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        noise, low, train = np.random.default_rng(0), name.lower(), 140
        features = scipy.sparse.csr_matrix(noise.integers(0, 2, (nodes, words)).astype(np.float32))
        labels = np.eye(7, dtype=np.int32)[np.arange(nodes) % 7]
        graph = {node: noise.integers(0, nodes, 4).tolist() for node in range(nodes)}
        tested = np.arange(nodes - 100, nodes)
        parts = {
            "x": features[:train],
            "tx": features[tested],
            "allx": features[: nodes - 100],
            "y": labels[:train],
            "ty": labels[tested],
            "ally": labels[: nodes - 100],
            "graph": graph,
        }
        for part, value in parts.items():
            (raw / f"ind.{low}.{part}").write_bytes(pickle.dumps(value))
        (raw / f"ind.{low}.test.index").write_text("\n".join(map(str, tested)) + "\n")

    return make


def glue(where: str, metric: str, train: int = 160, test: int = 32) -> Maker:
    """The task MRPC of GLUE as the Hub has it, and a metric of that name: equal answers."""

    def make(folder: Path) -> None:
        import pandas

        task = folder / where / "mrpc"
        task.mkdir(parents=True, exist_ok=True)
        drawn = np.random.default_rng(0)
        for name, count in (("train", train), ("validation", test), ("test", test)):
            sentences = [
                [" ".join(drawn.choice(WORDS, 12)) for _ in range(count)] for _ in range(2)
            ]
            labels = [number % 2 for number in range(count)]
            table = {
                "sentence1": sentences[0],
                "sentence2": sentences[1],
                "label": labels,
                "idx": list(range(count)),
            }
            pandas.DataFrame(table).to_parquet(task / f"{name}-00000-of-00001.parquet")
        splits = "".join(
            f"  - split: {name}\n    path: mrpc/{name}-*\n"
            for name in ("train", "validation", "test")
        )
        (folder / where / "README.md").write_text(
            f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{splits}---\n"
        )
        (folder / metric).mkdir(exist_ok=True)
        (folder / metric / f"{metric}.py").write_text(METRIC)

    return make


METRIC = """\
import datasets
import evaluate


class Equal(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(one == two for one, two in zip(predictions, references)) / len(references)}
"""


def questions(where: str, train: int = 1140, test: int = 60) -> Maker:
    """Files as those of TREC: a label of six, and a question."""

    def make(folder: Path) -> None:
        (folder / where).mkdir(parents=True, exist_ok=True)
        drawn = np.random.default_rng(0)
        for name, count in (("train_5500.label", train), ("TREC_10.label", test)):
            lines = [
                f"KIND:{number % 6} {' '.join(drawn.choice(WORDS, 9))}" for number in range(count)
            ]
            (folder / where / name).write_text("\n".join(lines) + "\n")

    return make


def bert(where: str) -> Maker:
    """A BERT of two layers with random weights and a vocabulary of the made texts."""

    def make(folder: Path) -> None:
        from transformers import BertConfig, BertForMaskedLM, BertTokenizer

        (folder / where).mkdir(parents=True, exist_ok=True)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
        (folder / where / "vocab.txt").write_text("\n".join(words) + "\n")
        tokenizer = BertTokenizer(vocab=str(folder / where / "vocab.txt"))
        tokenizer.save_pretrained(folder / where)
        settings = BertConfig(
            vocab_size=len(words),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            max_position_embeddings=128,
        )
        BertForMaskedLM(settings).save_pretrained(folder / where)

    return make


def graphs(where: str, name: str = "MUTAG", count: int = 200, nodes: int = 12) -> Maker:
    """Raw files of a set of small graphs as PyTorch Geometric reads them."""

    def make(folder: Path) -> None:
        raw = folder / where / name / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        rings = [
            (graph * nodes + one + 1, graph * nodes + (one + 1) % nodes + 1)
            for graph in range(count)
            for one in range(nodes)
        ]
        edges = [edge for one, two in rings for edge in ((one, two), (two, one))]
        lines = {
            "A": [f"{one}, {two}" for one, two in edges],
            "edge_labels": [str(one % 3) for one, _ in edges],
            "graph_indicator": [str(graph + 1) for graph in range(count) for _ in range(nodes)],
            "graph_labels": [str(1 - 2 * (graph % 2)) for graph in range(count)],
            "node_labels": [str(one % 5) for one in range(count * nodes)],
        }
        for part, values in lines.items():
            (raw / f"{name}_{part}.txt").write_text("\n".join(values) + "\n")

    return make


def masks(where: str, count: int = 20, width: int = 128, height: int = 96) -> Maker:
    """Pictures in ``where``/imgs and a mask for each in ``where``/masks."""

    def make(folder: Path) -> None:
        from PIL import Image

        noise = np.random.default_rng(0)
        for part in ("imgs", "masks"):
            (folder / where / part).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            small = Image.fromarray(noise.integers(0, 255, (height // 8, width // 8, 3), np.uint8))
            small.resize((width, height)).save(folder / where / "imgs" / f"{number:03d}.jpg")
            half = np.zeros((height, width), np.uint8)
            half[:, : width // 2] = 1
            Image.fromarray(half).save(folder / where / "masks" / f"{number:03d}_mask.png")

    return make
