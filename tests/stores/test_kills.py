"""A pack that is killed with SIGKILL anywhere goes on where it stopped, and gives the same store."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from feedline.pipelines.stores import STORE_KINDS, open_store, pack, packed, packing, verify
from feedline.pipelines.stores.index import INDEX_RECORD, Journal
from feedline.profiler.errors import OutputError, StoreDamaged
from feedline.profiler.files import own_folders

SHARD_BYTES = 60_000
CHECKPOINT_BYTES = 20_000  # two files
kinds = pytest.mark.parametrize("kind", STORE_KINDS)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_the_data_of_a_checkpoint() -> None:
    """Die between the journal and the data of the third checkpoint."""
    flush, calls = Journal.flush, []

    def third(journal: Journal) -> None:
        flush(journal)
        calls.append(1)
        if len(calls) == 3:
            die()

    Journal.flush = third


def before_the_manifest() -> None:
    packed.StoreManifest.write = lambda self, folder: die()


def in_the_middle_of_the_manifest() -> None:
    rename = os.rename
    os.rename = lambda unfinished, path: (
        die() if Path(path).name == "manifest.json" else rename(unfinished, path)
    )


def after_the_manifest() -> None:
    os.unlink = lambda path: die()


POINTS = [
    before_the_data_of_a_checkpoint,
    before_the_manifest,
    in_the_middle_of_the_manifest,
    after_the_manifest,
]


def pack_and_die(
    folder: Path,
    store: Path,
    kind: str,
    arrange: Callable[[], None] | None,
    at: int | None,
    force: bool,
) -> None:
    """In a process of its own: what ``arrange`` replaces is gone with it."""
    packing._CHECKPOINT_BYTES = CHECKPOINT_BYTES
    if arrange is not None:
        arrange()
    pack(
        folder,
        store,
        kind,
        force=force,
        shard_bytes=SHARD_BYTES,
        progress=lambda progress: die() if progress.done == at else None,
    )


def killed(
    folder: Path,
    store: Path,
    kind: str,
    arrange: Callable[[], None] | None = None,
    at: int | None = None,
    force: bool = False,
) -> None:
    process = multiprocessing.get_context("fork").Process(
        target=pack_and_die, args=(folder, store, kind, arrange, at, force)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def content(store: Path, kind: str) -> dict[str, object]:
    """All of a store's bytes; of LMDB, whose pages depend on the transactions before them, keys and
    values.
    """
    found: dict[str, object] = {
        path.name: path.read_bytes()
        for path in store.iterdir()
        if path.suffix == ".bin" or kind != "lmdb" and path.name != ".feedline"
    }
    if kind == "lmdb":
        import lmdb

        with (
            lmdb.open(str(store), readonly=True, lock=False) as environment,
            environment.begin() as transaction,
        ):
            found["entries"] = list(transaction.cursor())
    return found


@kinds
@pytest.mark.parametrize("at", [1, 14, 38])
def test_killed_after_some_files_it_goes_on_to_the_same_store(kind, at, folder, packed, tmp_path):
    killed(folder, tmp_path / "store", kind, at=at)

    done = pack(folder, tmp_path / "store", kind, shard_bytes=SHARD_BYTES)

    assert done.resumed_at <= at
    assert done.resumed_at >= at - 4, "what was checkpointed was kept"
    assert content(done.path, kind) == content(packed[kind], kind)
    assert verify(done.path).samples == done.samples


@kinds
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_delicate_point_it_goes_on_to_the_same_store(
    kind, point, folder, packed, tmp_path
):
    killed(folder, tmp_path / "store", kind, point)

    done = pack(folder, tmp_path / "store", kind, shard_bytes=SHARD_BYTES)

    assert done.resumed_at > 0
    assert content(done.path, kind) == content(packed[kind], kind)
    assert verify(done.path).samples == done.samples


@kinds
def test_killed_again_and_again_it_still_comes_to_its_end(kind, folder, packed, tmp_path):
    for at in (9, 21, 33):
        killed(folder, tmp_path / "store", kind, at=at)

    done = pack(folder, tmp_path / "store", kind, shard_bytes=SHARD_BYTES)

    assert content(done.path, kind) == content(packed[kind], kind)


@kinds
@pytest.mark.parametrize("point", [None, before_the_manifest, in_the_middle_of_the_manifest])
def test_a_store_that_is_not_whole_is_refused_and_says_how_to_go_on(kind, point, folder, tmp_path):
    killed(folder, tmp_path / "store", kind, point, at=None if point else 20)

    for attempt in (open_store, verify):
        with pytest.raises(
            StoreDamaged,
            match=rf"incomplete: packing stopped after \d+ of 39 files.*feedline pack .* --kind "
            rf"{kind}",
        ):
            attempt(tmp_path / "store")


@kinds
def test_data_that_a_loss_of_power_took_back_is_packed_again(kind, folder, packed, tmp_path):
    """The journal is on disk and the data is not: here of LMDB the last transaction, of a shard its
    last bytes.
    """
    killed(folder, tmp_path / "store", kind, before_the_data_of_a_checkpoint)
    for path in (tmp_path / "store").glob("data-*"):
        os.truncate(path, path.stat().st_size // 2)

    done = pack(folder, tmp_path / "store", kind, shard_bytes=SHARD_BYTES)

    assert content(done.path, kind) == content(packed[kind], kind)


@pytest.mark.parametrize("kind", ["tar", "recordio", "tfrecord"])
def test_blocks_that_a_loss_of_power_left_empty_are_packed_again(kind, folder, packed, tmp_path):
    """A file system may have a file's length on disk before its content: zeros are read there."""
    killed(folder, tmp_path / "store", kind, before_the_manifest)
    for path in (tmp_path / "store").glob("data-00000.*"):
        length = path.stat().st_size
        os.truncate(path, 20_000)
        os.truncate(path, length)

    done = pack(folder, tmp_path / "store", kind, shard_bytes=SHARD_BYTES)

    assert 0 < done.resumed_at < 10
    assert content(done.path, kind) == content(packed[kind], kind)


def test_a_journal_whose_end_a_loss_of_power_left_empty_is_cut_there(folder, packed, tmp_path):
    killed(folder, tmp_path / "store", "tar", at=20)
    with open(tmp_path / "store" / "index.bin", "ab") as index:
        index.write(bytes(3 * INDEX_RECORD.itemsize))

    done = pack(folder, tmp_path / "store", "tar", shard_bytes=SHARD_BYTES)

    assert content(done.path, "tar") == content(packed["tar"], "tar")


def between_the_renames() -> None:
    """Die there on a file system that does not exchange two names."""
    own_folders.exchange = lambda path, other: False
    before_the_new_name_is_left()


def before_the_new_name_is_left() -> None:
    rename = os.rename
    os.rename = lambda this, that: (
        die() if Path(this).name.startswith(".feedline-part-new-") else rename(this, that)
    )


def while_the_old_store_is_removed() -> None:
    rmdir = os.rmdir
    os.rmdir = lambda path, **options: (
        die() if "-part-new-" in str(path) or "-part-old-" in str(path) else rmdir(path, **options)
    )


def everything(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


@pytest.mark.parametrize(
    ("point", "at"),
    [(None, 1), (None, 20), (before_the_manifest, None), (in_the_middle_of_the_manifest, None)],
)
def test_killed_while_it_replaces_a_store_it_leaves_that(point, at, folder, copied):
    store = copied("lmdb")
    before = everything(store)

    killed(folder, store, "tar", point, at, force=True)

    assert everything(store) == before and len(open_store(store)) == 39
    with pytest.raises(OutputError, match="already holds a complete store .* as lmdb, not as tar"):
        pack(folder, store, "tar", shard_bytes=SHARD_BYTES)
    assert pack(folder, store, "tar", shard_bytes=SHARD_BYTES, force=True).resumed_at == 0
    assert verify(store).samples == 39 and os.listdir(store.parent) == [store.name]


def test_killed_between_the_two_renames_the_old_store_is_put_back(folder, copied):
    store = copied("lmdb")
    before = everything(store)
    killed(folder, store, "tar", between_the_renames, force=True)
    assert not store.exists()

    with pytest.raises(OutputError, match="already holds a complete store .* as lmdb, not as tar"):
        pack(folder, store, "tar", shard_bytes=SHARD_BYTES)

    assert everything(store) == before
    assert pack(folder, store, "tar", shard_bytes=SHARD_BYTES, force=True).kind == "tar"
    assert os.listdir(store.parent) == [store.name]


def test_killed_after_the_names_were_exchanged_the_next_pack_removes_the_old_store(folder, copied):
    store = copied("lmdb")
    killed(folder, store, "tar", before_the_new_name_is_left, force=True)
    assert verify(store).samples == 39 and len(os.listdir(store.parent)) == 2

    assert pack(folder, store, "recordio", shard_bytes=SHARD_BYTES, force=True).old == []

    assert verify(store).samples == 39 and os.listdir(store.parent) == [store.name]


def test_killed_while_the_old_store_is_removed_the_new_one_is_there(folder, copied):
    store = copied("lmdb")

    killed(folder, store, "tar", while_the_old_store_is_removed, force=True)

    assert verify(store).samples == 39 and not (store / "data.mdb").exists()


def test_an_unfinished_pack_does_not_go_on_with_other_data(folder, tmp_path):
    killed(folder, tmp_path / "store", "tar", at=20)
    inside = tmp_path / "other" / "cat"
    inside.mkdir(parents=True)
    (inside / "1.jpg").write_bytes(next(folder.rglob("*.jpg")).read_bytes())

    with pytest.raises(
        OutputError,
        match="holds an unfinished pack of .* as tar, not of this data .or its files have changed.: "
        "start over with -f",
    ):
        pack(tmp_path / "other", tmp_path / "store", "tar")
    assert pack(tmp_path / "other", tmp_path / "store", "lmdb", force=True).samples == 1
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [
        ".feedline",
        "data.mdb",
        "index.bin",
        "manifest.json",
        "paths.bin",
    ]


def test_an_unfinished_pack_of_the_same_data_says_that_only_the_format_differs(folder, tmp_path):
    killed(folder, tmp_path / "store", "tar", at=20)

    with pytest.raises(
        OutputError,
        match="holds an unfinished pack of this data as tar, not as recordio: start over with -f",
    ):
        pack(folder, tmp_path / "store", "recordio", shard_bytes=SHARD_BYTES)
    with pytest.raises(OutputError, match="of this data in shards of 60,000 bytes, not 50,000:"):
        pack(folder, tmp_path / "store", "tar", shard_bytes=50_000)
    assert pack(folder, tmp_path / "store", "tar", shard_bytes=SHARD_BYTES).resumed_at > 0


def test_what_was_left_out_before_the_kill_is_named_after_it(folder, tmp_path):
    data = tmp_path / "data"
    (data / "a").mkdir(parents=True)
    jpeg = next(folder.rglob("*.jpg")).read_bytes()
    for number in range(12):
        (data / "a" / f"{number:02d}.jpg").write_bytes(b"" if number == 1 else jpeg)
    killed(data, tmp_path / "store", "recordio", at=10)

    done = pack(data, tmp_path / "store", "recordio", shard_bytes=SHARD_BYTES)

    assert done.resumed_at > 2
    assert [(entry.path, entry.message) for entry in done.left_out] == [("a/01.jpg", "zero bytes")]
