"""Disks that are too small, before and while packing.

On a file system of its own, of a few megabytes.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from feedline.pipelines.stores import STORE_KINDS, destination, open_store, pack, packing, verify
from feedline.profiler.errors import OutputError
from feedline.profiler.files import own_folders

SIZE = 16 << 20
kinds = pytest.mark.parametrize("kind", STORE_KINDS)


@pytest.fixture
def disk(small_disk):
    return small_disk(SIZE)


def fill(disk, leave):
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with open(disk / "filler", "ab") as file:
        file.write(bytes(free - leave))


@kinds
def test_a_data_set_larger_than_the_disk_is_refused_before_anything_is_written(kind, folder, disk):
    fill(disk, 4 << 20)

    with pytest.raises(
        OutputError,
        match=r"needs 0\.\d MB more \(8\.\d MB with a margin\), but .*/disk has only 4\.\d MB free",
    ):
        pack(folder, disk / "store", kind)
    assert not (disk / "store").exists()


@kinds
def test_a_disk_that_fills_up_meanwhile_says_so_and_the_pack_goes_on_later(
    kind, folder, disk, monkeypatch
):
    monkeypatch.setattr("feedline.pipelines.stores.shards._BUFFER_BYTES", 4096)

    with pytest.raises(
        OutputError,
        match="the disk is full: free some space, then continue where it stopped with feedline pack",
    ):
        pack(
            folder,
            disk / "store",
            kind,
            progress=lambda progress: fill(disk, 65536) if progress.done == 2 else None,
        )
    (disk / "filler").unlink()

    done = pack(folder, disk / "store", kind)
    assert verify(done.path).samples == done.samples == len(open_store(folder))


def content(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


def test_a_disk_without_room_for_both_stores_keeps_the_old_one_and_tells_the_way_out(folder, disk):
    store = pack(folder, disk / "store", "tar").path
    before = content(store)
    fill(disk, 4 << 20)

    with pytest.raises(
        OutputError,
        match=r"/store needs 0\.\d MB more .* has only 4\.\d MB free: free some space, or first "
        r"remove the old store yourself .-f keeps it until the new one is complete.$",
    ) as raised:
        pack(folder, store, "recordio", force=True)

    assert raised.value.exit_code == 73
    assert content(store) == before and sorted(os.listdir(disk)) == ["filler", "store"]


@kinds
def test_a_disk_that_fills_up_while_a_store_is_replaced_keeps_the_old_one(
    kind, folder, disk, monkeypatch
):
    monkeypatch.setattr("feedline.pipelines.stores.shards._BUFFER_BYTES", 4096)
    store = pack(folder, disk / "store", "tar").path
    before = content(store)

    with pytest.raises(
        OutputError, match="/store: the disk is full, and the old store is unchanged: free some"
    ):
        pack(
            folder,
            store,
            kind,
            force=True,
            progress=lambda progress: fill(disk, 65536) if progress.done == 2 else None,
        )

    assert content(store) == before and sorted(os.listdir(disk)) == ["filler", "store"]
    (disk / "filler").unlink()
    assert pack(folder, store, kind, force=True).kind == kind


def test_a_store_that_is_a_mount_point_is_not_replaced(folder, disk):
    pack(folder, disk, "tar")
    before = content(disk)

    with pytest.raises(OutputError, match="is a mount point, and cannot be replaced"):
        pack(folder, disk, "lmdb", force=True)

    assert content(disk) == before and os.listdir(disk.parent) == [disk.name]


@pytest.fixture
def bound() -> Iterator[Callable[[Path], None]]:
    """Gives a function that mounts a folder at its own place, on the same device."""
    mounted: list[Path] = []

    def bind(folder: Path) -> None:
        done = subprocess.run(
            ["mount", "--bind", folder, folder], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"a folder cannot be mounted here: {done.stderr.strip()}")
        mounted.append(folder)

    yield bind
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_store_that_cannot_be_renamed_is_refused_before_anything_is_packed(folder, copied, bound):
    store, seen = copied("lmdb"), []
    before = content(store)
    bound(store)

    with pytest.raises(
        OutputError,
        match="cannot be replaced by another folder .Device or resource busy.: pack into another",
    ):
        pack(folder, store, "tar", force=True, progress=seen.append)

    assert not seen
    assert content(store) == before and os.listdir(store.parent) == [store.name]


def test_a_store_that_cannot_be_renamed_in_the_end_keeps_the_new_one_too(folder, copied, bound):
    store = copied("lmdb")
    before = content(store)

    with pytest.raises(
        OutputError,
        match="cannot be replaced .Device or resource busy., and is unchanged. The new store is "
        "complete, in .*/copy-lmdb.new$",
    ):
        pack(
            folder,
            store,
            "tar",
            force=True,
            progress=lambda progress: bound(store) if progress.done == 2 else None,
        )

    assert content(store) == before
    assert sorted(os.listdir(store.parent)) == [store.name, f"{store.name}.new"]
    assert verify(store.with_name(f"{store.name}.new")).samples == 39


def test_a_new_store_that_can_take_no_other_name_is_kept_where_the_error_says(
    folder, copied, bound
):
    store = copied("lmdb")
    names = [f"{store.name}.new{number}" for number in ("", *range(2, destination._MAX_ASIDE))]

    def take_all_names(progress) -> None:
        if progress.done == 2:
            bound(store)
            for name in names:
                store.with_name(name).touch()

    with pytest.raises(OutputError, match="The new store is complete, in ") as raised:
        pack(folder, store, "tar", force=True, progress=take_all_names)

    kept = Path(str(raised.value).rpartition(" in ")[2])
    assert verify(kept).samples == 39 and kept.name not in names


def test_a_store_has_its_name_all_the_time_while_it_is_replaced(folder, copied, monkeypatch):
    """A training that reads it opens its files when it first needs them."""
    store, rename, missing = copied("lmdb"), os.rename, []
    for name in "ab":
        (store.parent / name).mkdir()
    if not own_folders.exchange(store.parent / "a", store.parent / "b"):
        pytest.skip("this file system does not exchange names")

    def watched(path, to) -> None:
        rename(path, to)
        if not store.exists():
            missing.append((path, to))

    monkeypatch.setattr(os, "rename", watched)
    pack(folder, store, "tar", force=True)

    assert missing == [] and verify(store).samples == 39


def test_a_lower_layer_of_an_overlay_is_refused_before_anything_is_packed(
    folder, copied, small_disk
):
    store, seen = copied("lmdb"), []
    disk = small_disk(SIZE)
    for name in ("upper", "work", "merged"):
        (disk / name).mkdir()
    layers = f"lowerdir={store.parent / 'lower'},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    (store.parent / "lower").mkdir()
    store = store.rename(store.parent / "lower" / store.name)
    merged = disk / "merged"
    made = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", f"{layers},redirect_dir=off", merged],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"layers cannot be mounted here: {made.stderr.strip()}")
    try:
        with pytest.raises(OutputError, match="by another folder .Invalid cross-device link.: "):
            pack(folder, merged / store.name, "tar", force=True, progress=seen.append)

        assert not seen and os.listdir(merged) == [store.name]
    finally:
        subprocess.run(["umount", "--lazy", merged], check=True)


def test_the_margin_is_left(folder, disk):
    with pytest.raises(OutputError, match="free some space, or choose a folder on another disk"):
        packing._check_space(disk / "store", SIZE - packing._MARGIN_BYTES)
    packing._check_space(disk / "store", SIZE // 4)


def test_a_destination_that_cannot_be_written_is_an_output_error(folder, tmp_path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(OutputError, match="cannot write "):
        pack(folder, tmp_path / "file" / "store", "tar")
