"""A training that copies the next batch in a stream of its own while the model works, as NVIDIA's
examples do. Knows nothing of feedline.

Prints JSON.
"""

import hashlib
import json
import os
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Prefetcher:
    """Batches of the loader on the GPU, each copied while the one before is worked on."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader, self.stream = loader, torch.cuda.Stream()

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        waiting = None
        for batch in self.loader:
            with torch.cuda.stream(self.stream):
                copied = [tensor.cuda(non_blocking=True) for tensor in batch]
            if waiting is not None:
                yield waiting
            torch.cuda.current_stream().wait_stream(self.stream)
            for tensor in copied:
                tensor.record_stream(torch.cuda.current_stream())
            waiting = copied
        if waiting is not None:
            yield waiting


def main() -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as torch's notes on reproducibility ask
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 3, 64, 64), torch.randint(0, 10, (4096,)))
    loader = DataLoader(
        data, 64, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=True
    )
    layers = [
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * 15 * 15, 10),
    ]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    updates = 0
    for _ in range(2):
        for images, labels in Prefetcher(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
    digest = hashlib.sha256(
        b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()
    print(json.dumps({"digest": digest, "updates": updates}))


if __name__ == "__main__":
    main()
