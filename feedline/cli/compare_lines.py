"""A program that trains with the recommended loader; it runs in the folder in which ``feedline compare`` was started."""

from pathlib import Path

#: What is compared with where no transform is named (compare.the_transform).
_USUAL = """from torchvision import transforms

transform = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])"""
_LINES = """{transform}

from feedline.pipelines.loaders.take import Taken

if __name__ == "__main__":
    loader = Taken({name!r}, {data!r}, transform, batch_size={batch_size}, workers={workers})
    for images, labels in loader:  # one epoch: replace the loop over your DataLoader with this one
        ...
"""


def lines(name: str, data: Path, spec: str | None, batch_size: object, workers: object) -> list[str]:
    """The program, line by line.

    Args:
        name: of the loader.
        spec: ``module:name`` of the user's transform; None: the usual one.
    """
    return _LINES.format(transform=_transform(spec), name=name, data=str(data), batch_size=batch_size, workers=workers).splitlines()


def _transform(spec: str | None) -> str:
    """The statements that leave ``transform``."""
    if spec is None:
        return _USUAL
    from feedline.pipelines import user_code

    module, _, name = spec.partition(":")
    return f"import {module}\n\ntransform = {module}.{name}{'()' if user_code.makes_transforms(spec) else ''}"
