"""numpy, h5py and zarr: arrays out of files."""

import inspect
import pickle

import h5py
import numpy as np
import pytest
import zarr

from feedline.profiler.events import Stage

ARRAY = np.arange(24, dtype=np.float32).reshape(4, 6)


def described(written):
    return [(span.stage, span.name, span.nbytes) for span in written]


def test_numpy_load_is_a_read_of_the_arrays_bytes(spans, tmp_path):
    np.save(tmp_path / "a.npy", ARRAY)
    loaded = []

    written = spans(lambda: loaded.append(np.load(tmp_path / "a.npy")))

    assert np.array_equal(loaded[0], ARRAY)
    assert described(written)[-1] == (Stage.READ, "numpy.load", 96)


def test_numpy_fromfile_is_a_read(spans, tmp_path):
    ARRAY.tofile(tmp_path / "a.bin")

    assert described(spans(lambda: np.fromfile(tmp_path / "a.bin", np.float32))) == [
        (Stage.READ, "numpy.fromfile", 96)
    ]


def test_members_of_an_archive_are_reads(spans, tmp_path):
    np.savez(tmp_path / "a.npz", x=ARRAY)

    def use():
        with np.load(tmp_path / "a.npz") as archive:
            assert np.array_equal(archive["x"], ARRAY)

    assert (Stage.READ, "numpy.NpzFile", 96) in described(spans(use))


def test_opening_a_memmap_reads_no_bytes_and_its_views_are_no_spans(spans, tmp_path):
    ARRAY.tofile(tmp_path / "a.bin")
    mapped = []

    written = spans(
        lambda: mapped.append(np.memmap(tmp_path / "a.bin", np.float32, "r", shape=(4, 6))[1:])
    )

    assert described(written) == [(Stage.READ, "numpy.memmap", 0)]
    assert type(mapped[0]) is np.memmap
    assert np.array_equal(mapped[0], ARRAY[1:])


def test_numpys_errors_pass(spans, tmp_path):
    def use():
        with pytest.raises(FileNotFoundError):
            np.load(tmp_path / "none.npy")

    assert described(spans(use)) == [(Stage.READ, "numpy.load", 0)]


def test_numpy_functions_keep_signature_and_pickle(taps):
    assert "mmap_mode" in inspect.signature(np.load).parameters
    assert pickle.loads(pickle.dumps(np.load)) is np.load
    assert pickle.loads(pickle.dumps(np.fromfile)) is np.fromfile


def test_h5py_slices_are_reads(spans, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = ARRAY
    read = []

    with h5py.File(tmp_path / "a.h5") as file:
        dataset = file["x"]
        written = spans(lambda: read.append(dataset[1:3]))

    assert np.array_equal(read[0], ARRAY[1:3])
    assert described(written) == [(Stage.READ, "h5py.Dataset", 48)]


def test_zarr_slices_are_reads(spans, tmp_path):
    zarr.save_array(str(tmp_path / "a.zarr"), ARRAY)
    array = zarr.open_array(str(tmp_path / "a.zarr"), mode="r")
    read = []

    written = spans(lambda: read.append(array[1:3]))

    assert np.array_equal(read[0], ARRAY[1:3])
    assert described(written) == [(Stage.READ, "zarr.Array", 48)]
