"""Stores that were damaged after they were whole: found, and named."""

import json
import random

import pytest

from feedline.pipelines.stores import STORE_KINDS, open_store, verify
from feedline.pipelines.stores.packed import MANIFEST_FILE, _json_crc32
from feedline.profiler.errors import FeedlineError, SchemaTooNew, StoreDamaged

kinds = pytest.mark.parametrize("kind", STORE_KINDS)
sharded = pytest.mark.parametrize("kind", ["tar", "recordio", "tfrecord"])


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << at % 8
    path.write_bytes(content)


@sharded
def test_a_flipped_bit_anywhere_in_a_sample_names_the_sample_and_its_place(kind, copied):
    store = copied(kind)
    index = open_store(store).index
    dice = random.Random(kind)
    for number in dice.sample(range(len(index)), 12):
        record = index.records[number]
        shard = store / f"data-{record['shard']:05d}.{STORE_KINDS[kind].store.writer.suffix}"
        at = int(record["start"]) + dice.randrange(int(record["stored"]))
        flip(shard, at)

        with pytest.raises(StoreDamaged) as raised:
            verify(store)

        flip(shard, at)
        assert (
            f"sample {number}, {index.path(number)} ({shard.name} from byte "
            f"{int(record['start']):,}" in str(raised.value)
        )
        assert str(raised.value).count("sample ") == 1
        assert f"pack it again with feedline pack DIR -o {store} --kind KIND -f" in str(
            raised.value
        )
    assert verify(store).samples == len(index)


@kinds
def test_a_flipped_bit_in_any_file_is_found(kind, copied):
    store = copied(kind)
    dice = random.Random(kind)
    for path in sorted(path for path in store.iterdir() if path.name != ".feedline"):
        for at in (dice.randrange(path.stat().st_size), path.stat().st_size - 1):
            flip(path, at)
            with pytest.raises((StoreDamaged, SchemaTooNew), match=str(store)):
                verify(store)
            flip(path, at)
    verify(store)


@kinds
def test_a_changed_value_in_the_index_or_the_manifest_keeps_the_store_closed(kind, copied):
    store = copied(kind)
    for name in ("index.bin", "paths.bin", MANIFEST_FILE):
        flip(store / name, 40)
        with pytest.raises(StoreDamaged, match=name):
            open_store(store)
        flip(store / name, 40)


@kinds
def test_a_cut_off_data_file_keeps_the_store_closed(kind, copied):
    store = copied(kind)
    path = max(store.glob("data*"), key=lambda path: path.stat().st_size)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 5000)

    with pytest.raises(
        StoreDamaged, match=rf"{path.name} has [\d,]+ bytes, not the [\d,]+ that were written"
    ):
        open_store(store)


@sharded
def test_a_cut_off_shard_says_from_which_sample_on_it_is_lost(kind, copied):
    store = copied(kind)
    records = open_store(store).index.records
    shard = store / f"data-00000.{STORE_KINDS[kind].store.writer.suffix}"
    with open(shard, "r+b") as file:
        file.truncate(int(records["start"][2]) + 1)
    lost = int((records["shard"] == 0).sum()) - 2

    with pytest.raises(
        StoreDamaged, match=rf"so that {lost} samples are lost, from sample 2, cat/"
    ):
        open_store(store)


@kinds
def test_a_missing_data_file_keeps_the_store_closed(kind, copied):
    store = copied(kind)
    path = next(iter(store.glob("data*")))
    path.unlink()

    with pytest.raises(StoreDamaged, match=rf"{path.name} is missing"):
        open_store(store)


def test_a_shard_that_is_cut_off_while_it_is_read_is_named_by_the_sample(copied):
    path = copied("tfrecord")
    store = open_store(path)
    with open(path / "data-00000.tfrecord", "r+b") as file:
        file.truncate(100)

    with pytest.raises(
        StoreDamaged, match=r"sample 0, cat/001.jpg: data-00000.tfrecord ends before byte"
    ):
        store[0]


def test_several_damaged_samples_are_counted(copied):
    path = copied("recordio")
    for record in open_store(path).index.records[:9]:
        flip(path / "data-00000.rec", int(record["start"]) + 50)

    with pytest.raises(StoreDamaged, match=r"; and 4 more"):
        verify(path)


def test_a_flipped_byte_in_an_lmdb_value_names_the_file_that_it_was(copied, packed):
    path = copied("lmdb")
    store = open_store(packed["lmdb"])
    at = (path / "data.mdb").read_bytes().find(store[5][0][:3000])
    flip(path / "data.mdb", at + 1000)

    with pytest.raises(
        StoreDamaged, match=rf"data.mdb: its checksum differs \(damaged: {store.name(5)}\)"
    ):
        verify(path)


def test_an_lmdb_tree_that_ends_the_process_that_walks_it_ends_another_one(copied):
    """Pages of zeros in place of the tree: the verification says so, and lives."""
    path = copied("lmdb")
    content = bytearray((path / "data.mdb").read_bytes())
    for page in range(2, len(content) // 4096):
        if content[page * 4096 + 10] in (1, 2):  # P_BRANCH, P_LEAF of lmdb.h
            content[page * 4096 + 16 : page * 4096 + 64] = b"\xff" * 48
    (path / "data.mdb").write_bytes(content)

    with pytest.raises(StoreDamaged, match="data.mdb: its checksum differs"):
        verify(path)


def test_a_store_by_a_newer_feedline_says_so(copied):
    store = copied("tar")
    manifest = json.loads((store / MANIFEST_FILE).read_text()) | {"feedline_store": 99}
    del manifest["crc32"]
    (store / MANIFEST_FILE).write_text(json.dumps({**manifest, "crc32": _json_crc32(manifest)}))

    with pytest.raises(SchemaTooNew, match="by a newer feedline"):
        open_store(store)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"3", b'{"feedline_store": "x", "crc32": 1}', b"\xff\xfe"],
)
def test_a_manifest_of_something_else_is_refused(content, copied):
    store = copied("tar")
    (store / MANIFEST_FILE).write_bytes(content)

    with pytest.raises(StoreDamaged, match=MANIFEST_FILE):
        open_store(store)


def test_there_being_nothing_is_said(tmp_path):
    with pytest.raises(FeedlineError, match="neither a store nor an image folder"):
        open_store(tmp_path / "nothing")
