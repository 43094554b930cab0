"""Two workers that share each photograph with a thread of their own making, on CPUs that the
workers fill already. Healthy: no such thread.

The threads are the program's own: how many a library starts depends on its build and on the
processor. The first sample of each worker proves that they work, or the training fails.
"""

import contextlib
import hashlib
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

HEALTHY = "healthy" in sys.argv
BANDS, HELPERS = 8, 1
torch.set_num_threads(1)


def texture(band):
    """Some milliseconds of work on a part of the picture, without the interpreter's lock."""
    return hashlib.pbkdf2_hmac("sha256", band.tobytes(), b"", 24000)[0] / 255


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))
    pool = None

    def __len__(self):
        return 4 * 25

    def __getitem__(self, index):
        bands = np.array_split(np.asarray(Image.open(self.files[index % len(self.files)])), BANDS)
        if HEALTHY:
            return torch.tensor(list(map(texture, bands)))
        if self.pool is None:  # in the worker: threads do not survive a fork
            self.pool = ThreadPoolExecutor(HELPERS)
            process, thread = time.process_time(), time.thread_time()
            self.shared_out(bands)
            assert time.process_time() - process > 1.2 * (time.thread_time() - thread), (
                "the pool did nothing"
            )
        return torch.tensor(self.shared_out(bands))

    def shared_out(self, bands):
        """As OpenCV does it: each thread takes the next part, the calling one too."""
        left, made = list(range(BANDS)), [0.0] * BANDS

        def work():
            with contextlib.suppress(IndexError):
                while True:
                    number = left.pop()
                    made[number] = texture(bands[number])

        helpers = [self.pool.submit(work) for _ in range(HELPERS)]
        work()
        for helper in helpers:
            helper.result()
        return made


if __name__ == "__main__":
    model = torch.nn.Linear(BANDS, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in DataLoader(Photos(), batch_size=4, num_workers=2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
