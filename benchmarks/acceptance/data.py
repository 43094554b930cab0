"""MNIST-1D (Greydanus, 2020, arXiv 2011.14439), made here by the package of that name; nothing is downloaded and nothing kept."""

import random
from dataclasses import asdict, dataclass
from hashlib import sha256
from types import SimpleNamespace

import numpy as np
import torch

from feedline.profiler.errors import MissingDependency


@dataclass(frozen=True)
class Recipe:
    """Arguments of ``mnist1d.data.make_dataset``: the package's defaults as of 0.0.2, fixed here, with 6,000 samples and another split."""

    num_samples: int = 6000
    train_split: float = 4096 / 6000
    template_len: int = 12
    padding: tuple[int, int] = (36, 60)
    scale_coeff: float = 0.4
    max_translation: int = 48
    corr_noise_scale: float = 0.25
    iid_noise_scale: float = 2e-2
    shear_scale: float = 0.75
    shuffle_seq: bool = False
    final_seq_length: int = 40
    seed: int = 42


@dataclass(frozen=True)
class Data:
    """Ten classes of signals.

    Attributes:
        x, x_test: float32 [samples, 1, 40].
        y, y_test: int64 [samples].
    """

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor

    def fingerprint(self) -> str:
        """Of the training samples: two tables with the same one were made from the same data."""
        return sha256(self.x.numpy().tobytes() + self.y.numpy().tobytes()).hexdigest()[:16]

    def arrays(self) -> dict[str, np.ndarray]:
        """To send to another process as copies: torch would share memory through descriptors."""
        return {name: getattr(self, name).numpy() for name in ("x", "y", "x_test", "y_test")}

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray]) -> "Data":
        """The inverse of ``arrays``."""
        return cls(**{name: torch.from_numpy(array) for name, array in arrays.items()})

    def first(self, samples: int) -> "Data":
        """The same with fewer training samples."""
        return Data(self.x[:samples], self.y[:samples], self.x_test, self.y_test)


def make(recipe: Recipe | None = None) -> Data:
    """Make the data; the random states of Python and numpy, which the generator seeds, are as before afterwards.

    Raises:
        MissingDependency: mnist1d is not installed.
    """
    try:
        from mnist1d.data import make_dataset
    except ImportError as error:
        raise MissingDependency(f"the table needs mnist1d, which generates its data ({error}): pip install 'feedline[bench]'") from error
    python, numpy = random.getstate(), np.random.get_state()
    try:
        made = make_dataset(SimpleNamespace(**asdict(recipe or Recipe())))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)

    def signals(name: str) -> torch.Tensor:
        return torch.tensor(made[name], dtype=torch.float32)[:, None]

    return Data(signals("x"), torch.tensor(made["y"]), signals("x_test"), torch.tensor(made["y_test"]))
