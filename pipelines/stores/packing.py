"""Packs a folder of images into a store.

A kill at any moment costs at most the last seconds of work. Before, it is checked that the store
fits on the disk, and that its folder holds nothing else.
"""

import errno
import fcntl
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feedline.pipelines.photos import Photos
from feedline.pipelines.stores.image_folder import (
    HIDDEN,
    NO_FILES,
    NOT_IN_CLASS,
    FolderListing,
    ImageContent,
    SourceFile,
    begins_as_image,
    list_folder,
    list_photos,
    read_ahead,
    read_image,
)
from feedline.pipelines.stores.index import (
    INDEX_FILE,
    INDEX_RECORD,
    PATHS_FILE,
    Index,
    Journal,
    LeftOut,
    Progress,
    ReportProgress,
    StoredSample,
    StoreWriter,
    ignore_progress,
)
from feedline.pipelines.stores.kinds import STORE_KINDS, open_packed
from feedline.pipelines.stores.labels import OtherLabels, other_labels
from feedline.pipelines.stores.packed import (
    MANIFEST_FILE,
    PLAN_FILE,
    FileSum,
    PackPlan,
    StoreKind,
    StoreManifest,
    file_crc32,
    sync_folder,
)
from feedline.profiler.errors import DataError, OutputError, SchemaTooNew, StoreDamaged
from feedline.profiler.files import own_folders, owned, single

_MARGIN_SHARE = 0.02  # what a file system takes for itself on top, and other writers meanwhile
_MARGIN_BYTES = 8 << 20
_FOLDER_KIND = "store"
_SHARD_BYTES = 1 << 30
_MAX_SHARDS = 128  # a reader holds each open: well below the usual limit of 1,024 open files
_CHECKPOINT_BYTES = 32 << 20
_LEAVE_OUT = "remove it, or leave such files out (without --strict; unreadable='skip' in code)"


def _needed_bytes(listing: FolderListing, kind: StoreKind) -> int:
    """Return the bytes that the store will take, at most."""
    total = 0
    for source in listing.sources:
        path_bytes = len(os.fsencode(source.path))
        total += kind.stored_bytes(source.bytes, path_bytes) + INDEX_RECORD.itemsize + path_bytes
    return total


def _check_space(destination: Path, total: int) -> None:
    """Check that a store of ``total`` bytes fits.

    Existing files of it count: they are continued or replaced.

    Raises:
        OutputError: it does not.
    """
    parent = destination.absolute()
    while not parent.exists():
        parent = parent.parent
    already = (
        sum(file.stat().st_blocks * 512 for file in destination.iterdir())
        if destination.is_dir()
        else 0
    )
    wants = max(0, total - already)
    wants_free = wants + int(wants * _MARGIN_SHARE) + _MARGIN_BYTES
    free = shutil.disk_usage(parent).free
    if free < wants_free:
        raise OutputError(
            f"{destination} needs {_megabytes(wants)} more ({_megabytes(wants_free)} with a "
            f"margin), "
            f"but {parent} has only {_megabytes(free)} free: free some space, or choose a folder "
            f"on another disk"
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _complete_already(folder: Path, plan: PackPlan, force: bool) -> StoreManifest | None:
    """Return the manifest of the store to be made, if it is already complete.

    A folder of another kind, such as a run, may have a file of that name too.

    Raises:
        OutputError: it is a store of something else, and ``force`` does not say to replace it.
        StoreDamaged: it is damaged, and ``force`` does not say to replace it.
        SchemaTooNew: a newer feedline packed it.
    """
    listed = own_folders.read_list(folder)
    if not (folder / MANIFEST_FILE).exists() or (listed and listed.kind != _FOLDER_KIND):
        return None
    if force:
        with suppress(StoreDamaged):
            StoreManifest.read(folder)  # one of a newer feedline stays all the same
        return None
    manifest = open_packed(folder).manifest
    if manifest.plan.same_data(plan):
        owned.discard(folder, PLAN_FILE)  # a kill between the two last steps leaves it
        return manifest
    raise OutputError(
        f"{folder} already holds a complete store {manifest.plan.unlike(plan)}: name another "
        f"folder, or replace it with -f"
    )


@contextmanager
def _reserved(folder: Path, root: Path) -> Iterator[None]:
    """Create or take the folder, and keep other packs out of it meanwhile.

    Raises:
        OutputError: it holds something else, lies in ``root``, which is to be packed, or another
            pack writes to it.
    """
    if folder.resolve().is_relative_to(root.resolve()):
        raise OutputError(
            f"{folder} is inside {root}, where it would be mistaken for a class: choose a "
            f"folder elsewhere"
        )
    owned.claim(folder, _FOLDER_KIND, mode=owned.SHARED)
    if others := _strangers(folder):
        raise OutputError(
            f"{folder} contains other files ({others[0]}): give a new or empty folder"
        )
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(
                f"another pack is writing to {folder}: wait for it, or name another folder"
            ) from error
        own_folders.sweep(folder)
        yield
    finally:
        os.close(handle)


def _see_that_it_goes_on(folder: Path, plan: PackPlan) -> None:
    """Check that what the folder has is a part of this pack. Raises OutputError."""
    before = PackPlan.read(folder)
    begun = own_folders.listed_names(folder) & _present(folder)
    if begun and (before is None or not before.same_data(plan)):
        what = before.unlike(plan) if before else "of unknown origin, not of this data"
        raise OutputError(
            f"{folder} holds an unfinished pack {what}: start over with -f, or name another folder"
        )


def _strangers(folder: Path) -> list[str]:
    """List files that no pack wrote. Raises OSError."""
    return sorted(_present(folder) - own_folders.listed_names(folder))


def _present(folder: Path) -> set[str]:
    """Return the names of everything in the folder. Raises OSError.

    Except the list and half-written files of a killed process.
    """
    return {
        path.name
        for path in folder.iterdir()
        if path.name != own_folders.LIST_NAME and not path.name.startswith(single.PART)
    }


def _see_that_it_can_be_packed(
    listing: FolderListing, refuse: bool, max_bytes: int, progress: ReportProgress
) -> None:
    """Check, before a store is removed, that another one takes its place.

    With ``refuse`` all files are read for that, otherwise those before the first that is usable.

    Raises:
        DataError: no file can be packed or, with ``refuse``, one cannot.
    """
    left_out, read_bytes = list(listing.left_out), 0
    with closing(read_ahead(listing, 0, max_bytes)) as files:
        for number, content in files:
            if isinstance(content, LeftOut):
                if refuse:
                    raise _unusable(listing, content)
                left_out.append(content)
            elif not refuse:
                return
            else:
                read_bytes += len(content.value)
            progress(Progress("checking", number + 1, len(listing.sources), read_bytes))
    if not refuse:
        raise _nothing_to_pack(listing, left_out)


def _unusable(listing: FolderListing, entry: LeftOut) -> DataError:
    return DataError(
        f"{listing.root}/{entry.path} cannot be packed ({entry.message}): {_LEAVE_OUT}"
    )


def _nothing_to_pack(listing: FolderListing, left_out: list[LeftOut]) -> DataError:
    return DataError(
        f"none of the {len(listing.sources):,} files in {listing.root} can be packed: "
        f"{_named(left_out)}"
    )


def _remove_for(
    folder: Path, listing: FolderListing, refuse: bool, max_bytes: int, progress: ReportProgress
) -> None:
    """Remove the store in a folder, or a part of one, for another that is packed from this listing.

    Raises:
        DataError: the store is complete, and no other can take its place; it stays.
    """
    if (folder / MANIFEST_FILE).exists():
        _see_that_it_can_be_packed(listing, refuse, max_bytes, progress)
    _empty_folder(folder)


def _empty_folder(folder: Path) -> None:
    """Remove only the files of a store, the manifest first. Raises OSError."""
    for name in sorted(
        own_folders.listed_names(folder), key=lambda name: (name != MANIFEST_FILE, name)
    ):
        owned.discard(folder, name)


@contextmanager
def _as_output_errors(folder: Path, plan: PackPlan) -> Iterator[None]:
    """Turn errors of writing into errors for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            again = f"free some space, then continue where it stopped with {plan.command(folder)}"
            raise OutputError(f"{folder}: the disk is full: {again}") from error
        raise OutputError.unwritable(
            folder, error, "name another folder", "start over with -f if it holds part of a store"
        ) from error


@dataclass(frozen=True)
class Packed:
    """The result of packing.

    Attributes:
        bytes: of the original files.
        stored_bytes: of the store.
        resumed_at: samples that an earlier, killed pack had left whole; ``samples`` where nothing
            was left to do.
        classes: names of those that have a sample.
        empty: of those that have none; they keep their labels.
        lost: labels that the store does not have.
        below, linked: as of the listing.
    """

    path: Path
    kind: str
    samples: int
    bytes: int
    stored_bytes: int
    left_out: list[LeftOut]
    resumed_at: int
    classes: list[str]
    empty: list[str]
    lost: list[OtherLabels]
    below: int
    linked: int


def pack(
    source: Path | str | Photos,
    destination: Path | str,
    kind: str,
    *,
    unreadable: str | None = None,
    unlabeled: bool = False,
    force: bool = False,
    shard_bytes: int | None = None,
    progress: ReportProgress = ignore_progress,
) -> Packed:
    """Pack a class folder, or a dataset that was scanned.

    After a kill, calling it again continues where it stopped.

    Args:
        source: a folder with one subfolder per class, or ``Photos``.
        destination: the store's folder.
        kind: a key of ``STORE_KINDS``.
        unreadable: ``skip`` leaves out and names files that are unreadable or not images;
            ``refuse`` ends at the first. Default: skip for a folder, refuse for ``Photos``, whose
            positions are the numbers of the samples.
        unlabeled: pack a folder whose labels are not its class folders; the store then does not
            have them.
        force: remove a store that is there, or a part of one, and start over. It is kept where the
            library is missing, nothing can be packed or, with ``refuse``, a file cannot be.
        shard_bytes: size at which a new shard is started (default 1 GiB, more if that would make
            over 128 shards; LMDB and RecordIO are one file).
        progress: called with the progress.

    Raises:
        DataError: the folder contains no image; its labels would be lost; or, with ``refuse``, a
            file cannot be used.
        OutputError: the destination contains something else, is not writable or too small, or
            another pack writes to it.
        StoreDamaged: the destination contains a damaged store.
        MissingDependency: the library for this format is not installed.
    """
    if kind not in STORE_KINDS or unreadable not in (None, "skip", "refuse"):
        raise ValueError(
            f"pack(kind={kind!r}, unreadable={unreadable!r}): kinds are {', '.join(STORE_KINDS)}; "
            f"unreadable is skip or refuse"
        )
    chosen = STORE_KINDS[kind]
    listing = list_photos(source) if isinstance(source, Photos) else list_folder(Path(source))
    refuse = (unreadable or ("refuse" if listing.checked else "skip")) == "refuse"
    plan, folder = _plan(kind, listing, shard_bytes, refuse), Path(destination)
    lost = [] if listing.checked else other_labels(listing)
    if not unlabeled and not _begun(folder, plan):
        _see_that_labels_are_kept(listing, lost)
    with _as_output_errors(folder, plan), ExitStack() as stack:
        if refuse:
            _see_that_nothing_is_left_out(listing)
        done = _complete_already(folder, plan, force)
        if done is not None:
            if refuse:
                _see_that_no_file_is_missing(folder, done, listing)
            return _packed(folder, done, done.samples, listing, lost)
        chosen.library()
        total = _needed_bytes(listing, chosen)
        _check_space(folder, total)
        stack.enter_context(_reserved(folder, listing.root))
        if force:
            _remove_for(folder, listing, refuse, chosen.max_bytes, progress)
        else:
            _see_that_it_goes_on(folder, plan)
        plan.write(folder)
        writer = chosen.writer(folder, plan.shard_bytes, total)
        packing = _Packing(folder, listing, plan, writer, chosen.max_bytes, progress)
        stack.callback(packing.close)
        resumed_at = packing.resume()
        packing.run()
        return _packed(folder, packing.finish(), resumed_at, listing, lost)


def _plan(kind: str, listing: FolderListing, shard_bytes: int | None, refuse: bool) -> PackPlan:
    return PackPlan(
        kind,
        str(listing.root),
        listing.fingerprint(),
        len(listing.sources),
        listing.bytes,
        shard_bytes or max(_SHARD_BYTES, listing.bytes // _MAX_SHARDS),
        refuse,
    )


def _begun(folder: Path, plan: PackPlan) -> bool:
    """Tell whether the same data was packed into this folder before, as a whole or in part.

    What it lacks was accepted then.
    """
    before = PackPlan.read(folder)
    if before is None and (folder / MANIFEST_FILE).exists():
        with suppress(StoreDamaged, SchemaTooNew):
            before = StoreManifest.read(folder).plan
    return before is not None and before.same_data(plan)


def _see_that_labels_are_kept(listing: FolderListing, others: list[OtherLabels]) -> None:
    """Check that the labels are the class folders. Raises DataError."""
    lost = [labels for labels in others if labels.lost]
    if lost:
        messages = "; ".join(labels.message for labels in lost)
        raise DataError(
            f"{listing.root}: the store would not have its labels: {messages}. The label of a "
            f"sample is the "
            f"folder that lies directly in {listing.root}: {lost[0].fix}, or pack without the "
            f"labels (--unlabeled; unlabeled=True in code)"
        )


def _see_that_nothing_is_left_out(listing: FolderListing) -> None:
    """Check that no file is known to be unusable. Raises DataError.

    Nor may an image lie beside the class folders; other files there are no images.
    """
    for entry in listing.left_out:
        loose = entry.message == NOT_IN_CLASS and not begins_as_image(
            listing.root, SourceFile(entry.path, 0, 0, 0)
        )
        if not loose and entry.message not in (NO_FILES, HIDDEN):
            raise _unusable(listing, entry)


def _see_that_no_file_is_missing(folder: Path, done: StoreManifest, listing: FolderListing) -> None:
    """Check that a complete store has all files of its data. Raises DataError."""
    files = {source.path for source in listing.sources}
    for entry in done.left_out:
        if entry.path in files:
            raise DataError(
                f"{folder} is complete without {listing.root}/{entry.path} ({entry.message}): "
                f"repair or remove that file and pack again with -f, or leave it out (without "
                f"--strict; unreadable='skip' in code)"
            )


class _Packing:
    """A pack in progress: the journal, the writer, and the files left out."""

    def __init__(
        self,
        folder: Path,
        listing: FolderListing,
        plan: PackPlan,
        writer: StoreWriter,
        max_bytes: int,
        progress: ReportProgress,
    ) -> None:
        self._folder, self._listing, self._plan = folder, listing, plan
        self._writer, self._max_bytes, self._progress = writer, max_bytes, progress
        self._journal: Journal | None = None
        self._left_out = list(listing.left_out)
        self._next = 0  # place in the listing
        self._bytes = 0  # of values

    def resume(self) -> int:
        """Keep the complete samples of an earlier pack; returns their number."""
        before = (
            Index.load(self._folder)
            if (self._folder / INDEX_FILE).exists() and (self._folder / PATHS_FILE).exists()
            else Index.empty()
        )
        if len(before):
            self._progress(Progress("checking", 0, self._plan.files, 0))
        keep = before.head(self._writer.recover(before))
        self._journal = Journal(self._folder, keep)
        self._bytes = int(keep.records["bytes"].sum())
        self._next = int(keep.records["source"][-1]) + 1 if len(keep) else 0
        packed = set(keep.records["source"].tolist())
        for number in sorted(set(range(self._next)) - packed):
            source = self._listing.sources[number]
            again = read_image(self._listing, source, self._max_bytes)
            self._leave_out(
                again
                if isinstance(again, LeftOut)
                else LeftOut(source.path, "could not be read when it was packed")
            )
        return len(keep)

    def run(self) -> None:
        """Pack the remaining files."""
        journal, since = self._journal, 0
        assert journal is not None
        with closing(read_ahead(self._listing, self._next, self._max_bytes)) as files:
            for number, content in files:
                if isinstance(content, LeftOut):
                    self._leave_out(content)
                else:
                    self._add(journal, number, content)
                    since += len(content.value)
                    if since >= _CHECKPOINT_BYTES:
                        since = 0
                        self._checkpoint(journal)
                self._progress(Progress("packing", number + 1, self._plan.files, self._bytes))
        self._checkpoint(journal)

    def finish(self) -> StoreManifest:
        """Write the side files and, last of all, the manifest."""
        index = Index.load(self._folder)
        if not len(index):
            _empty_folder(self._folder)
            raise _nothing_to_pack(self._listing, self._left_out)
        names = self._writer.finish(index)
        sums = {name: _summed(self._folder / name) for name in (INDEX_FILE, PATHS_FILE, *names)}
        sync_folder(self._folder)
        manifest = StoreManifest(
            self._plan, len(index), self._bytes, self._listing.classes, sums, self._left_out
        )
        manifest.write(self._folder)
        owned.discard(self._folder, PLAN_FILE)
        return manifest

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            if self._journal is not None:
                self._journal.close()

    def _add(self, journal: Journal, number: int, image: ImageContent) -> None:
        source = self._listing.sources[number]
        place = self._writer.add(
            StoredSample(journal.count, image.value, source.label, source.path, image.ending)
        )
        journal.add(
            place,
            len(image.value),
            zlib.crc32(image.value),
            source.label,
            number,
            image.ending,
            source.path,
        )
        self._bytes += len(image.value)

    def _checkpoint(self, journal: Journal) -> None:
        # before the data: a sample that only the data has could not be distinguished from a
        # stranger's
        journal.flush()
        self._writer.checkpoint()

    def _leave_out(self, entry: LeftOut) -> None:
        if self._plan.refuse:
            raise _unusable(self._listing, entry)
        self._left_out.append(entry)


def _named(left_out: list[LeftOut], most: int = 5) -> str:
    """Name the first few of the files left out, and the number of the others."""
    first = "; ".join(f"{entry.path}: {entry.message}" for entry in left_out[:most])
    return first + (f"; and {len(left_out) - most:,} more" if len(left_out) > most else "")


def _packed(
    folder: Path,
    manifest: StoreManifest,
    resumed_at: int,
    listing: FolderListing,
    lost: list[OtherLabels],
) -> Packed:
    """Return the result of packing according to a manifest."""
    stored = sum(entry.bytes for entry in manifest.files.values())
    used = set(Index.load(folder).records["label"].tolist())
    classes, empty = (
        [name for label, name in enumerate(manifest.classes) if (label in used) is has]
        for has in (True, False)
    )
    return Packed(
        folder,
        manifest.plan.kind,
        manifest.samples,
        manifest.bytes,
        stored,
        manifest.left_out,
        resumed_at,
        classes,
        empty,
        lost,
        listing.below,
        listing.linked,
    )


def _summed(path: Path) -> FileSum:
    """Return the length of a file, and its checksum unless it is a shard.

    The samples of a shard have their own.
    """
    shard = path.name.startswith("data-") and path.suffix != ".idx"
    return FileSum(path.stat().st_size, None if shard else file_crc32(path))
