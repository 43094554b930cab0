"""The chunks that reads of h5py and zarr touch: exactly those that hold what is selected."""

import h5py
import numpy as np
import pytest
import zarr

from feedline.profiler.events import Stage

SHAPE, CHUNKS = (10, 7), (3, 2)
CHUNK_BYTES = 3 * 2 * 4
ARRAY = np.arange(70, dtype=np.float32).reshape(SHAPE)
#: The number of the chunk that holds each value.
HOME = np.add.outer(np.arange(10) // 3 * 10, np.arange(7) // 2)
SELECTIONS = [
    4,
    -1,
    (4, 5),
    slice(2, 4),
    (slice(None), 3),
    (slice(1, 9, 4), slice(None, None, 5)),
    (Ellipsis, 6),
    Ellipsis,
    slice(4, 4),
    ([0, 1, 8], slice(None)),
    (np.array([0, 3, 9]), 2),
]


@pytest.fixture(params=["h5py", "zarr"])
def stored(request, tmp_path):
    if request.param == "zarr":
        yield zarr.create_array(str(tmp_path / "a.zarr"), data=ARRAY, chunks=CHUNKS)
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            yield file.create_dataset("x", data=ARRAY, chunks=CHUNKS, compression="gzip")


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
def test_chunks_are_those_that_hold_what_is_selected(spans, stored, selection):
    (written,) = spans(lambda: np.testing.assert_array_equal(stored[selection], ARRAY[selection]))

    assert written.stage == Stage.READ and written.nbytes == ARRAY[selection].nbytes
    assert written.extra == len(np.unique(HOME[selection])) * CHUNK_BYTES


def test_a_mask_touches_chunks_as_the_numbers_of_its_rows_do(spans, tmp_path):
    chosen = np.arange(10) % 5 == 0
    with h5py.File(tmp_path / "a.h5", "w") as file:
        (written,) = spans(lambda: file.create_dataset("x", data=ARRAY, chunks=CHUNKS)[chosen])

    assert written.extra == len(np.unique(HOME[chosen])) * CHUNK_BYTES


def test_an_array_without_chunks_unpacks_none(spans, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        (written,) = spans(lambda: file.create_dataset("x", data=ARRAY)[2:4])

    assert (written.nbytes, written.extra) == (2 * 7 * 4, 0)


def test_a_selection_of_another_kind_is_a_read_without_chunks(spans, tmp_path):
    named = np.zeros(10, [("x", "f4"), ("y", "f4")])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", data=named, chunks=(4,))
        *_, by_name = spans(lambda: dataset["y"])
        with pytest.raises(TypeError):
            spans(lambda: dataset[{}])

    assert (by_name.nbytes, by_name.extra) == (40, 0)
