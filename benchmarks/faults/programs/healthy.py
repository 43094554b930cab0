"""Trainings without a fault, of several kinds.

healthy.py --kind text --steps 100 [FOLDER]
"""

import pathlib
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchvision import transforms
from training import Timers, options


class Photos(Dataset):
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(96),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )

    def __init__(self, given):
        self.files, self.count = sorted(given.folder.iterdir()), given.batch * given.steps

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(
            Image.open(self.files[index % len(self.files)]).convert("RGB")
        ), index % 10


class Lines(IterableDataset):
    """A stream of texts, which each worker cuts into numbers."""

    def __init__(self, given):
        self.count, self.text = (
            given.batch * given.steps,
            "the quick brown fox jumps over the lazy dog. " * 4,
        )

    def __iter__(self):
        for number in range(self.count):
            numbers = [ord(character) % 96 for character in self.text[number % 40 :][:128]]
            yield torch.tensor(numbers)


class Rows(Dataset):
    """Of a memory map that is in the page cache."""

    def __init__(self, given):
        self.count, self.map = (
            given.batch * given.steps,
            np.memmap(next(given.folder.iterdir()), np.uint8, "r"),
        )
        self.map[::4096].sum()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.from_numpy(self.map[index * 512 : index * 512 + 512].copy()).float() / 255


class Chunked(Dataset):
    """Of an HDF5 file with a chunk for each sample."""

    def __init__(self, path, count):
        import h5py

        with h5py.File(path, "w") as file:
            made = file.create_dataset("rows", (count, 512), "f4", chunks=(1, 512))
            made[:] = np.random.default_rng(0).random((count, 512), np.float32)
        self.path, self.count, self.file = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import h5py

        self.file = self.file or h5py.File(self.path)
        return torch.from_numpy(self.file["rows"][index])


def perceptron(width, classes):
    return nn.Sequential(
        nn.Linear(width, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
    )


def supervised(model, batches, given, loss, accumulate=1):
    """Any loop of one model."""
    optimizer, timers = torch.optim.AdamW(model.parameters(), 1e-4, fused=True), Timers()
    for _ in range(given.epochs):
        for number, batch in enumerate(timers.over(batches)):
            (loss(model, batch) / accumulate).backward()
            if (number + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    timers.write(given.batch)


def classes(model, batch):
    return cross_entropy(model(batch[0].float()), batch[1])


def vision(given):
    import torchvision.models

    model = torchvision.models.resnet18(num_classes=10)
    supervised(
        model,
        DataLoader(Photos(given), given.batch, num_workers=1),
        given,
        lambda m, b: cross_entropy(m(b[0].float() / 255), b[1]),
    )


def text(given):
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(96, 128), nn.TransformerEncoder(layer, 2), nn.Linear(128, 96)
    )
    data = TensorDataset(torch.randint(0, 96, (given.batch * given.steps, 129)))
    loss = lambda m, b: cross_entropy(m(b[0][:, :-1]).flatten(0, 1), b[0][:, 1:].flatten())  # noqa: E731
    supervised(model, DataLoader(data, given.batch, shuffle=True), given, loss)


def tabular(given):
    data = TensorDataset(
        torch.randn(given.batch * given.steps, 40),
        torch.randint(0, 2, (given.batch * given.steps,)),
    )
    supervised(perceptron(40, 2), DataLoader(data, given.batch, shuffle=True), given, classes)


def stream(given):
    model = nn.Sequential(nn.Embedding(96, 256), nn.GRU(256, 256, batch_first=True))
    supervised(
        model,
        DataLoader(Lines(given), given.batch, num_workers=1),
        given,
        lambda m, b: m(b)[0].square().mean(),
    )


def accumulated(given):
    data = TensorDataset(
        torch.randn(given.batch * given.steps, 256),
        torch.randint(0, 10, (given.batch * given.steps,)),
    )
    supervised(
        perceptron(256, 10),
        DataLoader(data, given.batch, num_workers=1),
        given,
        classes,
        accumulate=4,
    )


def mapped(given):
    supervised(
        perceptron(512, 16),
        DataLoader(Rows(given), given.batch),
        given,
        lambda m, b: m(b).square().mean(),
    )


def gan(given):
    """Two models in turns."""
    make, judge = perceptron(64, 784), perceptron(784, 1)
    of_make, of_judge = (torch.optim.Adam(model.parameters(), 1e-4) for model in (make, judge))
    data, timers = TensorDataset(torch.rand(given.batch * given.steps, 784)), Timers()
    binary = nn.BCEWithLogitsLoss()
    for (real,) in timers.over(DataLoader(data, given.batch, shuffle=True)):
        fake = make(torch.randn(len(real), 64))
        true, false = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        of_judge.zero_grad()
        (binary(judge(real), true) + binary(judge(fake.detach()), false)).backward()
        of_judge.step()
        of_make.zero_grad()
        binary(judge(fake), true).backward()
        of_make.step()
    timers.write(given.batch)


def trainer(given):
    """Hugging Face's Trainer, with a BERT of two layers and no download."""
    import transformers

    size = {
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 1000,
    }
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**size))
    data = [
        {"input_ids": torch.randint(0, 1000, (64,)), "labels": number % 2}
        for number in range(given.batch * given.steps)
    ]
    arguments = transformers.TrainingArguments(
        "trainer",
        per_device_train_batch_size=given.batch,
        max_steps=given.steps,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    transformers.Trainer(model, arguments, train_dataset=data).train()


def lightning(given):
    """PyTorch Lightning's Trainer."""
    import pytorch_lightning

    class Perceptron(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = perceptron(256, 10)

        def training_step(self, batch, number):
            return classes(self.layers, batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-4, fused=True)

    rows = given.batch * given.steps
    data = TensorDataset(torch.randn(rows, 256), torch.randint(0, 10, (rows,)))
    pytorch_lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False
    ).fit(Perceptron(), DataLoader(data, given.batch, shuffle=True))


def chunked(given):
    with tempfile.TemporaryDirectory() as folder:
        data = Chunked(f"{folder}/rows.h5", given.batch * given.steps)
        loss = lambda m, b: m(b).square().mean()  # noqa: E731
        wide = nn.Sequential(
            nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 16)
        )
        supervised(wide, DataLoader(data, given.batch, num_workers=1), given, loss)


def agent(given):
    """Q-learning on a replay memory of tensors, from which rows are drawn by their indices."""
    model, size, timers = perceptron(32, 4), 20_000, Timers()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    states, actions, rewards = (
        torch.randn(size, 32),
        torch.randint(0, 4, (size, 1)),
        torch.rand(size),
    )
    state = torch.randn(32)
    for step in timers.over(range(given.steps)):
        with torch.no_grad():
            action = model(state[None]).argmax()
        at = step % size
        states[at], actions[at], rewards[at] = state, action, float(action) / 4
        state = state.roll(1)
        drawn = torch.randint(0, size - 1, (given.batch,))
        with torch.no_grad():
            worth = rewards[drawn] + 0.9 * model(states[drawn + 1]).amax(1)
        loss = (model(states[drawn]).gather(1, actions[drawn])[:, 0] - worth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    timers.write(given.batch)


KINDS = {
    kind.__name__: kind
    for kind in (
        *(vision, text, tabular, stream, accumulated, mapped, gan, trainer),
        *(lightning, chunked, agent),
    )
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = options(__doc__)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--kind", choices=KINDS, required=True)
    given = parser.parse_args()
    KINDS[given.kind](given)
