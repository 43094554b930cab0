"""20 steps of a small training, on a GPU where there is one: ``training.py [profile STEP | cpu]``.
Prints a digest of its parameters.

profile STEP: profiles three of its own steps, from after STEP updates on.
"""

import hashlib
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    begin = int(sys.argv[2]) if sys.argv[1:2] == ["profile"] else None
    device = torch.device(
        "cuda" if torch.cuda.is_available() and sys.argv[1:] != ["cpu"] else "cpu"
    )
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(200, 16), torch.randint(0, 4, (200,)))
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    for step, (x, y) in enumerate(DataLoader(data, 10, shuffle=True)):
        if step == begin:
            own.start()
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if begin is not None and step == begin + 2:
            own.stop()
            print(
                "own trace:",
                sum(
                    event.count
                    for event in own.key_averages()
                    if event.key.startswith("Optimizer.step")
                ),
                "steps",
            )
    print(
        hashlib.sha256(
            b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
        ).hexdigest()
    )


if __name__ == "__main__":
    main()
