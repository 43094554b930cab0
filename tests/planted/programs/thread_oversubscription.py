"""Two workers whose OpenCV starts a thread on every CPU. Healthy: OpenCV with one thread."""

import pathlib
import sys

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

HEALTHY = "healthy" in sys.argv
torch.set_num_threads(1)


class Photos(Dataset):
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))

    def __len__(self):
        return 4 * 40

    def __getitem__(self, index):
        photo = cv2.imread(str(self.files[index % len(self.files)]))
        photo = cv2.bilateralFilter(photo, 9, 50, 50)
        return torch.from_numpy(cv2.resize(photo, (64, 64)))


def one_thread(worker):
    cv2.setNumThreads(0)


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 1))
    loader = DataLoader(Photos(), batch_size=4, num_workers=2, worker_init_fn=one_thread if HEALTHY else None)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    for batch in loader:
        optimizer.zero_grad()
        model(batch.float() / 255).square().mean().backward()
        optimizer.step()
