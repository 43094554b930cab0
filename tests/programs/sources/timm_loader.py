"""A timm model with timm's own dataset, augmentation and loader: PrefetchLoader over MultiEpochsDataLoader."""

import sys

import timm
import timm.data
import timm.utils
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

if __name__ == "__main__":
    timm.utils.random_seed(1)
    dataset = timm.data.create_dataset("", root=sys.argv[1])
    loader = timm.data.create_loader(
        dataset,
        input_size=(3, 64, 64),
        batch_size=4,
        is_training=True,
        num_workers=2,
        re_prob=0.25,
        auto_augment="rand-m3-mstd0.5",
        use_prefetcher=True,
        use_multi_epochs_loader=True,
        device=torch.device("cpu"),
    )
    model = timm.create_model("test_resnet", num_classes=2)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9)
    criterion = LabelSmoothingCrossEntropy()
    for epoch in range(2):
        model.train()
        for images, targets in loader:
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, f"{loss.item():.4f}")
