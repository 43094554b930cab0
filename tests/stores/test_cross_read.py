"""Other libraries read the stores, and get the same."""

import gc
import tarfile
from pathlib import Path

import pytest

from feedline.pipelines.stores import open_store
from feedline.pipelines.stores.index import StoredSample
from feedline.pipelines.stores.lmdb import _DATA_FILE
from feedline.pipelines.stores.recordio import _RECORDIO_MAGIC, _RecordIOWriter
from feedline.pipelines.stores.tfrecord import _TFRecordWriter

SIZES = (
    0,
    1,
    2,
    3,
    4,
    5,
    127,
    128,
    129,
    16383,
    16384,
)  # around padding to 4, and where a varint gets longer


def ours(path: Path) -> list[tuple[bytes, int]]:
    store = open_store(path)
    return [store[number] for number in range(len(store))]


def shards(path: Path, suffix: str) -> list[str]:
    found = sorted(str(shard) for shard in path.glob(f"data-*.{suffix}"))
    assert len(found) > 1 or path.name == "recordio", (
        "several shards, or the order between them is not seen"
    )
    return found


@pytest.fixture
def dali():
    pytest.importorskip("nvidia.dali", reason="DALI is not installed (pip install feedline[dali])")


needs_dali = pytest.mark.usefixtures("dali")


def by_dali(reader, count: int) -> list[tuple]:
    """Run a DALI reader on the CPU over one epoch."""
    from nvidia.dali import pipeline_def

    pipeline = pipeline_def(batch_size=1, num_threads=1, device_id=None)(reader)()
    pipeline.build()
    return [tuple(output.at(0) for output in pipeline.run()) for _ in range(count)]


def mxnet(rec: list[str], idx: list[str]):
    from nvidia.dali import fn

    return lambda: tuple(fn.readers.mxnet(path=rec, index_path=idx))


def tfrecord(files: list[str], idx: list[str]):
    from nvidia.dali import fn
    from nvidia.dali import tfrecord as tf

    features = {
        "image/encoded": tf.FixedLenFeature((), tf.string, ""),
        "image/class/label": tf.FixedLenFeature([1], tf.int64, -1),
        "image/filename": tf.FixedLenFeature((), tf.string, ""),
    }
    return lambda: tuple(
        fn.readers.tfrecord(path=files, index_path=idx, features=features).values()
    )


def test_lmdb_itself_walks_through_the_keys_in_order(packed):
    import lmdb

    store = open_store(packed["lmdb"])
    expected = []
    for number in range(len(store)):
        value, label = store[number]
        for name, content in (
            ("image", value),
            ("label", b"%d" % label),
            ("path", store.name(number).encode()),
        ):
            expected.append((f"{number:010d}.{name}".encode(), content))
    store.close()
    del store

    with (
        lmdb.open(str(packed["lmdb"]), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        assert list(transaction.cursor()) == expected
    assert (packed["lmdb"] / _DATA_FILE).exists()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # webdataset leaves closing its files to the collector
def test_webdataset_reads_the_tar_files(packed):
    import webdataset

    files = shards(packed["tar"], "tar")

    samples = list(webdataset.WebDataset(files, shardshuffle=False).to_tuple("jpg", "cls", "path"))
    gc.collect()

    store = open_store(packed["tar"])
    assert [(value, int(label)) for value, label, _ in samples] == ours(packed["tar"])
    assert [path.decode() for *_, path in samples] == [
        store.name(number) for number in range(len(store))
    ]


def test_tar_files_end_as_tar_wants_them(packed):
    names = []
    for shard in shards(packed["tar"], "tar"):
        with tarfile.open(shard) as tar:
            names += tar.getnames()
        assert Path(shard).read_bytes()[-1024:] == bytes(1024)

    assert names == [
        f"{number:08d}.{ending}"
        for number in range(len(ours(packed["tar"])))
        for ending in ("jpg", "cls", "path")
    ]


@needs_dali
def test_dali_reads_the_tar_files_by_their_index(packed):
    from nvidia.dali import fn

    tars, indexes = shards(packed["tar"], "tar"), shards(packed["tar"], "idx")
    expected = ours(packed["tar"])

    read = by_dali(
        lambda: tuple(fn.readers.webdataset(paths=tars, index_paths=indexes, ext=["jpg", "cls"])),
        len(expected),
    )

    assert [(image.tobytes(), int(label.tobytes())) for image, label in read] == expected


@needs_dali
def test_dali_reads_the_recordio_files(packed):
    expected = ours(packed["recordio"])

    read = by_dali(
        mxnet(shards(packed["recordio"], "rec"), shards(packed["recordio"], "idx")), len(expected)
    )

    assert [(image.tobytes(), int(label[0])) for image, label in read] == expected


@needs_dali
def test_dali_reads_the_tfrecord_files(packed):
    expected, store = ours(packed["tfrecord"]), open_store(packed["tfrecord"])

    read = by_dali(
        tfrecord(shards(packed["tfrecord"], "tfrecord"), shards(packed["tfrecord"], "idx")),
        len(expected),
    )

    assert [(image.tobytes(), int(label[0])) for image, label, _ in read] == expected
    assert [name.tobytes().decode() for *_, name in read] == [
        store.name(number) for number in range(len(store))
    ]


@pytest.fixture
def odd_values() -> list[bytes]:
    """Every size at a boundary, and RecordIO's magic word everywhere it matters."""
    plain = [bytes(range(1, 256)) * 80 for _ in SIZES]
    return [value[:size] for value, size in zip(plain, SIZES)] + [
        _RECORDIO_MAGIC,
        _RECORDIO_MAGIC * 3,
        b"abcd" + _RECORDIO_MAGIC + b"xy",
        b"a" + _RECORDIO_MAGIC,
        b"abcd" * 5 + _RECORDIO_MAGIC,
    ]


@needs_dali
def test_dali_reads_records_of_odd_sizes_and_with_the_magic_word_inside(odd_values, tmp_path):
    rec, idx = tmp_path / "odd.rec", tmp_path / "odd.idx"
    writer, data, lines = _RecordIOWriter(tmp_path, 1, 1), b"", []
    for number, value in enumerate(odd_values):
        lines.append(f"{number}\t{len(data)}\n")
        data += b"".join(writer.frame(StoredSample(number, value, number, "x", "jpg"))[0])
    rec.write_bytes(data)
    idx.write_text("".join(lines))

    read = by_dali(mxnet([str(rec)], [str(idx)]), len(odd_values))

    assert [image.tobytes() for image, _ in read] == odd_values


@needs_dali
def test_dali_reads_examples_of_odd_sizes(odd_values, tmp_path):
    file, idx = tmp_path / "odd.tfrecord", tmp_path / "odd.idx"
    values = [
        value for value in odd_values if value
    ]  # DALI's reader has no outer shape for an empty string
    writer, data, lines = _TFRecordWriter(tmp_path, 1, 1), b"", []
    for number, value in enumerate(values):
        frame = b"".join(
            writer.frame(StoredSample(number, value, number * 100, "x" * number * 10, "jpg"))[0]
        )
        lines.append(f"{len(data)} {len(frame)}\n")
        data += frame
    file.write_bytes(data)
    idx.write_text("".join(lines))

    read = by_dali(tfrecord([str(file)], [str(idx)]), len(values))

    assert [(image.tobytes(), int(label[0])) for image, label, _ in read] == [
        (value, 100 * number) for number, value in enumerate(values)
    ]
