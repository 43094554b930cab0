"""What the manifest says of a loader whose class is the program's own."""

import pytest
from torch.utils.data import DataLoader

from feedline.profiler.taps.loader_settings import settings


class WithDefaults(DataLoader):
    """As in many templates: a class that chooses the arguments."""

    def __init__(self, dataset):
        self.split = 0.1
        super().__init__(dataset, batch_size=2)


class OfItsOwn(DataLoader):
    def __iter__(self):
        yield from super().__iter__()


@pytest.mark.parametrize(
    ("kind", "told"), [(WithDefaults, True), (OfItsOwn, False), (DataLoader, None)]
)
def test_it_says_whether_torch_dispatches_the_batches_of_a_subclass(kind, told):
    assert settings(kind([1, 2, 3])).get("torchs_dispatch") is told
