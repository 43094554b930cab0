"""Train on JPEGs, on texts, or in steps of a length in ms, for a number of steps.

    python sampled_training.py jpeg|text|1|10 STEPS

Prints the CPU seconds of its own processes, the wall seconds of its loop, and a hash of its parameters.
"""

import hashlib
import io
import json
import resource
import sys
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
KIND, STEPS = sys.argv[1], int(sys.argv[2])
RANDOM = numpy.random.default_rng(0)
BATCH = 32


def jpeg() -> bytes:
    noise = RANDOM.integers(0, 255, (60, 80, 3), numpy.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((500, 375)).save(file, "JPEG")
    return file.getvalue()


class Photos(Dataset[torch.Tensor]):
    files = [jpeg() for _ in range(32)] if KIND == "jpeg" else []

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return torch.from_numpy(numpy.array(image.resize((64, 64)))).flatten() / 255


class Texts(Dataset[torch.Tensor]):
    lines = [json.dumps({"text": "to be or not to be that is the question " * 20})] * 8

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        words = json.loads(self.lines[index % len(self.lines)])["text"].split()
        return torch.tensor([hash(word) % 1 + len(word) for word in words], dtype=torch.float32)


def batches() -> object:
    if KIND in ("jpeg", "text"):
        data = Photos() if KIND == "jpeg" else Texts()
        return DataLoader(data, BATCH, shuffle=True, num_workers=2)
    return (torch.randn(BATCH, 256) for _ in range(STEPS))


def main() -> None:
    width = {"1": 512, "10": 2400}.get(KIND, 256)
    model = torch.nn.Sequential(
        torch.nn.LazyLinear(width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.Linear(width, 1),
    )
    optimizer = None
    begin = time.perf_counter()
    for batch in batches():
        loss = model(batch).square().mean()
        if optimizer is None:
            optimizer = torch.optim.SGD(model.parameters(), 1e-4)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    wall_s = time.perf_counter() - begin
    parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(
        json.dumps(
            {
                "wall_s": wall_s,
                "cpu_s": cpu_s(),
                "parameters": hashlib.sha256(parameters).hexdigest(),
            }
        )
    )


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
