"""12 steps of a small training whose two workers are slower than the model. Prints nothing."""

import io
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, SLEEP_S = 48, 4, 0.005


class Photos(Dataset):
    def __init__(self):
        packed = io.BytesIO()
        Image.effect_noise((64, 64), 40).convert("RGB").save(packed, "JPEG")
        self.jpeg = packed.getvalue()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        time.sleep(SLEEP_S)
        image = Image.open(io.BytesIO(self.jpeg)).resize((16, 16))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(
            3, 16, 16
        ).float(), index % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(1152, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for images, labels in DataLoader(Photos(), BATCH, num_workers=2):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
