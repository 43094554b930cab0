"""Reads the user's transforms, and tracks the value range of the tensor."""

from dataclasses import replace
from typing import Any

from feedline.pipelines.translate import operations as of
from feedline.pipelines.translate.operations import Operation, Unknown
from feedline.pipelines.translate.torchvision_objects import NOTHING, READERS

_FLIPS = (of.RandomHorizontalFlip, of.RandomVerticalFlip)
_LARGEST_NAME = 80  # characters of a transform's own words in a message


def _described(transform: Any) -> str:
    """The name of a transform for the user: its class, or the name and line of a function."""
    code = getattr(transform, "__code__", None)
    if code is not None:
        return f"{transform.__qualname__} (line {code.co_firstlineno})"[:_LARGEST_NAME]
    return type(transform).__name__


class Reading:
    """Fills the list ``operations``.

    Attributes:
        values: what the pixels are by now: ``image`` (PIL), ``uint8`` (a tensor, 0 to 255), ``unit`` (floats 0 to 1) or ``bytes`` (floats
            0 to 255).
    """

    def __init__(self, values: str = "image") -> None:
        self.operations: list[Operation] = []
        self.values = values
        self.mean: tuple[float, ...] | None = None
        self.std: tuple[float, ...] | None = None

    def add(self, transform: Any) -> None:
        """Read one transform, or all inside it."""
        kind, module = type(transform).__name__, type(transform).__module__
        if isinstance(transform, (list, tuple)) or (kind in ("Sequential", "ModuleList") and module.startswith("torch.nn.")):
            for inner in transform:
                self.add(inner)
        elif kind == "Identity" and module.startswith("torch.nn."):
            pass
        elif not module.startswith("torchvision.transforms."):
            why = "a function" if hasattr(transform, "__code__") else "a class that is not torchvision's own"
            self.operations.append(Unknown(_described(transform), f"{why} has no counterpart in other libraries"))
        else:
            self._torchvision(kind, transform)

    def normalisation(self) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
        """(mean, std) in units of 0 to 1."""
        if self.mean is None and self.values in ("uint8", "bytes"):
            return (0.0,), (1 / 255,)
        return self.mean, self.std

    def _torchvision(self, kind: str, transform: Any) -> None:
        if kind == "Compose":
            for inner in transform.transforms:
                self.add(inner)
        elif kind in NOTHING:
            pass
        elif kind == "ImageClassification":
            self._preset(transform)
        elif kind == "Lambda":
            self.operations.append(Unknown(f"Lambda: {_described(transform.lambd)}", "a function has no counterpart in other libraries"))
        elif kind in ("ToTensor", "PILToTensor", "ToImage", "ToPILImage", "ToDtype", "ConvertImageDtype"):
            self._convert(kind, transform)
        elif self.mean is not None and kind != "RandomErasing":
            self.operations.append(Unknown(kind, "it follows Normalize, where only RandomErasing is translated"))
        elif kind == "Normalize":
            self._normalize(transform)
        elif kind == "RandomApply":
            self._apply_some(transform)
        elif kind in READERS:
            self._append(READERS[kind](transform, self.mean is not None))
        else:
            self.operations.append(Unknown(kind, "this transform of torchvision is not translated"))

    def _append(self, operation: Operation) -> None:
        fill = getattr(operation, "fill", ())
        if isinstance(operation, (of.Resize, of.RandomResizedCrop)) and self.values == "image":
            operation = replace(operation, antialias=True)  # Pillow's resize knows nothing else
        elif any(fill) and self.values == "unit":
            operation = replace(operation, fill=tuple(value * 255 for value in fill))  # type: ignore[call-arg]
        if isinstance(operation, of.RandomErasing) and self.values in ("uint8", "bytes") and self.mean is None:
            if operation.value is None:
                operation = Unknown("RandomErasing", "it puts noise of 0 to 1 into a tensor of 0 to 255")
            else:
                operation = replace(operation, value=tuple(value / 255 for value in operation.value))
        if not isinstance(operation, (of.RandomErasing, *_FLIPS)):
            self._no_erasing_before(operation)
        self.operations.append(operation)

    def _no_erasing_before(self, operation: Operation) -> None:
        """Every translation erases last of all, which is the same only if nothing but flips would come after it."""
        late = Unknown("RandomErasing", f"{operation.name} follows it, where only flips and Normalize are translated")
        self.operations = [late if isinstance(one, of.RandomErasing) else one for one in self.operations]

    def _convert(self, kind: str, transform: Any) -> None:
        if kind == "ToPILImage":
            self.values = "image"
        elif kind == "ToTensor":
            self.values = "unit"
        elif kind in ("PILToTensor", "ToImage"):
            self.values = "uint8" if self.values == "image" else self.values
        else:
            dtype = transform.dtype
            if isinstance(dtype, dict):  # v2: one for each kind of input
                named = {getattr(key, "__name__", key): value for key, value in dtype.items()}
                dtype = named.get("Image", named.get("others"))
            scale = getattr(transform, "scale", kind == "ConvertImageDtype")
            self._to_dtype(str(dtype), bool(scale))

    def _to_dtype(self, dtype: str, scale: bool) -> None:
        if self.mean is not None or dtype == "None":
            return
        if dtype.startswith(("torch.float", "torch.bfloat", "torch.double", "torch.half")):
            if self.values in ("uint8", "image"):
                self.values = "unit" if scale else "bytes"
        elif dtype == "torch.uint8" and (scale or self.values != "unit"):
            self.values = "uint8"
        else:
            self.operations.append(Unknown(f"conversion to {dtype}", "only float types and uint8 are translated"))

    def _normalize(self, transform: Any) -> None:
        largest = 255.0 if self.values == "bytes" else 1.0
        self.mean = tuple(float(value) / largest for value in transform.mean)
        self.std = tuple(float(value) / largest for value in transform.std)

    def _preset(self, preset: Any) -> None:
        """What ``weights.transforms()`` of torchvision's models gives."""
        size = preset.resize_size
        one = size[0] if len(size) == 1 else None
        interpolation = str(getattr(preset.interpolation, "value", preset.interpolation))
        self._append(of.Resize(tuple(size) if one is None else one, interpolation))
        self._append(of.CenterCrop((preset.crop_size[0], preset.crop_size[-1])))
        self.values = "unit"
        self._normalize(preset)

    def _apply_some(self, transform: Any) -> None:
        inner = Reading(self.values)
        for one in transform.transforms:
            inner.add(one)
        if inner.mean is not None or inner.values != self.values:
            self.operations.append(Unknown("RandomApply", "it normalizes or converts only some of the images"))
        else:
            erasing = Unknown("RandomErasing", "it is inside RandomApply: use its own p")
            some = tuple(erasing if isinstance(one, of.RandomErasing) else one for one in inner.operations)
            self._append(of.RandomApply(some, float(transform.p)))
