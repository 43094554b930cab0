"""Small trainings whose loader is set from the command line: one for whatif_truth.py to record, many to compare with.

    whatif_training.py data/photos jpeg '{"num_workers": 2, "prefetch_factor": 2}' --seconds 6

Settings are given as JSON, one or more; each is trained with for so many seconds, in whole epochs, and a line of JSON says how it went:
samples and seconds from the end of the first step to the end of the last.

jpeg     photographs are read from files, decoded, cropped and turned: they keep two cores busy
served   small ones come from a server, which is asked over a socket and answers late
mixed    both: photographs from the server, decoded and augmented, and a step that computes as much
"""

import argparse
import io
import json
import os
import random
import socket
import struct
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIZE = 96
# else each new worker imports the formats again, unless a run without workers has imported them
# here before
Image.preinit()
PER_EPOCH = 48  # batches
#: kind -> samples per batch, width of the model, whether samples come from the server
KINDS = {"jpeg": (8, 8, False), "served": (8, 8, True), "mixed": (8, 24, True)}


class Photographs(Dataset[Any]):
    """Pictures of a folder."""

    def __init__(self, folder: Path, number: int) -> None:
        files = sorted(str(path) for path in folder.rglob("*.jpg"))
        self.files = [files[index % len(files)] for index in range(number)]
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.2, 0.2),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self.files)

    def read(self, name: str) -> bytes:
        with open(name, "rb") as file:
            return file.read()

    def __getitem__(self, index: int) -> Any:
        picture = Image.open(io.BytesIO(self.read(self.files[index]))).convert("RGB")
        return self.transform(picture), index % 10


class Served(Photographs):
    """The same from a server, to which each worker has a connection of its own."""

    port = 0

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, number)
        self._connection: tuple[int, socket.socket] | None = None

    def read(self, name: str) -> bytes:
        if self._connection is None or self._connection[0] != os.getpid():
            self._connection = os.getpid(), socket.create_connection(("127.0.0.1", self.port))
        connection, asked = self._connection[1], name.encode()
        connection.sendall(struct.pack("<I", len(asked)) + asked)
        (length,) = struct.unpack("<I", exactly(connection, 4))
        return exactly(connection, length)


def exactly(connection: socket.socket, length: int) -> bytes:
    return connection.recv(length, socket.MSG_WAITALL)


def model(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def train(
    data: Dataset[Any], kind: str, settings: dict[str, Any], seconds: float
) -> dict[str, float]:
    """Train in whole epochs until so many seconds have passed."""
    batch, width, _ = KINDS[kind]
    loader: DataLoader[Any] = DataLoader(data, batch_size=batch, shuffle=True, **settings)
    network = model(width)
    optimizer, criterion = torch.optim.SGD(network.parameters(), 0.01), nn.CrossEntropyLoss()
    begin = end = 0.0
    steps = 0
    while not begin or end - begin < seconds:
        for images, labels in loader:
            loss = criterion(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps, end = steps + 1, time.perf_counter()
            begin = begin or end
    return {"samples": (steps - 1) * batch, "seconds": end - begin}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("settings", nargs="+", type=json.loads)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument(
        "--port", type=int, default=0, help="of the server (programs/late_server.py)"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    Served.port = args.port
    dataset = (Served if KINDS[args.kind][2] else Photographs)(
        args.data, PER_EPOCH * KINDS[args.kind][0]
    )
    for settings in args.settings:
        print(json.dumps(train(dataset, args.kind, settings, args.seconds)), flush=True)


if __name__ == "__main__":
    main()
