"""A package is run with -m, with relative imports and spawned workers whose dataset lies in it."""

import sys

import torch
from tiny import digest, network, train

from .parts import Data

if __name__ == "__main__":
    print(__name__, __package__, __spec__.name, list(sys.argv[1:]))
    digest(
        train(
            network(),
            torch.utils.data.DataLoader(
                Data(), batch_size=2, num_workers=1, multiprocessing_context="spawn"
            ),
        )
    )
