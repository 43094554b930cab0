"""A training whose every stage takes a planted time, and that keeps its own account of it:
``slow_training.py METHOD WORKERS TRUTH``.

Knows nothing of feedline. Sleeps, so that the figures hold on a machine that is busy.
"""

import io
import json
import os
import sys
import time
from collections import defaultdict

import torch
from PIL import Image, JpegImagePlugin
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.transforms import v2

SAMPLES, BATCH = 40, 4
PLANTED_MS = {
    **{"read": 10, "decode": 30, "augment": 30, "dataset": 30, "collate": 20, "sampler": 15},
    **{"backward": 60, "optimizer": 60},
    # what recording takes is in these too
    **{"forward": 180, "loss": 180, "other": 120},
}
STAGES = ("forward", "loss", "backward", "optimizer", "other")
account: dict[str, float] = defaultdict(float)


def spend(stage: str) -> None:
    begin = time.perf_counter()
    time.sleep(PLANTED_MS[stage] / 1000)
    account[stage] += time.perf_counter() - begin


class SlowFile(io.BytesIO):
    """A file on a slow disk: reads from its beginning take long.

    There are two, for the header and for the pixels.
    """

    slow_s = 0.0

    def read(self, *args):
        begin = time.perf_counter()
        if self.tell() == 0:
            time.sleep(PLANTED_MS["read"] / 1000)
        data = super().read(*args)
        self.slow_s += time.perf_counter() - begin
        return data


class SlowJpeg(JpegImagePlugin.JpegImageFile):
    format = "SLOW"

    def load_end(self):
        time.sleep(PLANTED_MS["decode"] / 1000)
        super().load_end()


Image.register_open("SLOW", SlowJpeg)


class SlowAugment(v2.Transform):
    def transform(self, inpt, params):
        time.sleep(PLANTED_MS["augment"] / 1000)
        return inpt


class Pictures(Dataset):
    def __init__(self):
        file = io.BytesIO()
        Image.effect_noise((32, 32), 60).convert("RGB").save(file, "JPEG")
        self.jpeg = file.getvalue()
        self.transform = v2.Compose(
            [v2.PILToTensor(), SlowAugment(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        began = time.perf_counter()
        time.sleep(PLANTED_MS["dataset"] / 1000)
        times = [time.perf_counter()]
        file = SlowFile(self.jpeg)
        image = Image.open(file, formats=["SLOW"])
        header_s = file.slow_s
        times.append(time.perf_counter())
        image.load()
        times.append(time.perf_counter())
        tensor = self.transform(image)
        times.append(time.perf_counter())
        for stage, begin, end in zip(("read", "decode", "augment"), times, times[1:]):
            account[stage] += end - begin
        account["read"] += file.slow_s - header_s  # read inside load
        account["decode"] -= file.slow_s - header_s
        account["dataset"] += time.perf_counter() - began - (times[-1] - times[0])
        return tensor, index


class Collate:
    """Also where a worker writes its account down: one line per batch."""

    def __init__(self, path):
        self.path = path

    def __call__(self, samples):
        began = time.perf_counter()
        time.sleep(PLANTED_MS["collate"] / 1000)
        batch = default_collate(samples)
        account["collate"] = time.perf_counter() - began
        with open(self.path, "a") as file:
            file.write(
                json.dumps({"worker": os.getpid(), "batch": batch[1].tolist(), **account}) + "\n"
            )
        account.clear()
        return batch


class SlowSampler(torch.utils.data.BatchSampler):
    def __iter__(self):
        for batch in super().__iter__():
            spend("sampler")
            yield batch


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        spend("backward")
        return grad


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, images):
        spend("forward")
        return SlowBackward.apply(self.linear(images.mean((2, 3))))


class SlowSGD(torch.optim.SGD):
    took_s = 0.0  # the last time, without the hooks around it

    def step(self, closure=None):
        begin = time.perf_counter()
        spend("optimizer")
        super().step(closure)
        self.took_s = time.perf_counter() - begin


def main():
    method, workers, truth = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    data = Pictures()
    sampler = SlowSampler(torch.utils.data.SequentialSampler(data), BATCH, drop_last=True)
    loader = DataLoader(
        data,
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=Collate(truth + ".batches"),
        multiprocessing_context=method if workers else None,
    )
    model = Model()
    optimizer = SlowSGD(model.parameters(), 0.1)
    steps, before = [], time.perf_counter()
    for images, labels in loader:
        got = time.perf_counter()
        times = [got]
        output = model(images)
        times.append(time.perf_counter())
        spend("loss")
        loss = torch.nn.functional.cross_entropy(output, labels % 2)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(times[-1] + optimizer.took_s)
        optimizer.zero_grad()
        spend("other")
        times.append(time.perf_counter())
        parts = (end - begin for begin, end in zip(times, times[1:]))
        steps.append({"wall": times[-1] - before, "next": got - before, **dict(zip(STAGES, parts))})
        before = times[-1]
    with open(truth, "w") as file:
        planted_s = {stage: milliseconds / 1000 for stage, milliseconds in PLANTED_MS.items()}
        counts = {"samples": SAMPLES, "batches": len(loader)}
        json.dump({**counts, "planted_s": planted_s, "steps": steps}, file)


if __name__ == "__main__":
    main()
