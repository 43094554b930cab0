"""All parameters are logged in every step. Twin: every 100 steps."""

import io
import logging

import torch
from training import TWIN, WIDTH, loader, train

log = logging.getLogger("training")
log.addHandler(logging.StreamHandler(io.StringIO()))
log.setLevel(logging.INFO)


def note(step, loss, model):
    if not TWIN or step % 100 == 0:
        for name, tensor in model.named_parameters():
            for row in tensor.detach().flatten()[:200].tolist():
                log.info("%s of step %d: %s", name, step, row)  # SLOW


rows = torch.utils.data.TensorDataset(torch.randn(4000, WIDTH), torch.randint(0, 10, (4000,)))
train(loader(rows), note)
