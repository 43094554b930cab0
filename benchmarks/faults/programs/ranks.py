"""DistributedDataParallel on gloo: one rank is late, each in turn is, or the network is. Started
once per rank, with torchrun's variables.

ranks.py --late loader --late-ms 40
"""

import gc
import io
import pathlib
import time
import urllib.request

import torch
import torch.distributed as dist
from PIL import Image
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, DistributedSampler
from torchvision.transforms.functional import pil_to_tensor
from training import loader, options, train

SIDE = 32
LATE = ("", "loader", "large", "compute", "lengths", "even", "garbage", "together")


class Photos(Dataset):
    """JPEGs; those of one rank come from a server that answers late, or are larger."""

    def __init__(self, given):
        late = given.late == "loader" and dist.get_rank() == 1
        folder = given.large if given.late == "large" and dist.get_rank() == 1 else given.folder
        self.files, self.server = sorted(folder.iterdir()), given.server if late else ""
        self.late_ms, self.count = (
            given.late_ms,
            given.samples or given.batch * given.steps * dist.get_world_size(),
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        file = self.files[index % len(self.files)]
        if self.server:
            with urllib.request.urlopen(f"{self.server}{file.name}?ms={self.late_ms}") as answer:
                file = io.BytesIO(answer.read())
        return pil_to_tensor(Image.open(file).convert("RGB").resize((SIDE, SIDE)))


class Texts(Dataset):
    """Rows whose length varies from batch to batch, and from rank to rank."""

    def __init__(self, given):
        self.given = given

    def __len__(self):
        return self.given.batch * self.given.steps * dist.get_world_size()

    def __getitem__(self, index):
        return torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(index)) * 255


class Model(torch.nn.Module):
    """A linear layer on the pixels, wide enough for as many bytes of gradients as asked for."""

    def __init__(self, given):
        super().__init__()
        pixels = 3 * SIDE * SIDE
        self.wide = torch.nn.Linear(pixels, max(1, int(given.mb * (1 << 20) / 4 / pixels)))
        self.given, self.step = given, 0

    def forward(self, x):
        self.step += 1
        if self.given.late in ("garbage", "together"):
            self.collect()
        time.sleep(self.late_s())  # longer rows, or an evaluation that only this rank makes
        return self.wide(x.flatten(1))

    def collect(self):
        """Every fourth step: all ranks in the same one, or each in its own."""
        turn = dist.get_rank() if self.given.late == "garbage" else 0
        if self.step % 4 == 2 * turn:
            gc.collect()

    def late_s(self):
        rank, late_s = dist.get_rank(), self.given.late_ms / 1e3
        if self.given.late == "compute":
            return late_s * (rank == 1)
        if self.given.late == "lengths":
            return late_s * float(
                torch.rand((), generator=torch.Generator().manual_seed(1000 * self.step + rank))
            )
        return late_s / 2 if self.given.late == "even" else 0.0


def arguments():
    parser = options(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--late", choices=LATE, default="")
    parser.add_argument("--late-ms", type=float, default=0.0)
    parser.add_argument("--large", type=pathlib.Path, help="files of rank 1")
    parser.add_argument("--server", default="")
    parser.add_argument("--mb", type=float, default=1.0, help="of gradients")
    parser.add_argument("--heap", type=int, default=0, help="Python objects that are kept")
    parser.add_argument("--samples", type=int, default=0, help="of the dataset")
    parser.add_argument(
        "--sampler", choices=("distributed", "no_set_epoch", "whole"), default="distributed"
    )
    return parser.parse_args()


def main():
    given = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    heap = [[number] for number in range(given.heap)]
    data = Texts(given) if given.late in ("lengths", "even") else Photos(given)
    sampler = None if given.sampler == "whole" else DistributedSampler(data)
    batches = loader(data, given, sampler=sampler, shuffle=True if sampler is None else None)
    model = DistributedDataParallel(Model(given))
    word = torch.zeros(1)
    for _ in range(10):  # a logged loss would do as well: small messages tell the latency
        dist.all_reduce(word)

    def begin(epoch):
        if given.sampler == "distributed":
            sampler.set_epoch(epoch)

    train(model, batches, given, lambda batch: batch.float() / 255, begin, dist.get_world_size())
    dist.barrier()
    del heap
    del model  # a reducer that outlives its group can hang (docs/communication-recording.md)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
