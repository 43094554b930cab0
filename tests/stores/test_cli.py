"""``feedline pack``."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from feedline.__main__ import main
from feedline.cli.pack import STORE_KINDS as CHOICES
from feedline.pipelines.stores import STORE_KINDS, open_store, pack, shards, verify
from feedline.pipelines.stores.image_folder import read_image
from feedline.profiler.errors import StoreDamaged


def packs(capsys, *args) -> tuple[int, str, str]:
    code = main(["pack", *map(str, args)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_choices_are_the_kinds_there_are():
    assert sorted(STORE_KINDS) == list(CHOICES)


@pytest.mark.parametrize("kind", STORE_KINDS)
def test_it_packs_verifies_and_says_what_it_did(kind, folder, tmp_path, capsys):
    code, out, err = packs(capsys, folder, "-o", tmp_path / "store", "--kind", kind, "--verify")

    assert (code, err) == (0, "")
    assert f"39 images, 0.2 MB, packed as {kind}" in out
    assert "verified: 39 of 39" in out
    assert len(open_store(tmp_path / "store")) == 39


def test_files_left_out_are_counted_and_named(folder, tmp_path, capsys):
    for number in range(12):
        (tmp_path / "data" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "a" / f"{number:02d}.jpg").touch()
    (tmp_path / "data" / "a" / "good.jpg").write_bytes(next(folder.rglob("*.jpg")).read_bytes())

    code, out, _ = packs(capsys, tmp_path / "data", "-o", tmp_path / "store", "--kind", "tar")

    assert code == 0
    assert "left out: 12" in out and "a/09.jpg: zero bytes" in out and "a/10.jpg" not in out
    assert "and 2 more, in " in out


def test_a_name_that_is_no_utf8_is_printed_where_output_is_strict(folder, tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "good.jpg").write_bytes(next(folder.rglob("*.jpg")).read_bytes())
    (tmp_path / "data" / "a" / os.fsdecode(b"\xfe.jpg")).touch()

    command = [sys.executable, "-m", "feedline", "pack", "data", "-o", "store", "--kind", "tar"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert r"a/\udcfe.jpg: zero bytes" in done.stdout


def test_the_command_to_go_on_with_can_be_typed(folder, tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    data = tmp_path / "my photos"
    shutil.copytree(folder, data)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("feedline.pipelines.stores.image_folder.read_image", interrupt)
        pack(data, tmp_path / "my store", "tar", unreadable="refuse")
    with pytest.raises(StoreDamaged) as raised:
        open_store(tmp_path / "my store")

    command = shlex.split(re.search("with (feedline .*), or start", str(raised.value)).group(1))

    assert command[-1] == "--strict", "or what was to be refused would be left out"
    assert main(command[1:]) == 0
    assert len(open_store(tmp_path / "my store")) == 39


def test_quiet_prints_nothing(folder, tmp_path, capsys):
    assert packs(capsys, folder, "-o", tmp_path / "store", "--kind", "tar", "-q", "--verify") == (
        0,
        "",
        "",
    )


def test_a_second_call_says_that_nothing_is_left_to_do(folder, tmp_path, capsys):
    command = (folder, "-o", tmp_path / "store", "--kind", "tar")
    packs(capsys, *command)

    code, out, _ = packs(capsys, *command)

    assert code == 0 and "already complete" in out


def test_errors_have_their_exit_codes(folder, tmp_path, capsys, monkeypatch):
    bad = tmp_path / "data" / "a"
    bad.mkdir(parents=True)
    (bad / "x.jpg").touch()
    store = tmp_path / "store"

    assert packs(capsys, tmp_path / "nowhere", "-o", store, "--kind", "tar")[0] == 66
    assert packs(capsys, tmp_path / "data", "-o", store, "--kind", "tar", "--strict")[0] == 66
    assert packs(capsys, folder, "-o", folder / "inside", "--kind", "tar")[0] == 73
    monkeypatch.setitem(sys.modules, "lmdb", None)
    code, _, err = packs(capsys, folder, "-o", tmp_path / "other", "--kind", "lmdb")
    assert (code, err) == (69, "feedline: LMDB stores need the lmdb package: pip install lmdb\n")


def test_verifying_a_damaged_store_ends_with_its_exit_code_and_names_the_sample(
    folder, tmp_path, capsys
):
    command = (folder, "-o", tmp_path / "store", "--kind", "recordio")
    packs(capsys, *command)
    with open(tmp_path / "store" / "data-00000.rec", "r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))

    code, _, err = packs(capsys, *command, "--verify")

    assert code == 65
    assert "sample 0, cat/001.jpg (data-00000.rec from byte 0: its checksum differs)" in err


def test_an_unknown_kind_is_a_usage_error(folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pack", str(folder), "-o", str(tmp_path / "store"), "--kind", "zip"])

    assert ended.value.code == 2


def test_interrupted_it_says_how_to_go_on(folder, tmp_path, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("feedline.pipelines.stores.image_folder.read_image", interrupt)

    code, _, err = packs(capsys, folder, "-o", tmp_path / "store", "--kind", "tar")

    assert code == 130
    assert "run the same command again to continue" in err


def content(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


def interrupted_at(monkeypatch, path: str) -> None:
    """Have Ctrl-C arrive when this file is read; a checkpoint comes after every two files."""

    def read(listing, source, max_bytes):
        if source.path == path:
            raise KeyboardInterrupt
        return read_image(listing, source, max_bytes)

    monkeypatch.setattr("feedline.pipelines.stores.image_folder.read_image", read)
    monkeypatch.setattr("feedline.pipelines.stores.packing._CHECKPOINT_BYTES", 20_000)


def test_an_interrupted_new_start_goes_on_without_the_option_that_removes_what_is_there(
    folder, tmp_path, capsys, monkeypatch
):
    command = (folder, "-o", tmp_path / "store", "--kind", "tar")
    with monkeypatch.context() as patched:
        interrupted_at(patched, "dog/010.jpg")
        code, _, err = packs(capsys, *command, "-f")
    assert code == 130
    assert "run the same command again, without -f, to continue" in err

    code, out, _ = packs(capsys, *command)

    assert code == 0
    assert re.search(r"continued after the \d+ samples", out)


@pytest.mark.parametrize("options", [(), ("--strict",), ("--verify",)])
def test_interrupted_while_it_replaces_a_store_it_leaves_that_and_says_so(
    options, folder, copied, capsys, monkeypatch
):
    def interrupt(*args):
        raise KeyboardInterrupt

    store = copied("lmdb")
    before = content(store)
    command = (folder, "-o", store, "--kind", "tar", "-f", *options)
    with monkeypatch.context() as patched:
        if "--verify" in options:
            patched.setattr("feedline.pipelines.stores.shards.ShardStore.damage", interrupt)
        else:
            interrupted_at(patched, "dog/010.jpg")
        code, _, err = packs(capsys, *command)

    assert code == 130
    assert f"{store} is unchanged: run the same command again to start over" in err
    assert content(store) == before and os.listdir(store.parent) == [store.name]
    assert "39 images, 0.2 MB, packed as tar" in packs(capsys, *command)[1]


def test_a_file_of_the_users_in_the_old_store_is_kept_and_the_pack_succeeds(
    folder, copied, capsys, monkeypatch
):
    """It is put there meanwhile, twice: the second time, the first old store is still there."""
    store = copied("lmdb")
    aside = [store.with_name(f"{store.name}.old"), store.with_name(f"{store.name}.old2")]
    for kind, kept in zip(("tar", "lmdb"), aside, strict=True):
        with monkeypatch.context() as patched:
            leaves_a_note(patched, store)
            code, out, err = packs(capsys, folder, "-o", store, "--kind", kind, "-f")

        assert (code, err) == (0, "")
        assert f"not all of the old store could be removed: the rest is in {kept}\n" in out
        assert verify(store).samples == 39 and verify(kept).samples == 39
        assert (kept / "note.txt").read_text() == "mine" and not (store / "note.txt").exists()

    assert sorted(store.parent.iterdir()) == [store, *aside]


def leaves_a_note(monkeypatch, store: Path) -> None:
    """Have a file of the user's appear in the old store while a new one is packed."""

    def read(listing, source, max_bytes):
        (store / "note.txt").write_text("mine")
        return read_image(listing, source, max_bytes)

    monkeypatch.setattr("feedline.pipelines.stores.image_folder.read_image", read)


def test_an_old_store_that_an_earlier_pack_could_not_remove_stops_no_later_one(
    folder, copied, capsys
):
    store = copied("lmdb")
    hidden = store.with_name(f".feedline-part-old-{store.name}")
    shutil.copytree(store, hidden)
    (hidden / "note.txt").write_text("mine")

    code, out, err = packs(capsys, folder, "-o", store, "--kind", "tar", "-f")

    kept = store.with_name(f"{store.name}.old")
    assert (code, err) == (0, "") and f"the rest is in {kept}\n" in out
    assert sorted(store.parent.iterdir()) == [store, kept]
    assert (kept / "note.txt").read_text() == "mine" and verify(store).samples == 39


def test_a_failed_pack_gives_no_older_store_a_name_of_which_nobody_is_told(
    tmp_path_factory, copied, capsys
):
    store = copied("lmdb")
    hidden = store.with_name(f".feedline-part-old-{store.name}")
    shutil.copytree(store, hidden)
    (hidden / "note.txt").write_text("mine")
    spoilt = tmp_path_factory.mktemp("spoilt")
    (spoilt / "cat").mkdir()
    (spoilt / "cat" / "0.jpg").write_bytes(b"no image")

    code, _, _ = packs(capsys, spoilt, "-o", store, "--kind", "tar", "-f")

    assert code == 66 and sorted(store.parent.iterdir()) == [hidden, store]
    assert (hidden / "note.txt").read_text() == "mine"


def test_an_old_store_with_a_file_that_cannot_be_removed_is_no_failed_pack(folder, copied, capsys):
    store = copied("lmdb")
    data = os.open(store / "data.mdb", os.O_RDONLY)
    made = subprocess.run(["chattr", "+i", store / "data.mdb"], capture_output=True, text=True)
    try:
        if made.returncode:
            pytest.skip(f"a file cannot be made immutable here: {made.stderr.strip()}")
        code, out, err = packs(capsys, folder, "-o", store, "--kind", "tar", "-f")
    finally:
        subprocess.run(["chattr", "-i", f"/proc/self/fd/{data}"], pass_fds=[data], check=False)
        os.close(data)

    assert (code, err) == (0, "") and f"the rest is in {store.parent}\n" in out
    assert verify(store).samples == 39
    assert packs(capsys, folder, "-o", store, "--kind", "lmdb", "-f")[0] == 0


def test_a_new_store_that_reads_back_otherwise_does_not_replace_the_old_one(
    folder, copied, capsys, monkeypatch
):
    """A disk that stores other bytes: here they are changed once the shard is on the disk."""
    store, seal = copied("lmdb"), shards.ShardWriter._seal
    before = content(store)

    def spoil(writer) -> None:
        seal(writer)
        for path in writer._folder.glob("data-*.tar"):
            whole = bytearray(path.read_bytes())
            whole[1000] ^= 1
            path.write_bytes(whole)

    monkeypatch.setattr(shards.ShardWriter, "_seal", spoil)

    code, _, err = packs(capsys, folder, "-o", store, "--kind", "tar", "-f", "--verify")

    assert code == 65
    assert f"{store} is not what was packed: sample 0, cat/001.jpg (data-00000.tar from" in err
    assert "and the old store is unchanged: pack it again with feedline pack" in err
    assert content(store) == before and os.listdir(store.parent) == [store.name]


def test_interrupted_while_it_verifies_it_does_not_tell_to_pack_again(
    folder, tmp_path, capsys, monkeypatch
):
    def interrupt(*args):
        raise KeyboardInterrupt

    command = (folder, "-o", tmp_path / "store", "--kind", "tar", "--verify")
    with monkeypatch.context() as patched:
        patched.setattr("feedline.pipelines.stores.shards.ShardStore.damage", interrupt)
        code, _, err = packs(capsys, *command, "-f")
    assert code == 130
    assert "run the same command again, without -f, to continue" in err

    code, out, _ = packs(capsys, *command)

    assert code == 0
    assert "already complete" in out and "verified: 39 of 39" in out


def test_a_complete_store_tells_how_files_come_into_it_that_were_repaired_since(
    folder, tmp_path, capsys
):
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    photo = data / "dog" / "005.jpg"
    good, about = photo.read_bytes(), photo.stat()
    photo.write_bytes(bytes(len(good)))
    os.utime(photo, ns=(about.st_atime_ns, about.st_mtime_ns))
    command = (data, "-o", tmp_path / "store", "--kind", "tar")
    assert "repaired" not in packs(capsys, *command)[1]
    photo.write_bytes(good)
    os.utime(photo, ns=(about.st_atime_ns, about.st_mtime_ns))

    _, out, _ = packs(capsys, *command)
    code, _, err = packs(capsys, *command, "--strict")

    assert "already complete" in out
    assert "left out: 1 (1 not an image)" in out
    assert "If any of them was repaired since, pack again with -f." in out
    assert code == 66
    assert "is complete without" in err and "pack again with -f" in err
    assert "39 images" in packs(capsys, *command, "--strict", "-f")[1]


def test_a_terminal_gets_a_progress_bar(folder, tmp_path):
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "feedline",
        "pack",
        folder,
        "-o",
        tmp_path / "store",
        "--kind",
        "tar",
    ]

    done = subprocess.run(
        command,
        stderr=theirs,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm"},
    )

    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "packing" in shown and "of 39 files" in shown


def test_packing_imports_no_torch(folder, tmp_path):
    program = f"""import sys; from feedline.__main__ import main; code = main(["pack", {str(folder)!r}, "-o", "s", "--kind", "tar"])
assert code == 0 and "torch" not in sys.modules and "PIL" not in sys.modules"""

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
