"""What comes out of a store is what went in."""

import json
import os
import pickle
from pathlib import Path

import pytest

from feedline.pipelines.photos import Photo, Photos
from feedline.pipelines.stores import STORE_KINDS, open_store, pack, verify
from feedline.pipelines.stores.image_folder import list_folder
from feedline.pipelines.stores.packing import _needed_bytes

kinds = pytest.mark.parametrize("kind", STORE_KINDS)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".feedline"}


@kinds
def test_every_file_comes_back_byte_by_byte_with_its_class_and_path(kind, folder, packed):
    store = open_store(packed[kind])
    originals = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jpg")}

    assert {store.name(number): store[number][0] for number in range(len(store))} == originals
    for number in range(len(store)):
        assert store.classes[store[number][1]] == Path(store.name(number)).parts[0]


@kinds
def test_samples_have_the_order_of_the_folder(kind, folder, packed):
    import torchvision

    theirs = torchvision.datasets.ImageFolder(str(folder))
    store = open_store(packed[kind])

    assert store.classes == theirs.classes
    mine = [(str(folder / store.name(number)), store[number][1]) for number in range(len(store))]
    assert mine == theirs.samples


def test_the_folder_itself_reads_as_a_store_does(folder, packed):
    store, itself = open_store(packed["tar"]), open_store(folder)

    assert [store[number] for number in range(len(store))] == [
        itself[number] for number in range(len(itself))
    ]
    assert [store.name(number) for number in range(len(store))] == [
        itself.name(number) for number in range(len(itself))
    ]


@kinds
def test_places_count_from_the_end_too_and_stop_there(kind, packed):
    store = open_store(packed[kind])

    assert store[-1] == store[len(store) - 1]
    with pytest.raises(IndexError, match=f"sample {len(store)} of {len(store)}"):
        store[len(store)]
    with pytest.raises(IndexError):
        store[-len(store) - 1]


@kinds
def test_packing_twice_gives_the_same_bytes(kind, folder, packed, tmp_path):
    again = pack(folder, tmp_path / "again", kind, shard_bytes=60_000)

    assert files(again.path) == files(packed[kind])


@kinds
def test_a_store_that_is_whole_verifies_and_says_how_much_it_read(kind, folder, packed):
    sizes = [path.stat().st_size for path in folder.rglob("*.jpg")]

    verified = verify(packed[kind])

    assert (verified.samples, verified.bytes) == (len(sizes), sum(sizes))


@kinds
def test_the_space_reckoned_is_enough_and_not_far_more(kind, folder, packed):
    stored = sum(
        path.stat().st_size
        for path in packed[kind].iterdir()
        if path.name not in ("manifest.json", ".feedline")
    )
    reckoned = _needed_bytes(list_folder(folder), STORE_KINDS[kind])

    assert (
        stored - (1 << 15) <= reckoned <= 1.25 * stored
    )  # LMDB's two first pages and branch pages come on top


@kinds
def test_packing_what_is_whole_already_does_nothing(kind, folder, packed):
    before = {path.name: path.stat().st_mtime_ns for path in packed[kind].iterdir()}

    again = pack(folder, packed[kind], kind, shard_bytes=60_000)

    assert again.resumed_at == again.samples
    assert {path.name: path.stat().st_mtime_ns for path in packed[kind].iterdir()} == before


def test_a_scanned_data_set_keeps_its_order(folder, tmp_path):
    paths = sorted(folder.rglob("*.jpg"), reverse=True)
    scanned = [
        Photo(str(path), number % 2, path.stat().st_size, "JPEG", 160, 120, "RGB")
        for number, path in enumerate(paths)
    ]

    store = open_store(
        pack(Photos(folder, ["a", "b"], scanned), tmp_path / "store", "recordio").path
    )

    assert [store[number] for number in range(len(store))] == [
        (path.read_bytes(), number % 2) for number, path in enumerate(paths)
    ]


def test_a_file_name_that_is_no_utf8_is_kept(folder, tmp_path):
    (tmp_path / "in" / "cat").mkdir(parents=True)
    name = os.fsdecode(b"cat/caf\xe9 \n.jpg")
    (tmp_path / "in" / name).write_bytes(next(folder.rglob("*.jpg")).read_bytes())

    names = {
        kind: open_store(pack(tmp_path / "in", tmp_path / kind, kind).path).name(0)
        for kind in STORE_KINDS
    }

    assert names == dict.fromkeys(STORE_KINDS, name)


def test_progress_names_every_file_once(folder, tmp_path):
    seen = []

    pack(folder, tmp_path / "store", "tar", progress=seen.append)

    total = len(list(folder.rglob("*.jpg")))
    assert [(entry.doing, entry.done, entry.total) for entry in seen] == [
        ("packing", number + 1, total) for number in range(total)
    ]


@kinds
def test_a_store_does_not_say_where_it_was_packed_from(kind, folder, packed):
    manifest = json.loads((packed[kind] / "manifest.json").read_text())

    assert manifest["plan"]["source"] == ""
    assert not any(str(folder).encode() in content for content in files(packed[kind]).values())


@kinds
def test_a_store_that_moved_still_opens(kind, copied, tmp_path):
    store = copied(kind).rename(tmp_path / "elsewhere")

    assert open_store(store)[3] == pickle.loads(pickle.dumps(open_store(store)))[3]
