"""DistributedDataParallel with one bucket of 32 MB and little to compute: backward sends it and
copies it into the gradients.
"""

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, WIDTH = 12, 2, 2048


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, 2 * WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in torch.utils.data.DataLoader(torch.randn(STEPS * BATCH, WIDTH), BATCH):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
