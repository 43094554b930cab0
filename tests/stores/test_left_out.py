"""Files that cannot be packed: named and counted, skipped or refused."""

import io
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from PIL import Image

from feedline.pipelines.photos import Photo, Photos, scan
from feedline.pipelines.stores import open_store, pack
from feedline.pipelines.stores.image_folder import _image_ending, _is_cut_off
from feedline.profiler.errors import DataError, MissingDependency, OutputError
from feedline.profiler.files import owned, results


@pytest.fixture
def bad(folder, tmp_path):
    """Good files and one of every bad sort."""
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    (root / "none").mkdir()
    (root / "readme.txt").write_text("about")
    (root / "cat" / "empty.jpg").touch()
    (root / "cat" / "text.jpg").write_text("no image")
    (root / "cat" / "gone.jpg").symlink_to("nowhere")
    (root / "cat" / "error.jpg").symlink_to(
        "/proc/self/mem"
    )  # reading its first byte is an input/output error
    (root / "cat" / "loop").symlink_to("..")
    (root / "dog" / "folder.jpg").mkdir()
    os.mkfifo(root / "dog" / "pipe.jpg")
    return root


EXPECTED = {
    "cat/empty.jpg": "zero bytes",
    "cat/text.jpg": "not an image, by its content",
    "cat/gone.jpg": "No such file or directory",
    "cat/error.jpg": "cannot be read (Input/output error)",
    "dog/pipe.jpg": "not a regular file",
    "none": "a class without files",
    "readme.txt": "not in a class folder",
}


def test_every_bad_file_is_named_and_the_rest_is_packed(bad, folder, tmp_path):
    (bad / "cat" / "loop").unlink()

    done = pack(bad, tmp_path / "store", "tar")

    assert {entry.path: entry.message for entry in done.left_out} == EXPECTED
    assert done.samples == len(list(folder.rglob("*.jpg")))


def test_a_link_to_a_folder_above_ends(bad, tmp_path):
    """It is followed once, as ImageFolder would follow it for ever."""
    done = pack(bad, tmp_path / "store", "tar")

    names = [open_store(tmp_path / "store").name(number) for number in range(done.samples)]
    assert len(names) == len(set(names))


def test_a_link_to_a_folder_beside_it_is_followed_as_image_folder_does(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "data")
    (tmp_path / "data" / "cat" / "same").symlink_to("more")

    done = pack(tmp_path / "data", tmp_path / "store", "tar")

    names = [open_store(done.path).name(number) for number in range(done.samples)]
    assert {"cat/more/sp ace.jpg", "cat/same/sp ace.jpg"} <= set(names)


def test_a_link_to_itself_beside_the_class_folders_is_named(bad, tmp_path):
    (bad / "me").symlink_to("me")

    assert "me" in [entry.path for entry in pack(bad, tmp_path / "store", "tar").left_out]


def test_what_was_left_out_stays_in_the_store(bad, tmp_path):
    pack(bad, tmp_path / "store", "recordio")

    assert (
        open_store(tmp_path / "store").manifest.left_out
        == pack(bad, tmp_path / "store", "recordio").left_out
    )


def test_the_folder_as_a_store_leaves_out_the_same(bad, tmp_path):
    pack(bad, tmp_path / "store", "lmdb")
    store, itself = open_store(tmp_path / "store"), open_store(bad)

    assert [itself.name(number) for number in range(len(itself))] == [
        store.name(number) for number in range(len(store))
    ]


@pytest.mark.parametrize("path", ["cat/gone.jpg", "dog/pipe.jpg", "loose.jpg"])
def test_refusing_includes_what_is_known_to_be_bad_before_it_is_opened(path, folder, tmp_path):
    """These were left out in spite of --strict."""
    shutil.copytree(folder, tmp_path / "data")
    (tmp_path / "data" / "readme.txt").write_text("about")
    bad = tmp_path / "data" / path
    if path.startswith("cat"):
        bad.symlink_to("nowhere")
    elif path.startswith("dog"):
        os.mkfifo(bad)
    else:
        shutil.copy(next(folder.rglob("*.jpg")), bad)

    with pytest.raises(DataError, match=f"{path} cannot be packed"):
        pack(tmp_path / "data", tmp_path / "store", "tar", unreadable="refuse")
    assert not (tmp_path / "store").exists()
    bad.unlink()
    assert pack(tmp_path / "data", tmp_path / "store", "tar", unreadable="refuse").samples == 39


def test_refusing_ends_at_the_first_bad_file_and_names_it(bad, tmp_path):
    for known in ("cat/gone.jpg", "cat/error.jpg", "dog/pipe.jpg"):
        (bad / known).unlink()
    with pytest.raises(DataError, match="cat/empty.jpg cannot be packed .zero bytes"):
        pack(bad, tmp_path / "store", "tar", unreadable="refuse")


def test_a_scanned_data_set_is_packed_whole_or_not_at_all(bad, tmp_path):
    good, empty = next((bad / "dog").glob("*0.jpg")), bad / "cat" / "empty.jpg"
    photos = [Photo(str(path), 0, 1, "JPEG", 1, 1, "RGB") for path in (good, empty, good)]

    with pytest.raises(DataError, match="cat/empty.jpg cannot be packed"):
        pack(Photos(bad, ["a"], photos), tmp_path / "store", "tar")
    assert (
        pack(Photos(bad, ["a"], photos), tmp_path / "skipped", "tar", unreadable="skip").samples
        == 2
    )


def test_a_file_that_shrinks_meanwhile_is_left_out(folder, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    last = sorted(root.rglob("*.jpg"))[-1]

    done = pack(
        root,
        tmp_path / "store",
        "tar",
        progress=lambda progress: os.truncate(last, 100) if progress.done == 1 else None,
    )

    assert [entry.path for entry in done.left_out] == [str(last.relative_to(root))]
    assert "changed while it was packed: 100 bytes" in done.left_out[0].message


def test_a_folder_without_one_image_leaves_nothing_behind(tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x.jpg").write_text("no image")

    with pytest.raises(
        DataError,
        match="none of the 1 files in .* can be packed: a/x.jpg: not an image, by its content",
    ):
        pack(tmp_path / "data", tmp_path / "store", "tar")
    assert [path.name for path in (tmp_path / "store").iterdir()] == [".feedline"]


@pytest.mark.parametrize("make", ["nothing", "empty", "empty_class", "file"])
def test_a_folder_with_no_data_is_refused(make, tmp_path):
    data = tmp_path / "data"
    if make == "file":
        data.write_text("x")
    elif make != "nothing":
        (data / "a" if make == "empty_class" else data).mkdir(parents=True)

    with pytest.raises(DataError, match="one subfolder per class"):
        pack(data, tmp_path / "store", "tar")


@pytest.mark.parametrize(
    "name", ["thesis.tex", "data-2020.csv", "data-00000.tar", "film.part", "data.mdb"]
)
def test_a_folder_with_other_files_is_never_written_to(name, folder, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).write_text("x")

    for force in (False, True):
        with pytest.raises(OutputError, match="holds files that feedline did not make"):
            pack(folder, tmp_path / "store", "tar", force=force)
    assert [path.name for path in (tmp_path / "store").iterdir()] == [name]


def test_a_store_inside_of_the_data_is_refused(folder):
    with pytest.raises(OutputError, match="is inside"):
        pack(folder, folder / "store", "tar")
    assert not (folder / "store").exists()


def test_a_store_of_other_data_is_replaced_only_when_told(folder, copied):
    store = copied("tar")

    with pytest.raises(
        OutputError, match="already holds a complete store of this data as tar, not as lmdb: name"
    ):
        pack(folder, store, "lmdb")
    with pytest.raises(OutputError, match="already holds a complete store of other data as tar"):
        pack(folder / "cat", store, "tar")
    assert open_store(store).manifest.plan.kind == "tar"
    assert pack(folder, store, "lmdb", force=True).kind == "lmdb"
    assert not list(store.glob("*.tar"))


def content(store):
    return {path.name: path.read_bytes() for path in store.iterdir()}


@pytest.fixture
def spoiled(folder, tmp_path):
    """Good files, and a truncated one in the middle, which only reading it whole reveals."""
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    photo = root / "dog" / "005.jpg"
    os.truncate(photo, photo.stat().st_size // 2)
    return root


@pytest.mark.parametrize(("kind", "module"), [("lmdb", "lmdb"), ("tfrecord", "google_crc32c")])
def test_a_store_is_not_removed_where_the_library_for_the_new_one_is_missing(
    kind, module, folder, copied, monkeypatch
):
    store = copied("tar")
    before = content(store)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingDependency):
        pack(folder, store, kind, force=True)

    assert content(store) == before


def test_a_store_whose_library_is_missing_can_be_replaced(folder, copied, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)

    assert pack(folder, copied("lmdb"), "tar", force=True).kind == "tar"


def test_a_store_is_not_removed_where_no_file_can_be_packed(copied, tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x.jpg").write_text("no image")
    store = copied("tar")
    before = content(store)

    with pytest.raises(DataError, match="none of the 1 files in .* can be packed: a/x.jpg"):
        pack(tmp_path / "data", store, "tar", force=True)

    assert content(store) == before


def test_a_store_is_not_removed_where_a_file_is_refused(spoiled, copied):
    store = copied("tar")
    before = content(store)

    with pytest.raises(DataError, match="dog/005.jpg cannot be packed .the file ends too early"):
        pack(spoiled, store, "tar", unreadable="refuse", force=True)

    assert content(store) == before
    assert pack(spoiled, store, "tar", force=True).samples == 38


def test_a_link_to_a_store_stays_and_leads_to_the_new_one(folder, copied, tmp_path):
    store, link = copied("tar"), tmp_path / "link"
    store.chmod(0o2750)
    link.symlink_to(store.name)

    done = pack(folder, link, "recordio", force=True)

    assert (done.path, os.readlink(link)) == (link, store.name)
    assert open_store(link).manifest.plan.kind == open_store(store).manifest.plan.kind == "recordio"
    assert stat.S_IMODE(store.stat().st_mode) == 0o2750
    assert sorted(os.listdir(tmp_path)) == [store.name, "link"]


def test_a_store_is_not_replaced_by_what_lies_in_it(folder, copied, tmp_path):
    store, link = copied("tar"), tmp_path / "link"
    link.symlink_to(store)
    inside = Path(shutil.copytree(folder, store / "data"))
    shutil.copytree(folder / "cat", store / "data" / "more")
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    for source, place in ((inside, store), (inside, link), (store, store), (store, link)):
        with pytest.raises((OutputError, DataError)):
            pack(source, place, "lmdb", unlabeled=True, force=True)

    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert sorted(os.listdir(tmp_path)) == [store.name, "link"]


def test_a_store_in_the_working_directory_is_not_replaced(folder, copied, monkeypatch):
    store = copied("tar")
    before = content(store)
    monkeypatch.chdir(store)

    with pytest.raises(OutputError, match="is the working directory, or above it, and cannot be"):
        pack(folder, ".", "lmdb", force=True)

    assert content(store) == before and os.listdir(store.parent) == [store.name]


def test_a_store_is_replaced_where_no_file_is_refused(folder, copied):
    store, seen = copied("tar"), []

    done = pack(folder, store, "recordio", unreadable="refuse", force=True, progress=seen.append)

    assert (done.kind, done.samples) == ("recordio", 39)
    assert [entry.doing for entry in seen] == ["packing"] * 39


def test_a_missing_library_leaves_no_begun_pack_in_the_way(folder, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(MissingDependency):
        patched.setitem(sys.modules, "google_crc32c", None)
        pack(folder, tmp_path / "store", "tfrecord")

    assert not (tmp_path / "store").exists()
    assert pack(folder, tmp_path / "store", "tar").samples == 39


@pytest.mark.parametrize("force", [False, True])
def test_another_folder_of_feedlines_is_left_alone_and_only_another_name_is_advised(
    force, folder, tmp_path
):
    compared, run = tmp_path / "compared", tmp_path / "run"
    results.prepare(compared, ["report.html"], force=False)
    results.save(compared, "report.html", "a report")
    owned.claim(run, "run", "a launch")
    owned.write(run, "manifest.json", "{}")

    for place, kind in ((compared, "other results"), (run, "a run")):
        before = content(place)
        with pytest.raises(OutputError) as raised:
            pack(folder, place, "tar", force=force)
        assert str(raised.value) == f"{place} already holds {kind}: name another folder with -o"
        assert content(place) == before


def test_a_complete_store_is_refused_where_it_lacks_a_file(spoiled, tmp_path):
    store = tmp_path / "store"
    assert pack(spoiled, store, "tar").samples == 38

    with pytest.raises(
        DataError,
        match="store is complete without .*dog/005.jpg .the file ends too early.*: repair or remove "
        "that file and pack again with -f, or leave it out",
    ):
        pack(spoiled, store, "tar", unreadable="refuse")
    assert pack(spoiled, store, "tar").resumed_at == 38


def test_a_complete_store_without_what_is_no_image_is_not_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "data")
    (tmp_path / "data" / "readme.txt").write_text("about")
    (tmp_path / "data" / "none").mkdir()
    (tmp_path / "data" / "cat" / "gone.jpg").symlink_to("nowhere")
    pack(tmp_path / "data", tmp_path / "store", "tar")

    with pytest.raises(DataError, match="cat/gone.jpg cannot be packed"):
        pack(tmp_path / "data", tmp_path / "store", "tar", unreadable="refuse")
    (tmp_path / "data" / "cat" / "gone.jpg").unlink()

    done = pack(tmp_path / "data", tmp_path / "store", "tar", unreadable="refuse")
    assert done.resumed_at == done.samples == 39


def test_hidden_folders_are_no_classes_as_in_a_comparison(folder, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    shutil.copytree(folder / "dog", root / ".cache")
    (root / ".ipynb_checkpoints").mkdir()

    done = pack(root, tmp_path / "store", "tar", unreadable="refuse")
    store = open_store(done.path)

    assert store.classes == open_store(root).classes == scan(root).classes
    assert done.samples == len(open_store(root)) == len(scan(root)) == 39
    assert [(entry.path, entry.message) for entry in done.left_out] == [
        (".cache", "a hidden folder"),
        (".ipynb_checkpoints", "a hidden folder"),
    ]


def test_a_second_pack_into_the_same_folder_is_refused_while_the_first_runs(folder, tmp_path):
    refused = []

    def second(progress):
        if progress.done == 3:
            with pytest.raises(OutputError, match="another pack is writing"):
                pack(folder, tmp_path / "store", "tar")
            refused.append(True)

    done = pack(folder, tmp_path / "store", "tar", progress=second)

    assert refused and len(open_store(done.path)) == done.samples


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [("lmdb", "lmdb", "lmdb"), ("tfrecord", "google_crc32c", "google-crc32c")],
)
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    kind, module, package, folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingDependency, match=f"pip install {package}"):
        pack(folder, tmp_path / "store", kind)


@pytest.mark.parametrize(
    "form", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF"]
)
def test_what_pillow_writes_is_known_as_an_image(form, tmp_path):
    from PIL import Image, features

    if form in ("WEBP", "AVIF", "JPEG2000") and not features.check(
        {"JPEG2000": "jpg_2000"}.get(form, form.lower())
    ):
        pytest.skip(f"this Pillow writes no {form}")
    Image.new("RGB", (8, 8), (9, 8, 7)).save(tmp_path / "x", form)

    assert _image_ending((tmp_path / "x").read_bytes()[:16]) is not None


def drawn(kind: str, thumbnail: bool = False) -> bytes:
    """A picture as a file; a JPEG with a whole JPEG in its EXIF data, as cameras write it."""
    picture, file = Image.effect_noise((80, 60), 64).convert("RGB"), io.BytesIO()
    exif = b"Exif\0\0" + drawn("JPEG") if thumbnail else b""
    picture.save(file, kind, **({"exif": exif} if exif else {}))
    return file.getvalue()


@pytest.mark.parametrize(("kind", "name"), [("JPEG", "jpg"), ("WEBP", "webp")])
def test_a_file_counts_as_cut_off_exactly_where_pillow_refuses_it(kind, name):
    whole = drawn(kind, thumbnail=kind == "JPEG")
    Image.open(io.BytesIO(whole)).load()
    assert not _is_cut_off(whole, name) and not _is_cut_off(whole + b"after the end", name)

    for kept in (len(whole) - 1, len(whole) - 20, len(whole) * 3 // 4, len(whole) // 2):
        with pytest.raises(OSError):
            Image.open(io.BytesIO(whole[:kept])).load()
        assert _is_cut_off(whole[:kept], name)


def test_a_truncated_jpeg_is_left_out_by_name_and_strictly_refused(folder, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(folder, root)
    whole = drawn("JPEG", thumbnail=True)
    (root / "cat" / "cut.jpg").write_bytes(whole[: len(whole) * 3 // 4])
    (root / "cat" / "whole.jpg").write_bytes(whole)

    done = pack(root, tmp_path / "store", "tar")

    message = (
        f"the file ends too early, after {len(whole) * 3 // 4:,} bytes: copy it again from "
        f"its source"
    )
    assert {entry.path: entry.message for entry in done.left_out} == {"cat/cut.jpg": message}
    with pytest.raises(DataError, match="cat/cut.jpg cannot be packed .the file ends too early"):
        pack(root, tmp_path / "strict", "tar", unreadable="refuse")
