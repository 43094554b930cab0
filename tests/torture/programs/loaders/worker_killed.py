"""A worker is killed by SIGKILL, another exits by itself; the training catches both and continues
with new workers.
"""

import os
import re
import signal
import time

import torch
from tiny import Numbers, digest, loader, network, train


class Dying(Numbers):
    def __getitem__(self, index):
        if index == 5:
            time.sleep(
                0.3
            )  # the main process waits for this batch by then: torch's message depends on where it is
            if self.by_signal:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        return super().__getitem__(index)


for by_signal in (True, False):
    data = Dying()
    data.by_signal = by_signal
    try:
        for _ in torch.utils.data.DataLoader(data, batch_size=2, num_workers=2):
            pass
    except RuntimeError as error:
        print(re.sub(r"\d{2,}", "N", str(error)))
digest(train(network(), loader(num_workers=1)))
