"""Chest X-rays, resized to what the network takes."""

import os
import sys
import tempfile
import time

import cv2
import numpy as np
import skimage.transform
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TWIN = "--twin" in sys.argv
FOLDER = os.path.join(tempfile.gettempdir(), "xrays")
if not os.path.isdir(FOLDER):
    os.makedirs(FOLDER)
    for i in range(200):
        noise = cv2.resize(np.random.randint(0, 255, (40, 40), np.uint8), (512, 512))
        cv2.imwrite(f"{FOLDER}/{i}.png", noise)


class XRayResizer:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        if TWIN:
            return cv2.resize(image, (self.size, self.size), interpolation=cv2.INTER_AREA)
        return skimage.transform.resize(image, (self.size, self.size), mode="constant")


class XRays(Dataset):
    def __init__(self, folder, transform):
        self.files = [f"{folder}/{name}" for name in sorted(os.listdir(folder))] * 20
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = cv2.imread(self.files[index], cv2.IMREAD_GRAYSCALE) / 255.0
        return torch.from_numpy(self.transform(image)).float()[None], index % 2


model = nn.Sequential(
    nn.Conv2d(1, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 2)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(XRays(FOLDER, XRayResizer(224)), batch_size=8, shuffle=True, num_workers=1)
end = time.time() + 12
for images, labels in loader:
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if time.time() > end:
        break
print("loss", loss.item())
