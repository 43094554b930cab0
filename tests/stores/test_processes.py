"""A store that was opened once is read in threads, and in processes that were forked or spawned
after it was read from.
"""

import gc
import multiprocessing
import os
import pickle
import shutil
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from stores.conftest import SHARD_BYTES

from feedline.pipelines.stores import STORE_KINDS, open_store, pack
from feedline.pipelines.stores.lmdb import _SHARED_ENVIRONMENTS
from feedline.profiler.errors import StoreDamaged

kinds = pytest.mark.parametrize("kind", [*STORE_KINDS, "files"])


def opened(kind, packed, folder):
    return open_store(folder if kind == "files" else packed[kind])


def sums(store) -> list[int]:
    return [zlib.crc32(store[number][0]) for number in range(len(store))]


def send_sums(store, pipe) -> None:
    pipe.send(sums(store))


def in_process(store, method: str, send=send_sums) -> list[int]:
    context = multiprocessing.get_context(method)
    mine, theirs = context.Pipe()
    process = context.Process(target=send, args=(store, theirs))
    process.start()
    theirs.close()
    try:
        return mine.recv()
    finally:
        process.join()
        mine.close()


@kinds
def test_a_forked_process_reads_the_same_and_leaves_the_parents_store_open(kind, packed, folder):
    store = opened(kind, packed, folder)
    expected = sums(store)

    assert in_process(store, "fork") == expected
    assert sums(store) == expected


def send_whether_open(store, pipe) -> None:
    pipe.send([one.is_open for one in _SHARED_ENVIRONMENTS.values()])


def test_an_lmdb_environment_is_not_used_across_a_fork(packed):
    """LMDB forbids it; the child opens one of its own once it reads."""
    store = open_store(packed["lmdb"])
    store[0]

    assert in_process(store, "fork", send_whether_open) == [False]
    assert [one.is_open for one in _SHARED_ENVIRONMENTS.values()] == [True]


@kinds
def test_a_spawned_process_reads_the_same(kind, packed, folder):
    store = opened(kind, packed, folder)
    expected = sums(store)

    assert in_process(store, "spawn") == expected


@kinds
def test_many_threads_read_the_same(kind, packed, folder):
    store = opened(kind, packed, folder)

    with ThreadPoolExecutor(8) as threads:
        several = list(threads.map(lambda _: sums(store), range(8)))

    assert several == [sums(opened(kind, packed, folder))] * 8


@kinds
def test_closing_takes_no_file_from_under_a_thread_that_reads(kind, packed, folder):
    """A number of a file that was closed may be another file's by the next call."""
    store = opened(kind, packed, folder)
    expected = sums(store)
    ended = threading.Event()

    def close() -> None:
        while not ended.is_set():
            store.close()

    with ThreadPoolExecutor(5) as threads:
        closing = threads.submit(close)
        several = [threads.submit(lambda: [sums(store) for _ in range(20)]) for _ in range(4)]
        wait(several)
        ended.set()

    assert closing.exception() is None
    assert all(one.result() == [expected] * 20 for one in several)


@kinds
def test_two_stores_on_one_folder_do_not_close_each_other(kind, packed, folder):
    one, other = opened(kind, packed, folder), opened(kind, packed, folder)
    expected = sums(one)

    one.close()

    assert sums(other) == expected
    assert sums(one) == expected, "a closed store opens its files again"


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_a_store_that_another_one_has_replaced_is_never_mixed_with_it(kind, folder, tmp_path):
    """The old index says where the samples of the old files are, and what they show."""
    fewer, place = tmp_path / "fewer", tmp_path / "store"
    shutil.copytree(folder, fewer)
    for image in sorted(fewer.rglob("*.jpg"))[::2]:
        image.unlink()
    pack(folder, place, kind, shard_bytes=SHARD_BYTES)
    old = open_store(place)
    first = old[0]

    pack(fewer, place, kind, shard_bytes=SHARD_BYTES, force=True)

    new = open_store(place)
    assert sums(new) == sums(open_store(fewer))
    assert old[0] == first, "its file stays open"
    old.close()
    with pytest.raises(StoreDamaged, match="was replaced after it was opened: open it again"):
        old[0]
    assert new[0] == open_store(fewer)[0]


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_a_store_whose_manifest_has_another_number_by_now_stands(kind, folder, tmp_path):
    """As on sshfs, which numbers files anew."""
    place = tmp_path / "store"
    pack(folder, place, kind, shard_bytes=SHARD_BYTES)
    store = open_store(place)
    manifest = place / "manifest.json"
    shutil.copy(manifest, tmp_path / "again")
    os.replace(tmp_path / "again", manifest)

    assert sums(store) == sums(open_store(place))


@kinds
def test_a_pickle_holds_no_data(kind, packed, folder):
    store = opened(kind, packed, folder)
    store[0]

    assert len(pickle.dumps(store)) < 8192


@kinds
def test_a_store_that_is_dropped_leaves_no_file_open(kind, packed, folder):
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    store = opened(kind, packed, folder)
    sums(store)

    del store
    gc.collect()

    assert sorted(os.listdir("/proc/self/fd")) == before
