"""Folders that feedline made: nothing in them that is somebody else's is ever replaced or removed."""

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from feedline.profiler.errors import PlaceTaken
from feedline.profiler.files import own_folders, owned, single


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """RUN/rank0/segments with a file in each."""
    path = tmp_path / "run"
    owned.claim(path, "run", "a launch")
    owned.write(path, "report.json", "{}")
    rank = owned.subfolder(path, "rank0")
    owned.write(rank, "manifest.json", "{}")
    owned.write(owned.subfolder(rank, "segments"), "main.seg", "x")
    return path


def everything(folder: Path) -> dict[str, bytes | str]:
    """Path -> content, or where a link leads."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in found
    }


def test_a_folder_of_ours_is_removed_whole(run):
    own_folders.remove(run, "run")

    assert os.listdir(run.parent) == []


def test_a_removal_that_was_interrupted_can_be_gone_on_with(run, monkeypatch):
    unlink, left = os.unlink, [2]

    def interrupted(name, **more):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        unlink(name, **more)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "unlink", interrupted)
        own_folders.remove(run / "rank0" / "segments")  # as its records are packed
    own_folders.remove(run, "run")

    assert os.listdir(run.parent) == []


def test_where_only_files_open_for_writing_can_be_locked_a_folder_is_removed(run, monkeypatch):
    """Linux emulates locks on NFS so."""
    flock = fcntl.flock

    def of_nfs(fd, how):
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if how & fcntl.LOCK_EX and mode == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    own_folders.remove(run, "run")

    assert os.listdir(run.parent) == []


def test_where_a_file_that_is_open_keeps_a_name_a_folder_is_removed(run, monkeypatch):
    """NFS and sshfs rename it, so that the folder is not empty."""
    unlink = os.unlink

    def of_nfs(name, *, dir_fd):
        path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
        opened = [
            os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_file()
        ]
        if path in opened:
            os.rename(name, f".nfs{len(opened)}", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        else:
            unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", of_nfs)
    own_folders.remove(run / "rank0" / "segments")
    own_folders.remove(run, "run")

    assert os.listdir(run.parent) == []


def test_where_there_are_no_locks_a_folder_that_is_said_to_be_in_use_stays(run, monkeypatch):
    def refused(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    before = everything(run)

    with pytest.raises(PlaceTaken, match=r"rank0 is being used by another process"):
        own_folders.remove(run, "run", lambda folder: folder.name == "rank0")
    assert everything(run) == before
    own_folders.remove(run, "run", lambda folder: False)
    assert os.listdir(run.parent) == []


@pytest.mark.parametrize("limits", [(64, 64), (24, 256)], ids=["few", "more if asked for"])
def test_a_run_of_many_ranks_is_removed_with_few_descriptors(run, limits):
    for rank in range(1, 21):
        owned.subfolder(owned.subfolder(run, f"rank{rank}"), "segments")
    program = f"""
import pathlib, resource, sys
from feedline.profiler.files import own_folders

resource.setrlimit(resource.RLIMIT_NOFILE, {limits})
own_folders.remove(pathlib.Path(sys.argv[1]), "run")
assert resource.getrlimit(resource.RLIMIT_NOFILE) == {limits}
"""

    subprocess.run([sys.executable, "-c", program, run], check=True)

    assert os.listdir(run.parent) == []


def test_a_folder_that_another_one_has_replaced_is_not_emptied(run, monkeypatch):
    rename, mine = os.rename, run.parent / "mine"
    owned.claim(mine, "run", "mine")
    owned.write(mine, "report.json", "mine")

    def late(path, to):
        rename(path, run.parent / "away")
        rename(mine, to)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Stale file handle"):
        patched.setattr(os, "rename", late)
        own_folders.remove(run, "run")

    (left,) = run.parent.glob(".feedline-part-*")
    assert (left / "report.json").read_text() == "mine"


def test_what_a_kill_left_half_written_goes_with_it(run):
    single.part_name(run / "rank0" / "manifest.json").write_text("{")

    own_folders.remove(run, "run")

    assert os.listdir(run.parent) == []


@pytest.mark.parametrize(
    "place",
    [
        "mydata.npy",
        "rank0/mydata.npy",
        "rank0/segments/mydata.npy",
        "rank0/segments/deep/mydata.npy",
        "rank1/a",
    ],
)
def test_a_folder_with_a_file_of_the_users_is_refused_by_its_name(run, place):
    (run / place).parent.mkdir(parents=True, exist_ok=True)
    (run / place).write_text("mine")
    before = everything(run)

    with pytest.raises(
        PlaceTaken,
        match=rf"also holds .*{Path(place).parts[0]}.*which feedline did not make: move it away",
    ):
        own_folders.remove(run, "run")
    assert everything(run) == before


@pytest.mark.parametrize("name", ["report.json", "rank0/manifest.json", "rank0/segments"])
def test_a_link_in_the_place_of_a_file_of_ours_is_somebody_elses(run, name, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "main.seg").write_text("mine")
    if (run / name).is_dir():
        own_folders.remove(run / name)
    else:
        (run / name).unlink()
    (run / name).symlink_to(treasure if name.endswith("segments") else treasure / "main.seg")

    with pytest.raises(PlaceTaken, match="which feedline did not make"):
        own_folders.remove(run, "run")
    with pytest.raises((OSError, PlaceTaken)):
        owned.write((run / name).parent, (run / name).name, "ours")
    assert (treasure / "main.seg").read_text() == "mine"


def test_a_folder_of_another_kind_or_without_a_list_stays(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()

    with pytest.raises(PlaceTaken, match="holds a run, not a packed store, and is left untouched"):
        own_folders.remove(run, "store")
    with pytest.raises(PlaceTaken, match="was not made by feedline"):
        own_folders.remove(mine, "run")
    assert mine.is_dir() and (run / "report.json").exists()


def test_a_folder_that_a_process_holds_stays_until_the_process_has_ended(run):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        hold = own_folders.Hold(run / "rank0")
        os.read(reading, 1)  # until the parent closes its end
        assert hold
        os._exit(0)
    os.close(reading)
    with pytest.raises(PlaceTaken, match="is being used by another process"):
        for _ in range(1000):  # until the child holds it
            owned.claim(run, "run", "a launch")
            with open(run / "rank0" / own_folders.LIST_NAME) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    own_folders.remove(run, "run")
            os.sched_yield()
    assert (run / "rank0" / "manifest.json").exists()
    os.close(writing)
    os.waitpid(child, 0)
    own_folders.remove(run, "run")
    assert not run.exists()


def test_a_hold_leaves_a_file_of_the_programs_alone_that_got_its_number(run, tmp_path):
    program = """
import os, pathlib, sys
from feedline.profiler.files import own_folders

hold = own_folders.Hold(pathlib.Path(sys.argv[1]))
os.closerange(3, 64)
fd = os.open("mine", os.O_CREAT | os.O_RDWR)
opened = [fd, *(os.dup(fd) for _ in range(20))]
hold.release()
for one in opened:
    os.write(one, b"x")
"""

    subprocess.run([sys.executable, "-c", program, run], cwd=tmp_path, check=True)

    assert (tmp_path / "mine").read_bytes() == b"x" * 21


def test_a_list_that_names_places_elsewhere_removes_nothing_there(run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with (run / own_folders.LIST_NAME).open("a") as file:
        file.write("../mine\n/etc/hostname\n")

    own_folders.remove(run, "run")

    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_of_the_users_is_never_replaced_and_one_of_ours_is(run):
    (run / "trace.json.gz").write_text("mine")

    with pytest.raises(PlaceTaken, match="already exists and was not written by feedline"):
        owned.write(run, "trace.json.gz", "ours")
    owned.write(run, "report.json", "[]")

    assert ((run / "trace.json.gz").read_text(), (run / "report.json").read_text()) == (
        "mine",
        "[]",
    )


def test_two_that_make_one_new_folder_get_it_once(tmp_path):
    with (
        owned.staging(tmp_path / "run", "run") as one,
        owned.staging(tmp_path / "run", "run") as other,
    ):
        owned.write(one, "a", "first")
        owned.write(other, "a", "second")
        owned.put(one, tmp_path / "run", "run", force=False)
        with pytest.raises(PlaceTaken, match="already exists"):
            owned.put(other, tmp_path / "run", "run", force=False)

    assert everything(tmp_path / "run").pop("a") == b"first"
    assert os.listdir(tmp_path) == ["run"]


def test_ranks_of_one_launch_replace_an_older_run_once(run):
    owned.replace(run, "run", "another launch")
    owned.subfolder(run, "rank1")
    owned.replace(run, "run", "another launch")

    assert sorted(os.listdir(run)) == [own_folders.LIST_NAME, "rank1"]


def test_an_empty_folder_is_taken_and_one_with_files_is_not(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")

    owned.claim(tmp_path / "empty", "run", "a launch")

    assert os.listdir(tmp_path / "empty") == [own_folders.LIST_NAME]
    for place in (owned.claim, owned.replace):
        with pytest.raises(
            PlaceTaken,
            match=r"holds files that feedline did not make \(thesis.tex\)|was not made by feedline",
        ):
            place(tmp_path / "full", "run", "a launch")
    assert os.listdir(tmp_path / "full") == ["thesis.tex"]


def test_folders_and_files_of_runs_are_private(run):
    modes = {
        str(path.relative_to(run.parent)): path.stat().st_mode & 0o777
        for path in [run, *run.rglob("*")]
    }

    assert {mode for name, mode in modes.items() if (run.parent / name).is_dir()} == {0o700}
    assert {mode for name, mode in modes.items() if not (run.parent / name).is_dir()} == {0o600}


def test_what_a_failed_write_had_not_written_yet_reaches_no_file_of_the_program(tmp_path):
    with pytest.raises(RuntimeError), single.replacing(tmp_path / "ours") as ours:
        descriptor = ours.fileno()
        ours.write(b"ours")
        raise RuntimeError
    with (tmp_path / "data").open("wb", 0) as theirs:
        assert theirs.fileno() == descriptor
        del ours

    assert (tmp_path / "data").read_bytes() == b"" and not (tmp_path / "ours").exists()


def test_a_file_that_no_list_can_name_is_neither_left_nor_kept_open(run):
    size, limits = (run / own_folders.LIST_NAME).stat().st_size, resource.RLIMIT_FSIZE
    before, opened = resource.getrlimit(limits), os.listdir("/proc/self/fd")
    resource.setrlimit(limits, (size, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            owned.create(run, "new.bin")
    finally:
        resource.setrlimit(limits, before)

    assert os.listdir("/proc/self/fd") == opened
    assert not (run / "new.bin").exists()


@pytest.mark.parametrize("way", ["create", "replacing"])
def test_ctrl_c_never_leaves_a_file_that_no_list_names(run, way, monkeypatch):
    """It would be taken for the user's, and be in the way for good."""
    add = owned.add_to_list

    def interrupted(folder, name):
        os.kill(os.getpid(), signal.SIGINT)
        add(folder, name)

    monkeypatch.setattr(owned, "add_to_list", interrupted)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # programs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            if way == "create":
                owned.create(run, "new.bin")
            else:
                owned.write(run, "new.bin", b"whole")
    finally:
        signal.signal(signal.SIGINT, before)

    assert (run / "new.bin").exists() and "new.bin" in own_folders.listed_names(run)


def test_a_process_that_is_forked_while_a_line_is_added_does_not_keep_others_from_it(run):
    children = []

    class Forking(str):
        def encode(self, *args, **kwargs):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
            return b"first"

    try:
        owned.add_line(run, "lines", Forking())
        later = threading.Thread(target=owned.add_line, args=(run, "lines", "second"))
        later.daemon = True
        later.start()
        later.join(20)

        assert not later.is_alive()
        assert (run / "lines").read_text() == "first\nsecond\n"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
