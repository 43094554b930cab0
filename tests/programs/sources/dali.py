"""Images decoded by DALI on the CPU, handed over by one of its PyTorch iterators."""

import sys

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator, LastBatchPolicy


@pipeline_def(batch_size=4, num_threads=2, device_id=None, seed=1)
def photographs(folder):
    jpegs, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="reader")
    images = fn.decoders.image(jpegs, device="cpu")
    images = fn.random_resized_crop(images, size=(32, 32))
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, mean=[128.0] * 3, std=[64.0] * 3), labels


if __name__ == "__main__":
    folder, kind = sys.argv[1:]
    options = {"reader_name": "reader", "last_batch_policy": LastBatchPolicy.PARTIAL, "auto_reset": True}
    if kind == "classification":
        loader = DALIClassificationIterator(photographs(folder), **options)
    else:
        loader = DALIGenericIterator(photographs(folder), ["data", "label"], **options)
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 2)
    )
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        samples = 0
        for [batch] in loader:
            labels = batch["label"].flatten().long()
            optimizer.zero_grad()
            criterion(model(batch["data"]), labels).backward()
            optimizer.step()
            samples += len(labels)
        print("epoch", epoch, "samples", samples)
